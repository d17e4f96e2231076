"""The [cable] section of a lab file."""

from hardware.foundation.sections import NotNegative
from hardware.lab.section import BackendSection


class CableSettings(BackendSection):
    attenuation_db: NotNegative = 12.0
    noise_var_complex: NotNegative = 1e-5
