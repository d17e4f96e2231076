"""An ADF4351: the local oscillator of one direction of an SBX, as its registers set it."""

from hardware.virtual.usrp2.device.registers import TICKS_PER_S

_RESET_HZ = 2.4e9
_LOWEST_HZ, _HIGHEST_HZ = 400e6, 4.4e9
"""What it reaches on an SBX, whatever it is told."""


class Synthesiser:
    """Registers 0 to 5, of 32 bits each; the three lowest bits of a word are the register's number.

    A frequency takes effect with register 0, which is written last. reference_hz: what it divides and multiplies.
    """

    def __init__(self, reference_hz: float = float(TICKS_PER_S)) -> None:
        self._reference_hz = reference_hz
        self._words = [0] * 6
        self.frequency_hz = _RESET_HZ

    def write(self, word: int) -> bool:
        """Take a word; whether the frequency may have changed by it."""
        number = word & 7
        if number > 5:
            return False
        self._words[number] = word
        if number:
            return False
        self.frequency_hz = min(max(self._frequency_hz(), _LOWEST_HZ), _HIGHEST_HZ)
        return True

    def _frequency_hz(self) -> float:
        """f = (int + frac / mod) f_pfd / divider, or without the divider where the feedback is taken behind it."""
        zero, one, two, _, four, _ = self._words
        whole, fraction = zero >> 15 & 0xFFFF, zero >> 3 & 0xFFF
        modulus = max(one >> 3 & 0xFFF, 1)
        doubled, halved, divisor = two >> 25 & 1, two >> 24 & 1, max(two >> 14 & 0x3FF, 1)
        compared_hz = self._reference_hz * (1 + doubled) / (divisor * (1 + halved))
        loop_hz = (whole + fraction / modulus) * compared_hz
        feedback_before_divider = four >> 23 & 1
        return loop_hz / 2 ** (four >> 20 & 7) if feedback_before_divider else loop_hz
