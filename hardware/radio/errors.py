"""What can go wrong with radios. All derive from `AirdpError`, so the command line reports them in one line."""

from phy.errors import AirdpError


class HardwareError(AirdpError):
    """A radio cannot do what was asked of it, or did not do it."""


class LateError(HardwareError):
    """The start sample has already passed: nothing was sent or received."""


class RxOverflowError(HardwareError):
    """Received samples were lost because nobody took them in time: the sample count is broken until a new sounding."""


class LostPacketError(RxOverflowError):
    """Received samples were lost between radio and host."""


class BrokenChainError(HardwareError):
    """A receiver stopped because what it was told ended too early."""


class TxUnderflowError(HardwareError):
    """The transmitter ran out of samples within a burst: what was sent is not what was given."""


class TxLostPacketError(TxUnderflowError):
    """Samples of a burst were lost between host and radio: what was sent is not what was given."""


class TxLateError(LateError, TxUnderflowError):
    """A burst came to the radio after its time, which is known only afterwards: nothing of it was sent."""


class LockLostError(HardwareError):
    """A radio does not follow the reference, an oscillator is not locked, or two radios have different times."""


class AlignmentError(HardwareError):
    """A transmitter's sample count has no known relation to the server's: nothing was sent. See `OpenLab.ready`."""


class TxSamplesError(HardwareError):
    """Samples that cannot be sent: NaN or infinite, of the wrong type or shape, or none at all. Nothing was sent."""


class TxClippingError(TxSamplesError):
    """Samples beyond full scale, where clipping was not allowed. Nothing was sent."""


class RadioTimeoutError(HardwareError):
    """The radio did not answer in time, or was asked to wait longer than its time-out."""


class SettingsMismatchError(HardwareError):
    """A setting read back differs from what was written. The radio is parked."""


class LimitError(HardwareError):
    """A band or a gain outside what the lab allows. Nothing was written to the radio."""


class CapabilityError(HardwareError):
    """A rate, a band or a gain that the radio cannot do. Nothing was written to the radio."""


class CaptureError(HardwareError):
    """A capture that must not be used: too short, all zero, saturated, or with NaN in it."""


class LabFileError(HardwareError):
    """A lab file with a key or a value that cannot be used."""


class MixedLabError(LabFileError):
    """A lab whose radios are of several kinds, which no backend reaches together."""
