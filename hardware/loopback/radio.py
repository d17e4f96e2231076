"""Radios in the simulated air of this process."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hardware.air.medium import Medium
from hardware.radio.ad936x import AD936X
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError
from hardware.radio.settings import Capabilities, Limits, RadioSettings


class LoopbackRadio(Radio):
    """A radio in a `Medium`, which must know its name already.

    A burst is in the air as soon as it is transmitted: parking does not call back what has not left yet.
    """

    def __init__(self, name: str, medium: Medium, limits: Limits, timeout_s: float = 5.0) -> None:
        super().__init__(name, _capabilities(medium.sample_rate_hz), limits, timeout_s)
        self._medium = medium
        self._faults: dict[str, list[HardwareError]] = {}

    def fail_next(self, call: Literal["transmit", "receive"], error: HardwareError) -> None:
        """Let the next such call raise `error` instead of reaching the air: for trying out what drives radios."""
        self._faults.setdefault(call, []).append(error)

    def now(self) -> int:
        """See `Medium.now`."""
        return self._medium.now(self.name)

    @property
    def tx_step(self) -> float | None:
        """See `Radio.tx_step`."""
        return self._medium.front_end(self.name).tx_step

    @property
    def tx_image_db(self) -> float | None:
        """See `Radio.tx_image_db`."""
        image_db = self._medium.front_end(self.name).iq_image_db
        return -math.inf if image_db is None else image_db

    def _write(self, settings: RadioSettings) -> None:
        tx_gain_db = _to_step(settings.tx_gain_db, AD936X.tx_gain_step_db)
        rx_gain_db = _to_step(settings.rx_gain_db, AD936X.rx_gain_step_db)
        if (tx_gain_db, rx_gain_db) != (settings.tx_gain_db, settings.rx_gain_db):
            settings = replace(settings, tx_gain_db=tx_gain_db, rx_gain_db=rx_gain_db)
        self._medium.tune(self.name, settings)

    def _read_back(self) -> RadioSettings:
        return self._medium.settings(self.name)

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        self._raise_fault("transmit")
        self._medium.send(self.name, samples, start_sample)

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        self._raise_fault("receive")
        return self._medium.listen(self.name, count, start_sample)

    def _silence(self) -> None:
        if self._settings is not None:
            self._write(replace(self._settings, tx_gain_db=AD936X.tx_gain_db[0]))

    def _release(self) -> None:
        """Nothing is held."""

    def _raise_fault(self, call: str) -> None:
        if self._faults.get(call):
            raise self._faults[call].pop(0)


@dataclass(frozen=True)
class MediumTime:
    """The virtual clock of a `Medium`, in the count of one of its radios."""

    medium: Medium
    radio: str

    def advance(self, sample: int) -> None:
        """See `Medium.advance`."""
        self.medium.advance(self.radio, sample)


@lru_cache(maxsize=4)
def _capabilities(sample_rate_hz: float) -> Capabilities:
    """Of all radios in one air, which has one sample rate."""
    return replace(AD936X, sample_rate_hz=(sample_rate_hz, sample_rate_hz))


def _to_step(gain_db: float, step_db: float) -> float:
    return round(gain_db / step_db) * step_db
