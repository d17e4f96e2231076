"""One client's conversation in the text protocol of libiio 0.2x.

A command is a line; the answer is a decimal number and a line feed, negative for an error, sometimes followed by that
many bytes. What is not understood is answered with -EINVAL, upon which clients fall back to what is.
"""

import errno
import re
import time
from collections.abc import Callable, Sequence

import numpy as np

from hardware.virtual.iiod.all_attributes import all_values, text_of, value_of, write_all
from hardware.virtual.iiod.attributes import Attribute, Device
from hardware.virtual.iiod.buffers import CyclicTxBuffer, RxBuffer, TxBuffer
from hardware.virtual.iiod.chip.words import tx_samples
from hardware.virtual.iiod.connection import ClosedError, Connection
from hardware.virtual.iiod.devices.pluto import RX, TX
from hardware.virtual.iiod.radio import MOST_BLOCKS, VirtualRadio
from hardware.virtual.iiod.refusal import RefusalError, invalid
from hardware.virtual.iiod.virtual_lab import VirtualLab
from hardware.virtual.shared_time import Samples

VERSION = "0.24.v0.24  \n"
LONGEST_VALUE = 1 << 16
"""Bytes that an attribute may be written with; filter taps are about a thousand."""
DEFAULT_TIMEOUT_S = 2.5
# How often a waiting connection looks whether its client is still there.
_GLANCE_S = 0.05
_NUMBER = re.compile(r"\d{1,10}")
_MASK = re.compile(r"[0-9a-fA-F]{8}")


class TimeOuts:
    """Time-outs of all clients of a radio. A buffer has a connection of its own, which does not say which it has.

    So the longest one holds, of those that clients have asked for and that are still there.
    """

    def __init__(self) -> None:
        self._seconds: dict[int, float] = {}

    def set(self, session: int, seconds: float) -> None:
        """Of one connection."""
        self._seconds[session] = seconds

    def forget(self, session: int) -> None:
        """A connection that has ended."""
        self._seconds.pop(session, None)

    @property
    def seconds(self) -> float:
        """How long a transfer may wait."""
        return max(self._seconds.copy().values(), default=DEFAULT_TIMEOUT_S)


class Session:
    """Serves one connection until it ends; buffers that it leaves open are closed then."""

    def __init__(
        self,
        connection: Connection,
        lab: VirtualLab,
        radio: VirtualRadio,
        devices: Sequence[Device],
        xml: str,
        time_outs: TimeOuts,
    ) -> None:
        self._connection = connection
        self._lab = lab
        self._radio = radio
        self._devices = {key: device for device in devices for key in (device.id, device.name)}
        self._xml = xml.encode()
        self._time_outs = time_outs
        self._rx: RxBuffer | None = None
        self._tx: TxBuffer | CyclicTxBuffer | None = None
        self._words = np.empty(0, np.int16)
        self._commands: dict[str, Callable[[list[str]], None]] = {
            "VERSION": self._version,
            "PRINT": self._print,
            "TIMEOUT": self._timeout,
            "READ": self._read,
            "WRITE": self._write,
            "OPEN": self._open,
            "CLOSE": self._close,
            "SET": self._set,
            "READBUF": self._read_buffer,
            "WRITEBUF": self._write_buffer,
            "GETTRIG": self._trigger,
            "SETTRIG": self._trigger,
            "EXIT": self._exit,
        }

    def serve(self) -> None:
        """Answer commands until the client leaves."""
        try:
            while True:
                words = self._connection.line().decode("ascii", "replace").split()
                if words:
                    self._answer(words)
        except ClosedError:
            return
        finally:
            self._time_outs.forget(id(self))
            with self._lab.turn():
                for buffer in (self._rx, self._tx):
                    if buffer is not None:
                        self._lab.close(self._radio, buffer)

    def _answer(self, words: list[str]) -> None:
        try:
            command = self._commands.get(words[0].upper())
            if command is None:
                raise invalid(f"there is no command {words[0]!r}")
            command(words[1:])
        except RefusalError as refusal:
            self._reply(-refusal.code)

    def _reply(self, number: int) -> None:
        self._connection.send(b"%d\n" % number)

    def _version(self, words: list[str]) -> None:
        _expect(words, 0)
        self._connection.send(VERSION.encode())

    def _print(self, words: list[str]) -> None:
        _expect(words, 0)
        self._connection.send(b"%d\n%s\n" % (len(self._xml), self._xml))

    def _timeout(self, words: list[str]) -> None:
        _expect(words, 1)
        milliseconds = _number(words[0])
        # Zero is for ever: a day.
        self._time_outs.set(id(self), milliseconds / 1e3 or 86400.0)
        self._reply(0)

    def _trigger(self, words: list[str]) -> None:
        if not 1 <= len(words) <= 2:
            raise invalid("expected a device")
        self._device(words[0])
        raise RefusalError(errno.ENOENT, "no device has a trigger")

    def _exit(self, words: list[str]) -> None:
        raise ClosedError

    def _device(self, name: str) -> Device:
        try:
            return self._devices[name]
        except KeyError:
            raise RefusalError(errno.ENODEV, f"there is no device {name!r}") from None

    def _attribute(self, words: list[str]) -> Attribute:
        """What "DEVICE ATTRIBUTE", "DEVICE DEBUG|BUFFER ATTRIBUTE", "DEVICE INPUT|OUTPUT CHANNEL ATTRIBUTE" name."""
        if len(words) < 2:
            raise invalid("expected a device and an attribute")
        device = self._device(words[0])
        kind = words[1].upper()
        if len(words) == 2:
            return device.attribute("", words[1])
        if len(words) == 3 and kind in {"DEBUG", "BUFFER"}:
            return device.attribute(kind, words[2])
        if len(words) == 4 and kind in {"INPUT", "OUTPUT"}:
            return device.channel(words[2], kind == "OUTPUT").attribute(words[3])
        raise invalid(f"{' '.join(words)!r} names no attribute")

    def _all_attributes(self, words: list[str]) -> Sequence[Attribute] | None:
        """What "DEVICE", "DEVICE DEBUG|BUFFER", "DEVICE INPUT|OUTPUT CHANNEL" name; None where it is one attribute."""
        if not words:
            raise invalid("expected a device")
        device = self._device(words[0])
        kind = words[1].upper() if len(words) > 1 else ""
        if len(words) == 1 or (len(words) == 2 and kind in {"DEBUG", "BUFFER"}):
            return list(device.kinds[kind].values())
        if len(words) == 3 and kind in {"INPUT", "OUTPUT"}:
            return device.channel(words[2], kind == "OUTPUT").attributes
        return None

    def _read(self, words: list[str]) -> None:
        together = self._all_attributes(words)
        attribute = self._attribute(words) if together is None else None
        with self._lab.turn():
            data = value_of(attribute) if attribute is not None else all_values(together or ())
        self._connection.send(b"%d\n%s\n" % (len(data), data))

    def _write(self, words: list[str]) -> None:
        if len(words) < 2:
            raise invalid("expected a device, an attribute and a length")
        length = _number(words[-1])
        if length > LONGEST_VALUE:
            # There is no way back to the next command.
            self._reply(-errno.EINVAL)
            raise ClosedError
        value = bytearray(length)
        self._connection.fill(memoryview(value))
        together = self._all_attributes(words[:-1])
        attribute = self._attribute(words[:-1]) if together is None else None
        with self._lab.turn():
            if attribute is not None:
                attribute.set(text_of(value))
            else:
                write_all(together or (), bytes(value))
        self._reply(length)

    def _set(self, words: list[str]) -> None:
        _expect(words, 3)
        device = self._device(words[0])
        count = _number(words[2])
        if words[1].upper() != "BUFFERS_COUNT" or not device.streams or not 1 <= count <= MOST_BLOCKS:
            raise invalid(f"cannot set {' '.join(words)!r}")
        with self._lab.turn():
            if device.name == RX:
                self._lab.set_rx_blocks(self._radio, count)
            else:
                self._lab.set_tx_blocks(self._radio, count)
        self._reply(0)

    def _open(self, words: list[str]) -> None:
        if not 3 <= len(words) <= 4:
            raise invalid("expected a device, a number of samples and a mask")
        device = self._device(words[0])
        cyclic = len(words) == 4
        if (cyclic and words[3].upper() != "CYCLIC") or not _MASK.fullmatch(words[2]) or not device.streams:
            raise invalid(f"cannot open {' '.join(words)!r}")
        samples, mask = _number(words[1]), int(words[2], 16)
        with self._lab.turn():
            if device.name == TX:
                if self._tx is not None:
                    raise RefusalError(errno.EBUSY, "this connection has opened it already")
                self._tx = self._lab.open_tx(self._radio, samples, mask, cyclic)
            else:
                if self._rx is not None:
                    raise RefusalError(errno.EBUSY, "this connection has opened it already")
                if cyclic:
                    raise invalid("a receive buffer cannot be cyclic")
                self._rx = self._lab.open_rx(self._radio, samples, mask)
        self._reply(0)

    def _close(self, words: list[str]) -> None:
        _expect(words, 1)
        device = self._device(words[0])
        buffer = {RX: self._rx, TX: self._tx}.get(device.name)
        if buffer is None:
            raise RefusalError(errno.ENXIO, f"{device.name} is not open")
        with self._lab.turn():
            self._lab.close(self._radio, buffer)
        if device.name == RX:
            self._rx = None
        else:
            self._tx = None
        self._reply(0)

    def _read_buffer(self, words: list[str]) -> None:
        _expect(words, 2)
        if self._device(words[0]).name != RX or self._rx is None or self._rx.closed:
            raise RefusalError(errno.EBADF, f"{words[0]} is not open for reading")
        buffer, wanted = self._rx, _number(words[1])
        sample_bytes = buffer.block_bytes // buffer.block_samples
        mask = b"%08x\n" % buffer.mask
        if wanted < sample_bytes:
            self._reply(0)
            return
        while wanted >= sample_bytes:
            with self._lab.turn():
                self._wait(buffer, lambda: buffer.ready)
                part = self._lab.take(self._radio, buffer, wanted // sample_bytes * sample_bytes)
            self._connection.send(b"%d\n%s" % (len(part), mask), part)
            mask = b""
            wanted -= len(part)
            with self._lab.turn():
                # While the client looks at its samples, unless somebody else has had a turn meanwhile.
                pass

    def _write_buffer(self, words: list[str]) -> None:
        _expect(words, 2)
        if self._device(words[0]).name != TX or self._tx is None or self._tx.closed:
            raise RefusalError(errno.EBADF, f"{words[0]} is not open for writing")
        buffer, length = self._tx, _number(words[1])
        channels = 2 if buffer.mask == 3 else 1
        left, rest = divmod(length, 2 * channels)
        if rest or (buffer.cyclic and left > buffer.block_samples):
            raise invalid(f"{length} bytes do not fit into the buffer")
        if buffer.cyclic and not buffer.has_room:
            raise RefusalError(errno.EBUSY, "the cyclic buffer is being sent")
        first = True
        while left:
            with self._lab.turn():
                self._wait(buffer, lambda: buffer.has_room)
            if first:
                self._reply(0)
            first = False
            count = min(left, buffer.block_samples)
            samples = self._samples(count, channels, buffer.mask)
            with self._lab.turn():
                if buffer.closed:
                    raise ClosedError
                self._lab.push(self._radio, buffer, samples, count)
            left -= count
        self._reply(length)

    def _samples(self, count: int, channels: int, mask: int) -> Samples | None:
        """Receive a block; None where all of it is zero."""
        if self._words.size < count * channels:
            self._words = np.empty(count * channels, np.int16)
        words = self._words[: count * channels]
        self._connection.fill(words.view(np.uint8).data)
        if not words.any():
            return None
        samples = np.empty(count, np.complex64)
        tx_samples(words.reshape(-1, channels), mask, samples)
        return samples

    def _wait(self, buffer: RxBuffer | TxBuffer | CyclicTxBuffer, ready: Callable[[], bool]) -> None:
        """Wait for a buffer, in this session's turn. A time-out closes it, as on a real radio."""
        condition = buffer.arrived if isinstance(buffer, RxBuffer) else buffer.left
        deadline = time.monotonic() + self._time_outs.seconds
        while not ready():
            # Whatever others have put off may be what is missing here.
            if self._lab.catch_up():
                continue
            if buffer.closed or self._connection.gone:
                raise ClosedError
            if time.monotonic() >= deadline:
                self._lab.close(self._radio, buffer)
                raise RefusalError(errno.ETIMEDOUT, "nothing happened in time")
            condition.wait(_GLANCE_S)


def _expect(words: list[str], count: int) -> None:
    if len(words) != count:
        raise invalid(f"expected {count} words after the command, got {len(words)}")


def _number(word: str) -> int:
    if not _NUMBER.fullmatch(word):
        raise invalid(f"{word!r} is not a number")
    return int(word)
