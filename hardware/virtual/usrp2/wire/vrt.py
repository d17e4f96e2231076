"""Packets of VITA 49 as a USRP2 has them: words of 32 bits, big-endian.

Word 0 is the header: kind, what else is there, a counter of 4 bits, the length in words. Samples are I and Q, 16 bits
each.
"""

import struct
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

_DATA_WITH_STREAM = 1 << 28
_MESSAGE_WITH_STREAM = 5 << 28
_COMMAND = 4
_HAS_CLASS = 1 << 27
_HAS_TRAILER = 1 << 26
_START_OF_BURST = 1 << 25
_END_OF_BURST = 1 << 24
_WHOLE_TIME = 3 << 22
_TICKS = 3 << 20
_TICKS_COUNT_SAMPLES = 1 << 20
_TRAILER = 1 << 20
_TRAILER_END_OF_BURST = 1 << 8
RX_OVERHEAD_WORDS = 5
"""Header, stream, two words of ticks, trailer."""
LONGEST_WORDS = 0xFFFF


@dataclass(frozen=True)
class TxPacket:
    """Samples to send. ticks: when, None for at once or after what came before. payload: the words of the samples.

    sequence: for flow control. counter: of 4 bits, of the packets of a stream.
    """

    sequence: int
    counter: int
    ticks: int | None
    start_of_burst: bool
    end_of_burst: bool
    payload: memoryview

    @property
    def samples(self) -> int:
        """How many there are."""
        return len(self.payload) // 4


def parse_tx(datagram: memoryview) -> TxPacket | None:
    """The packet of a datagram of the transmit port; None where it is none."""
    if len(datagram) < 8:
        return None
    sequence, header = struct.unpack_from(">II", datagram)
    words = header & 0xFFFF
    if header >> 29 or words * 4 + 4 > len(datagram) or not words:
        return None
    first = 1 + (header >> 28 & 1) + (2 if header & _HAS_CLASS else 0) + (1 if header & _WHOLE_TIME else 0)
    timed = bool(header & _TICKS)
    end = words - (1 if header & _HAS_TRAILER else 0)
    if first + 2 * timed > end:
        return None
    ticks = struct.unpack_from(">Q", datagram, 4 * (first + 1))[0] if timed else None
    first += 2 * timed
    return TxPacket(
        sequence,
        header >> 16 & 0xF,
        ticks,
        bool(header & _START_OF_BURST),
        bool(header & _END_OF_BURST),
        datagram[4 * (first + 1) : 4 * (end + 1)],
    )


def rx_packets(
    words: NDArray[np.uint32], stream: int, counter: int, ticks: NDArray[np.uint64], end_of_burst: bool
) -> NDArray[np.uint32]:
    """Packets (n, samples + 5) of the samples' words (n, samples), big-endian already; the last may end a burst.

    ticks: (n,), of the first sample of each. counter: of the first packet.
    """
    count, samples = words.shape
    packets = np.empty((count, samples + RX_OVERHEAD_WORDS), ">u4")
    header = _DATA_WITH_STREAM | _HAS_TRAILER | _TICKS_COUNT_SAMPLES | (samples + RX_OVERHEAD_WORDS)
    packets[:, 0] = header | (np.arange(counter, counter + count, dtype=np.uint32) & 0xF) << 16
    packets[:, 1] = stream
    packets[:, 2] = ticks >> np.uint64(32)
    packets[:, 3] = ticks & np.uint64(0xFFFFFFFF)
    packets.view(np.uint32)[:, 4:-1] = words
    packets[:, -1] = _TRAILER
    if end_of_burst:
        packets[-1, -1] = _TRAILER | _TRAILER_END_OF_BURST
    return packets


def rx_error(stream: int, counter: int, ticks: int, code: int) -> bytes:
    """What a receiver says instead of samples."""
    header = _MESSAGE_WITH_STREAM | _TICKS_COUNT_SAMPLES | (counter & 0xF) << 16 | 5
    return struct.pack(">IIQI", header, stream, ticks & (1 << 64) - 1, code)


def tx_report(stream: int, counter: int, ticks: int, code: int, sequence: int) -> bytes:
    """What a transmitter says. sequence: of the last packet that it is done with."""
    header = _MESSAGE_WITH_STREAM | _TICKS_COUNT_SAMPLES | (counter & 0xF) << 16 | 6
    return struct.pack(">IIQII", header, stream, ticks & (1 << 64) - 1, code, sequence)


@dataclass(frozen=True)
class Command:
    """A register to write or read. ticks: when, None for at once. word: the echo that the answer carries."""

    word: int
    data: int
    ticks: int | None

    @property
    def register(self) -> int:
        """Its index."""
        return self.word & 0xFF

    @property
    def writes(self) -> bool:
        """Whether it is to be written."""
        return bool(self.word & 0x100)


def parse_command(datagram: memoryview) -> Command | None:
    """The command of a datagram of the command port; None where it is none."""
    if len(datagram) < 8:
        return None
    _, header = struct.unpack_from(">II", datagram)
    timed = bool(header & _TICKS)
    words = 3 + 2 * timed
    if header >> 28 != _COMMAND or header & 0xFFFF != words or len(datagram) != 4 * (words + 1):
        return None
    word, data = struct.unpack_from(">II", datagram, 4 * (words - 1))
    return Command(word, data, struct.unpack_from(">Q", datagram, 8)[0] if timed else None)


def command_answer(command: Command, value: int) -> bytes:
    """That it was done."""
    header = _MESSAGE_WITH_STREAM | (command.word >> 16 & 0xF) << 16 | 4
    return struct.pack(">IIII", header, 0, command.word, value & 0xFFFFFFFF)
