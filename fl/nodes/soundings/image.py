"""The mirror image that a transmitter makes of its signal, measured in its own sounding.

A mixer whose I and Q differ sends x + a * x*, a filter with a few taps around 0. At subcarrier k there arrive
H(k) P[s, k] and A(k) H(k) P*[s, -k]. Turns of symbols (`phy.frame.symbol_turns`) make the two orthogonal over s, so the
image's response is seen by itself, m(k) = A(k) H(k), with the noise of the channel's raw estimate.

The receiver's own mixer adds b * y*, hence B(k) H*(-k) to the same m(k). It mirrors noise as it does signals and can be
undone by whoever has the samples: it tells nothing, and is not charged. Where the channel's paths tell H(k) from
H*(-k) both filters are fitted and A is kept. Where it is all but one path they look alike, and A takes all of it.

A has `TAPS` taps: an imbalance that is the same at all frequencies, and filters of I and Q that differ by a fraction of
a sample. What they do not explain is bounded as what a channel's window does not (`fl.nodes.soundings.errors`), and so
is their own error.
"""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from fl.nodes.messages import MirrorImage, Unexplained
from phy.inversion import band_numerology
from phy.numerology import Numerology

TAPS = 3
_WORST_CONDITION = 30.0
"""Of the fit, above which the two mixers are not told apart: errors would grow by about a tenth of it."""


def mirrored_pilots(pilots: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """What the mirror image makes of pilots (S, V), whose subcarriers lie symmetrically about DC: P*[s, -k]."""
    return np.asarray(pilots[:, ::-1].conj())


def fit_image(
    response: NDArray[np.complex128],
    channel: NDArray[np.complex64],
    numerology: Numerology,
    *,
    entry_std: float,
    noise_degrees: float,
) -> MirrorImage:
    """The image, from its raw response m (U',) and the channel (U',) at the band's subcarriers.

    entry_std: of an entry of m. noise_degrees: of that number.
    """
    own = _columns(channel, numerology)
    both = np.concatenate([own, _columns(channel[::-1].conj(), numerology)], axis=1)
    columns = both if np.linalg.cond(both) < _WORST_CONDITION else own
    solve = np.linalg.pinv(columns)
    taps = solve @ response
    left = response - columns @ taps
    energy = float(np.sum(np.abs(left) ** 2)) / max(entry_std**2, 1e-300)
    std = entry_std * np.sqrt(np.sum(np.abs(own @ solve[:TAPS]) ** 2, axis=1))
    degrees = float(response.size - columns.shape[1])
    return MirrorImage(taps[:TAPS], std, Unexplained(energy, degrees, noise_degrees, entry_std))


def image_response(taps: NDArray[np.complex128], size: int) -> NDArray[np.complex128]:
    """A(f) at `size` frequencies in FFT order."""
    padded = np.zeros(size, np.complex128)
    padded[: taps.size] = taps
    return np.asarray(np.fft.fft(np.roll(padded, -(taps.size // 2))))


def _columns(channel: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.complex128]:
    return np.asarray(channel.astype(np.complex128)[:, None] * _steering(numerology))


@lru_cache(maxsize=8)
def _steering(numerology: Numerology) -> NDArray[np.complex128]:
    """Responses of the taps at the band's subcarriers (U', TAPS); read-only."""
    delays = np.arange(TAPS) - TAPS // 2
    steer = np.exp(-2j * np.pi * band_numerology(numerology).used_frequencies[:, None] * delays)
    steer.setflags(write=False)
    return np.asarray(steer)
