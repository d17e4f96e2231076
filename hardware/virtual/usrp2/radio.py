"""One virtual N210 with an SBX, as the air sees it: streams, time and rate. Everything here is under the lab's lock."""

import threading
from collections.abc import Callable, Iterator

import numpy as np

from hardware.lab.model import LabRadio
from hardware.radio.settings import RadioSettings
from hardware.virtual.shared_time import Samples
from hardware.virtual.usrp2.agenda import Agenda
from hardware.virtual.usrp2.bus import FULL_SCALE_WORD, Bus
from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.device.gpsdo import Gpsdo
from hardware.virtual.usrp2.device.registers import TICKS_PER_S
from hardware.virtual.usrp2.rx_stream import RxStream, Words
from hardware.virtual.usrp2.tx_queue import TxQueue
from hardware.virtual.usrp2.wire.vrt import Command
from phy.units import db_to_power_ratio

UNLIMITED = 1 << 30
"""Room of a client that nobody knows, or that is not there any more."""
LONGEST_SKIP = 3600 * TICKS_PER_S
"""What is further ahead than an hour is waited for."""
_DEFAULT_FACTOR = 100


class Client:
    """Ways to whoever uses the radio: packets of each receiver, messages of it, reports of the transmitter, answers."""

    def __init__(
        self,
        packets: Callable[[int, Words], None],
        complaint: Callable[[int, bytes], None],
        report: Callable[[bytes], None],
        answer: Callable[[Command, int], None],
        room: Callable[[int], int],
    ) -> None:
        self.packets, self.complaint, self.report, self.answer, self.room = packets, complaint, report, answer, room


class VirtualUsrp:
    """State of one radio; see `Antenna` for what the air wants of it. gpsdo: where it has one.

    frozen: it answers nothing and sends nothing. eager: in lockstep, what it receives comes as fast as it is read.
    """

    def __init__(self, radio: LabRadio, lock: threading.Lock, clock_ratio: float) -> None:
        del lock
        self.name = radio.name
        self.clock = Clock(clock_ratio)
        self.frozen = False
        self.eager = False
        self.streamed_samples = 0
        self.client: Client | None = None
        self.gpsdo: Gpsdo | None = None
        self.rx = tuple(
            RxStream(number, self.clock, self._deliver(number), self._complain(number)) for number in range(2)
        )
        self.tx = TxQueue(self.clock, self._report)
        self.agenda = Agenda(self.clock)
        self.bus = Bus(self.clock, self.rx, self.tx, self._answer)
        self._counter = 0
        self._radiated = False
        self.factor = self.clock.step = _DEFAULT_FACTOR

    def _deliver(self, number: int) -> Callable[[Words], None]:
        def deliver(packets: Words) -> None:
            if self.client is not None and not self.frozen:
                self.client.packets(number, packets)

        return deliver

    def _complain(self, number: int) -> Callable[[bytes], None]:
        def complain(message: bytes) -> None:
            if self.client is not None and not self.frozen:
                self.client.complaint(number, message)

        return complain

    def _report(self, message: bytes) -> None:
        if self.client is not None and not self.frozen:
            self.client.report(message)

    def _answer(self, command: Command, value: int) -> None:
        if self.client is not None and not self.frozen:
            self.client.answer(command, value)

    @property
    def counter(self) -> int:
        """See `Antenna.counter`."""
        return self._counter

    @counter.setter
    def counter(self, value: int) -> None:
        self._counter = value
        self.clock.move(value * self.factor)

    def change_rate(self) -> None:
        """Take the wanted rate over. The next sample of the new rate is the first one that has not passed."""
        self.factor = self.clock.step = self.bus.wanted_factor
        self.counter = -(-self.clock.count // self.factor)

    @property
    def rate_hz(self) -> int:
        """See `Antenna.rate_hz`."""
        return round(TICKS_PER_S / self.factor)

    def settings(self) -> RadioSettings:
        """The registers' settings as the simulated air takes them."""
        return self.bus.settings(self.rate_hz)

    @property
    def busy(self) -> bool:
        """See `Antenna.busy`."""
        return self.tx.active or any(stream.active for stream in self.rx)

    @property
    def listens(self) -> bool:
        """See `Antenna.listens`."""
        return any(stream.active for stream in self.rx)

    @property
    def transmits(self) -> bool:
        """See `Antenna.transmits`. It is asked after `send`, which may have come to the end of a burst."""
        return self._radiated

    @property
    def can_go_on(self) -> bool:
        """See `Antenna.can_go_on`."""
        return not self.starves and self.has_room

    @property
    def starves(self) -> bool:
        """Whether a burst that has begun waits for samples that may still come."""
        return self.tx.starved and not self.frozen

    @property
    def has_room(self) -> bool:
        """Whether all clients that receive read."""
        return all(self._room(number) for number in range(2) if self.rx[number].active)

    def _room(self, number: int) -> int:
        """Samples that the client of a receiver can still take."""
        return self.client.room(number) if self.client is not None and not self.frozen else UNLIMITED

    @property
    def hurries(self) -> bool:
        """Whether a receiver waits for the end of what it takes, or reads no more than it wants: why wait with it?

        Where nobody reads, nothing would hold time up.
        """
        return any(
            stream.active and (stream.finite or (self.eager and self._room(number) < UNLIMITED))
            for number, stream in enumerate(self.rx)
        )

    @property
    def expects(self) -> bool:
        """Whether a receiver is going to take something that has an end, and does not begin too far ahead."""
        furthest = self.clock.count + LONGEST_SKIP
        return any(stream.busy and stream.finite and (stream.next_start or 0) < furthest for stream in self.rx)

    def block_ends(self) -> Iterator[int]:
        """See `Antenna.block_ends`."""
        if self.tx.active and self.tx.ready:
            yield -(-self.tx.ready * self.bus.tx_factor // self.factor)
        for number, stream in enumerate(self.rx):
            if stream.missing is not None:
                yield stream.missing
            if stream.active:
                yield max(self._room(number), 1)

    def event_counts(self) -> Iterator[int]:
        """Counts of the clock at which something will happen."""
        starts = [stream.next_start for stream in self.rx]
        for start in (*starts, self.bus.next_count, self.tx.next_start, self.clock.next_event, self.agenda.next_count):
            if start is not None and start > self.clock.count:
                yield start

    def settle(self) -> bool:
        """Do all that is due at this moment; whether anything was."""
        changed = self.agenda.settle()
        changed |= self.bus.settle()
        for stream in self.rx:
            changed |= stream.settle()
        changed |= self.tx.settle()
        changed |= self.tx.skip_empty()
        return changed

    def send(self, count: int) -> Samples | None:
        """See `Antenna.send`. Too few samples in a queue leave it dry."""
        if not self.tx.active:
            return None
        self.tx.scale = self.bus.tx_scale()
        self._radiated = self.bus.pins.transmits
        if self.bus.tx_factor != self.factor:
            # What is sent at another rate than is received at is not heard: see the package.
            wanted = max(count * self.factor // self.bus.tx_factor, 1)
            self.tx.take(min(wanted, self.tx.ready))
            return None
        ready = self.tx.ready
        if ready < count and self.tx.starved:
            self.tx.run_dry()
            return None
        self.streamed_samples += count
        return self.tx.take(count)

    def receive(self, heard: Samples, sent: Samples | None) -> None:
        """See `Antenna.receive`."""
        del sent
        words = self._rx_words(heard)
        for stream in self.rx:
            if stream.active:
                self.streamed_samples += heard.size
                stream.put(words)

    def _rx_words(self, heard: Samples) -> Words:
        """Words of samples, I and Q, big-endian; what is beyond the range of a word saturates."""
        if not self.bus.pins.receives:
            return np.zeros(heard.size, np.uint32)
        scaled = heard.view(np.float32) * np.float32(self.bus.rx_scale())
        np.rint(scaled, out=scaled)
        np.clip(scaled, -32768.0, FULL_SCALE_WORD, out=scaled)
        words: Words = scaled.astype(np.int16).astype(">i2").view(np.uint32)
        return words

    def switch_off(self) -> None:
        """Forget all settings and whatever waits, as without power."""
        self.bus.clear()
        self.clock.restart()
        self.tx.clear()
        for stream in self.rx:
            stream.clear()

    def state(self) -> dict[str, float | int | str | bool]:
        """For whoever wants to know what became of it. tx_power: of what is sent now, at the antenna."""
        settings = self.settings()
        return {
            "name": self.name,
            "ticks": self.clock.now,
            "rate_hz": self.rate_hz,
            "tx_center_hz": settings.tx_center_hz,
            "rx_center_hz": settings.rx_center_hz,
            "tuned_at": self.bus.tuned_at,
            "tx_gain_db": self.bus.tx_gain_db,
            "rx_gain_db": settings.rx_gain_db,
            "receiving": any(stream.busy for stream in self.rx),
            "transmitting": self.tx.busy,
            "tx_power": self.tx_power(),
            "bursts": self.tx.sent_bursts,
            "late": self.tx.late,
            "underflows": self.tx.underflows,
            "out_of_sequence": self.tx.out_of_sequence,
            "rx_errors": sum(stream.errors for stream in self.rx),
            "frozen": self.frozen,
            "reference_locked": self.bus.reference_locked,
            "lo_locked": self.bus.board.locked,
        }

    def tx_power(self) -> float:
        """Mean |x|^2, after the attenuator, of what is being sent; 0 when nothing is."""
        if not self.tx.active or not self.bus.pins.transmits:
            return 0.0
        return self.tx.last_power * db_to_power_ratio(self.bus.pins.tx_gain_db)
