"""All virtual radios of a lab, the airs between them, and the one lock under which everything happens.

Whoever changes something that may let time advance lets it advance before anything else happens, or leaves that to
whoever has the next turn. So the state after a sequence of requests depends on that sequence only.
"""

import errno
import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from hardware.lab import Lab
from hardware.virtual_pluto.air import Air
from hardware.virtual_pluto.buffers import CyclicTxBuffer, RxBuffer, TxBuffer
from hardware.virtual_pluto.radio import VirtualRadio
from hardware.virtual_pluto.refusal import RefusalError, invalid
from hardware.virtual_pluto.words import Samples

LARGEST_BUFFER_BYTES = 64 << 20
"""Of the queue of one open buffer."""
LARGEST_TOTAL_BYTES = 512 << 20
"""Of all queues of a lab."""
BOTH_CHANNELS = 3
# A client that closes a buffer and opens the next one may be heard in the wrong order: real servers wait as well.
_BUSY_WAIT_S = 0.2


class VirtualLab:
    """The radios by name. paced: time is driven from outside by `run_for`, and no buffer holds it up."""

    def __init__(self, lab: Lab, seed: int, paced: bool) -> None:
        self.lab = lab
        self.seed = seed
        self.paced = paced
        self.lock = threading.Lock()
        self.closed_one = threading.Condition(self.lock)
        self.radios = {radio.name: VirtualRadio(radio, self.lock) for radio in lab.radios}
        self._airs: dict[int, Air] = {}
        self._air_of: dict[str, Air] = {}
        self._block = 0
        self._bytes = 0
        self._late: list[Air] = []
        self._workers = ThreadPoolExecutor(os.cpu_count(), "virtual-pluto-air")
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
        for air in self._airs.values():
            air.medium.new_block(block)
        self._block = block

    def latency_samples(self, radio: VirtualRadio) -> int:
        """Between a sender's antenna and the buffers of a receiver, beside the delay of the link."""
        return self._air_of[radio.name].latency_samples

    def retune(self, radio: VirtualRadio) -> None:
        """Take over the settings of a radio's chip."""
        air = self._air_of[radio.name]
        if air.rate_hz == radio.chip.rate_hz:
            air.tune(radio)
            return
        air.leave(radio)
        self._run(air)
        if not air.radios:
            del self._airs[air.rate_hz]
        self._settle(radio)
        self._run(self._air_of[radio.name])

    def _settle(self, radio: VirtualRadio) -> None:
        rate_hz = radio.chip.rate_hz
        if rate_hz not in self._airs:
            self._airs[rate_hz] = Air(self.lab, rate_hz, self.seed, self._block, self._workers)
        self._air_of[radio.name] = self._airs[rate_hz]
        self._airs[rate_hz].join(radio)

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The lock, with nothing left to do of what others did before."""
        with self.lock:
            self.catch_up()
            yield

    def catch_up(self) -> bool:
        """Let time advance where that was put off; whether it was anywhere."""
        late, self._late = self._late, []
        for air in late:
            self._run(air)
        return bool(late)

    def take(self, radio: VirtualRadio, buffer: RxBuffer, most_bytes: int) -> memoryview:
        """The next bytes of a receive buffer that is ready. That time advances into its room is put off."""
        self._late.append(self._air_of[radio.name])
        return buffer.take(most_bytes)

    def run(self, radio: VirtualRadio) -> None:
        """Let the time of a radio's air advance as far as it can."""
        self._run(self._air_of[radio.name])

    def _run(self, air: Air) -> None:
        if not self.paced:
            air.run()

    def run_for(self, seconds: float) -> None:
        """Let time advance by that much everywhere."""
        for air in self._airs.values():
            air.run_for(seconds)

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
        self._air_of[radio.name].tune(radio)
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
            self._air_of[radio.name].tune(radio)
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
