"""Receive gains of an AD9361 and who sets them: the client, or the chip's own control.

Sources: the gain tables and `adi,agc-…`, `adi,fagc-…` defaults of the kernel's driver (drivers/iio/adc/ad9361.c) as a
Pluto's dump shows them, and the AD9361 Reference Manual (UG-570), "Gain Control".

* manual: the gain is what was written.
* slow_attack: every 1000 us of samples the mean power is compared with four thresholds below full scale, and the gain
  moves by one or two steps: -2 dB above -5 dBFS, -1 above -10, +1 below -12, +2 below -18.
* fast_attack: the gain goes at once to where the power is at the lock level, -10 dBFS, and stays there until the power
  is 10 dB above or below it. A real one needs microseconds for that; here it is seen once in 250 us.
* hybrid: as slow_attack, but only when a pin (CTRL_IN2) says so. Nothing on a Pluto drives it: the gain stays.
"""

import math
from dataclasses import dataclass

import numpy as np

from hardware.virtual.iiod.chip.words import RX_FULL_SCALE_WORD, Words

MANUAL, FAST, SLOW, HYBRID = "manual", "fast_attack", "slow_attack", "hybrid"
MODES = (MANUAL, FAST, SLOW, HYBRID)
# Highest frequency of each gain table, and its lowest and highest gain; all end at the same index.
_TABLES = ((1_300_000_000, (-1.0, 73.0)), (4_000_000_000, (-3.0, 71.0)), (math.inf, (-10.0, 62.0)))
_INTERVAL_S = {SLOW: 1e-3, FAST: 250e-6}
# Above, below: thresholds in dBFS and steps in dB, the outer ones first.
_TOO_STRONG = ((-5.0, -2.0), (-10.0, -1.0))
_TOO_WEAK = ((-18.0, 2.0), (-12.0, 1.0))
_LOCK_DBFS, _LOCK_WIDTH_DB = -10.0, 10.0
# A converter that clips does not say by how much: the gain falls by this much, and then there is another look.
_OVERLOAD_DBFS, _OVERLOAD_STEP_DB = -1.0, -20.0
_SILENCE_DBFS = -200.0


def gain_range_db(lo_hz: int) -> tuple[float, float]:
    """Lowest and highest gain of the table for a carrier."""
    return next(gains for highest_hz, gains in _TABLES if lo_hz <= highest_hz)


def moved_to(gain_db: float, old_lo_hz: int, new_lo_hz: int) -> float:
    """The gain after tuning: it keeps its index, and another table has another gain there."""
    low, high = gain_range_db(new_lo_hz)
    return max(low, gain_db + high - gain_range_db(old_lo_hz)[1])


@dataclass
class GainControl:
    """What the chip has measured since it last changed its gain."""

    _energy: float = 0.0
    _count: int = 0
    _locked: bool = False

    def restart(self) -> None:
        """Forget what was measured, because something else was set."""
        self._energy, self._count, self._locked = 0.0, 0, False

    def due_samples(self, mode: str, rate_hz: int) -> int:
        """Samples to the next decision; 0 where the mode makes none."""
        return max(_interval(mode, rate_hz) - self._count, 1) if mode in _INTERVAL_S else 0

    def step_db(self, mode: str, words: Words, rate_hz: int) -> float:
        """By how much the gain changes after words (n, 2) were received."""
        if mode not in _INTERVAL_S:
            return 0.0
        values = words.reshape(-1).astype(np.float32)
        self._energy += float(np.dot(values, values))
        self._count += len(words)
        if self._count < _interval(mode, rate_hz):
            return 0.0
        power = self._energy / (self._count * RX_FULL_SCALE_WORD**2)
        self._energy, self._count = 0.0, 0
        level_dbfs = 10.0 * math.log10(power) if power else _SILENCE_DBFS
        return self._fast_step_db(level_dbfs) if mode == FAST else slow_step_db(level_dbfs)

    def _fast_step_db(self, level_dbfs: float) -> float:
        if level_dbfs > _OVERLOAD_DBFS:
            self._locked = False
            return _OVERLOAD_STEP_DB
        if self._locked and abs(level_dbfs - _LOCK_DBFS) <= _LOCK_WIDTH_DB:
            return 0.0
        self._locked = abs(level_dbfs - _LOCK_DBFS) <= 1.0
        return float(round(_LOCK_DBFS - level_dbfs))


def _interval(mode: str, rate_hz: int) -> int:
    return max(1, round(_INTERVAL_S[mode] * rate_hz))


def slow_step_db(level_dbfs: float) -> float:
    """What the slow control does about a level."""
    for threshold_dbfs, step_db in _TOO_STRONG:
        if level_dbfs > threshold_dbfs:
            return step_db
    for threshold_dbfs, step_db in _TOO_WEAK:
        if level_dbfs < threshold_dbfs:
            return step_db
    return 0.0


def settled_db(mode: str, gain_db: float, power: float, bounds_db: tuple[float, float]) -> float:
    """Where the gain ends if the power at the antenna, relative to full scale at 0 dB, stays what it is."""
    low, high = bounds_db
    if mode not in _INTERVAL_S:
        return gain_db
    if power <= 0.0:
        return high
    antenna_dbfs = 10.0 * math.log10(power)
    if mode == FAST:
        wanted_db = float(round(_LOCK_DBFS - antenna_dbfs))
    else:
        # Within the inner thresholds it stays; from outside it comes to the nearer of them.
        top, bottom = _TOO_STRONG[1][0] - antenna_dbfs, _TOO_WEAK[1][0] - antenna_dbfs
        wanted_db = min(max(gain_db, math.ceil(bottom)), math.floor(top))
    return min(max(wanted_db, low), high)
