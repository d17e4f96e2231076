"""All virtual radios of a lab, the air between them, and the one lock under which everything happens.

Whoever changes something that may let time advance lets it advance before anything else happens, or leaves that to
whoever has the next turn. So the state after a sequence of requests depends on that sequence only.
"""

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Generic

from hardware.air.medium import Medium
from hardware.lab.model import Lab, LabRadio
from hardware.virtual.shared_time import AntennaT, SharedTime


class Antennas(Generic[AntennaT]):
    """The radios by name. make: one of them, under the lock that it is given.

    paced: time is driven from outside by `run_for`, and no stream holds it up. mixed_rates: radios of different rates
    hear each other, in one time; otherwise each rate has a time of its own.
    """

    def __init__(
        self,
        lab: Lab,
        seed: int,
        paced: bool,
        make: Callable[[LabRadio, threading.Lock], AntennaT],
        *,
        mixed_rates: bool = False,
    ) -> None:
        self.lab, self.seed, self.paced = lab, seed, paced
        self._mixed_rates = mixed_rates
        self.lock = threading.Lock()
        self.radios = {radio.name: make(radio, self.lock) for radio in lab.radios}
        self._times: dict[int, SharedTime[AntennaT]] = {}
        self._time_of: dict[str, SharedTime[AntennaT]] = {}
        self._block = 0
        self._late: list[SharedTime[AntennaT]] = []
        self._workers = ThreadPoolExecutor(os.cpu_count(), "virtual-antennas")
        with self.lock:
            for radio in self.radios.values():
                self._settle(radio)

    def shut_down(self) -> None:
        """Give the threads back; time is not to advance any more."""
        self._workers.shutdown()

    @property
    def mode(self) -> str:
        """What drives time."""
        return "paced" if self.paced else "lockstep"

    @property
    def block(self) -> int:
        """The current fading block."""
        return self._block

    def new_block(self, block: int) -> None:
        """Begin a fading block everywhere."""
        for time in self._times.values():
            time.medium.new_block(block)
        self._block = block

    def medium_of(self, radio: AntennaT) -> Medium:
        """The air that a radio is in."""
        return self._time_of[radio.name].medium

    def latency_samples(self, radio: AntennaT) -> int:
        """Between a sender's antenna and the streams of a receiver, beside the delay of the link."""
        return self._time_of[radio.name].latency_samples

    def retune(self, radio: AntennaT) -> None:
        """Take over a radio's settings, and whether it listens."""
        time = self._time_of[radio.name]
        if self._mixed_rates or time.rate_hz == radio.rate_hz:
            time.tune(radio)
            return
        time.leave(radio)
        self._run(time)
        if not time.radios:
            del self._times[time.rate_hz]
        self._settle(radio)
        self.run(radio)

    def _settle(self, radio: AntennaT) -> None:
        rate_hz = round(self.lab.sample_rate_hz) if self._mixed_rates else radio.rate_hz
        if rate_hz not in self._times:
            self._times[rate_hz] = SharedTime(
                self.lab, rate_hz, self.seed, self._block, self._workers, mixed_rates=self._mixed_rates
            )
        self._time_of[radio.name] = self._times[rate_hz]
        self._times[rate_hz].join(radio)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The lock, with nothing left to do of what others did before."""
        with self.lock:
            self.catch_up()
            yield

    def catch_up(self) -> bool:
        """Let time advance where that was put off; whether it was anywhere."""
        late, self._late = self._late, []
        for time in late:
            self._run(time)
        return bool(late)

    def run(self, radio: AntennaT) -> None:
        """Let a radio's time advance as far as it can."""
        self._run(self._time_of[radio.name])

    def run_later(self, radio: AntennaT) -> None:
        """The same, in the next turn."""
        self._late.append(self._time_of[radio.name])

    def _run(self, time: SharedTime[AntennaT]) -> None:
        if not self.paced:
            time.run()

    def run_for(self, seconds: float) -> None:
        """Let time advance by that much everywhere."""
        for time in self._times.values():
            time.run_for(seconds)
