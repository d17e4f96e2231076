"""Silences of many uplinks together: a bound on the noise of one uplink that is simultaneous over its subcarriers.

One silence of 65,536 samples knows each subcarrier's noise to 6 %: a bound for the quietest of 192 would give away a
fifth of the noise. But what differs between uplinks is the *level* (temperature), not the *shape* of the spectrum (the
receiver's filters). So the shape is taken from all silences that agree, and the level from the uplink's own silence.

Silence j has B_j blocks and the variances S_j[k] = L_j r[k], mean r = 1 over the K bins of the level. With
A[k] = sum_j B_j P_j[k] / B, B = sum_j B_j, its mean A over the level's bins, and P of this uplink's silence n, also the
mean over those, the noise of subcarrier k in this uplink is bounded by

    S_n[k] >= f1 f2 f3 (1 - rho) * (P / A) * min_k A[k]

Each factor errs with a part of the error e of the whole (union bound; `SHARES`):

* f1, *shape*: the quietest subcarrier q in truth is the same in all silences, and min_k A[k] <= A[q]. A[q] is a sum of
  B exponentials with weights L_j, none above w = max L_j / mean L of the mean one. Its upper tail is not above that of
  B/w equal ones (Bock, Diaconis, Huffer, Perlman, Canad. J. Statist. 15, 1987), so f1 is chi-square's. Only q can make
  the bound fail, therefore no Bonferroni: the minimum pays for having been looked for by being small. The powers
  through a window (`Spectrum.windowed`) are such sums too, and hold no leakage from louder subcarriers: the minimum is
  over both. A part of a subcarrier that is quieter than the quietest (`NARROW_LEVEL`) counts by itself, from a
  quarter of the blocks.
* f2, *level*: P has K B_n exponentials with weights r[k], none above the largest r: the same bound with K B_n / max r.
  max r is taken from the pool, at its upper bound (*peak*, again one subcarrier, the loudest in truth).
* f3, *mean*: A may be low by chance: Chernoff's bound N (x - 1 - ln x) = ln(1/e) on the lower tail, N = K B/(w max r).
* *circularity*: the quietest direction in the plane of I and Q has 1 - |rho| of the variance; |rho| of all silences at
  its upper bound. One rho for the band: a receiver's imbalance is taken to be the same at all its frequencies.
* What the receiver's converter adds is taken off at the end (`calibration.converter`): it is no noise that counts.

What this rests on is that the silences of a pool have one shape. That is tested with every silence (`agreement`, with
the false alarm `DISAGREEMENT_LEVEL` for noise that has not changed): each subcarrier's share of the power against the
pool's, then that of all silences since the pool's first long one against the long one, so that a change too small for
one silence is found in the sum of several; and the level, within `LEVEL_TOLERANCE_DB`. A pool that a silence does not
agree with has ended. With silences of 256 blocks against a pool of 4,096, a subcarrier that falls by 2.5 dB is seen at
once nine times in ten, one that falls by 0.8 dB within 16 uplinks.
"""

import math
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special

from calibration.errors import MeasurementError
from calibration.noise import CIRCULARITY_SHARE, BoundSource, SigmaBound, quietest_direction
from calibration.pooling.spectrum import PARTS, Spectrum
from calibration.statistics import check_probability, variance_factors, variance_lower_factor
from phy.units import db_to_power_ratio, noise_var_real_from_complex, power_ratio_to_db

SHARES = {"shape": 0.5, "level": 0.2, "peak": 0.1, "mean": 0.1, "circularity": CIRCULARITY_SHARE}
"""Parts of the error of a bound."""
DISAGREEMENT_LEVEL = 1e-4
"""Chance that a silence ends a pool although the noise has not changed."""
NARROW_LEVEL = 1e-4
"""Chance that a part of a bin is taken for quieter than the quietest bin, where it is not."""
LEVEL_TOLERANCE_DB = 0.25
"""Difference of the level up to which it is the same receiver in the same state."""


@dataclass(frozen=True)
class Agreement:
    """p_value: of one shape, over all subcarriers. level_db: of the new silence against the pool; beyond: the level's
    interval lies outside of the tolerance."""

    p_value: float
    level_db: float
    beyond: bool

    @property
    def holds(self) -> bool:
        """Whether the silence may join the pool."""
        return self.p_value >= DISAGREEMENT_LEVEL and not self.beyond


@dataclass(frozen=True, eq=False)
class NoisePool:
    """Silences that agree, as sums. energy: float64 (K,), of blocks times powers. loudest: largest level among them.
    step: the largest of the converter. windowed, fine: the same energy through a window, and of parts of the bins
    (K, 5); None where a silence has none.

    first: the silences before `settled` was called, None while there is none; those after it are compared with it.
    """

    bins: NDArray[np.int64]
    blocks: int
    energy: NDArray[np.float64]
    steady: NDArray[np.bool_]
    pseudo: complex
    pairs: int
    loudest: float
    step: float
    windowed: NDArray[np.float64] | None = None
    fine: NDArray[np.float64] | None = None
    first: "NoisePool | None" = None

    @classmethod
    def of(cls, silence: Spectrum) -> "NoisePool":
        """A pool of one silence."""
        return cls(
            bins=silence.bins,
            blocks=silence.blocks,
            energy=silence.powers * silence.blocks,
            steady=silence.steady,
            pseudo=silence.pseudo,
            pairs=silence.pairs,
            loudest=silence.level,
            step=silence.step,
            windowed=None if silence.windowed is None else silence.windowed * silence.blocks,
            fine=None if silence.fine is None else silence.fine * silence.blocks,
        )

    def joined(self, silence: Spectrum) -> "NoisePool":
        """The pool with one silence more; whether it agrees is the caller's to ask first."""
        self._require_same_bins(silence)
        return replace(
            self,
            blocks=self.blocks + silence.blocks,
            energy=self.energy + silence.powers * silence.blocks,
            steady=self.steady & silence.steady,
            pseudo=self.pseudo + silence.pseudo,
            pairs=self.pairs + silence.pairs,
            loudest=max(self.loudest, silence.level),
            step=max(self.step, silence.step),
            windowed=_sum(self.windowed, silence.windowed, silence.blocks),
            fine=_sum(self.fine, silence.fine, silence.blocks),
        )

    def settled(self) -> "NoisePool":
        """The same pool, with all that it holds now as what later silences are compared with together."""
        return replace(self, first=replace(self, first=None))

    def agreement(self, silence: Spectrum) -> Agreement:
        """Whether a silence that is not in the pool yet shows the same noise."""
        self._require_same_bins(silence)
        p_value = _same_shape(silence.powers * silence.blocks, silence.blocks, self.energy, self.blocks)
        if self.first is not None and self.blocks > self.first.blocks:
            since = self.energy - self.first.energy + silence.powers * silence.blocks
            blocks = self.blocks - self.first.blocks + silence.blocks
            p_value = min(1.0, 2.0 * min(p_value, _same_shape(since, blocks, self.first.energy, self.first.blocks)))
        ratio, reach = self._level_ratio(silence, DISAGREEMENT_LEVEL / 10.0)
        tolerance = db_to_power_ratio(LEVEL_TOLERANCE_DB)
        beyond = ratio / reach > tolerance or ratio * reach < 1.0 / tolerance
        return Agreement(p_value, power_ratio_to_db(ratio), beyond)

    def _level_ratio(self, silence: Spectrum, error: float) -> tuple[float, float]:
        """Level of the silence against the pool's, and the factor by which that may err."""
        kept = self._level_bins(silence)
        count = int(np.count_nonzero(kept))
        ratio = float(silence.powers[kept].mean() / (self.energy[kept].mean() / self.blocks))
        std = math.sqrt((1.0 / silence.blocks + 1.0 / self.blocks) / count)
        return ratio, math.exp(-float(special.ndtri(error / 2.0)) * std)

    def _level_bins(self, silence: Spectrum) -> NDArray[np.bool_]:
        kept = self.steady & silence.steady
        return kept if kept.any() else np.ones_like(kept)

    def within(self, bins: NDArray[np.int64]) -> "NoisePool":
        """What the pool knows of some of its bins."""
        inside = np.isin(self.bins, bins)
        first = None if self.first is None else self.first.within(bins)
        energy, steady = self.energy[inside], self.steady[inside]
        windowed, fine = (None if part is None else part[inside] for part in (self.windowed, self.fine))
        found = replace(self, bins=self.bins[inside], energy=energy, steady=steady, first=first)
        return replace(found, windowed=windowed, fine=fine)

    def bound(self, silence: Spectrum, confidence: float) -> SigmaBound:
        """Noise per real coordinate of the uplink whose silence this is, on every bin of the pool at once.

        silence: in the pool. The bound is above the truth with probability 1 - `confidence` at most; see the module.
        """
        check_probability("confidence", confidence)
        self._require_same_bins(silence)
        error = {name: share * (1.0 - confidence) for name, share in SHARES.items()}
        kept = self._level_bins(silence)
        powers = self.energy / self.blocks
        count, mean = int(np.count_nonzero(kept)), float(powers[kept].mean())
        unequal = max(1.0, self.loudest / mean)
        blocks = max(1, math.floor(self.blocks / unequal))
        _, rise = variance_factors(blocks, 1.0 - 2.0 * error["peak"])
        peak = max(1.0, rise * float(powers[kept].max()) / mean)
        shape = variance_lower_factor(blocks, error["shape"])
        level = variance_lower_factor(max(1, math.floor(count * silence.blocks / peak)), error["level"])
        low = _chernoff_low(count * blocks / peak, error["mean"])
        lost = self._impropriety(error["circularity"])
        seen = powers if self.windowed is None else np.minimum(powers, self.windowed / self.blocks)
        quietest = int(np.argmin(seen))
        of_level = float(silence.powers[kept].mean()) / mean
        proven = min(shape * float(seen[quietest]), self._narrow(float(seen[quietest]), unequal, error["shape"]))
        variance = noise_var_real_from_complex(proven) * of_level * level * low
        return SigmaBound(
            noise_var_real=quietest_direction(variance, lost, self.step),
            confidence=confidence,
            source=BoundSource.POOL,
            bin=int(self.bins[quietest]),
            reason=f"bin {self.bins[quietest]} is quietest in {self.blocks} blocks of agreeing silences, of which "
            f"{silence.blocks} give the level; unequal I and Q may cost {100 * lost:.2g} %",
        )

    def _narrow(self, quietest: float, unequal: float, error: float) -> float:
        """Lower bound on the noise of the quietest part of any bin, where that is quieter than `quietest` by more than
        chance; infinite elsewhere: from a quarter of the values a bound is not as close."""
        blocks = math.floor(self.blocks / (PARTS * unequal))
        if self.fine is None or blocks < 1:
            return math.inf
        lowest = float(self.fine.min()) / self.blocks
        chance = self.fine.size * float(special.fdtr(2 * blocks, 2 * self.blocks, lowest / quietest))
        return math.inf if chance > NARROW_LEVEL else variance_lower_factor(blocks, error) * lowest

    def _impropriety(self, error: float) -> float:
        """Upper bound of |rho|: P(|rho_hat - rho| > r) = exp(-N r^2 / 2) for small rho."""
        if self.pairs == 0:
            return 0.0
        return min(1.0, abs(self.pseudo) / self.pairs + math.sqrt(-2.0 * math.log(error) / self.pairs))

    def _require_same_bins(self, silence: Spectrum) -> None:
        if not np.array_equal(self.bins, silence.bins):
            raise MeasurementError("the silence has other bins than its pool: expected one numerology and one band")


def _sum(
    energy: NDArray[np.float64] | None, powers: NDArray[np.float64] | None, blocks: int
) -> NDArray[np.float64] | None:
    return None if energy is None or powers is None else np.asarray(energy + powers * blocks)


def _same_shape(
    energy: NDArray[np.float64], blocks: int, pooled_energy: NDArray[np.float64], pooled_blocks: int
) -> float:
    """p-value of equal shares of the power in all bins, two-sided, Bonferroni over bins.

    The ratio of a subcarrier's two mean powers is F(2 B_1, 2 B_2). That the means over the band are estimated adds
    1/K to the ratio's relative variance, which is left out: it makes false alarms rarer than said, not more frequent,
    because a subcarrier's own power is in the mean it is divided by.
    """
    ratios = (energy / energy.mean()) / (pooled_energy / pooled_energy.mean())
    low, high = (
        special.fdtr(2 * blocks, 2 * pooled_blocks, ratios),
        special.fdtrc(2 * blocks, 2 * pooled_blocks, ratios),
    )
    return float(min(1.0, 2.0 * energy.size * min(float(low.min()), float(high.min()))))


def _chernoff_low(values: float, error: float) -> float:
    """x < 1 with P(mean of so many exponentials of mean 1 <= x) <= error, by N (x - 1 - ln x) = ln(1/error)."""
    needed = -math.log(error) / values
    return float(optimize.brentq(lambda x: x - 1.0 - math.log(x) - needed, math.exp(-1.0 - needed), 1.0, xtol=1e-15))
