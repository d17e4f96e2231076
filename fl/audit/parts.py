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
a level divided by their number. Where several jam in turn each of them answers for its own noise besides.

A jammer whose mixer makes an image sends noise that is not circular: quieter in one direction of a frequency and its
opposite than in the other, while the power at both is what it should be. So `direction` looks at (Z(f), Z*(-f)) of the
margins, in units of the guards': what the receiver's own mixer does to both drops out. The quietest directions of the
worst eighth of all pairs are chosen in every other uplink, and measured in those between.

Every uplink is measured in units of its own claim. Powers of noise on one subcarrier are then exponential with means
of 1 or more where the claim holds, and n of them have a mean below 1 - z/sqrt(n) with the probability Phi(-z) at most
(the lower tail of such a mean is lighter than the Gaussian one). What the receiver's converter adds by rounding is
taken off. Whatever else is there, of leakage or crosstalk, adds to the measured noise, and takes nothing from the
measured gain: it can hide a lie, never make one.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import norm

from fl.audit.looks import Look
from fl.nodes.air_format import PAYLOAD_SYMBOL

_SHARE = 8
"""One in so many subcarriers is among the worst."""
_FEWEST = 4
"""Uplinks of one jammer from which on it is looked at for itself."""


class Part(StrEnum):
    """See the module."""

    RECEIVER = "receiver"
    NOISE = "noise"
    PAYLOAD = "payload"
    GAIN = "gain"


class Scope(StrEnum):
    """Over which subcarriers; `direction`: of pairs of them; `algebra`: over all directions, by linear algebra."""

    ALL = "all"
    EIGHTH = "eighth"
    ONE = "one"
    DIRECTION = "direction"
    ALGEBRA = "algebra"


@dataclass(frozen=True)
class PartFinding:
    """One part in one scope. claimed: as an amplitude. ratio: measured over claimed, squared where it is noise.

    std: of the ratio, relative to it for noise. among: subcarriers of which this is the worst. jammer: whose noise it
    is, where several take turns.
    """

    client: str
    part: Part
    scope: Scope
    claimed: float
    ratio: float
    std: float
    among: int = 1
    jammer: str | None = None

    @property
    def where(self) -> str:
        """The scope, and of whose noise."""
        return self.scope.value if self.jammer is None else f"{self.scope.value}, {self.jammer}"

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
            **({} if self.jammer is None else {"jammer": self.jammer}),
        }


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
    guards = np.stack([seen.guards for seen in looks])
    found = [
        *_quiet(client, Part.RECEIVER, own, *_halves(guards, looks[0].guard_blocks)),
        *_noise(client, looks),
    ]
    jammers = sorted({seen.jammer for seen in looks if seen.jammer is not None})
    for jammer in jammers if len(jammers) > 1 else []:
        own_looks = [seen for seen in looks if seen.jammer == jammer]
        if len(own_looks) >= _FEWEST:
            found += [replace(part, jammer=jammer) for part in _noise(client, own_looks)]
    if coherent:
        searched, tested = (_Response.of(looks[first::2]) for first in (0, 1))
        halves = np.stack([searched.noise, tested.noise])
        found += _quiet(client, Part.PAYLOAD, sigma, halves, (searched.count, tested.count))
        found += _loud(client, gain, searched, tested)
    found += [PartFinding(client, Part.GAIN, Scope.ALGEBRA, bound, true / bound, 0.0) for bound, true in algebra]
    return found


def _noise(client: str, looks: Sequence[Look]) -> list[PartFinding]:
    """What the margins show of sigma."""
    sigma = _rms([seen.mechanism.sigma for seen in looks])
    found = _quiet(
        client, Part.NOISE, sigma, *_halves(np.stack([seen.margins for seen in looks]), looks[0].margin_blocks)
    )
    if looks[0].margin_pairs.size and looks[0].mechanism.alpha_cj > 0.0:
        found.append(_quietest_direction(client, sigma, looks))
    return found


def _quietest_direction(client: str, sigma: float, looks: Sequence[Look]) -> PartFinding:
    """v^H M v / v^H G v times the mean diagonal of G, with M and G of margins and guards: the noise that there is in a
    direction v, in which a receiver's mixer changes both alike. Its variance is 1/n of M, and 1/(2 n) of G."""
    margins, guards = (
        [np.mean([getattr(seen, name) for seen in looks[first::2]], axis=0) for first in (0, 1)]
        for name in ("margin_pairs", "guard_pairs")
    )
    factors = np.linalg.inv(np.linalg.cholesky(guards[0]))
    quietness, vectors = np.linalg.eigh(factors @ margins[0] @ factors.conj().swapaxes(1, 2))
    level = np.trace(guards[0], axis1=1, axis2=2).real
    worst = np.argsort(quietness[:, 0] * level)[: max(1, len(level) // _SHARE)]
    directions = np.einsum("pji,pj->pi", factors.conj(), vectors[:, :, 0])[worst]
    loud, own = (
        np.einsum("pi,pij,pj->p", directions.conj(), pairs[1][worst], directions).real for pairs in (margins, guards)
    )
    ratios = loud / own * np.trace(guards[1][worst], axis1=1, axis2=2).real / 2.0
    tested = len(looks[1::2])
    each = 1.0 / (tested * looks[0].margin_blocks) + 0.5 / (tested * looks[0].guard_blocks)
    return PartFinding(client, Part.NOISE, Scope.DIRECTION, sigma, float(ratios.mean()), math.sqrt(each / worst.size))


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

    energy: of what was sent, sum |w|^2 in units of the noise on one axis. noise: power of what is left, rounding taken
    off, as well known as a mean over `count` values.
    """

    response: NDArray[np.complex128]
    energy: NDArray[np.float64]
    noise: NDArray[np.float64]
    count: int
    rounding: float

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
        rounding = float(np.mean([seen.rounding for seen in looks]))
        return cls(
            response=_together(products) / _together(energy),
            energy=_together(energy),
            noise=_together(left) / (2.0 * count) - rounding,
            count=max(1, math.floor(count / (1.0 + rounding) ** 2)),
            rounding=rounding,
        )


def _together(values: NDArray[Any]) -> NDArray[Any]:
    """Sums over the cells of each subcarrier of the sounding."""
    return np.asarray(values.reshape(-1, PAYLOAD_SYMBOL).sum(axis=-1))


def _loud(client: str, claimed: float, searched: _Response, tested: _Response) -> list[PartFinding]:
    """Gain along the phase that the other uplinks showed: at most |T| in the mean, whatever that phase was."""
    turned = (tested.response * np.exp(-1j * np.angle(searched.response))).real
    stds = np.sqrt((np.maximum(tested.noise, 1.0) + tested.rounding) / tested.energy)
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
