"""The memories of an N210 (revision 4) and its SBX (version 4), which answer on the I2C bus.

A memory is written to with the address of its first byte and the bytes that go there; a write of the address alone
chooses what the next read begins with.
"""

import ipaddress

MOTHERBOARD, TX_BOARD, RX_BOARD = 0x50, 0x54, 0x55
"""Addresses on the bus."""
_N210_R4 = 0x0A11
_SBX_V4_RX, _SBX_V4_TX = 0x0065, 0x0064
_SIZE = 256
_BOARD_MAGIC = 0xDB
# The checksum of a daughterboard's memory covers what is before it.
_CHECKSUM_AT = 31


class Memory:
    """256 bytes and where the next read begins."""

    def __init__(self, content: bytes) -> None:
        self._bytes = bytearray(content.ljust(_SIZE, b"\xff"))
        self._next = 0

    def write(self, data: bytes) -> None:
        """An address, then bytes for it and those that follow."""
        if not data:
            return
        self._next = data[0]
        for value in data[1:]:
            self._bytes[self._next] = value
            self._next = (self._next + 1) % _SIZE

    def read(self, count: int) -> bytes:
        """The next bytes, around the end."""
        data = bytes(self._bytes[(self._next + index) % _SIZE] for index in range(count))
        self._next = (self._next + count) % _SIZE
        return data


def memories(host: str, serial: str, name: str, *, gpsdo: bool = False) -> dict[int, Memory]:
    """All of a radio, by address. serial: at most 8 characters. name: at most 31, cut where it is longer."""
    return {
        MOTHERBOARD: Memory(_motherboard(host, serial, name, gpsdo=gpsdo)),
        RX_BOARD: Memory(_daughterboard(_SBX_V4_RX, serial)),
        TX_BOARD: Memory(_daughterboard(_SBX_V4_TX, serial)),
    }


def _motherboard(host: str, serial: str, name: str, *, gpsdo: bool) -> bytes:
    content = bytearray(b"\xff" * _SIZE)
    content[0x00:0x02] = _N210_R4.to_bytes(2, "little")
    address = ipaddress.IPv4Address(host).packed
    # The vendor's prefix, then what distinguishes radios here.
    content[0x02:0x08] = bytes((0x00, 0x80, 0x2F)) + address[1:]
    content[0x0C:0x10] = address
    content[0x17] = gpsdo
    content[0x18:0x21] = serial.encode("ascii", "replace")[:8].ljust(9, b"\0")
    content[0x21:0x41] = name.encode("ascii", "replace")[:31].ljust(32, b"\0")
    return bytes(content)


def _daughterboard(board: int, serial: str) -> bytes:
    content = bytearray(_CHECKSUM_AT)
    content[0] = _BOARD_MAGIC
    content[1:3] = board.to_bytes(2, "little")
    content[9 : 9 + 8] = serial.encode("ascii", "replace")[:8].ljust(8, b"\0")
    return bytes(content) + bytes((-sum(content) & 0xFF,))
