"""The registers of one virtual N210: what clients write and read, at once or at a tick, and what the words mean.

Everything here is under the lab's lock.
"""

import math
from collections import deque
from collections.abc import Callable, Sequence

from hardware.radio.settings import RadioSettings
from hardware.virtual.usrp2.device import registers as reg
from hardware.virtual.usrp2.device.adc import Adc
from hardware.virtual.usrp2.device.clock import Clock
from hardware.virtual.usrp2.device.sbx import BANDWIDTH_HZ, Pins, Sbx
from hardware.virtual.usrp2.rx_stream import RxStream
from hardware.virtual.usrp2.tx_queue import TxQueue
from hardware.virtual.usrp2.wire.vrt import Command

MOST_COMMANDS = 1024
"""That wait for their time."""
FULL_SCALE_WORD = 32767.0
_SPI_RX_BOARD, _SPI_TX_BOARD, _SPI_ADC = 16, 128, 256
_UNIT_SCALE = float(1 << 17)
_TUNING = (reg.RX_DSP[0] + reg.DSP_FREQUENCY, reg.TX_DSP + reg.DSP_FREQUENCY)


class Bus:
    """answer: takes the answer to a command to the client. tuned_at: the tick at which an oscillator or a mixer was
    last set."""

    def __init__(
        self, clock: Clock, rx: Sequence[RxStream], tx: TxQueue, answer: Callable[[Command, int], None]
    ) -> None:
        self.clock, self.rx, self.tx, self._answer = clock, rx, tx, answer
        self.board = Sbx()
        self.adc = Adc()
        self.reference_locked = True
        self.tuned_at = 0
        self._words = [0] * reg.SETTINGS
        self._commands: deque[Command] = deque()

    def clear(self) -> None:
        """Forget all settings and whatever waits."""
        self._words = [0] * reg.SETTINGS
        self._commands.clear()

    def poke(self, register: int, value: int) -> None:
        """Write a setting; those without a meaning here are kept and do nothing."""
        self._words[register] = value
        if register in _TUNING:
            self.tuned_at = self.clock.now
        if register == reg.TIME_HIGH:
            self._set_time()
        elif register == reg.TIME_MIMO:
            self.clock.follows = bool(value & reg.MIMO_FOLLOWS)
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
            reference = reg.REFERENCE_LOCKED if self.reference_locked else 0
            return reference | (reg.MIMO_LOCKED if self.clock.cabled else 0)
        return 0

    def spi(self, slaves: int, word: int) -> None:
        """Write a word to the chips that listen; only synthesisers and the gains of the converter matter here."""
        if slaves & (_SPI_RX_BOARD | _SPI_TX_BOARD):
            self.tuned_at = self.clock.now
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
        self.settle()

    def settle(self) -> bool:
        """Do what commands say whose time has come, and have no other before them; whether there were any."""
        done = False
        while self._commands:
            ticks = self._commands[0].ticks
            if ticks is not None and self.clock.count_at(ticks) > self.clock.count:
                break
            self._obey(self._commands.popleft())
            done = True
        return done

    def _obey(self, command: Command) -> None:
        """Do what a command says, and answer."""
        value = 0
        if command.writes:
            self.poke(command.register, command.data)
        else:
            value = self.peek(command.register)
        self._answer(command, value)

    @property
    def next_count(self) -> int | None:
        """The clock's count at which the next command is obeyed; None where none waits for its time."""
        ticks = self._commands[0].ticks if self._commands else None
        return None if ticks is None else self.clock.count_at(ticks)

    @property
    def wanted_factor(self) -> int:
        """Ticks per sample in the air: the receiver's where it is in use or nothing is, or else the transmitter's."""
        rx_words = [self._words[base + reg.DSP_RATE] for base in reg.RX_DSP]
        if self.tx.busy and not any(stream.busy for stream in self.rx):
            return reg.dsp_factor(self._words[reg.TX_DSP + reg.DSP_RATE])
        second_only = self.rx[1].busy and not self.rx[0].busy
        return reg.dsp_factor(rx_words[second_only])

    @property
    def tx_factor(self) -> int:
        """Ticks per sample of the transmitter."""
        return reg.dsp_factor(self._words[reg.TX_DSP + reg.DSP_RATE])

    @property
    def pins(self) -> Pins:
        """As the automatic switch sets them."""
        receiving = any(stream.active for stream in self.rx)
        state = (reg.ATR_IDLE, reg.ATR_RX, reg.ATR_TX, reg.ATR_BOTH)[receiving + 2 * self.tx.active]
        return Pins(self._words[reg.GPIO + state])

    @property
    def tx_gain_db(self) -> float:
        """Of the transmitter while it transmits, whether it does now or not."""
        return Pins(self._words[reg.GPIO + reg.ATR_TX]).tx_gain_db

    def settings(self, rate_hz: float) -> RadioSettings:
        """The registers' settings as the simulated air takes them."""
        pins = self.pins
        rx_offset_hz = reg.dsp_offset_hz(self._words[reg.RX_DSP[0]])
        tx_offset_hz = reg.dsp_offset_hz(self._words[reg.TX_DSP])
        return RadioSettings(
            sample_rate_hz=rate_hz,
            tx_center_hz=self.board.tx_lo.frequency_hz + tx_offset_hz,
            # The receiver's mixer turns the other way.
            rx_center_hz=self.board.rx_lo.frequency_hz - rx_offset_hz,
            bandwidth_hz=min(BANDWIDTH_HZ, rate_hz),
            tx_gain_db=pins.tx_gain_db,
            rx_gain_db=pins.rx_gain_db + self.adc.gain_db,
        )

    def rx_scale(self) -> float:
        """Words per full scale: a multiplier, which libuhd sets, makes up for the gain of the filters."""
        rate = self._words[reg.RX_DSP[0] + reg.DSP_RATE]
        return FULL_SCALE_WORD * self._words[reg.RX_DSP[0] + reg.DSP_SCALE] / _UNIT_SCALE / _adjustment(rate, 4)

    def tx_scale(self) -> float:
        """Full scale per word."""
        rate = self._words[reg.TX_DSP + reg.DSP_RATE]
        return self._words[reg.TX_DSP + reg.DSP_SCALE] / _UNIT_SCALE / _adjustment(rate, 3) / FULL_SCALE_WORD


def _half(ticks: int, high: bool) -> int:
    return ticks >> 32 if high else ticks & 0xFFFFFFFF


def _adjustment(rate_word: int, stages: int) -> float:
    """By how much a CIC of that many stages must be corrected: it is a power of two off, and 1.65."""
    gain = float(max(rate_word & 0xFF, 1)) ** stages
    return 2.0 ** math.ceil(math.log2(gain)) / (1.65 * gain)
