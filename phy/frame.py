"""Where things stand in a transmission, in samples from the frame's first one.

    SoundingFrame   | preamble | sounding symbols | quieter sounding symbols |
    PayloadFrame    | quiet | margin | payload symbols | margin | quiet |

A sounding frame is sent by one transmitter alone and can be found by its preamble. Its quieter symbols show whether
the transmitter's gain is the same at the level of a payload. Payload frames are sent by all at
once, at a time that was agreed on. Nobody sends in the quiet zones, which absorb timing errors and show the receiver's
noise. A jammer sends from the first margin's begin to the last one's end; in a margin's middle it is alone, and shows
the noise that protects the payload. Next to the payload are the tails of filters.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from phy.errors import SignalError
from phy.modem import modulate
from phy.numerology import Numerology
from phy.preamble import pilot_cells, preamble_length, preamble_samples


@dataclass(frozen=True)
class SoundingFrame:
    """Preamble, `symbols` known OFDM symbols, and `quiet_symbols` more at `quiet_level` of their amplitude."""

    numerology: Numerology
    symbols: int
    quiet_symbols: int = 0
    quiet_level: float = 1.0

    def __post_init__(self) -> None:
        _require_symbols(self.symbols)
        if self.quiet_symbols < 0 or not 0.0 < self.quiet_level <= 1.0:
            raise SignalError(
                "quieter symbols",
                f"{self.quiet_symbols} at {self.quiet_level}",
                "0 or more, at a level above 0 and up to 1",
                "Use a payload's level.",
            )

    @property
    def preamble_slice(self) -> slice:
        """Samples of the preamble."""
        return slice(0, preamble_length(self.numerology))

    @property
    def sounding_slice(self) -> slice:
        """Samples of the sounding symbols, as `phy.modem.demodulate` takes them."""
        first = preamble_length(self.numerology)
        return slice(first, first + self.symbols * self.numerology.symbol_samples)

    @property
    def quiet_slice(self) -> slice:
        """Samples of the quieter symbols."""
        return slice(self.sounding_slice.stop, self.length)

    @property
    def length(self) -> int:
        """Samples of the whole frame."""
        first = preamble_length(self.numerology)
        return first + (self.symbols + self.quiet_symbols) * self.numerology.symbol_samples


@dataclass(frozen=True)
class PayloadFrame:
    """`symbols` OFDM symbols of payload between two margins and two quiet zones.

    tail_samples: by which filters reach out of what they filter, at either end of a margin.
    """

    numerology: Numerology
    symbols: int
    quiet_samples: int
    margin_samples: int = 0
    tail_samples: int = 0

    def __post_init__(self) -> None:
        _require_symbols(self.symbols)
        if self.quiet_samples < 0:
            raise SignalError("quiet_samples", self.quiet_samples, "an integer >= 0", "Use a few symbols.")
        if not 0 <= 2 * self.tail_samples <= self.margin_samples:
            raise SignalError(
                "tail_samples", self.tail_samples, "0 to half of margin_samples", "Leave room between two tails."
            )

    @property
    def leading_quiet_slice(self) -> slice:
        """Samples before anybody sends."""
        return slice(0, self.quiet_samples)

    @property
    def leading_margin_slice(self) -> slice:
        """Samples before the payload in which a jammer is alone, and its own filter has settled."""
        return slice(self.quiet_samples + self.tail_samples, self.payload_slice.start - self.tail_samples)

    @property
    def jamming_slice(self) -> slice:
        """Samples in which a jammer sends."""
        return slice(self.quiet_samples, self.length - self.quiet_samples)

    @property
    def payload_slice(self) -> slice:
        """Samples of the payload, as `phy.modem.demodulate` takes them."""
        edge = self.quiet_samples + self.margin_samples
        return slice(edge, self.length - edge)

    @property
    def trailing_margin_slice(self) -> slice:
        """Samples after the payload in which a jammer is alone, and its own filter has settled."""
        return slice(self.payload_slice.stop + self.tail_samples, self.length - self.quiet_samples - self.tail_samples)

    @property
    def trailing_quiet_slice(self) -> slice:
        """Samples after everybody has sent."""
        return slice(self.length - self.quiet_samples, self.length)

    @property
    def length(self) -> int:
        """Samples of the whole frame."""
        around = 2 * (self.quiet_samples + self.margin_samples)
        return around + self.symbols * self.numerology.symbol_samples


def sounding_cells(numerology: Numerology, symbols: int) -> NDArray[np.complex64]:
    """Cells of the sounding symbols exactly as they are sent: P[s, k] = t[s] c[k], c = `phy.preamble.pilot_cells`.

    Shape (symbols, data_subcarriers). The turns t[s], `symbol_turns`, cost nothing, and let errors that are no part of
    the channel differ from symbol to symbol.
    """
    _require_symbols(symbols)
    return np.asarray(symbol_turns(symbols)[:, None] * pilot_cells(numerology))


def symbol_turns(symbols: int) -> NDArray[np.complex64]:
    """t (symbols,), |t| = 1: twice a chirp (Chu 1972) of half the length, the second time by a quarter further.

    What a symbol leaves behind in a later one arrives with t[s - l] t[s]*, whose sum over one chirp is 0 for every l:
    a path that is later than the prefix shows as scatter between symbols, not as another channel. The mirror image of
    an I/Q imbalance turns the other way, t[s]* t[s]*, and cancels between the two halves.
    """
    half = max(1, symbols // 2)
    s = np.arange(symbols)
    phases = np.pi * (s * (s + half % 2) % (2 * half)) / half + np.pi / 2 * (s >= half)
    return np.asarray(np.exp(1j * phases), np.complex64)


def sounding_samples(frame: SoundingFrame) -> NDArray[np.complex64]:
    """The frame as it is sent, shape (frame.length,).

    Normalised by its peak: |x| < 1 everywhere, with an rms of about 0.74 (-2.6 dB of full scale) in preamble and
    symbols alike for the default numerology; quieter symbols are `quiet_level` of that.
    """
    symbols = modulate(sounding_cells(frame.numerology, frame.symbols), frame.numerology)
    parts = [preamble_samples(frame.numerology), symbols]
    if frame.quiet_symbols:
        cells = sounding_cells(frame.numerology, frame.quiet_symbols) * np.float32(frame.quiet_level)
        parts.append(modulate(cells, frame.numerology))
    return np.concatenate(parts)


def payload_samples(frame: PayloadFrame, cells: NDArray[np.complex64]) -> NDArray[np.complex64]:
    """The frame with these cells (..., symbols, data_subcarriers) in its middle, shape (..., frame.length)."""
    if cells.ndim < 2 or cells.shape[-2] != frame.symbols:
        raise SignalError("cells' shape", cells.shape, f"{frame.symbols} symbols", "Make the frame for these cells.")
    samples = np.zeros((*cells.shape[:-2], frame.length), dtype=np.complex64)
    samples[..., frame.payload_slice] = modulate(cells, frame.numerology)
    return samples


def _require_symbols(symbols: int) -> None:
    if symbols < 1:
        raise SignalError("symbols", symbols, "an integer >= 1", "A frame carries at least one symbol.")
