"""The control port: a struct of version, kind, sequence and arguments in each direction, answered at once."""

import socket
import struct
from typing import Protocol

from hardware.virtual.usrp2.device.eeprom import Memory
from hardware.virtual.usrp2.device.registers import READBACK_BASE, SETTINGS, SETTINGS_BASE

PROTOCOL_VERSION = 12
LENGTH = 36
"""Of the struct."""
_FIRMWARE_MINOR = 4
# Of the firmware's own registers: this one may tell that there is no GPS receiver, the next the minor version.
_GPS_REGISTER, _NO_GPS = 3, 0x1234ABCD
_MINOR_REGISTER = 7
_FIRMWARE_REGISTERS = 16
_PEEK, _POKE, _FIRMWARE_PEEK, _FIRMWARE_POKE = (1, 2), (3, 4), 5, 6
_LONGEST_I2C = 20


class Registers(Protocol):
    """What can be written and read."""

    def poke(self, register: int, value: int) -> None:
        """Write a setting."""
        ...

    def peek(self, register: int) -> int:
        """Read back."""
        ...

    def spi(self, slaves: int, word: int) -> None:
        """Write a word to chips."""
        ...


class Control:
    """Answers of one radio at the address `host`. gps: whether it has a receiver for it."""

    def __init__(self, host: str, registers: Registers, memories: dict[int, Memory], *, gps: bool = False) -> None:
        self._host = socket.inet_aton(host)
        self._registers = registers
        self._memories = memories
        self._firmware = [0] * _FIRMWARE_REGISTERS
        self._firmware[_GPS_REGISTER] = 0 if gps else _NO_GPS
        self._firmware[_MINOR_REGISTER] = _FIRMWARE_MINOR

    def answer(self, datagram: memoryview) -> bytes | None:
        """To a datagram; None where there is nothing to say to it."""
        if len(datagram) < LENGTH:
            return None
        _, kind, sequence = struct.unpack_from(">III", datagram)
        data = bytes(datagram[12:LENGTH])
        if kind == ord("a"):
            reply = self._host
        elif kind == ord("r"):
            reply = self._register(data)
        elif kind == ord("i"):
            reply = self._read_i2c(data)
        elif kind == ord("h"):
            reply = self._write_i2c(data)
        elif kind == ord("s"):
            reply = self._spi(data)
        elif kind == ord("l"):
            return self._echo(datagram, sequence)
        elif kind in (ord("u"), ord("v")):
            # Serial ports: nothing is connected to them.
            reply = data[:1] + b"\0"
        else:
            return None
        return _reply(kind, sequence, reply)

    def _echo(self, datagram: memoryview, sequence: int) -> bytes:
        """Of the length that is asked for, to find out what the way carries; it tells how long the question was."""
        (wanted,) = struct.unpack_from(">I", datagram, 12)
        answer = _reply(ord("l"), sequence, struct.pack(">I", len(datagram)))
        return answer.ljust(min(wanted, 9216), b"\0")

    def _register(self, data: bytes) -> bytes:
        address, value, action = struct.unpack_from(">IIB", data)
        if action in _POKE:
            index, rest = divmod(address - SETTINGS_BASE, 4)
            if 0 <= index < SETTINGS and not rest:
                self._registers.poke(index, value)
        elif action in _PEEK:
            index, rest = divmod(address - READBACK_BASE, 4)
            value = self._registers.peek(index) if 0 <= index < SETTINGS and not rest else 0
        elif action == _FIRMWARE_PEEK:
            value = self._firmware[address] if address < _FIRMWARE_REGISTERS else 0
        elif action == _FIRMWARE_POKE and address < _FIRMWARE_REGISTERS:
            self._firmware[address] = value
        return struct.pack(">IIB", address, value, action)

    def _read_i2c(self, data: bytes) -> bytes:
        address, count = data[0], min(data[1], _LONGEST_I2C)
        memory = self._memories.get(address)
        content = bytes(b"\xff" * count) if memory is None else memory.read(count)
        return bytes((address, count)) + content

    def _write_i2c(self, data: bytes) -> bytes:
        address, count = data[0], min(data[1], _LONGEST_I2C)
        memory = self._memories.get(address)
        if memory is not None:
            memory.write(data[2 : 2 + count])
        return data[:2]

    def _spi(self, data: bytes) -> bytes:
        slaves, word = struct.unpack_from(">II", data)
        self._registers.spi(slaves, word)
        return struct.pack(">II", slaves, 0)


def _reply(kind: int, sequence: int, data: bytes) -> bytes:
    return struct.pack(">III", PROTOCOL_VERSION, kind - 32, sequence) + data.ljust(LENGTH - 12, b"\0")
