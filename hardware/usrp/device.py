"""One USRP as UHD has it: how it is opened, asked and given back, and what its failures mean.

libuhd raises RuntimeError for everything, after 0.5 s where a box does not answer. After a failure it may take the
answer to one question for that to the next: a device that has failed is not asked again, but opened anew.
"""

import ctypes
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hardware.radio.errors import HardwareError, RadioTimeoutError
from hardware.usrp.library import library

# What libuhd says where nobody answers.
_NO_ANSWER = ("timed out", "timeout", "no response", "no control response", "ethernet")
_NOT_FOUND = ("no devices found", "lookuperror")
_FINDS = 3

_OWN_REFERENCES = 2
"""That the device's attribute, and the question how many there are, make of one object."""

_T = TypeVar("_T")


class UsrpDevice:
    """An open box. Any thread may ask. name: of the radio, for messages. address: UHD's arguments, "addr=…".

    gone: why nobody can be there any more, where somebody knows; then it is not asked, because libuhd would wait.
    """

    def __init__(self, name: str, address: str, device_args: str = "", gone: Callable[[], str] = str) -> None:
        self.name, self.address, self._gone = name, address, gone
        self._lock = threading.RLock()
        self._failure = ""
        self.uhd = library()
        arguments = ",".join(part for part in (address, device_args) if part)
        self._usrp: Any = self._opened(arguments)
        boxes = self.ask("counting boxes", lambda usrp: int(usrp.get_num_mboards()))
        if boxes != 1:
            raise HardwareError(f"{name} has the address '{address}', which is {boxes} boxes: each radio is one box")

    def _opened(self, arguments: str) -> Any:
        """libuhd waits a moment only for an answer: it is asked again."""
        left = _FINDS
        while True:
            left -= 1
            try:
                return self.uhd.usrp.MultiUSRP(arguments)
            except RuntimeError as error:
                if not (left and (_not_found(error) or _unanswered(error))):
                    raise self._not_opened(error) from error

    def _not_opened(self, error: RuntimeError) -> HardwareError:
        said = _one_line(error)
        if _not_found(error):
            checks = "is it switched on, does `ping` reach it, and does `uhd_find_devices` show it?"
            return HardwareError(f"{self.name} cannot be reached at {self.address}: {checks}")
        if _unanswered(error):
            return RadioTimeoutError(f"{self.name} at {self.address} has ceased to answer while it was opened: {said}")
        return HardwareError(f"{self.name} at {self.address} cannot be opened: {said}")

    @property
    def usable(self) -> bool:
        """Whether it is open and has not failed."""
        self._look_whether_gone()
        return not self._failure and self._usrp is not None

    @property
    def failure(self) -> str:
        """Why it is not asked any more; nothing while it is."""
        return self._failure

    def ask(self, doing: str, call: Callable[[Any], _T]) -> _T:
        """The result of a call on the MultiUSRP; failures become a `HardwareError` that says what was being done."""
        with self._lock:
            self._look_whether_gone()
            if self._usrp is None:
                raise HardwareError(f"{self.name}: {doing} is not possible, its connection is closed")
            if self._failure:
                raise HardwareError(f"{self.name}: {doing} is not possible since {self._failure}")
            started_s = time.monotonic()
            try:
                return call(self._usrp)
            except (RuntimeError, IndexError, KeyError, ValueError) as error:
                # Without its frames, which hold the MultiUSRP: an error that somebody keeps would keep the connection.
                reason = error.with_traceback(None)
                raise self.explained(doing, error, time.monotonic() - started_s) from reason

    def _look_whether_gone(self) -> None:
        why = self._gone()
        if why:
            self.fail(why)

    def get(self, name: str, *arguments: Any) -> Any:
        """The answer to `get_NAME` of the MultiUSRP, for its only box or channel."""
        said = name.replace("_", " ")
        return self.ask(f"reading its {said}", lambda usrp: getattr(usrp, f"get_{name}")(*arguments, 0))

    def set(self, name: str, *values: Any) -> None:
        """Call `set_NAME` of the MultiUSRP, for its only box or channel."""
        said = f"{name.replace('_', ' ')} to {', '.join(map(str, values))}"
        self.ask(f"setting its {said}", lambda usrp: getattr(usrp, f"set_{name}")(*values, 0))

    def time_at(self, seconds: float) -> Any:
        """UHD's time of a moment."""
        return self.uhd.types.TimeSpec(seconds)

    def explained(self, doing: str, error: Exception, waited_s: float) -> HardwareError:
        """What a failed call means. Unless it merely refused a value, the device is not used any more."""
        said = _one_line(error)
        if not isinstance(error, RuntimeError) or not _unanswered(error):
            return HardwareError(f"{self.name} refused {doing}: {said}")
        self.fail(f"no answer for {waited_s:.1f} s while {doing}")
        return RadioTimeoutError(f"{self.name} at {self.address}: {self._failure} ({said})")

    def fail(self, reason: str) -> None:
        """Do not ask it any more."""
        self._failure = self._failure or reason

    def sensor(self, name: str, direction: str = "") -> bool | float | str | None:
        """A sensor of the box, or with "rx" or "tx" of its frontend; None where it has no such."""

        def read(usrp: Any) -> bool | float | str | None:
            names, value = (
                (usrp.get_mboard_sensor_names(0), usrp.get_mboard_sensor)
                if not direction
                else (
                    getattr(usrp, f"get_{direction}_sensor_names")(0),
                    getattr(usrp, f"get_{direction}_sensor"),
                )
            )
            return _value(value(name, 0)) if name in names else None

        return self.ask(f"reading the sensor {name}", read)

    def sensors(self) -> dict[str, str]:
        """All that there are, as the device puts them in words."""

        def read(usrp: Any) -> dict[str, str]:
            found = {name: str(_value(usrp.get_mboard_sensor(name, 0))) for name in usrp.get_mboard_sensor_names(0)}
            for direction in ("rx", "tx"):
                for name in getattr(usrp, f"get_{direction}_sensor_names")(0):
                    found[f"{direction} {name}"] = str(_value(getattr(usrp, f"get_{direction}_sensor")(name, 0)))
            return found

        return self.ask("reading its sensors", read)

    def answers(self) -> bool:
        """Whether the box is there, whatever has become of the connection."""
        return not self._gone() and any(self.uhd.find(self.address) for _ in range(_FINDS))

    def close(self) -> None:
        """Let it go. A second call does nothing.

        libuhd says goodbye to the box, and ends the whole process where that is not there any more: then the connection
        is kept until the end. So it is where somebody else still holds it, who might let go of it when the box is gone.
        """
        with self._lock:
            if self._usrp is None:
                return
            self._look_whether_gone()
            if sys.getrefcount(self._usrp) > _OWN_REFERENCES or (self._failure and not self.answers()):
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._usrp))
            self._usrp = None


def _value(sensor: Any) -> bool | float | str:
    """A sensor's value; UHD has them as text with a type."""
    text = str(sensor.value)
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        return float(text)
    except ValueError:
        return text


def _not_found(error: Exception) -> bool:
    return any(words in str(error).lower() for words in _NOT_FOUND)


def _unanswered(error: Exception) -> bool:
    return any(words in _one_line(error).lower() for words in _NO_ANSWER)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
