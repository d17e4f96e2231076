"""What the capture of one uplink shows of its claim, in units of that claim."""

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl.nodes.air_format import AirFormat
from fl.privacy.mechanism import RoundMechanism
from phy.inversion import band_numerology
from phy.modem import demodulate

_EDGE = 3
"""Outermost subcarriers of the band that are left out: into them less noise from beyond may leak."""


@dataclass(frozen=True)
class Look:
    """What one uplink shows, in units of what its account claims.

    guards, margins: mean power of noise by subcarrier (B,), as well known as over `guard_blocks` and `margin_blocks`
    blocks. What the receiver's converter adds by rounding is taken off: it hides nothing.
    guard_pairs, margin_pairs: mean w w^H of w = (Z(f), Z*(-f)) in them (P, 2, 2). cells: the payload's (symbols, U),
    with noise of variance 1 on either axis, and `rounding` besides. sent: what arrives in them at most (symbols, U).
    jammer: who it was.
    """

    guards: NDArray[np.float64]
    guard_blocks: int
    margins: NDArray[np.float64]
    margin_blocks: int
    cells: NDArray[np.complex64]
    sent: NDArray[np.complex64]
    mechanism: RoundMechanism
    gain: float
    guard_pairs: NDArray[np.complex128] = field(default_factory=lambda: np.zeros((0, 2, 2), np.complex128))
    margin_pairs: NDArray[np.complex128] = field(default_factory=lambda: np.zeros((0, 2, 2), np.complex128))
    jammer: str | None = None
    rounding: float = 0.0


def look(
    samples: NDArray[np.complex64],
    mechanism: RoundMechanism,
    air: AirFormat,
    update: NDArray[np.float64],
    weight: float,
    client: int,
    jammer: str | None = None,
    converter_var_complex: float = 0.0,
) -> Look:
    """From a capture of the whole frame, in which client number `client` sent `update` (d,) in units of tau."""
    frame = air.payload
    guards = _blocks(samples, air, frame.leading_quiet_slice, frame.trailing_quiet_slice)
    margins = _blocks(samples, air, frame.leading_margin_slice, frame.trailing_margin_slice)
    std = mechanism.sigma * mechanism.alpha_u
    gain = mechanism.received_gains[client]
    payload = np.ascontiguousarray(samples[frame.payload_slice])
    quiet, jammed = _spectra(guards, air), _spectra(margins, air)
    own_power, power = 2.0 * mechanism.noise_std_real**2, 2.0 * std**2
    own_rounding, rounding = converter_var_complex / own_power, converter_var_complex / power
    return Look(
        guards=_power(quiet) / own_power - own_rounding,
        guard_blocks=_worth(guards.shape[0], own_rounding),
        margins=_power(jammed) / power - rounding,
        margin_blocks=_worth(margins.shape[0], rounding),
        cells=demodulate(payload, air.payload_numerology) / np.float32(std),
        sent=air.grid.to_cells(update.astype(np.float32)) * np.float32(weight * gain / mechanism.sigma),
        mechanism=mechanism,
        gain=gain,
        guard_pairs=_pairs(quiet) / own_power - own_rounding * np.eye(2),
        margin_pairs=_pairs(jammed) / power - rounding * np.eye(2),
        jammer=jammer,
        rounding=rounding,
    )


def _worth(blocks: int, rounding: float) -> int:
    """Blocks of noise alone from which its power would be known as well, where rounding adds so much to it."""
    return max(1, math.floor(blocks / (1.0 + rounding) ** 2))


def _blocks(samples: NDArray[np.complex64], air: AirFormat, *places: slice) -> NDArray[np.complex64]:
    """Whole FFT lengths (blocks, N) in which nothing that comes late is left."""
    size = air.numerology.fft_size
    pieces = [samples[place][air.gap_samples :] for place in places]
    return np.concatenate([piece[: piece.size // size * size].reshape(-1, size) for piece in pieces])


def _spectra(blocks: NDArray[np.complex64], air: AirFormat) -> NDArray[np.complex128]:
    """Z at the band's subcarriers (blocks, B), lowest frequency first, as many below DC as above.

    Carrier leakage is in the bin 0 alone, because blocks are not windowed.
    """
    bins = band_numerology(air.numerology).used_bins[_EDGE:-_EDGE]
    return np.fft.fft(blocks, axis=1, norm="ortho")[:, bins].astype(np.complex128)


def _power(spectra: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Mean |z|^2 at each subcarrier."""
    return np.asarray(np.mean(np.abs(spectra) ** 2, axis=0))


def _pairs(spectra: NDArray[np.complex128]) -> NDArray[np.complex128]:
    """Mean w w^H, w = (Z(f), Z*(-f)), for each f above 0: (P, 2, 2). Where noise is circular it has no entries beside
    the diagonal."""
    half = spectra.shape[1] // 2
    both = np.stack([spectra[:, half:], spectra[:, half - 1 :: -1].conj()], axis=-1)
    return np.asarray(np.einsum("npi,npj->pij", both, both.conj()) / len(both))
