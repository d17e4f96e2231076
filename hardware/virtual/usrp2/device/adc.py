"""An ADS62P44: the receive converter, which amplifies in the digital domain."""

_DIGITAL_REGISTER, _DIGITAL_STEP_DB = 0x17, 0.5
_FINE_REGISTER, _FINE_STEP_DB = 0x1A, 0.05


class Adc:
    """Words have the register in their upper byte and its value in the lower one."""

    def __init__(self) -> None:
        self.gain_db = 0.0
        self._gains_db = {_DIGITAL_REGISTER: 0.0, _FINE_REGISTER: 0.0}

    def write(self, word: int) -> None:
        """Take a word; registers other than those of the gains do nothing."""
        register, value = word >> 8 & 0xFF, word & 0x0F
        if register == _DIGITAL_REGISTER:
            self._gains_db[register] = value * _DIGITAL_STEP_DB
        elif register == _FINE_REGISTER:
            self._gains_db[register] = value * _FINE_STEP_DB
        self.gain_db = sum(self._gains_db.values())
