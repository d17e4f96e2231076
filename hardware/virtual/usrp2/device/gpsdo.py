"""A GPS-disciplined oscillator of a box: lines of text over a serial port, as libuhd asks for and reads them.

It says who it is where it is asked, and otherwise tells time and place once a second, a little after the pulse. What
else it is told (which sentences, no echo) is as it does already.
"""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

_IDENTITY = "LC_XO, virtual"
_QUESTION = b"*IDN?"
_LONGEST_LINE = 64
_WEEKS_S = 1024 * 7 * 86400
"""After which satellites count their weeks from 0 again, as their clocks do here."""
# It stands at the equator.
_PLACE = "0000.0000,N,00000.0000,E"


class Gpsdo:
    """locked: whether it has satellites. began: what its first second is called."""

    def __init__(self, began: datetime | None = None) -> None:
        self.locked = True
        self._began = (began or datetime.now(UTC)).replace(microsecond=0)
        self._line = b""

    def answer(self, text: bytes) -> list[bytes]:
        """To what is written to it, which may come in pieces."""
        *lines, rest = (self._line + text).replace(b"\r", b"\n").split(b"\n")
        self._line = rest[:_LONGEST_LINE]
        return [f"{_IDENTITY}\r\n".encode() for line in lines if _QUESTION in line]

    def sentences(self, second: int) -> Sequence[bytes]:
        """What it says after the pulse of a second."""
        moment = self._began + timedelta(seconds=second % _WEEKS_S)
        clock, date = moment.strftime("%H%M%S.00"), moment.strftime("%d%m%y")
        fix, valid = ("1,08", "A") if self.locked else ("0,00", "V")
        return [
            _sentence(f"GPGGA,{clock},{_PLACE},{fix},1.0,10.0,M,0.0,M,,"),
            _sentence(f"GPRMC,{clock},{valid},{_PLACE},0.0,0.0,{date},,"),
        ]


def _sentence(content: str) -> bytes:
    """With the checksum of NMEA: all bytes between $ and *, exclusively or-ed."""
    total = 0
    for byte in content.encode("ascii"):
        total ^= byte
    return f"${content}*{total:02X}\r\n".encode("ascii")
