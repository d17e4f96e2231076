"""One virtual N210 with an SBX: its registers, clock, streams and pins. Everything here is under the lab's lock."""

import math
import threading
from collections import deque
from collections.abc import Callable, Iterator

import numpy as np

from hardware.lab.model import LabRadio
from hardware.radio.settings import RadioSettings
from hardware.virtual.shared_time import Samples
from hardware.virtual.usrp2.agenda import Agenda
from hardware.virtual.usrp2.device import registers as reg
from hardware.virtual.usrp2.device.adc import Adc
from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.device.sbx import BANDWIDTH_HZ, Pins, Sbx
from hardware.virtual.usrp2.rx_stream import RxStream, Words
from hardware.virtual.usrp2.tx_queue import TxQueue
from hardware.virtual.usrp2.wire.vrt import Command
from phy.units import db_to_power_ratio

MOST_COMMANDS = 1024
"""That wait for their time."""
UNLIMITED = 1 << 30
"""Room of a client that nobody knows, or that is not there any more."""
_FULL_SCALE_WORD = 32767.0
_SPI_RX_BOARD, _SPI_TX_BOARD, _SPI_ADC = 16, 128, 256
_UNIT_SCALE = float(1 << 17)
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
    """State of one radio; see `Antenna` for what the air wants of it.

    frozen: it answers nothing and sends nothing. eager: in lockstep, what it receives comes as fast as it is read.
    """

    def __init__(self, radio: LabRadio, lock: threading.Lock, clock_ratio: float) -> None:
        del lock
        self.name = radio.name
        self.clock = Clock(clock_ratio)
        self.board = Sbx()
        self.adc = Adc()
        self.reference_locked = True
        self.frozen = False
        self.eager = False
        self.streamed_samples = 0
        self.client: Client | None = None
        self.rx = tuple(
            RxStream(number, self.clock, self._deliver(number), self._complain(number)) for number in range(2)
        )
        self.tx = TxQueue(self.clock, self._report)
        self.agenda = Agenda(self.clock)
        self._words = [0] * reg.SETTINGS
        self._commands: deque[Command] = deque()
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

    # -- registers

    def poke(self, register: int, value: int) -> None:
        """Write a setting; those without a meaning here are kept and do nothing."""
        self._words[register] = value
        if register == reg.TIME_HIGH:
            self._set_time()
        elif register == reg.SPI_DATA:
            control = self._words[reg.SPI_CONTROL]
            self.spi(control & 0xFFFFFF, value >> max(32 - (control >> 24 & 0x3F), 0))
        elif register == reg.TX_CONTROL + reg.TX_CLEAR:
            self.tx.clear()
        elif register == reg.TX_CONTROL + reg.TX_SID:
            self.tx.stream = value
        elif register == reg.TX_CONTROL + reg.TX_POLICY:
            self.tx.policy = value
        elif register == reg.TX_CONTROL + reg.TX_PACKETS_PER_UPDATE:
            self.tx.set_updates(value)
        else:
            for stream, base in zip(self.rx, reg.RX_CONTROL, strict=True):
                self._poke_stream(stream, base, register, value)

    def _poke_stream(self, stream: RxStream, base: int, register: int, value: int) -> None:
        offset = register - base
        if offset == reg.STREAM_TIME_LOW:
            stream.command(self._words[base], self._words[base + reg.STREAM_TIME_HIGH] << 32 | value)
        elif offset == reg.STREAM_CLEAR:
            stream.clear()
        elif offset == reg.STREAM_SID:
            stream.set_stream(value)
        elif offset == reg.STREAM_PACKET_SAMPLES:
            stream.set_packet_samples(value)

    def _set_time(self) -> None:
        ticks = self._words[reg.TIME_HIGH] << 32 | self._words[reg.TIME_LOW]
        if self._words[reg.TIME_AT_ONCE] & 1:
            self.clock.set_now(ticks)
        else:
            self.clock.set_at_next_pulse(ticks)

    def peek(self, register: int) -> int:
        """Read back; what there is not is zero."""
        if register in (reg.READ_TIME_HIGH, reg.READ_TIME_LOW):
            return _half(self.clock.now, register == reg.READ_TIME_HIGH)
        if register in (reg.READ_PPS_HIGH, reg.READ_PPS_LOW):
            return _half(self.clock.last_pulse, register == reg.READ_PPS_HIGH)
        if register == reg.READ_GPIO:
            return self.pins.word & ~0x00010001 | self.board.input_pins()
        if register == reg.READ_COMPATIBILITY:
            return reg.COMPATIBILITY
        if register == reg.READ_LOCKS:
            return reg.REFERENCE_LOCKED | reg.MIMO_LOCKED if self.reference_locked else 0
        return 0

    def spi(self, slaves: int, word: int) -> None:
        """Write a word to the chips that listen; only synthesisers and the gains of the converter matter here."""
        if slaves & _SPI_RX_BOARD:
            self.board.rx_lo.write(word)
        if slaves & _SPI_TX_BOARD:
            self.board.tx_lo.write(word)
        if slaves & _SPI_ADC:
            self.adc.write(word)

    def order(self, command: Command) -> None:
        """Take a command; those that came before it are done first, and one with a time waits for it."""
        if len(self._commands) < MOST_COMMANDS:
            self._commands.append(command)
        self._obey_due()

    # -- what the air sees

    @property
    def counter(self) -> int:
        """See `Antenna.counter`."""
        return self._counter

    @counter.setter
    def counter(self, value: int) -> None:
        self._counter = value
        self.clock.move(value * self.factor)

    @property
    def wanted_factor(self) -> int:
        """Ticks per sample in the air: the receiver's where it is in use or nothing is, or else the transmitter's."""
        rx_words = [self._words[base + reg.DSP_RATE] for base in reg.RX_DSP]
        if self.tx.busy and not any(stream.busy for stream in self.rx):
            return reg.dsp_factor(self._words[reg.TX_DSP + reg.DSP_RATE])
        second_only = self.rx[1].busy and not self.rx[0].busy
        return reg.dsp_factor(rx_words[second_only])

    def change_rate(self) -> None:
        """Take the wanted rate over. The next sample of the new rate is the first one that has not passed."""
        self.factor = self.clock.step = self.wanted_factor
        self.counter = -(-self.clock.count // self.factor)

    @property
    def rate_hz(self) -> int:
        """See `Antenna.rate_hz`."""
        return round(reg.TICKS_PER_S / self.factor)

    @property
    def pins(self) -> Pins:
        """As the automatic switch sets them."""
        receiving = any(stream.active for stream in self.rx)
        state = (reg.ATR_IDLE, reg.ATR_RX, reg.ATR_TX, reg.ATR_BOTH)[receiving + 2 * self.tx.active]
        return Pins(self._words[reg.GPIO + state])

    def settings(self) -> RadioSettings:
        """The registers' settings as the simulated air takes them."""
        pins = self.pins
        rx_offset_hz = reg.dsp_offset_hz(self._words[reg.RX_DSP[0]])
        tx_offset_hz = reg.dsp_offset_hz(self._words[reg.TX_DSP])
        return RadioSettings(
            sample_rate_hz=self.rate_hz,
            tx_center_hz=self.board.tx_lo.frequency_hz + tx_offset_hz,
            # The receiver's mixer turns the other way.
            rx_center_hz=self.board.rx_lo.frequency_hz - rx_offset_hz,
            bandwidth_hz=min(BANDWIDTH_HZ, self.rate_hz),
            tx_gain_db=pins.tx_gain_db,
            rx_gain_db=pins.rx_gain_db + self.adc.gain_db,
        )

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
    def _tx_factor(self) -> int:
        return reg.dsp_factor(self._words[reg.TX_DSP + reg.DSP_RATE])

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
        """Whether a receiver is going to take something that has an end."""
        return any(stream.busy and stream.finite for stream in self.rx)

    def block_ends(self) -> Iterator[int]:
        """See `Antenna.block_ends`."""
        if self.tx.active and self.tx.ready:
            yield -(-self.tx.ready * self._tx_factor // self.factor)
        for number, stream in enumerate(self.rx):
            if stream.missing is not None:
                yield stream.missing
            if stream.active:
                yield max(self._room(number), 1)

    def event_counts(self) -> Iterator[int]:
        """Counts of the clock at which something will happen."""
        starts = [stream.next_start for stream in self.rx]
        command = self._commands[0].ticks if self._commands else None
        if command is not None:
            starts.append(self.clock.count_at(command))
        for start in (*starts, self.tx.next_start, self.clock.next_event, self.agenda.next_count):
            if start is not None and start > self.clock.count:
                yield start

    def settle(self) -> bool:
        """Do all that is due at this moment; whether anything was."""
        changed = self.agenda.settle()
        changed |= self._obey_due()
        for stream in self.rx:
            changed |= stream.settle()
        changed |= self.tx.settle()
        changed |= self.tx.skip_empty()
        return changed

    def _obey_due(self) -> bool:
        """Do what commands say whose time has come, and have no other before them; whether there were any."""
        done = False
        while self._commands:
            ticks = self._commands[0].ticks
            if ticks is not None and self.clock.count_at(ticks) > self.clock.count:
                break
            self.obey(self._commands.popleft())
            done = True
        return done

    def obey(self, command: Command) -> None:
        """Do what a command says, and answer."""
        value = 0
        if command.writes:
            self.poke(command.register, command.data)
        else:
            value = self.peek(command.register)
        if self.client is not None and not self.frozen:
            self.client.answer(command, value)

    def send(self, count: int) -> Samples | None:
        """See `Antenna.send`. Too few samples in a queue leave it dry."""
        if not self.tx.active:
            return None
        self.tx.scale = self._tx_scale()
        self._radiated = self.pins.transmits
        if self._tx_factor != self.factor:
            # What is sent at another rate than is received at is not heard: see the package.
            wanted = max(count * self.factor // self._tx_factor, 1)
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
        if not self.pins.receives:
            return np.zeros(heard.size, np.uint32)
        scaled = heard.view(np.float32) * np.float32(self._rx_scale())
        np.rint(scaled, out=scaled)
        np.clip(scaled, -32768.0, _FULL_SCALE_WORD, out=scaled)
        words: Words = scaled.astype(np.int16).astype(">i2").view(np.uint32)
        return words

    def _rx_scale(self) -> float:
        """Words per full scale: a multiplier, which libuhd sets, makes up for the gain of the filters."""
        rate = self._words[reg.RX_DSP[0] + reg.DSP_RATE]
        return _FULL_SCALE_WORD * self._words[reg.RX_DSP[0] + reg.DSP_SCALE] / _UNIT_SCALE / _adjustment(rate, 4)

    def _tx_scale(self) -> float:
        """Full scale per word."""
        rate = self._words[reg.TX_DSP + reg.DSP_RATE]
        return self._words[reg.TX_DSP + reg.DSP_SCALE] / _UNIT_SCALE / _adjustment(rate, 3) / _FULL_SCALE_WORD

    def switch_off(self) -> None:
        """Forget all settings and whatever waits, as without power."""
        self._words = [0] * reg.SETTINGS
        self._commands.clear()
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
            "tx_gain_db": Pins(self._words[reg.GPIO + reg.ATR_TX]).tx_gain_db,
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
            "reference_locked": self.reference_locked,
            "lo_locked": self.board.locked,
        }

    def tx_power(self) -> float:
        """Mean |x|^2, after the attenuator, of what is being sent; 0 when nothing is."""
        if not self.tx.active or not self.pins.transmits:
            return 0.0
        return self.tx.last_power * db_to_power_ratio(self.pins.tx_gain_db)


def _half(ticks: int, high: bool) -> int:
    return ticks >> 32 if high else ticks & 0xFFFFFFFF


def _adjustment(rate_word: int, stages: int) -> float:
    """By how much a CIC of that many stages must be corrected: it is a power of two off, and 1.65."""
    gain = float(max(rate_word & 0xFF, 1)) ** stages
    return 2.0 ** math.ceil(math.log2(gain)) / (1.65 * gain)
