"""Radios on the simulated air: the backend that needs no hardware."""

from collections import deque
from contextlib import ExitStack
from dataclasses import replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hardware.errors import HardwareError
from hardware.lab import Backend, Lab
from hardware.medium import Medium
from hardware.radio import Radio
from hardware.settings import AD936X, Limits, RadioSettings
from hardware.streams import Streams


class LoopbackRadio(Radio):
    """A radio in a `Medium`, which must know its name already.

    A burst is in the air as soon as it is transmitted: parking does not call back what has not left yet.
    """

    def __init__(self, name: str, medium: Medium, limits: Limits, timeout_s: float = 5.0) -> None:
        # One air has one sample rate.
        capabilities = replace(AD936X, sample_rate_hz=(medium.sample_rate_hz, medium.sample_rate_hz))
        super().__init__(name, capabilities, limits, timeout_s)
        self._medium = medium
        self._faults: dict[str, deque[HardwareError]] = {"transmit": deque(), "receive": deque()}

    def fail_next(self, call: Literal["transmit", "receive"], error: HardwareError) -> None:
        """Let the next such call raise `error` instead of reaching the air: for trying out what drives radios."""
        self._faults[call].append(error)

    def now(self) -> int:
        """See `Medium.now`."""
        return self._medium.now(self.name)

    def _write(self, settings: RadioSettings) -> None:
        self._medium.tune(
            self.name,
            replace(
                settings,
                tx_gain_db=_to_step(settings.tx_gain_db, AD936X.tx_gain_step_db),
                rx_gain_db=_to_step(settings.rx_gain_db, AD936X.rx_gain_step_db),
            ),
        )

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
        if self._faults[call]:
            raise self._faults[call].popleft()


def _to_step(gain_db: float, step_db: float) -> float:
    return round(gain_db / step_db) * step_db


def build_medium(lab: Lab, seed: int) -> Medium:
    """The air that a lab's [medium] section describes, with all of its radios in it.

    What is given as a largest value (delays, crystals) is drawn for each radio from the seed and the radio's name.
    """
    medium = Medium(lab.sample_rate_hz, seed, clock_mode=lab.clock_mode)
    streams = Streams(seed)
    for radio in lab.radios:
        medium.add_radio(radio.name, lab.medium.front_end_of(radio.name, streams), receives=radio.receives)
    for sender in lab.radios:
        link = lab.medium.link_of(sender.name, streams)
        for receiver in lab.radios:
            if receiver.receives and receiver is not sender:
                medium.set_link(sender.name, receiver.name, link)
    return medium


def _connect(lab: Lab, seed: int, stack: ExitStack) -> tuple[dict[str, Radio], Medium]:
    medium = build_medium(lab, seed)
    radios: dict[str, Radio] = {
        radio.name: stack.enter_context(LoopbackRadio(radio.name, medium, lab.limits, lab.timeout_s))
        for radio in lab.radios
    }
    return radios, medium


BACKEND = Backend(AD936X, _connect)
