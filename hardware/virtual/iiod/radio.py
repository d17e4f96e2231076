"""One virtual radio: its chip, its cores, its open buffers. Everything here is under the lab's lock."""

import math
import threading
from collections.abc import Iterator

import numpy as np

from hardware.lab.model import LabRadio
from hardware.radio.settings import RadioSettings
from hardware.virtual.iiod.buffers import CyclicTxBuffer, RxBuffer, TxBuffer
from hardware.virtual.iiod.chip.bist import RECEIVE, TRANSMIT, Bist
from hardware.virtual.iiod.chip.dds import Dds
from hardware.virtual.iiod.chip.fpga_filters import FACTOR, Decimator, Interpolator
from hardware.virtual.iiod.chip.gain_control import GainControl, settled_db
from hardware.virtual.iiod.chip.registers import CORE_VERSION, OVERFLOW, RX_CORE, TX_CORE, UNDERFLOW, Registers
from hardware.virtual.iiod.chip.transceiver import XO_HZ, Transceiver
from hardware.virtual.iiod.chip.words import Words, as_samples, as_words, looped_words, rx_words
from hardware.virtual.shared_time import Samples
from phy.units import db_to_power_ratio

DEFAULT_BLOCKS = 4
MOST_BLOCKS = 64
DIGITAL_LOOPBACK = 1
# The weakest signal that the chip's power meter can tell from none.
_WEAKEST_DB = 127.5


class VirtualRadio:
    """State of one radio; `lock` is that of the whole lab."""

    def __init__(self, radio: LabRadio, lock: threading.Lock) -> None:
        self.name = radio.name
        self.lock = lock
        self.chip = Transceiver()
        self.gain_control = GainControl()
        self.bist = Bist()
        # Of the FPGA; None where it passes samples as they are.
        self.decimator: Decimator | None = None
        self.interpolator: Interpolator | None = None
        self.dds = Dds()
        self.rx_registers = Registers({CORE_VERSION: RX_CORE})
        self.tx_registers = Registers({CORE_VERSION: TX_CORE})
        self.tx: TxBuffer | CyclicTxBuffer | None = None
        self.rx: list[RxBuffer] = []
        self.rx_blocks = DEFAULT_BLOCKS
        self.tx_blocks = DEFAULT_BLOCKS
        self.pending_rx_drops = 0
        self.pending_tx_drops = 0
        self.counter = 0
        self.overflows = 0
        self.underflows = 0
        self.streamed_samples = 0
        self._heard_power = 0.0

    def settings(self) -> RadioSettings:
        """The chip's settings as the simulated air takes them: true frequencies, whatever the driver believes.

        All of them come from a crystal that the driver takes to have the corrected frequency.
        """
        chip = self.chip
        true = XO_HZ / chip.xo_correction_hz
        return RadioSettings(
            sample_rate_hz=chip.rate_hz * true,
            tx_center_hz=chip.tx_lo_hz * true,
            rx_center_hz=chip.rx_lo_hz * true,
            bandwidth_hz=max(chip.rx_bandwidth_hz, 1),
            tx_gain_db=chip.tx_gain_db,
            rx_gain_db=chip.rx_gain_db,
        )

    @property
    def rate_hz(self) -> int:
        """See `Antenna.rate_hz`."""
        return self.chip.rate_hz

    @property
    def busy(self) -> bool:
        """See `Antenna.busy`."""
        return self.tx is not None or bool(self.rx)

    @property
    def listens(self) -> bool:
        """See `Antenna.listens`."""
        return bool(self.rx)

    @property
    def transmits(self) -> bool:
        """See `Antenna.transmits`."""
        return self.chip.transmits

    @property
    def can_go_on(self) -> bool:
        """See `Antenna.can_go_on`."""
        if isinstance(self.tx, TxBuffer) and not self._tx_ready(self.tx):
            return False
        return all(buffer.has_room for buffer in self.rx)

    def block_ends(self) -> Iterator[int]:
        """See `Antenna.block_ends`. A cyclic buffer does not set the pace."""
        if isinstance(self.tx, TxBuffer) and self._tx_ready(self.tx):
            yield self._tx_ready(self.tx)
        for buffer in self.rx:
            yield buffer.missing if self.decimator is None else self.decimator.until(buffer.missing)
        if self.rx and self._controls_gain:
            due = self.gain_control.due_samples(self.chip.gain_mode, self.rate_hz)
            if due:
                yield due

    @property
    def _controls_gain(self) -> bool:
        """Whether what comes from the antenna is measured: nothing else may move the gain, or wait for it to move."""
        return self.chip.receives and self.chip.loopback != DIGITAL_LOOPBACK and self.bist.mode != RECEIVE

    def _tx_ready(self, buffer: TxBuffer) -> int:
        """Samples at the chip's rate that a queue has for now."""
        return buffer.ready if self.interpolator is None else self.interpolator.waiting + FACTOR * buffer.ready

    def send(self, count: int) -> Samples | None:
        """See `Antenna.send`. Too few samples in a queue leave it dry."""
        sent = self._from_source(count)
        return self.bist.sent(count, self.counter) if self.bist.mode == TRANSMIT else sent

    def _from_source(self, count: int) -> Samples | None:
        if self.tx is None:
            return self.dds.samples(count, self.counter) if self.dds.on else None
        self.streamed_samples += count
        if isinstance(self.tx, TxBuffer) and not self._tx_ready(self.tx):
            if self.tx.run_dry():
                self.underflow()
            return None
        if self.interpolator is None:
            return self.tx.take(count)
        needed = self.interpolator.needed(count)
        if needed:
            self.interpolator.put(self.tx.take(needed), needed)
        return self.interpolator.take(count)

    def underflow(self) -> None:
        """Note that the transmitter had nothing to send."""
        self.underflows += 1
        self.tx_registers.raise_status(UNDERFLOW)

    def overflow(self, blocks: int) -> None:
        """Note that received blocks were lost."""
        self.overflows += blocks
        self.rx_registers.raise_status(OVERFLOW)

    def take_tx_drop(self) -> bool:
        """Whether the block that has just come is to be lost."""
        if not self.pending_tx_drops:
            return False
        self.pending_tx_drops -= 1
        self.underflow()
        return True

    def drop_rx(self, blocks: int) -> None:
        """Let each open buffer, or the next one to be opened, lose its next blocks."""
        if not self.rx:
            self.pending_rx_drops = blocks
        for buffer in self.rx:
            buffer.drops = blocks

    def receive(self, heard: Samples, sent: Samples | None) -> None:
        """See `Antenna.receive`."""
        words = self._words(heard, sent)
        if self.bist.mode == RECEIVE:
            words = self.bist.words(heard.size, self.counter)
        if self._controls_gain:
            step_db = self.gain_control.step_db(self.chip.gain_mode, words, self.rate_hz)
            self.chip.change_rx_gain(step_db)
        self.streamed_samples += heard.size
        if self.decimator is not None:
            words = as_words(self.decimator.put(as_samples(words)))
        lost = sum(buffer.put(words) for buffer in self.rx) if len(words) else 0
        if lost:
            self.overflow(lost)

    def _words(self, heard: Samples, sent: Samples | None) -> Words:
        if self.chip.loopback == DIGITAL_LOOPBACK:
            return np.zeros((heard.size, 2), np.int16) if sent is None else looped_words(sent)
        if not self.chip.receives:
            return np.zeros((heard.size, 2), np.int16)
        self._measure(heard)
        return rx_words(heard)

    def _measure(self, samples: Samples) -> None:
        """Note received samples, after the receiver's gain, for the power meter."""
        # A part is enough, and it is not to cost time.
        values = samples[:1024].view(np.float32)
        power = float(np.mean(values * values)) * 2.0
        self._heard_power = power / db_to_power_ratio(self.chip.rx_gain_db)

    def settle(self, power: float) -> None:
        """Take `power` at the antenna for what it has been hearing, where no stream says what it hears."""
        if self.rx:
            return
        self._heard_power = power if self.chip.receives else 0.0
        chip = self.chip
        chip.rx_gain_db = settled_db(chip.gain_mode, chip.rx_gain_db, self._heard_power, chip.rx_gains_db)

    def rssi_db(self) -> float:
        """Power at the antenna in dB below full scale at 0 dB of gain, in steps of a quarter."""
        if self._heard_power <= 0.0:
            return _WEAKEST_DB
        return min(max(round(-40.0 * math.log10(self._heard_power)) / 4.0, 0.0), _WEAKEST_DB)

    def tx_power(self) -> float:
        """Mean |x|^2, after the attenuator, of the block that is being sent or was sent last; 0 when nothing is."""
        if not self.chip.transmits:
            return 0.0
        if self.tx is not None:
            last = self.tx.last
            power = 0.0 if last is None else float(np.mean(np.square(last.view(np.float32), dtype=np.float64))) * 2.0
        else:
            power = self.dds.power() if self.dds.on else 0.0
        return power * db_to_power_ratio(self.chip.tx_gain_db)
