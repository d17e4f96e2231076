"""The air of the radios that run at one sample rate: virtual time, and the steps in which it advances.

A step goes to the nearest end of a block of any open buffer, or to the next multiple of `LONGEST_STEP`. So its ends
follow from what clients did alone, not from when they did it, and every sample comes out the same, bit for bit.
"""

import math
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np

from hardware.lab import Lab
from hardware.medium import ClockMode, Medium
from hardware.streams import Streams
from hardware.virtual_pluto.buffers import LONGEST_STEP, TxBuffer
from hardware.virtual_pluto.radio import VirtualRadio
from hardware.virtual_pluto.words import Samples, Words, looped_words, rx_words
from phy.interpolation import KERNEL_LEAD, KERNEL_TAPS

# Rounding of a counter that went through the clock of another radio, as in `hardware.medium`.
_COUNTER_SLACK = 1e-3
DIGITAL_LOOPBACK = 1
# Samples from which on a thread for each receiver pays.
_WORTH_A_THREAD = 16384


class Air:
    """Radios at one rate. They hear each other; those of another `Air` do not."""

    def __init__(self, lab: Lab, rate_hz: int, seed: int, block: int, workers: ThreadPoolExecutor) -> None:
        self._workers = workers
        self.rate_hz = rate_hz
        self.latency_samples = latency_samples(lab, seed)
        self.medium = _medium(lab, rate_hz, seed, self.latency_samples)
        self.medium.new_block(block)
        self.radios: list[VirtualRadio] = []
        self._order = {radio.name: index for index, radio in enumerate(lab.radios)}
        # Both in samples of an exact clock.
        self._time = 0.0
        self._due = 0.0

    @property
    def busy(self) -> bool:
        """Whether any buffer is open."""
        return any(radio.tx is not None or radio.rx for radio in self.radios)

    def join(self, radio: VirtualRadio) -> None:
        """Let a radio in. Its counter becomes that of this air, which jumps ahead to it where nothing is going on."""
        if not self.busy:
            ratio = self.medium.clock_ratio(radio.name)
            self._move(max(self._time, radio.counter / ratio))
            self._due = max(self._due, self._time)
        self.radios.append(radio)
        self.radios.sort(key=lambda member: self._order[member.name])
        self._set_counters()
        self.tune(radio)

    def leave(self, radio: VirtualRadio) -> None:
        """Let a radio go; nothing that it hears is kept."""
        self.radios.remove(radio)
        self.medium.set_receiving(radio.name, receives=False)

    def tune(self, radio: VirtualRadio) -> None:
        """Take over a radio's settings, from the next step on."""
        self.medium.tune(radio.name, radio.settings())
        self.medium.set_receiving(radio.name, receives=bool(radio.rx))

    def run(self) -> None:
        """Advance as far as buffers allow: every one that is sent from has samples, every one received into has room.

        Nothing happens without a buffer that sets the pace; a cyclic one does not.
        """
        while True:
            ends = list(self._block_ends())
            if not ends or not all(self._can_go_on(radio) for radio in self.radios):
                return
            self._step(min(*ends, self._next_multiple()))

    def run_for(self, seconds: float) -> None:
        """Advance by `seconds`, whether buffers are ready or not: samples that have no room are lost."""
        self._due += seconds * self.rate_hz
        while self._due > self._time:
            if not self.busy:
                self._move(self._due)
                self._set_counters()
                return
            self._step(min(*self._block_ends(), self._next_multiple(), self._due))

    def _can_go_on(self, radio: VirtualRadio) -> bool:
        if isinstance(radio.tx, TxBuffer) and not radio.tx.ready:
            return False
        return all(buffer.has_room for buffer in radio.rx)

    def _block_ends(self) -> Iterator[float]:
        for radio in self.radios:
            ratio = self.medium.clock_ratio(radio.name)
            if isinstance(radio.tx, TxBuffer) and radio.tx.ready:
                yield (radio.counter + radio.tx.ready) / ratio
            for buffer in radio.rx:
                yield (radio.counter + buffer.missing) / ratio

    def _next_multiple(self) -> float:
        radio = self.radios[0]
        return (radio.counter // LONGEST_STEP + 1) * LONGEST_STEP / self.medium.clock_ratio(radio.name)

    def _count(self, radio: VirtualRadio, time: float) -> int:
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
            if radio.rx and count
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

    def _send(self, radio: VirtualRadio, count: int) -> Samples | None:
        samples = radio.next_tx(count) if count else None
        if samples is not None and radio.chip.transmits:
            self.medium.send(radio.name, samples, radio.counter)
        return samples

    def _receive(self, radio: VirtualRadio, count: int, sent: Samples | None) -> None:
        words = self._words(radio, count, sent)
        radio.streamed_samples += count
        lost = sum(buffer.put(words) for buffer in radio.rx)
        if lost:
            radio.overflow(lost)

    def _words(self, radio: VirtualRadio, count: int, sent: Samples | None) -> Words:
        heard, _ = self.medium.listen(radio.name, count, radio.counter, move_clock=False)
        if radio.chip.loopback == DIGITAL_LOOPBACK:
            return np.zeros((count, 2), np.int16) if sent is None else looped_words(sent)
        if not radio.chip.receives:
            return np.zeros((count, 2), np.int16)
        radio.heard(heard)
        return rx_words(heard)


def latency_samples(lab: Lab, seed: int) -> int:
    """How much later than its link's delay a sample arrives, because samples are passed on as they come.

    The filters that delay by a part of a sample, and those that follow a drifting clock, look ahead by that much.
    """
    streams = Streams(seed)
    delays = [lab.medium.link_of(radio.name, streams).delay_samples for radio in lab.radios]
    latency = KERNEL_LEAD if any(delay % 1.0 for delay in delays) else 0
    return latency + (KERNEL_TAPS // 2 + 2 if lab.clock_mode is ClockMode.FREE_RUNNING else 0)


def _medium(lab: Lab, rate_hz: int, seed: int, latency: int) -> Medium:
    """The lab's simulated air at some rate; nobody listens yet."""
    medium = Medium(rate_hz, seed, clock_mode=lab.clock_mode)
    streams = Streams(seed)
    for radio in lab.radios:
        medium.add_radio(radio.name, lab.medium.front_end_of(radio.name, streams), receives=False)
    for sender in lab.radios:
        link = lab.medium.link_of(sender.name, streams)
        link = replace(link, delay_samples=link.delay_samples + latency)
        for receiver in lab.radios:
            medium.set_link(sender.name, receiver.name, link)
    return medium
