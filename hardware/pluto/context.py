"""One libiio context of a Pluto: how it is opened, asked and given back, and what its failures mean.

libiio gives errno numbers, and a time-out shows as EPIPE (ip) or ETIMEDOUT (usb). A call that failed may be answered
later, which would be taken for the answer of the next one: after a failure a context is never used again.
"""

import errno
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from hardware.radio.errors import HardwareError, RadioTimeoutError

PHY, RX_CORE, TX_CORE = "ad9361-phy", "cf-ad9361-lpc", "cf-ad9361-dds-core-lpc"
VIRTUAL = "airdp,virtual"
"""Context attribute of an emulated radio: "lockstep" where its time moves with the streams, "paced" in real time."""
STATUS_REGISTER = 0x80000088
"""Of both FPGA cores; bits stay until they are written."""
TX_UNDERFLOW, RX_OVERFLOW = 1 << 0, 1 << 2
_ALL_STATUS = 0x7
INSTALL = "sudo apt-get install libiio0 libiio-utils; pip install -c constraints.txt pyadi-iio pylibiio"
# For streams whose time stands still until somebody reads: nothing is wrong if nothing happens for hours.
_PATIENT_MS = 3_600_000
_BUSY_S = 1.0
# Refused settings: the context works, the value does not. ENODEV is not among them: so says a cable that was pulled.
_REFUSALS = (errno.EINVAL, errno.ENOENT, errno.EACCES, errno.EBUSY, errno.ERANGE)

_T = TypeVar("_T")


def libraries() -> tuple[Any, Any]:
    """The modules `iio` and `adi`, or `HardwareError` with the command that installs them."""
    try:
        import adi
        import iio
    except (ImportError, OSError, AttributeError) as error:
        # AttributeError: the Python package is there, the C library is not.
        raise HardwareError(f"a Pluto needs libiio and pyadi-iio ({error}): {INSTALL}") from error
    return iio, adi


class PlutoContext:
    """An open context. Calls from several threads at once are safe: libiio has a lock for each connection.

    attributes: of the context: serial number, firmware, model. virtual: "lockstep" or "paced" for an emulated radio,
    empty for a real one.
    """

    def __init__(self, name: str, uri: str, timeout_s: float) -> None:
        self.name, self.uri = name, uri
        self._iio, adi = libraries()
        self._timeout_ms = max(1, round(1e3 * timeout_s))
        self._failure = ""
        self._abandoned = False
        self._status_lock = threading.Lock()
        self._patient: Any = None
        self._context: Any = self._opened()
        self.attributes: dict[str, str] = dict(self._context.attrs)
        self.virtual = self.attributes.get(VIRTUAL, "")
        found = {device: self._context.find_device(device) for device in (PHY, RX_CORE, TX_CORE)}
        missing = [device for device, handle in found.items() if handle is None]
        if missing:
            self.destroy()
            raise HardwareError(f"{name} at {uri} is no Pluto: it has no {' and no '.join(missing)}")
        self.phy, self.rx_core, self.tx_core = found.values()
        self.sdr: Any = adi.Pluto(uri_ctx=self._context)
        try:
            self.ask("setting the time-out", lambda: self._context.set_timeout(self._timeout_ms))
        except BaseException:
            self.destroy()
            raise

    def _opened(self) -> Any:
        if not self.uri.isascii() or not self.uri.startswith(("ip:", "usb:")):
            raise HardwareError(f"{self.name} has the address '{self.uri}': expected ip:HOST or usb:BUS.DEVICE.PORT")
        try:
            return self._iio.Context(self.uri)
        except OSError as error:
            checks = (
                "is it plugged in and booted, and is the number current (`airdp radios`)?"
                if self.uri.startswith("usb:")
                else "is it plugged in and booted, and does `ping` reach it?"
            )
            raise HardwareError(
                f"{self.name} cannot be reached at {self.uri} ({error.strerror or error}): {checks}"
            ) from error

    @property
    def usable(self) -> bool:
        """Whether no call has failed yet."""
        return not self._failure and self._context is not None

    def ask(self, doing: str, call: Callable[[], _T]) -> _T:
        """The result of a libiio call; its failures become a `HardwareError` that says what was being done."""
        if self._context is None:
            raise HardwareError(f"{self.name}: {doing} is not possible, its connection is closed")
        if self._failure:
            raise HardwareError(f"{self.name}: {doing} is not possible since {self._failure}")
        started = time.monotonic()
        try:
            return call()
        except OSError as error:
            raise self.explained(doing, error, time.monotonic() - started) from error

    def explained(self, doing: str, error: OSError, waited_s: float) -> HardwareError:
        """What a failed call means. Unless it merely refused a value, the context is not used any more."""
        if error.errno in _REFUSALS:
            return HardwareError(f"{self.name} refused {doing}: {error.strerror}")
        late = error.errno == errno.ETIMEDOUT or waited_s >= 0.9e-3 * self._timeout_ms
        said = f"no answer for {waited_s:.1f} s" if late else f"the connection broke ({error.strerror or error})"
        self._failure = self._failure or f"{said} while {doing}"
        kind = RadioTimeoutError if late else HardwareError
        return kind(f"{self.name} at {self.uri}: {said} while {doing}")

    def read(self, channel: str, attribute: str, *, output: bool) -> str:
        """An attribute of a channel of the transceiver."""
        return self.ask(f"reading {attribute}", lambda: str(self._attribute(channel, attribute, output).value))

    def write(self, channel: str, attribute: str, value: str, *, output: bool) -> None:
        """Write an attribute of a channel of the transceiver."""

        def call() -> None:
            self._attribute(channel, attribute, output).value = value

        self.ask(f"setting {attribute} to {value}", call)

    def has(self, channel: str, attribute: str, *, output: bool) -> bool:
        """Whether the firmware knows an attribute of a channel of the transceiver."""
        found = self.phy.find_channel(channel, output)
        return found is not None and attribute in found.attrs

    def _attribute(self, channel: str, attribute: str, output: bool) -> Any:
        if not self.has(channel, attribute, output=output):
            raise HardwareError(f"{self.name} has no attribute {channel} {attribute}: update its firmware")
        return self.phy.find_channel(channel, output).attrs[attribute]

    def read_device(self, attribute: str) -> str:
        """An attribute of the transceiver as a whole."""
        return self.ask(f"reading {attribute}", lambda: str(self._device_attribute(attribute).value))

    def write_device(self, attribute: str, value: str) -> None:
        """Write an attribute of the transceiver as a whole."""

        def call() -> None:
            self._device_attribute(attribute).value = value

        self.ask(f"setting {attribute} to {value}", call)

    def _device_attribute(self, attribute: str) -> Any:
        if attribute not in self.phy.attrs:
            raise HardwareError(f"{self.name} has no attribute {attribute}: update its firmware")
        return self.phy.attrs[attribute]

    def temperature_c(self) -> float:
        """Of the transceiver."""
        return float(self.read("temp0", "input", output=False)) / 1e3

    def write_debug(self, attribute: str, value: str) -> None:
        """Write a debug attribute of the transceiver."""

        def call() -> None:
            self.phy.debug_attrs[attribute].value = value

        if attribute not in self.phy.debug_attrs:
            raise HardwareError(f"{self.name} has no debug attribute {attribute}: update its firmware")
        self.ask(f"setting {attribute} to {value}", call)

    def status(self, core: Any) -> int:
        """The status register of a core; what is set in it is cleared by reading it here."""

        def call() -> int:
            # Between a look and the clearing nobody else may look: each would see what only one of them has cleared.
            with self._status_lock:
                value = int(core.reg_read(STATUS_REGISTER))
                if value:
                    core.reg_write(STATUS_REGISTER, value)
                return value

        return self.ask("reading the status register", call)

    def clear_status(self, core: Any) -> None:
        """Forget what happened until now."""
        self.ask("clearing the status register", lambda: core.reg_write(STATUS_REGISTER, _ALL_STATUS))

    def open_buffer(self, core: Any, samples: int, kernel_buffers: int, *, patient: bool) -> Any:
        """A stream buffer of I and Q. patient: its calls may wait for as long as they like, `cancel` ends them.

        A patient one has a context of its own: the time-out of a context is also that of the server for it.
        """

        def call() -> Any:
            device = core
            if patient:
                self._destroy_context(self._patient)
                self._patient = self._iio.Context(self.uri)
                device = self._patient.find_device(core.name)
            for channel in ("voltage0", "voltage1"):
                device.find_channel(channel, core is self.tx_core).enabled = True
            device.set_kernel_buffers_count(kernel_buffers)
            if patient:
                self._patient.set_timeout(_PATIENT_MS)
            return self._iio.Buffer(device, samples, False)

        def patiently() -> Any:
            # The other side may not have noticed yet that a stream before this one was given up.
            deadline = time.monotonic() + _BUSY_S
            while True:
                try:
                    return call()
                except OSError as error:
                    if error.errno != errno.EBUSY or time.monotonic() >= deadline:
                        raise
                    time.sleep(_BUSY_S / 20)

        return self.ask("opening a stream", patiently)

    def destroy_buffer(self, buffer: Any) -> None:
        """Give a buffer back now: one that is alive when its context or the interpreter ends is a segmentation fault.

        `iio.Buffer` does it when the last reference goes, and a traceback may hold one.
        """
        if buffer._buffer is not None:
            self._iio._buffer_destroy(buffer._buffer)
            buffer._buffer = None

    def abandon(self, buffer: Any) -> None:
        """Leave a buffer to a call on it that does not return, and the context with it: freeing either would crash."""
        buffer._buffer = None
        self._abandoned = True
        self._failure = self._failure or "a transfer does not return"

    def destroy(self) -> None:
        """Close the connection. All buffers must be gone. A second call does nothing."""
        self._destroy_context(self._patient)
        self._destroy_context(self._context)
        self._patient = self._context = None

    def _destroy_context(self, context: Any) -> None:
        if context is not None and context._context is not None:
            if not self._abandoned:
                self._iio._destroy(context._context)
            context._context = None
