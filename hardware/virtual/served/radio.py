"""Radios in an air that another process serves."""

import math
import threading
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import zmq
from numpy.typing import NDArray

from hardware.radio.ad936x import AD936X
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, RadioTimeoutError
from hardware.radio.settings import Limits, RadioSettings
from hardware.virtual.served.wire import (
    LARGEST_BYTES,
    Samples,
    packed,
    raised,
    settings_from_wire,
    settings_to_wire,
    unpacked,
)


class AirPort:
    """One connection to a served air. After a request that was interrupted, or was not answered in time, there is a new
    one: an answer that comes late belongs to nobody."""

    def __init__(self, address: str, timeout_s: float) -> None:
        endpoint, _, self.radio = address.rpartition("#")
        if not endpoint or not self.radio:
            raise HardwareError(f"'{address}' is not the address of a served radio: expected ipc:///PATH#NAME")
        self._address, self._timeout_ms = address, round(1e3 * timeout_s)
        self._lock = threading.Lock()
        self._endpoint = endpoint
        self._socket = self._connected()

    def _connected(self) -> "zmq.Socket[bytes]":
        socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.REQ)
        socket.setsockopt(zmq.LINGER, 0)
        socket.setsockopt(zmq.MAXMSGSIZE, LARGEST_BYTES)
        socket.setsockopt(zmq.RCVTIMEO, self._timeout_ms)
        socket.setsockopt(zmq.SNDTIMEO, self._timeout_ms)
        socket.connect(self._endpoint)
        return socket

    def _again(self) -> None:
        self._socket.close()
        self._socket = self._connected()

    def call(self, name: str, samples: Samples | None = None, **content: Any) -> tuple[dict[str, Any], Samples | None]:
        """What the air answers; what it raises is raised here."""
        with self._lock:
            try:
                self._socket.send_multipart(packed({"call": name, "radio": self.radio, **content}, samples))
                answer, heard = unpacked(self._socket.recv_multipart())
            except zmq.Again as error:
                self._again()
                raise RadioTimeoutError(
                    f"{self._address} did not answer within {1e-3 * self._timeout_ms:g} s: is its process still there?"
                ) from error
            except zmq.ZMQError as error:
                self._again()
                raise HardwareError(f"{self._address}: {error}") from error
            except BaseException:
                # Whoever is told to end still has to silence the radio.
                self._again()
                raise
        if "error" in answer:
            raise raised(str(answer["error"]), str(answer.get("text")))
        return answer, heard

    def close(self) -> None:
        """Give the connection back."""
        self._socket.close()


class ServedRadio(Radio):
    """As `hardware.loopback.radio.LoopbackRadio`, with the air elsewhere."""

    def __init__(self, name: str, address: str, sample_rate_hz: float, limits: Limits, timeout_s: float = 5.0) -> None:
        capabilities = replace(AD936X, sample_rate_hz=(sample_rate_hz, sample_rate_hz))
        super().__init__(name, capabilities, limits, timeout_s)
        self.port = AirPort(address, timeout_s)
        try:
            self._circuits, _ = self.port.call("describe")
        except BaseException:
            self.port.close()
            raise

    def now(self) -> int:
        """See `Radio.now`."""
        return int(self.port.call("now")[0]["now"])

    @property
    def tx_step(self) -> float | None:
        """See `Radio.tx_step`."""
        step: float | None = self._circuits["tx_step"]
        return step

    @property
    def tx_image_db(self) -> float | None:
        """See `Radio.tx_image_db`."""
        image: float | None = self._circuits["tx_image_db"]
        return -math.inf if image is None else image

    def _write(self, settings: RadioSettings) -> None:
        rounded = replace(
            settings,
            tx_gain_db=_to_step(settings.tx_gain_db, AD936X.tx_gain_step_db),
            rx_gain_db=_to_step(settings.rx_gain_db, AD936X.rx_gain_step_db),
        )
        self.port.call("tune", settings=settings_to_wire(rounded))

    def _read_back(self) -> RadioSettings:
        return settings_from_wire(self.port.call("settings")[0]["settings"])

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        self.port.call("send", samples, start_sample=start_sample)

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        answer, heard = self.port.call("listen", count=count, start_sample=start_sample)
        if heard is None or heard.size != count:
            raise HardwareError(f"{self.name} asked for {count} samples and got {0 if heard is None else heard.size}")
        # What a message holds cannot be written to.
        return heard.copy(), int(answer["clipped"])

    def _silence(self) -> None:
        if self._settings is not None:
            self._write(replace(self._settings, tx_gain_db=AD936X.tx_gain_db[0]))

    def _release(self) -> None:
        self.port.close()


@dataclass(frozen=True)
class AirHandle:
    """The air and its time, as they are reached through one of its radios."""

    radio: ServedRadio

    def new_block(self, block: int) -> None:
        """See `SimulatedAir.new_block`."""
        self.radio.port.call("new_block", block=block)

    def advance(self, sample: int) -> None:
        """See `VirtualTime.advance`."""
        self.radio.port.call("advance", sample=sample)


def _to_step(gain_db: float, step_db: float) -> float:
    return round(gain_db / step_db) * step_db
