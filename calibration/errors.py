"""What can go wrong while a lab is measured, or when a record of it is used.

Samples that nothing can be measured of are `hardware.radio.errors.CaptureError`, as for every other use of a capture.
"""

from phy.errors import AirdpError


class CalibrationError(AirdpError):
    """Root of this package's errors."""


class MeasurementError(CalibrationError, ValueError):
    """Arguments that no measurement can be made of: wrong shapes, values out of range, too little signal.

    A `ValueError` too, which pydantic puts down to the key where a measurement is read from a file.
    """


class RecordError(CalibrationError):
    """A calibration record that cannot be read or does not hold together; the message names the key."""


class StaleRecordError(RecordError):
    """A record used after it expired, or before it was made."""


class MismatchedRecordError(RecordError):
    """A record taken with other settings, another numerology or another receiver than the ones in use."""
