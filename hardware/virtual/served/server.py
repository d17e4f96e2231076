"""Serves a simulated air to the radios of a lab, each of which may belong to another process."""

import secrets
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Self

import zmq

from hardware.air.build import build_medium
from hardware.foundation.scratch import scratch_folder
from hardware.lab.emulation import RadioStatus
from hardware.lab.model import Lab
from hardware.radio.errors import HardwareError
from hardware.virtual.served.wire import (
    LARGEST_BYTES,
    Samples,
    packed,
    settings_from_wire,
    settings_to_wire,
    unpacked,
)

Reply = tuple[dict[str, Any], Samples | None]
SCHEME = "ipc://"


class ServedAir:
    """An `Emulation`. Its socket is in a folder that is the user's alone; a radio's address is that and its name.

    One thread answers one request after the other, so the air needs no lock, and what arrives first is done first.
    """

    mode = "lockstep"
    slipped_s = 0.0

    def __init__(self, lab: Lab, seed: int) -> None:
        self._lab, self._medium = lab, build_medium(lab, seed)
        self._running = ExitStack()
        self._folder = self._running.enter_context(scratch_folder("air", sockets=True))
        self._context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
        self._router = self._context.socket(zmq.ROUTER)
        self._router.setsockopt(zmq.LINGER, 0)
        self._router.setsockopt(zmq.MAXMSGSIZE, LARGEST_BYTES)
        self._endpoint = f"{SCHEME}{self._folder}/air"
        self._stop = f"inproc://stop-{secrets.token_hex(8)}"
        self._streamed = {radio.name: 0 for radio in lab.radios}
        self._calls: dict[str, Callable[[str, dict[str, Any], Samples | None], Reply]] = {
            "describe": self._describe,
            "tune": self._tune,
            "settings": self._settings,
            "now": self._now,
            "send": self._send,
            "listen": self._listen,
            "new_block": self._new_block,
            "advance": self._advance,
        }

    def __enter__(self) -> Self:
        """Serve from now on."""
        try:
            self._router.bind(self._endpoint)
        except zmq.ZMQError as error:
            self._remove()
            raise HardwareError(
                f"the air cannot be served at {self._endpoint}: {error}; set TMPDIR to a folder that takes sockets"
            ) from error
        stopping = self._context.socket(zmq.PAIR)
        stopping.bind(self._stop)
        self._thread = threading.Thread(target=self._serve, args=(stopping,), name="served air", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop serving."""
        with self._context.socket(zmq.PAIR) as stop:
            stop.connect(self._stop)
            stop.send(b"")
        self._thread.join()
        self._remove()

    def _remove(self) -> None:
        self._router.close()
        self._context.term()
        self._running.close()

    @property
    def uris(self) -> Mapping[str, str]:
        """Address of each radio."""
        return {radio.name: f"{self._endpoint}#{radio.name}" for radio in self._lab.radios}

    @property
    def try_with(self) -> str:
        """A command that shows that one of them is there."""
        return f"test -S {self._endpoint.removeprefix(SCHEME)} && echo served"

    def status(self) -> Sequence[RadioStatus]:
        """Samples through each radio, and its count."""
        return [
            RadioStatus(
                name=radio.name,
                uri=self.uris[radio.name],
                connections=0,
                rx_buffers=0,
                tx_buffers=0,
                streamed_samples=self._streamed[radio.name],
                overflows=0,
                underflows=0,
                counter=self._medium.now(radio.name),
                rate_hz=round(self._lab.sample_rate_hz),
            )
            for radio in self._lab.radios
        ]

    def _serve(self, stopping: "zmq.Socket[bytes]") -> None:
        poller = zmq.Poller()
        poller.register(self._router, zmq.POLLIN)
        poller.register(stopping, zmq.POLLIN)
        with stopping:
            while True:
                ready = dict(poller.poll())
                if stopping in ready:
                    return
                who, _, *frames = self._router.recv_multipart()
                self._router.send_multipart([who, b"", *self._answer(frames)])

    def _answer(self, frames: list[bytes]) -> list[Any]:
        try:
            request, samples = unpacked(frames)
            call = self._calls.get(request.get("call", ""))
            if call is None:
                raise HardwareError(f"a served air does not know the call {request.get('call')!r}")
            return packed(*call(str(request.get("radio")), request, samples))
        except HardwareError as error:
            return packed({"error": type(error).__name__, "text": str(error)})
        except (KeyError, TypeError, ValueError, OverflowError, MemoryError) as error:
            return packed({"error": "HardwareError", "text": f"a request that cannot be understood: {error!r}"})

    def _describe(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        front_end = self._medium.front_end(name)
        return {"tx_step": front_end.tx_step, "tx_image_db": front_end.iq_image_db}, None

    def _tune(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        self._medium.tune(name, settings_from_wire(request["settings"]))
        return {}, None

    def _settings(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        return {"settings": settings_to_wire(self._medium.settings(name))}, None

    def _now(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        return {"now": self._medium.now(name)}, None

    def _send(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        if samples is None or not samples.size:
            raise HardwareError(f"{name} sends no samples")
        self._medium.send(name, samples, int(request["start_sample"]))
        self._streamed[name] += samples.size
        return {}, None

    def _listen(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        count = int(request["count"])
        if not 1 <= count <= LARGEST_BYTES // 8 - 64:
            raise HardwareError(f"{name} is asked for {count} samples: too many for one message")
        heard, clipped = self._medium.listen(name, count, int(request["start_sample"]))
        self._streamed[name] += count
        return {"clipped": clipped}, heard

    def _new_block(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        self._medium.new_block(int(request["block"]))
        return {}, None

    def _advance(self, name: str, request: dict[str, Any], samples: Samples | None) -> Reply:
        self._medium.advance(name, int(request["sample"]))
        return {}, None
