"""Compiled flowgraphs as processes of their own, under a Python that has GNU Radio."""

import errno
import functools
import http.client
import importlib.util
import json
import os
import re
import secrets
import signal
import socket
import subprocess
import sys
import tempfile
import time
import xmlrpc.client
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import IO, Self

from flowgraphs import guard
from flowgraphs.build import INSTALL
from flowgraphs.control import control_proxy
from flowgraphs.errors import FlowgraphError, UnknownNameError
from flowgraphs.parameters import CONTROL_ADDRESS, CONTROL_PORT, Kind, Value
from flowgraphs.source import Flowgraph, describe_text

NO_PARAMETERS: Mapping[str, Value] = MappingProxyType({})
Ranges = Mapping[str, tuple[float, float]]
NO_LIMITS: Ranges = MappingProxyType({})
SYSTEM_PYTHON = "/usr/bin/python3"
TERMINATE_AFTER_S, KILL_AFTER_S = 3.0, 6.0

_ANSWER_S = 2.0
_POLL_S = 0.05
_REASON_BYTES, _REASON_LINES = 16384, 3
_PROMPT = "Press Enter to quit: "
# Calls that the XML-RPC server logs, buffers that GNU Radio logs, addresses in stacks: none says why a graph ended.
_CHATTER = re.compile(
    r'"POST /RPC2 HTTP|:info:|:warning: Matplotlib is|XDG_RUNTIME_DIR not set'
    r'|^0x[0-9a-f]+: |^Traceback |^\s+File "|^\s*[~^]+$'
)


@functools.cache
def gnuradio_python() -> str:
    """A Python that can import GNU Radio: this one, or else the distribution's, for which its packages are made."""
    if importlib.util.find_spec("gnuradio") is not None:
        return sys.executable
    if Path(SYSTEM_PYTHON).exists():
        tried = subprocess.run([SYSTEM_PYTHON, "-c", "import gnuradio"], capture_output=True, check=False)
        if tried.returncode == 0:
            return SYSTEM_PYTHON
    raise FlowgraphError(f"no Python here can import GNU Radio; as root: {INSTALL}")


class FlowgraphProcess:
    """A flowgraph that runs while the context is open.

    It has a session of its own, so that Ctrl-C reaches only who started it, and a pipe for its standard input, whose
    end ends the graph: it cannot outlive this process. (One with a window does not read it and is terminated.)
    """

    def __init__(
        self,
        program: Path,
        parameters: Mapping[str, Value] = NO_PARAMETERS,
        limits: Ranges = NO_LIMITS,
        *,
        lab_gains: bool = False,
    ) -> None:
        """program: from `build`. parameters: by id; those not given have the values that are drawn.

        limits: lowest and highest value that a parameter may be set to while it runs, checked in the graph's own
        process; `band_hz`: what its transmission may occupy. lab_gains: limits of a USRP's gains are in dB below its
        largest and above its smallest, as lab files have them.
        """
        self._token, self._limits, self._lab_gains = secrets.token_urlsafe(24), limits, lab_gains
        self.program = program
        self.flowgraph = describe_text(program.with_suffix(".grc").read_text(encoding="utf-8"))
        self.parameters: Mapping[str, Value] = _complete(self.flowgraph, parameters)
        self._log: IO[bytes] | None = None
        self._last_words = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        """Of the flowgraph."""
        return self.flowgraph.name

    @property
    def control_place(self) -> str:
        """Where its XML-RPC server is; empty where it has none."""
        if CONTROL_PORT not in self.parameters:
            return ""
        return f"http://{self.parameters[CONTROL_ADDRESS]}:{self.parameters[CONTROL_PORT]}"

    @property
    def control_url(self) -> str:
        """Where its parameters are set and read by XML-RPC, with the token of this start; empty where nowhere."""
        return self.control_place.replace("http://", f"http://{guard.USER}:{self._token}@")

    @property
    def alive(self) -> bool:
        """Does it run?"""
        return self._process is not None and self._process.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs or has not been started; negative: the signal that ended it."""
        return None if self._process is None else self._process.poll()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Start it; `wait_until_ready` says when it can be used."""
        if self.flowgraph.has_window:
            require_display(self.name, f"airdp flowgraph {self.name}")
        self._require_free_addresses()
        options = [f"{drawn.option}={self.parameters[name]}" for name, drawn in self.flowgraph.parameters.items()]
        command = [gnuradio_python(), "-u", guard.__file__, str(self.program), *options]
        # A file, not a pipe: nobody has to read it while the graph runs. It has no name, and goes with the last user.
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115 closed in stop()
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=self._log,
                stderr=self._log,
                start_new_session=True,
                env={**os.environ, guard.VARIABLE: self._told()},
            )
        except OSError as error:
            self.stop()
            raise FlowgraphError(f"{self.name} cannot be started with {command[0]}: {error}") from error

    def _told(self) -> str:
        """What the guard of its XML-RPC server must know."""
        numbers = {name: drawn.kind is not Kind.TEXT for name, drawn in self.flowgraph.parameters.items()}
        return json.dumps(
            {
                "token": self._token,
                "address": str(self.parameters.get(CONTROL_ADDRESS, "")),
                "parameters": numbers,
                "limits": {name: list(bounds) for name, bounds in self._limits.items()},
                "lab_gains": self._lab_gains,
            }
        )

    def wait_until_ready(self, timeout_s: float = 30.0) -> None:
        """Return once the graph answers at its control port: its blocks then exist and have opened their devices."""
        if not self.control_url:
            raise FlowgraphError(f"{self.name} has no {CONTROL_PORT}: nothing tells when it is ready")
        deadline = time.monotonic() + timeout_s
        while not self._answers():
            self.require_alive()
            if time.monotonic() > deadline:
                raise FlowgraphError(
                    f"{self.name} did not answer at {self.control_place} within {timeout_s:g} s: "
                    f"{self.reason() or 'it said nothing'}; see whether its device can be reached"
                )
            self.wait(_POLL_S)
        self.require_alive()

    def require_alive(self) -> None:
        """Raise `FlowgraphError` with the reason where it has ended."""
        if not self.alive:
            raise FlowgraphError(f"{self.name} ended: {self.reason() or 'it gave no reason'}")

    def wait(self, timeout_s: float) -> bool:
        """Has it ended within this time?"""
        if self._process is None:
            return True
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return False
        return True

    def reason(self) -> str:
        """The last lines that it wrote, and the signal that ended it, where one did."""
        if self._log is not None:
            size = os.fstat(self._log.fileno()).st_size
            tail = os.pread(self._log.fileno(), _REASON_BYTES, max(0, size - _REASON_BYTES))
            self._last_words = _essence(tail.decode(errors="replace"))
        code = self.exit_code
        ended = f"ended by {signal.Signals(-code).name}" if code is not None and code < 0 else ""
        return "; ".join(part for part in (self._last_words, ended) if part)

    def stop(self) -> None:
        """End it: by the end of its input, after 3 s by SIGTERM, after 6 s by SIGKILL. Harmless where it has ended."""
        process = self._process
        if process is not None:
            if process.stdin is not None:
                process.stdin.close()
            if self.flowgraph.has_window or not self.wait(TERMINATE_AFTER_S):
                process.terminate()
            if not self.wait(KILL_AFTER_S - TERMINATE_AFTER_S):
                process.kill()
                process.wait()
        if self._log is not None:
            self.reason()
            self._log.close()
            self._log = None

    def _answers(self) -> bool:
        try:
            with control_proxy(self.control_url, _ANSWER_S) as server:
                return bool(server.get_control_port() == self.parameters[CONTROL_PORT])
        except (OSError, http.client.HTTPException, xmlrpc.client.Error):
            return False

    def _require_free_addresses(self) -> None:
        """Refuse before starting: the other graph at this control port would answer in place of this one."""
        taken = [
            f"{self.parameters[name]} ({name})"
            for name in self.flowgraph.binds
            if _is_taken(str(self.parameters[name]))
        ]
        if self.control_place and _is_taken(self.control_place.replace("http:", "tcp:")):
            taken.append(f"{self.control_place} ({CONTROL_ADDRESS}, {CONTROL_PORT})")
        if taken:
            raise FlowgraphError(
                f"{self.name} cannot listen at {' and '.join(taken)}: already in use; "
                "end the other program, or choose another address"
            )


def _complete(flowgraph: Flowgraph, given: Mapping[str, Value]) -> Mapping[str, Value]:
    for name in given:
        if name not in flowgraph.parameters:
            raise UnknownNameError("parameter", name, flowgraph.parameters, of=flowgraph.name)
    return MappingProxyType(
        {name: drawn.parse(given.get(name, drawn.default)) for name, drawn in flowgraph.parameters.items()}
    )


def require_display(what: str, command: str) -> None:
    """Refuse to open a window where there is nowhere to open it. command: what the user would start."""
    if not any(os.environ.get(variable) for variable in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")):
        raise FlowgraphError(
            f"{what} opens a window and there is no display; start it on a desktop, through `ssh -X`, "
            f"or on a virtual screen: apt-get install xvfb xauth, then `xvfb-run {command}`"
        )


def _is_taken(address: str) -> bool:
    """Does somebody listen there? What cannot be tried from here is left to the graph to find out."""
    scheme, _, place = address.partition("://")
    if scheme == "ipc":
        with socket.socket(socket.AF_UNIX) as probe:
            return probe.connect_ex(place.replace("@", "\0", 1) if place.startswith("@") else place) == 0
    host, _, port = place.rpartition(":")
    host = host.strip("[]")
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        # As the graph's own sockets do: connections of an earlier graph that are still closing do not count.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("" if host == "*" else host, int(port)))
        except OSError as error:
            return error.errno == errno.EADDRINUSE
    return False


def _essence(text: str) -> str:
    """Of a program's last words, what tells why it ended: what follows a traceback's frames, or the last few lines."""
    lines = [line.replace(_PROMPT, "").rstrip() for line in text.splitlines()]
    frames = [number for number, line in enumerate(lines) if line.startswith('  File "')]
    # A frame is a place and, indented further, its code.
    after = next((n for n in range(frames[-1] + 1, len(lines)) if not lines[n].startswith("    ")), 0) if frames else 0
    meant = [line.strip() for line in lines[after:] if line.strip() and not _CHATTER.search(line)]
    return "; ".join(meant[-_REASON_LINES:])
