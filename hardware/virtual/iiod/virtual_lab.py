"""The virtual Plutos of a lab and their open buffers. Everything here is under the lab's lock."""

import errno
import threading
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hardware.air.analogue import AnalogueFilters
from hardware.air.settings import SECTION as MEDIUM
from hardware.air.settings import medium_of
from hardware.lab.model import Lab
from hardware.virtual.antennas import Antennas
from hardware.virtual.iiod.buffers import CyclicTxBuffer, RxBuffer, TxBuffer
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.refusal import RefusalError, invalid
from hardware.virtual.shared_time import Samples

LARGEST_BUFFER_BYTES = 64 << 20
"""Of the queue of one open buffer."""
LARGEST_TOTAL_BYTES = 512 << 20
"""Of all queues of a lab."""
BOTH_CHANNELS = 3
# A client that closes a buffer and opens the next one may be heard in the wrong order: real servers wait as well.
_BUSY_WAIT_S = 0.2


class VirtualLab(Antennas[VirtualRadio]):
    """See `Antennas`."""

    def __init__(self, lab: Lab, seed: int, paced: bool) -> None:
        # A lab of another backend may have other converters: these radios are Plutos, and round as such.
        sections = {**lab.sections, MEDIUM: medium_of(lab).without_dac_bits()}
        super().__init__(replace(lab, sections=sections), seed, paced, VirtualRadio, mixed_rates=True)
        for radio in self.radios.values():
            self.retune(radio)
        self.closed_one = threading.Condition(self.lock)
        self._bytes = 0

    def retune(self, radio: VirtualRadio) -> None:
        """See `Antennas.retune`; the radio's filters are taken over too."""
        super().retune(radio)
        chip = radio.chip
        filters = AnalogueFilters(chip.tx_bandwidth_hz, chip.rx_bandwidth_hz)
        self.medium_of(radio).set_filters(radio.name, filters)

    def settle(self, radio: VirtualRadio) -> None:
        """Let a radio without a receive stream know what its antenna hears at this moment."""
        if not radio.rx:
            radio.settle(self._power_at(radio))

    def _power_at(self, radio: VirtualRadio) -> float:
        """Mean |x|^2 of noise and of what all others send now, before the receiver's gain."""
        medium = self.medium_of(radio)
        power = medium.front_end(radio.name).noise_var_complex
        for sender in self.radios.values():
            if medium.reaches(sender.name, radio.name):
                gain = float(np.sum(np.abs(medium.taps(sender.name, radio.name)) ** 2))
                power += gain * sender.tx_power()
        return power

    def take(self, radio: VirtualRadio, buffer: RxBuffer, most_bytes: int) -> memoryview:
        """The next bytes of a receive buffer that is ready. That time advances into its room is put off."""
        self.run_later(radio)
        return buffer.take(most_bytes)

    def set_rx_blocks(self, radio: VirtualRadio, blocks: int) -> None:
        """How many blocks the next receive buffers hold; `RefusalError` with EBUSY where one is open."""
        self._wait_until_free(lambda: not radio.rx)
        radio.rx_blocks = blocks

    def set_tx_blocks(self, radio: VirtualRadio, blocks: int) -> None:
        """How many blocks the next transmit buffer holds; `RefusalError` with EBUSY where one is open."""
        self._wait_until_free(lambda: radio.tx is None)
        radio.tx_blocks = blocks

    def _wait_until_free(self, free: Callable[[], bool]) -> None:
        if not self.closed_one.wait_for(free, _BUSY_WAIT_S):
            raise RefusalError(errno.EBUSY, "a buffer is open")

    def open_rx(self, radio: VirtualRadio, block_samples: int, mask: int) -> RxBuffer:
        """A new reader, beside those that there are. Its first sample is that of this moment."""
        _check_shape(block_samples, mask)
        self._reserve(RxBuffer.bytes_of(block_samples, radio.rx_blocks))
        buffer = RxBuffer(block_samples, radio.rx_blocks, mask, self.lock)
        buffer.drops, radio.pending_rx_drops = radio.pending_rx_drops, 0
        radio.rx.append(buffer)
        self.retune(radio)
        self.run(radio)
        return buffer

    def open_tx(self, radio: VirtualRadio, block_samples: int, mask: int, cyclic: bool) -> TxBuffer | CyclicTxBuffer:
        """The radio's transmit buffer, `RefusalError` with EBUSY where it has one. Sample 0 leaves at this moment."""
        _check_shape(block_samples, mask)
        self._wait_until_free(lambda: radio.tx is None)
        buffer = (
            CyclicTxBuffer(block_samples, mask, self.lock)
            if cyclic
            else TxBuffer(block_samples, radio.tx_blocks, mask, self.lock)
        )
        self._reserve(buffer.bytes)
        radio.tx = buffer
        return buffer

    def push(self, radio: VirtualRadio, buffer: TxBuffer | CyclicTxBuffer, samples: Samples | None, count: int) -> None:
        """Queue a block in an open buffer that has room; None is silence."""
        buffer.push(None if radio.take_tx_drop() else samples, count)
        self.run(radio)

    def close(self, radio: VirtualRadio, buffer: RxBuffer | TxBuffer | CyclicTxBuffer) -> None:
        """Close a buffer at once: what is queued in it is gone. A second call does nothing."""
        if buffer.closed:
            return
        buffer.closed = True
        if isinstance(buffer, RxBuffer):
            radio.rx.remove(buffer)
            self._bytes -= RxBuffer.bytes_of(buffer.block_samples, buffer.blocks)
            buffer.arrived.notify_all()
            self.retune(radio)
        else:
            radio.tx = None
            self._bytes -= buffer.bytes
            buffer.left.notify_all()
        self.closed_one.notify_all()
        self.run(radio)

    def _reserve(self, wanted_bytes: int) -> None:
        if wanted_bytes > LARGEST_BUFFER_BYTES or self._bytes + wanted_bytes > LARGEST_TOTAL_BYTES:
            raise RefusalError(errno.ENOMEM, f"a buffer of {wanted_bytes} bytes is too large")
        self._bytes += wanted_bytes


def _check_shape(block_samples: int, mask: int) -> None:
    if block_samples < 1 or not 1 <= mask <= BOTH_CHANNELS:
        raise invalid(f"a buffer of {block_samples} samples with the mask {mask:#x}")
