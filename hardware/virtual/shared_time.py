"""Virtual time of radios that hear each other, and the steps in which it advances.

A step goes to the nearest end of a block of any open stream, or to the next multiple of `LONGEST_STEP`. So its ends
follow from what clients did alone, not from when they did it, and every sample comes out the same, bit for bit.
"""

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from hardware.air.build import build_medium
from hardware.air.noise import Randomness
from hardware.air.settings import medium_of
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab
from hardware.radio.settings import RadioSettings
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS

Samples = NDArray[np.complex64]

LONGEST_STEP = 32768
"""Most samples that a radio is asked for at once, by the count of one radio; clocks differ by 0.2 % at most."""
# Rounding of a counter that went through the clock of another radio, as in `hardware.air.medium`.
_COUNTER_SLACK = 1e-3
# Samples from which on a thread for each receiver pays.
_WORTH_A_THREAD = 16384


class Antenna(Protocol):
    """A virtual radio as the air sees it. counter: samples of its own clock, moved by who advances time."""

    name: str
    counter: int

    @property
    def rate_hz(self) -> int:
        """Samples per second of all its streams."""
        ...

    @property
    def busy(self) -> bool:
        """Whether any stream is open."""
        ...

    @property
    def listens(self) -> bool:
        """Whether there is a stream for what it hears."""
        ...

    @property
    def transmits(self) -> bool:
        """Whether what it sends leaves its antenna."""
        ...

    @property
    def can_go_on(self) -> bool:
        """Whether every stream that is sent from has samples, and every one received into has room."""
        ...

    def settings(self) -> RadioSettings:
        """As the simulated air takes them."""
        ...

    def block_ends(self) -> Iterable[int]:
        """Samples from now to the end of a block of each stream that sets the pace."""
        ...

    def send(self, count: int) -> Samples | None:
        """The next `count` samples, None for silence."""
        ...

    def receive(self, heard: Samples, sent: Samples | None) -> None:
        """Take what arrived while it sent `sent`."""
        ...


AntennaT = TypeVar("AntennaT", bound=Antenna)


class SharedTime(Generic[AntennaT]):
    """Of radios at one rate, or with `mixed_rates` at any. They hear each other; those of another time do not."""

    def __init__(
        self,
        lab: Lab,
        rate_hz: int,
        seed: int,
        block: int,
        workers: ThreadPoolExecutor,
        *,
        mixed_rates: bool = False,
    ) -> None:
        self._workers = workers
        self.rate_hz = rate_hz
        self.latency_samples = latency_samples(lab, seed)
        self.medium = build_medium(
            lab,
            seed,
            sample_rate_hz=rate_hz,
            latency_samples=self.latency_samples,
            listening=False,
            mixed_rates=mixed_rates,
        )
        self.medium.new_block(block)
        self.radios: list[AntennaT] = []
        self._order = {radio.name: index for index, radio in enumerate(lab.radios)}
        # Both in samples of an exact clock at `rate_hz`.
        self._time = 0.0
        self._due = 0.0

    @property
    def busy(self) -> bool:
        """Whether any stream is open."""
        return any(radio.busy for radio in self.radios)

    def join(self, radio: AntennaT) -> None:
        """Let a radio in. Its counter becomes that of this time, which jumps ahead to it where nothing is going on."""
        if not self.busy:
            ratio = self.medium.clock_ratio(radio.name)
            self._move(max(self._time, radio.counter / ratio))
            self._due = max(self._due, self._time)
        self.radios.append(radio)
        self.radios.sort(key=lambda member: self._order[member.name])
        self._set_counters()
        self.tune(radio)

    def leave(self, radio: AntennaT) -> None:
        """Let a radio go; nothing that it hears is kept."""
        self.radios.remove(radio)
        self.medium.set_receiving(radio.name, receives=False)

    def tune(self, radio: AntennaT) -> None:
        """Take over a radio's settings, from the next step on. With another rate its counter is another one."""
        before = self.medium.clock_ratio(radio.name)
        self.medium.tune(radio.name, radio.settings())
        if self.medium.clock_ratio(radio.name) != before:
            radio.counter = self._count(radio, self._time)
        self.medium.set_receiving(radio.name, receives=radio.listens)

    def run(self) -> None:
        """Advance as far as streams allow. Nothing happens without one that sets the pace."""
        while True:
            ends = list(self._block_ends())
            if not ends or not all(radio.can_go_on for radio in self.radios):
                return
            self._step(min(*ends, self._next_multiple()))

    def run_for(self, seconds: float) -> None:
        """Advance by `seconds`, whether streams are ready or not: samples that have no room are lost."""
        self._due += seconds * self.rate_hz
        while self._due > self._time:
            if not self.busy:
                self._move(self._due)
                self._set_counters()
                return
            self._step(min(*self._block_ends(), self._next_multiple(), self._due))

    def next_end(self) -> float | None:
        """Where the next step must end, in samples of an exact clock; None where no stream is open."""
        ends = list(self._block_ends())
        return min(*ends, self._next_multiple()) if ends else None

    def advance(self, end: float) -> None:
        """Advance to `end`, which is no later than `next_end`, whether streams are ready or not. Never goes back."""
        if end <= self._time:
            return
        if self.busy:
            self._step(end)
        else:
            self._move(end)
            self._set_counters()
        self._due = max(self._due, self._time)

    def _block_ends(self) -> Iterator[float]:
        for radio in self.radios:
            ratio = self.medium.clock_ratio(radio.name)
            for samples in radio.block_ends():
                yield (radio.counter + samples) / ratio

    def _next_multiple(self) -> float:
        # Of the radio that has the most samples to handle; the first, where all have as many.
        streaming = [radio for radio in self.radios if radio.busy] or self.radios
        radio = max(streaming, key=lambda radio: round(self.medium.clock_ratio(radio.name), 2))
        return (radio.counter // LONGEST_STEP + 1) * LONGEST_STEP / self.medium.clock_ratio(radio.name)

    def _count(self, radio: AntennaT, time: float) -> int:
        """Samples of a radio before an instant."""
        return math.ceil(time * self.medium.clock_ratio(radio.name) - _COUNTER_SLACK)

    def _set_counters(self) -> None:
        for radio in self.radios:
            radio.counter = self._count(radio, self._time)

    def _move(self, time: float) -> None:
        self._time = time
        radio = next(iter(self._order))
        self.medium.advance(radio, math.floor(time * self.medium.clock_ratio(radio)))

    def _step(self, end: float) -> None:
        counts = [self._count(radio, end) - radio.counter for radio in self.radios]
        sent = [self._send(radio, count) for radio, count in zip(self.radios, counts, strict=True)]
        receivers = [
            (radio, count, samples)
            for radio, count, samples in zip(self.radios, counts, sent, strict=True)
            if radio.listens and count
        ]
        if len(receivers) > 1 and receivers[0][1] >= _WORTH_A_THREAD:
            # What one radio hears is no business of another's, and NumPy lets others run meanwhile.
            list(self._workers.map(lambda job: self._receive(*job), receivers))
        else:
            for job in receivers:
                self._receive(*job)
        for radio, count in zip(self.radios, counts, strict=True):
            radio.counter += count
        self._move(end)

    def _send(self, radio: AntennaT, count: int) -> Samples | None:
        samples = radio.send(count) if count else None
        if samples is not None and radio.transmits:
            self.medium.send(radio.name, samples, radio.counter)
        return samples

    def _receive(self, radio: AntennaT, count: int, sent: Samples | None) -> None:
        heard, _ = self.medium.listen(radio.name, count, radio.counter, move_clock=False)
        radio.receive(heard, sent)
        # A receiver may control its own gain.
        self.medium.tune(radio.name, radio.settings())


def latency_samples(lab: Lab, seed: int) -> int:
    """How much later than its link's delay a sample arrives, because samples are passed on as they come.

    The filters that delay by a part of a sample, and those that follow a drifting clock, look ahead by that much.
    """
    randomness = Randomness(seed)
    delays = [medium_of(lab).link_of(radio.name, randomness).delay_samples for radio in lab.radios]
    latency = KERNEL_LEAD if any(delay % 1.0 for delay in delays) else 0
    return latency + (KERNEL_TAPS // 2 + 2 if lab.clock_mode is ClockMode.FREE_RUNNING else 0)
