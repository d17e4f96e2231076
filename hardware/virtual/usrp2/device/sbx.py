"""An SBX daughterboard: what its pins and synthesisers make of the two directions.

Gains run from 0 to 31.5 dB in both directions. In the simulated air full scale leaves at 0 dB, so the transmitter's
largest gain is 0 dB there, and the receiver's smallest is 0 dB.
"""

from dataclasses import dataclass

from hardware.virtual.usrp2.device.synthesiser import Synthesiser

BANDWIDTH_HZ = 40e6
LARGEST_GAIN_DB = 31.5
_GAIN_STEP_DB = 0.5
_ATTENUATOR = 0x3F << 8
_LOCK = 1 << 0
_SYNTHESISER_OUT = 1 << 2
_TX_MIXER = 1 << 4
_RX_OFF = 1 << 4
_POWER_DOWN = 1 << 5
_SWITCH_TO_TX = 1 << 14
# Pins of the receiver are the lower half of a word, those of the transmitter the upper one.
_TX_SHIFT = 16


@dataclass(frozen=True)
class Pins:
    """State of all pins, in one word."""

    word: int

    @property
    def tx_gain_db(self) -> float:
        """Between -31.5 and 0 dB."""
        return _gain_db(self.word >> _TX_SHIFT) - LARGEST_GAIN_DB

    @property
    def rx_gain_db(self) -> float:
        """Between 0 and 31.5 dB."""
        return _gain_db(self.word)

    @property
    def transmits(self) -> bool:
        """Whether the transmitter's mixer is on and leads to the antenna."""
        pins = self.word >> _TX_SHIFT
        wanted = _TX_MIXER | _SYNTHESISER_OUT | _SWITCH_TO_TX
        return pins & wanted == wanted and not pins & _POWER_DOWN

    @property
    def receives(self) -> bool:
        """Whether the receiver's mixer is on."""
        return bool(self.word & _SYNTHESISER_OUT) and not self.word & (_POWER_DOWN | _RX_OFF)


def _gain_db(pins: int) -> float:
    return ((pins & _ATTENUATOR) >> 8) * _GAIN_STEP_DB


class Sbx:
    """Both oscillators, and whether they are locked."""

    def __init__(self) -> None:
        self.rx_lo, self.tx_lo = Synthesiser(), Synthesiser()
        self.locked = True

    def input_pins(self) -> int:
        """What can be read: the lock detectors."""
        return _LOCK | _LOCK << _TX_SHIFT if self.locked else 0
