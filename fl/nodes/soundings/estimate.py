"""From the received cells of soundings to channels, with all that is known about their errors."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from fl.nodes.air_format import AirFormat
from fl.nodes.messages import FlatChannel, LevelChange, MirrorImage, SoundedChannel, Unexplained
from fl.nodes.soundings.errors import error_bound
from fl.nodes.soundings.image import fit_image, mirrored_pilots
from fl.nodes.soundings.level import measure_level
from phy.estimation import delay_basis, delay_estimate
from phy.frame import sounding_cells
from phy.inversion import band_numerology
from phy.numerology import Numerology

LARGEST_MISFIT = 2e-4
"""Part of a sounding's energy that a channel within the prefix may leave unexplained; 8 bits leave 1e-5 of it."""
LEAST_EXCESS = 2.0
"""Energy of the unexplained part against noise's share of it, above which it is not chance: 1 +- 0.09 for noise."""
NEAR_SUBCARRIERS = 17
SIGNIFICANT = 5.0
"""Standard deviations above which scatter is more than the noise that it is compared with."""
CHANGE_OF_NOISE = 0.02
"""By which noise may differ between a silence and a sounding for no reason."""
FLAT_MISS = 1e-3
"""Probability with which a flat channel is taken for one that needs a filter, which costs time and nothing else."""


class NoChannelError(Exception):
    """No channel within the prefix has made this sounding."""


@lru_cache(maxsize=8)
def _band_places(sounded: Numerology, numerology: Numerology) -> NDArray[np.bool_]:
    """Which of the sounded subcarriers are those of a payload's band (V,); read-only."""
    places = np.isin(sounded.used_subcarriers, band_numerology(numerology).used_subcarriers)
    places.setflags(write=False)
    return places


@lru_cache(maxsize=16)
def _responses(
    numerology: Numerology, earliest: float, latest: float
) -> tuple[NDArray[np.complex128], NDArray[np.complex128], NDArray[np.float64]]:
    """Basis (U', r) of responses with delays in the window, its conjugate, and its rows' energies (U',); read-only."""
    basis = delay_basis(band_numerology(numerology), earliest, latest).astype(np.complex128)
    arrays = basis, basis.conj(), np.sum(np.abs(basis) ** 2, axis=1)
    for array in arrays:
        array.setflags(write=False)
    return arrays


@dataclass(frozen=True)
class Sounding:
    """One transmitter's sounding. cells: (S, V), without frequency offset. quiet: (S', V) at the lower level.

    earliest: delay in samples of the first path that there may be. silence_var_complex: noise of a cell in silence,
    None where it is not known.
    """

    air: AirFormat
    cells: NDArray[np.complex64]
    quiet: NDArray[np.complex64]
    earliest: float
    silence_var_complex: float | None = None

    @cached_property
    def state(self) -> SoundedChannel:
        """What it shows, but for times and frequencies. `NoChannelError` where that is no channel."""
        channel, leverage, unexplained = self._channel
        beyond = np.abs(self._raw[~self._inside])
        return SoundedChannel(
            channel=channel.astype(np.complex64),
            channel_var=leverage * self._local * self._entry_var,
            numerology=self.air.numerology,
            cfo_cycles_per_sample=0.0,
            cfo_std_cycles_per_sample=0.0,
            reference_sample=0,
            offset_samples=0,
            flat=self._flat,
            beyond=float(beyond.max()) if beyond.size else None,
            beyond_std=self._entry_std,
            unexplained=unexplained,
            image=self._image,
            level=self._level,
        )

    @cached_property
    def _pilots(self) -> NDArray[np.complex64]:
        return sounding_cells(self.air.sounding_numerology, self.air.sounding_symbols)

    @cached_property
    def _energy(self) -> float:
        return float(np.mean(np.sum(np.abs(self._pilots) ** 2, axis=0)))

    @cached_property
    def _inside(self) -> NDArray[np.bool_]:
        """Which of the sounded subcarriers are the band's (V,)."""
        return _band_places(self.air.sounding_numerology, self.air.numerology)

    @cached_property
    def _mirrored(self) -> NDArray[np.complex128] | None:
        """Raw response of the mirror image (V,); None where there are too few symbols for it."""
        paired = 2 * (self.air.sounding_symbols // 2)
        if paired < 4:
            return None
        pilots = mirrored_pilots(self._pilots)[:paired]
        matched = np.einsum("sk,sk->k", self.cells[:paired], pilots.conj()).astype(np.complex128)
        return np.asarray(matched / (self._energy * paired / self.air.sounding_symbols))

    @cached_property
    def _clean(self) -> NDArray[np.complex64]:
        """Cells without the mirror image."""
        if self._mirrored is None:
            return self.cells
        return np.asarray(self.cells - mirrored_pilots(self._pilots) * self._mirrored.astype(np.complex64))

    @cached_property
    def _raw(self) -> NDArray[np.complex128]:
        """The channel at each subcarrier by itself (V,)."""
        return np.asarray(np.einsum("sk,sk->k", self._clean, self._pilots.conj()).astype(np.complex128) / self._energy)

    @cached_property
    def _scatter(self) -> NDArray[np.float64]:
        """Variance between the symbols at the band's subcarriers (U',)."""
        differences = self._clean - self._pilots * self._raw.astype(np.complex64)
        return np.asarray(
            np.sum(np.abs(differences[:, self._inside]) ** 2, axis=0, dtype=np.float64) / self._symbol_degrees
        )

    @property
    def _symbol_degrees(self) -> int:
        return self.air.sounding_symbols - (1 if self._mirrored is None else 2)

    @property
    def _noise_degrees(self) -> float:
        return float(self._symbol_degrees * np.count_nonzero(self._inside))

    @cached_property
    def _entry_var(self) -> float:
        return max(float(self._scatter.mean()), 1e-30) / self._energy

    @property
    def _entry_std(self) -> float:
        return math.sqrt(self._entry_var)

    @cached_property
    def _local(self) -> NDArray[np.float64]:
        """Scatter over its mean (U',), where it is significantly above it among the nearest subcarriers; else 1."""
        near = uniform_filter1d(self._scatter, NEAR_SUBCARRIERS, mode="nearest") * (
            1.0 / (self._entry_var * self._energy)
        )
        least = 1.0 + SIGNIFICANT / math.sqrt(NEAR_SUBCARRIERS * self._symbol_degrees)
        return np.asarray(np.where(near > least, near, 1.0))

    @cached_property
    def _late_path(self) -> float:
        if self.silence_var_complex is None:
            return 0.0
        least = 1.0 + CHANGE_OF_NOISE + SIGNIFICANT / math.sqrt(self._noise_degrees)
        excess = self._entry_var * self._energy - least * self.silence_var_complex
        return math.sqrt(max(excess, 0.0) * self.air.sounding_symbols / self._energy)

    @cached_property
    def _channel(self) -> tuple[NDArray[np.complex128], NDArray[np.float64], Unexplained]:
        """Channel, noise of an entry over that of a raw one, both (U',), and the rest: in the window that is best."""
        found = [self._within(window) for window in self.air.delay_windows]
        rest = found[-1][2]
        misfit = rest.energy * self._entry_var / float(np.sum(np.abs(found[-1][0]) ** 2))
        if rest.energy > LEAST_EXCESS * rest.degrees and misfit > LARGEST_MISFIT:
            raise NoChannelError
        return min(found, key=lambda one: float(np.mean(self._bound(one[1], one[2]))))

    def _within(self, latest: float) -> tuple[NDArray[np.complex128], NDArray[np.float64], Unexplained]:
        basis, conjugate, leverage = _responses(self.air.numerology, self.earliest, latest)
        raw = self._raw[self._inside]
        channel = (raw @ conjugate) @ basis.T
        energy = float(np.sum(np.abs(raw - channel) ** 2)) / self._entry_var
        degrees = float(basis.shape[0] - basis.shape[1])
        unexplained = Unexplained(energy, degrees, self._noise_degrees, self._entry_std, self._late_path)
        return channel, leverage, unexplained

    def _bound(self, leverage: NDArray[np.float64], unexplained: Unexplained) -> NDArray[np.float64]:
        std = np.sqrt(leverage * self._local * self._entry_var)
        return error_bound(std, unexplained, points=self.air.error_points, failure=1.0 - self.air.confidence)

    @cached_property
    def _image(self) -> MirrorImage | None:
        if self._mirrored is None:
            return None
        return fit_image(
            self._mirrored[self._inside],
            self._channel[0].astype(np.complex64),
            self.air.numerology,
            entry_std=self._entry_std,
            noise_degrees=self._noise_degrees,
        )

    @cached_property
    def _level(self) -> LevelChange | None:
        if not len(self.quiet):
            return None
        level = self.air.sounding.quiet_level
        pilots = sounding_cells(self.air.sounding_numerology, len(self.quiet)) * np.float32(level)
        energy = float(np.mean(np.sum(np.abs(pilots) ** 2, axis=0)))
        raw = np.einsum("sk,sk->k", self.quiet, pilots.conj()) / np.float32(energy)
        var = self._entry_var * self._energy / energy
        return measure_level(self._raw.astype(np.complex64), raw, loud_var=self._entry_var, quiet_var=var, level=level)

    @cached_property
    def _flat(self) -> FlatChannel | None:
        """The channel as one path with a whole delay, where the sounding shows no other.

        Where it is one, it is taken for one with probability 1 - FLAT_MISS; where it is not quite, the deviation that
        the sounding shows, and could not show, is part of the gain's bound.
        """
        numerology = self.air.sounding_numerology
        delay = round(float(delay_estimate(self._raw.astype(np.complex64), numerology).delay_samples))
        path = np.exp(-2j * np.pi * numerology.used_frequencies * delay)
        gain = complex(np.mean(self._raw * path.conj()))
        deviation = float(np.abs(self._raw - gain * path).max())
        if gain == 0.0 or deviation > self._entry_std * math.sqrt(math.log(self._raw.size / FLAT_MISS)):
            return None
        return FlatChannel(gain, delay, deviation / abs(gain), self._entry_std / abs(gain))
