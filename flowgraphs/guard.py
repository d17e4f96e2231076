"""Runs a compiled flowgraph with its XML-RPC server guarded. Started as a script, by a Python that has GNU Radio only.

The server that GNU Radio Companion draws takes calls of any method from any local process and, through a browser, from
any web page. Here each call must carry the token of this start, parameters are all that can be reached, and values
outside of the limits of this start are refused inside this process.
"""

import base64
import hmac
import json
import math
import os
import runpy
import sys
import threading
import xmlrpc.server
from collections.abc import Iterable
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any

VARIABLE = "AIRDP_FLOWGRAPH_CONTROL"
"""Holds what the guard is told, as JSON: token, parameters (name and whether it is a number), limits (name, lowest and
highest value), whether limits of a USRP's gains are those of lab files. Only this user can read a process's
environment."""
USER = "airdp"
BAND, GAIN, CENTER, BANDWIDTH = "band_hz", "tx_gain_db", "center_hz", "bandwidth_hz"
_MOST_BYTES = 1 << 16
_FIXED = ("control_address", "control_port")
_GAIN_RANGE = "get_gain_range"
_ROUNDING = 1e-6
# What a drawing calls the block of a USRP, and the end of its range from which lab files count.
_USRPS = {"device_uhd_sink": ("tx_gain_db", 1), "device_uhd_source": ("rx_gain_db", 0)}


class RefusedError(Exception):
    """A value that may not be set."""


class Parameters:
    """What can be called: `set_X` and `get_X` of a graph's parameters, and of a USRP the range of its gain: lowest,
    highest, step. told: see VARIABLE."""

    def __init__(self, graph: Any, told: dict[str, Any]) -> None:
        self._graph, self._numbers, self._limits = graph, told["parameters"], dict(told["limits"])
        self._lock = threading.Lock()
        if told.get("lab_gains"):
            self._take_over_gains()

    def _take_over_gains(self) -> None:
        """Limits of a lab file are in dB from an end of the device's range, which is known now that it is open."""
        for block, (name, end) in _USRPS.items():
            if hasattr(self._graph, block) and name in self._limits:
                edges = self._gain_range()
                low, high = (limit + edges[end] for limit in self._limits[name])
                # The device's next step at or above: the rest is done to the samples before they come here.
                steps = math.ceil((high - edges[0]) / edges[2] - _ROUNDING) if edges[2] else high - edges[0]
                self._limits[name] = [max(low, edges[0]), edges[0] + max(steps, 0) * (edges[2] or 1.0)]

    def _gain_range(self) -> list[float]:
        for block in _USRPS:
            if hasattr(self._graph, block):
                found = getattr(self._graph, block).get_gain_range(0)
                return [float(found.start()), float(found.stop()), float(found.step())]
        raise RefusedError("its device has no range of gains")

    def _dispatch(self, method: str, arguments: tuple[Any, ...]) -> Any:
        if method == _GAIN_RANGE and not arguments:
            with self._lock:
                return self._gain_range()
        action, _, name = method.partition("_")
        if action not in ("get", "set") or name not in self._numbers or len(arguments) != (action == "set"):
            raise RefusedError(f"there is no method {method} with {len(arguments)} arguments")
        with self._lock:
            if action == "set":
                self._check(name, arguments[0])
            return getattr(self._graph, method)(*arguments)

    def _check(self, name: str, value: Any) -> None:
        if name in _FIXED:
            raise RefusedError(f"{name} cannot be set while the graph runs")
        if not self._numbers[name]:
            if not isinstance(value, str):
                raise RefusedError(f"{name} is {value!r}: expected text")
            return
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise RefusedError(f"{name} is {value!r}: expected a number")
        if name in self._limits:
            low, high = self._limits[name]
            if not low <= value <= high:
                raise RefusedError(f"{name} is {value:g}: this start allows {low:g} to {high:g}")
        if BAND in self._limits and name in (GAIN, CENTER, BANDWIDTH):
            self._check_band({name: value})

    def _check_band(self, new: dict[str, float]) -> None:
        """What is heard stays within the band; while a transmitter is parked, its centre does."""
        center, width, gain = (
            new.get(name, getattr(self._graph, f"get_{name}")()) for name in (CENTER, BANDWIDTH, GAIN)
        )
        low, high = self._limits[BAND]
        half = 0.0 if gain <= self._limits[GAIN][0] else width / 2
        if center - half < low or center + half > high:
            raise RefusedError(
                f"it would occupy {center - half:.10g} to {center + half:.10g} Hz: "
                f"this start allows {low:.10g} to {high:.10g} Hz"
            )


def refusal(headers: Any, token: str, bound: Iterable[str]) -> tuple[int, str] | None:
    """HTTP status and reason for which a request is refused, None where it may pass. bound: hosts that it may name."""
    if headers.get("Origin") is not None:
        return 403, "requests of web pages are refused"
    host = headers.get("Host", "").rpartition(":")[0] or headers.get("Host", "")
    if host.strip("[]") not in bound:
        return 403, "this is not the host that was asked for"
    expected = "Basic " + base64.b64encode(f"{USER}:{token}".encode()).decode()
    if not hmac.compare_digest(headers.get("Authorization", "").encode(), expected.encode()):
        return 401, "the token of this start is missing or wrong"
    try:
        fits = 0 <= int(headers.get("Content-Length", "")) <= _MOST_BYTES
    except ValueError:
        fits = False
    return None if fits else (413, "the request is too long")


def guarded(told: dict[str, Any]) -> Any:
    """A class in place of `SimpleXMLRPCServer`."""

    class Handler(xmlrpc.server.SimpleXMLRPCRequestHandler):
        timeout = 5

        def do_POST(self) -> None:  # noqa: N802 as the library calls it
            refused = refusal(self.headers, told["token"], {told["address"], "localhost", "127.0.0.1"})
            if refused is None:
                super().do_POST()
            else:
                self.send_error(*refused)
                self.close_connection = True

    class Server(ThreadingMixIn, xmlrpc.server.SimpleXMLRPCServer):
        # A thread for each connection: one that says nothing keeps nobody else waiting.
        daemon_threads = True

        def __init__(self, address: tuple[str, int], **_: Any) -> None:
            super().__init__(address, requestHandler=Handler, logRequests=False, allow_none=True)

        def register_instance(self, instance: Any, allow_dotted_names: bool = False) -> None:
            super().register_instance(Parameters(instance, told), allow_dotted_names=False)

    return Server


def main() -> None:
    """Run the program that the first argument names, with those that follow."""
    told = json.loads(os.environ.pop(VARIABLE))
    xmlrpc.server.SimpleXMLRPCServer = guarded(told)  # type: ignore[misc]
    program = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    # The place of the program, not of this file, whose neighbours have names that others may want.
    sys.path[0] = str(program.parent)
    runpy.run_path(str(program), run_name="__main__")


if __name__ == "__main__":
    main()
