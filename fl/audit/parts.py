"""The parts of a claim, each measured for itself: noise that is counted on, and gain that is charged.

mu = gain/sigma is claimed of bounds, each with a margin of its own, and a lie about one of them may hide in the margin
of another. So each is attacked alone, over all uplinks, without any knowledge of the channels:

    receiver   noise_std_real against the guards, where nobody sends
    noise      sigma against the margins, where the jammer is alone
    payload    sigma against what is left of the payload's cells without what the client sent
    gain       the client's received gain against the response of what arrived to what was sent; and, where the air is
               in this process, against the largest singular value of the way through it

A claim is about every subcarrier at once: it is refuted by one that is too quiet, or too loud. Each part is looked at
in three scopes. `all`: the mean over the subcarriers. `eighth`: the mean over those that were worst in every other
uplink, measured in the uplinks between, so that having looked for them costs nothing. `one`: the worst single one, at
a level divided by their number.

Every uplink is measured in units of its own claim. Powers of noise on one subcarrier are then exponential with means
of 1 or more where the claim holds, and n of them have a mean below 1 - z/sqrt(n) with the probability Phi(-z) at most
(the lower tail of such a mean is lighter than the Gaussian one). Whatever else is there, of converters, leakage or
crosstalk, adds to the measured noise, and takes nothing from the measured gain: it can hide a lie, never make one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fl.nodes.air_format import PAYLOAD_SYMBOL, AirFormat
from fl.privacy.mechanism import RoundMechanism
from phy.inversion import band_numerology
from phy.modem import demodulate

_EDGE = 3
"""Outermost subcarriers of the band that are left out: into them less noise from beyond may leak."""
_SHARE = 8
"""One in so many subcarriers is among the worst."""


class Part(StrEnum):
    """See the module."""

    RECEIVER = "receiver"
    NOISE = "noise"
    PAYLOAD = "payload"
    GAIN = "gain"


class Scope(StrEnum):
    """Over which subcarriers; `algebra`: over all directions, by linear algebra."""

    ALL = "all"
    EIGHTH = "eighth"
    ONE = "one"
    ALGEBRA = "algebra"


@dataclass(frozen=True)
class PartFinding:
    """One part in one scope. claimed: as an amplitude. ratio: measured over claimed, squared where it is noise.

    std: of the ratio, relative to it for noise. among: subcarriers of which this is the worst.
    """

    client: str
    part: Part
    scope: Scope
    claimed: float
    ratio: float
    std: float
    among: int = 1

    @property
    def is_noise(self) -> bool:
        """Noise fails by being too small, gain by being too large."""
        return self.part is not Part.GAIN

    @property
    def is_sigma(self) -> bool:
        """Whether it is about the noise that the claim rests on, and not about a part of that."""
        return self.part in (Part.NOISE, Part.PAYLOAD)

    @property
    def measured(self) -> float:
        """As an amplitude, in the units of the claimed one."""
        return self.claimed * (math.sqrt(self.ratio) if self.is_noise else self.ratio)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Two-sided, simultaneous over those that it was chosen from."""
        reach = float(norm.isf((1.0 - confidence) / 2.0 / self.among)) * self.std
        if self.is_noise:
            low, high = self.ratio / (1.0 + reach), self.ratio / max(1.0 - reach, 1e-12)
            return self.claimed * math.sqrt(low), self.claimed * math.sqrt(high)
        return self.claimed * (self.ratio - reach), self.claimed * (self.ratio + reach)

    def slack(self, level: float) -> float:
        """Factor of the claim that is left before it is refuted at this level; below 1 it is."""
        reach = float(norm.isf(level / self.among)) * self.std
        if self.is_noise:
            return math.sqrt(self.ratio / max(1.0 - reach, 1e-12))
        return 1.0 / max(self.ratio - reach, 1e-12)

    def refutes(self, level: float) -> bool:
        """Whether a claim that holds gives this with a probability below `level`."""
        return self.slack(level) < 1.0

    def to_json(self) -> dict[str, Any]:
        """For `airdp validate --json`."""
        return {
            "client": self.client,
            "part": self.part.value,
            "scope": self.scope.value,
            "claimed": self.claimed,
            "measured": self.measured,
            "ci": list(self.interval()),
        }


@dataclass(frozen=True)
class Look:
    """What one uplink shows, in units of what its account claims.

    guards, margins: mean power of noise by subcarrier (B,), over `guard_blocks` and `margin_blocks` blocks. cells: the
    payload's (symbols, U), with noise of variance 1 on either axis. sent: what arrives in them at most (symbols, U).
    """

    guards: NDArray[np.float64]
    guard_blocks: int
    margins: NDArray[np.float64]
    margin_blocks: int
    cells: NDArray[np.complex64]
    sent: NDArray[np.complex64]
    mechanism: RoundMechanism
    gain: float


def look(
    samples: NDArray[np.complex64],
    mechanism: RoundMechanism,
    air: AirFormat,
    update: NDArray[np.float64],
    weight: float,
    client: int,
) -> Look:
    """From a capture of the whole frame, in which client number `client` sent `update` (d,) in units of tau."""
    frame = air.payload
    guards = _blocks(samples, air, frame.leading_quiet_slice, frame.trailing_quiet_slice)
    margins = _blocks(samples, air, frame.leading_margin_slice, frame.trailing_margin_slice)
    std = mechanism.sigma * mechanism.alpha_u
    gain = mechanism.received_gains[client]
    payload = np.ascontiguousarray(samples[frame.payload_slice])
    return Look(
        guards=_power(guards, air) / (2.0 * mechanism.noise_std_real**2),
        guard_blocks=guards.shape[0],
        margins=_power(margins, air) / (2.0 * std**2),
        margin_blocks=margins.shape[0],
        cells=demodulate(payload, air.payload_numerology) / np.float32(std),
        sent=air.grid.to_cells(update.astype(np.float32)) * np.float32(weight * gain / mechanism.sigma),
        mechanism=mechanism,
        gain=gain,
    )


def _blocks(samples: NDArray[np.complex64], air: AirFormat, *places: slice) -> NDArray[np.complex64]:
    """Whole FFT lengths (blocks, N) in which nothing that comes late is left."""
    size = air.numerology.fft_size
    pieces = [samples[place][air.gap_samples :] for place in places]
    return np.concatenate([piece[: piece.size // size * size].reshape(-1, size) for piece in pieces])


def _power(blocks: NDArray[np.complex64], air: AirFormat) -> NDArray[np.float64]:
    """Mean |z|^2 at the band's subcarriers. Carrier leakage is in the bin 0 alone, because blocks are not windowed."""
    bins = band_numerology(air.numerology).used_bins[_EDGE:-_EDGE]
    spectrum = np.fft.fft(blocks, axis=1, norm="ortho")[:, bins]
    return np.asarray(np.mean(np.abs(spectrum) ** 2, axis=0, dtype=np.float64))


def over_the_band(looks: Sequence[Look]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Noise in the margins, and gain, over what is claimed of them, by subcarrier, lowest frequency first."""
    noise = np.sqrt(np.mean([seen.margins for seen in looks], axis=0))
    return np.asarray(noise), np.abs(_Response.of(looks).response)


def part_findings(
    client: str, looks: Sequence[Look], algebra: Sequence[tuple[float, float]] = (), *, coherent: bool = True
) -> list[PartFinding]:
    """All parts of one client's claim. algebra: claimed and true gain where the way through the air is known.

    coherent: what is sent arrives with the same phase in all uplinks; else there is no response to measure.
    """
    mechanisms = [seen.mechanism for seen in looks]
    own = _rms([mechanism.noise_std_real for mechanism in mechanisms])
    sigma = _rms([mechanism.sigma for mechanism in mechanisms])
    gain = float(np.mean([seen.gain for seen in looks]))
    guards, margins = np.stack([seen.guards for seen in looks]), np.stack([seen.margins for seen in looks])
    found = [
        *_quiet(client, Part.RECEIVER, own, *_halves(guards, looks[0].guard_blocks)),
        *_quiet(client, Part.NOISE, sigma, *_halves(margins, looks[0].margin_blocks)),
    ]
    if coherent:
        searched, tested = (_Response.of(looks[first::2]) for first in (0, 1))
        halves = np.stack([searched.noise, tested.noise])
        found += _quiet(client, Part.PAYLOAD, sigma, halves, (searched.count, tested.count))
        found += _loud(client, gain, searched, tested)
    found += [PartFinding(client, Part.GAIN, Scope.ALGEBRA, bound, true / bound, 0.0) for bound, true in algebra]
    return found


def _halves(powers: NDArray[np.float64], blocks: int) -> tuple[NDArray[np.float64], tuple[int, int]]:
    """Mean powers of every other uplink and of those between (2, B), and over how many values each is a mean."""
    halves = [powers[first::2] for first in (0, 1)]
    return np.stack([half.mean(axis=0) for half in halves]), (blocks * len(halves[0]), blocks * len(halves[1]))


def _quiet(
    client: str, part: Part, claimed: float, halves: NDArray[np.float64], counts: tuple[int, int]
) -> list[PartFinding]:
    """Mean powers (2, B) of both halves of the uplinks, each over `counts` values a subcarrier."""
    subcarriers, whole = halves.shape[1], np.average(halves, axis=0, weights=counts)
    quietest = np.argsort(halves[0])[: max(1, subcarriers // _SHARE)]
    total = sum(counts)
    return [
        PartFinding(client, part, Scope.ALL, claimed, float(whole.mean()), 1.0 / math.sqrt(total * subcarriers)),
        PartFinding(
            client,
            part,
            Scope.EIGHTH,
            claimed,
            float(halves[1, quietest].mean()),
            1.0 / math.sqrt(counts[1] * quietest.size),
        ),
        PartFinding(client, part, Scope.ONE, claimed, float(whole.min()), 1.0 / math.sqrt(total), subcarriers),
    ]


@dataclass(frozen=True)
class _Response:
    """Of what arrived to what was sent, by subcarrier of the sounding (B,), in units of the claimed gain.

    energy: of what was sent, sum |w|^2 in units of the noise on one axis. noise: power of what is left, mean over
    `count` values.
    """

    response: NDArray[np.complex128]
    energy: NDArray[np.float64]
    noise: NDArray[np.float64]
    count: int

    @classmethod
    def of(cls, looks: Sequence[Look]) -> "_Response":
        """Least squares at every cell's frequency, then summed over neighbours.

        A response of its own for each cell, not each subcarrier: a delay turns it from one to the next.
        """
        received, known = (
            np.concatenate([getattr(seen, name) for seen in looks]).astype(np.complex128) for name in ("cells", "sent")
        )
        energy = np.sum(np.abs(known) ** 2, axis=0)
        products = np.sum(received * known.conj(), axis=0)
        left = np.sum(np.abs(received - known * (products / energy)) ** 2, axis=0)
        count = PAYLOAD_SYMBOL * (received.shape[0] - 1)
        return cls(
            response=_together(products) / _together(energy),
            energy=_together(energy),
            noise=_together(left) / (2.0 * count),
            count=count,
        )


def _together(values: NDArray[Any]) -> NDArray[Any]:
    """Sums over the cells of each subcarrier of the sounding."""
    return np.asarray(values.reshape(-1, PAYLOAD_SYMBOL).sum(axis=-1))


def _loud(client: str, claimed: float, searched: _Response, tested: _Response) -> list[PartFinding]:
    """Gain along the phase that the other uplinks showed: at most |T| in the mean, whatever that phase was."""
    turned = (tested.response * np.exp(-1j * np.angle(searched.response))).real
    stds = np.sqrt(np.maximum(tested.noise, 1.0) / tested.energy)
    loudest = np.argsort(-np.abs(searched.response))[: max(1, turned.size // _SHARE)]
    reach = turned + float(norm.ppf(1.0 - 0.05 / turned.size)) * -stds
    one = int(np.argmax(reach))

    def over(places: NDArray[np.intp]) -> tuple[float, float]:
        return float(turned[places].mean()), math.sqrt(float(np.sum(stds[places] ** 2))) / places.size

    return [
        PartFinding(client, Part.GAIN, Scope.ALL, claimed, *over(np.arange(turned.size))),
        PartFinding(client, Part.GAIN, Scope.EIGHTH, claimed, *over(loudest)),
        PartFinding(client, Part.GAIN, Scope.ONE, claimed, float(turned[one]), float(stds[one]), turned.size),
    ]


def _rms(values: Sequence[float]) -> float:
    return math.sqrt(float(np.mean(np.square(values))))
