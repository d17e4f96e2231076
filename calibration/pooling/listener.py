"""Listens before every uplink, keeps the pool of silences, and says how much noise may be counted on."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from calibration.diagnostics import NoiseDiagnostics, diagnose_silence
from calibration.noise import NoiseMeasurement, SigmaBound, noise_of
from calibration.pooling.noise_pool import NoisePool
from calibration.pooling.spectrum import Spectrum, spectrum_of
from calibration.silence import observe_silence
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError
from phy.numerology import Numerology

NOISE_TEST_LEVEL = 1e-4
"""Probability with which a silence with good noise is refused, and repeated."""
_PIECES = 4


@dataclass(frozen=True)
class Piece:
    """One silence: samples (n,) from `start_sample` on, and what they showed."""

    start_sample: int
    samples: NDArray[np.complex64]
    noise: NoiseMeasurement
    diagnostics: NoiseDiagnostics
    spectrum: Spectrum


@dataclass(frozen=True)
class Listened:
    """The silence of an uplink, which is the last piece of it where the pool needed several; and the bounds.

    bound: over the bins of a payload. bound_everywhere: over all that were observed.
    """

    piece: Piece
    bound: SigmaBound
    bound_everywhere: SigmaBound


@dataclass
class SilenceListener:
    """quiet_samples: of an uplink's own silence. first_quiet_samples: that a pool must hold before a bound rests on it.

    confidence: of each bound. bins: see `observe_silence`; whether silences agree is asked of all of them.
    payload_bins: those of them that a payload reaches; None: all. pool: of the silences so far, None before the first.

    remembers: silences of all uplinks are pooled. Where it is False the pool is what `listen_ahead` heard, and each
    uplink's own silence joins it for that uplink alone: what an uplink does then depends on nothing that came before
    it, which a simulation needs so that a resumed run repeats bit for bit. A listener starts without a pool, so a
    resumed run in a real lab listens long again; it does not rely on what an earlier process heard.
    """

    radio: Radio
    numerology: Numerology
    quiet_samples: int
    first_quiet_samples: int
    confidence: float
    remembers: bool = True
    bins: NDArray[np.int64] | None = None
    payload_bins: NDArray[np.int64] | None = None
    pool: NoisePool | None = field(default=None, init=False)

    def listen_ahead(self, start_sample: int) -> None:
        """Fill the pool from `start_sample` on, before the first uplink. `CaptureError` where that noise is not good.

        Takes up to `ahead_samples`.
        """
        if self.first_quiet_samples <= self.quiet_samples:
            return
        try:
            _, self.pool = self._fill(self._piece(start_sample, self.quiet_samples))
        except CaptureError:
            # Good noise is refused once in a thousand times; bad noise is so again.
            _, self.pool = self._fill(self._piece(self.radio.now(), self.quiet_samples))

    @staticmethod
    def ahead_samples(quiet_samples: int, first_quiet_samples: int) -> int:
        """The most that `listen_ahead` takes: twice a pool that was begun anew half-way."""
        return 2 * quiet_samples + 4 * first_quiet_samples if first_quiet_samples > quiet_samples else 0

    def listen(self, start_sample: int) -> Listened:
        """The silence from `start_sample` on; longer than an uplink's own where there is no pool that agrees with it.

        `CaptureError` where the noise is not Gaussian, not stationary, or keeps changing.
        """
        piece, pool = self._piece(start_sample, self.quiet_samples), self.pool
        if pool is None or (self.remembers and not pool.agreement(piece.spectrum).holds):
            piece, pool = self._fill(piece)
        elif pool.agreement(piece.spectrum).holds:
            pool = pool.joined(piece.spectrum)
        else:
            raise CaptureError(f"the noise of '{self.radio.name}' is not what it was before the first uplink")
        if self.remembers:
            self.pool = pool
        everywhere = pool.bound(piece.spectrum, self.confidence)
        if self.payload_bins is None:
            return Listened(piece, everywhere, everywhere)
        inner, own = pool.within(self.payload_bins), piece.spectrum.within(self.payload_bins)
        return Listened(piece, inner.bound(own, self.confidence), everywhere)

    def _fill(self, piece: Piece) -> tuple[Piece, NoisePool]:
        """A new pool that begins with `piece`, and the last piece of it."""
        pool, needed = NoisePool.of(piece.spectrum), self.first_quiet_samples // self.numerology.fft_size
        for _ in range(2 * _PIECES):
            if pool.blocks >= needed:
                break
            count = max(self.quiet_samples, self.first_quiet_samples // _PIECES)
            piece = self._piece(piece.start_sample + piece.samples.size, count)
            agrees = pool.agreement(piece.spectrum).holds
            pool = pool.joined(piece.spectrum) if agrees else NoisePool.of(piece.spectrum)
        if pool.blocks < needed:
            raise CaptureError(f"the noise of '{self.radio.name}' keeps changing while nobody sends: find the cause")
        return piece, pool.settled()

    def _piece(self, start_sample: int, count: int) -> Piece:
        samples = self.radio.receive(count, start_sample).checked(count).samples
        wide = observe_silence(samples, self.numerology, self.bins)
        silence = wide if self.bins is None else wide.within(self.numerology.used_bins)
        diagnostics = diagnose_silence(silence, NOISE_TEST_LEVEL)
        if not diagnostics.bound_holds:
            raise CaptureError(f"the noise of '{self.radio.name}' cannot be relied on: {diagnostics.verdict}")
        noise = noise_of(silence, 2 * self.confidence - 1)
        return Piece(start_sample, samples, noise, diagnostics, spectrum_of(wide))
