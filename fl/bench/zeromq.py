"""How fast GNU Radio does what the modem does, and how fast samples travel through it, for `airdp bench`."""

import json
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Self

import numpy as np
import zmq

from fl.experiment import gnuradio_worker
from fl.experiment.paper_uplink import Seconds
from flowgraphs.errors import FlowgraphError
from flowgraphs.runtime import gnuradio_python
from hardware.gnuradio_wire import encode
from phy.modem import demodulate, modulate
from phy.numerology import Numerology

DIRECTIONS = ("modulate", "demodulate")
_HIGH_WATER_MARK = 4
_TIMEOUT_MS = 20_000
_LOOK_UP_MS = 200
_SAMPLE_BYTES = np.dtype(np.complex64).itemsize

Ask = Callable[..., dict[str, Any]]


@contextmanager
def worker(role: str, settings: Mapping[str, Any]) -> Iterator[tuple[str, Ask]]:
    """`gnuradio_worker` as a process of its own: the version of GNU Radio, and a function that asks it."""
    command = [gnuradio_python(), gnuradio_worker.__file__, role, json.dumps(settings)]
    with (
        tempfile.TemporaryFile("w+") as errors,
        # Leaving closes its input, which ends it, and waits.
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        questions, answers = process.stdin, process.stdout
        if questions is None or answers is None:
            raise FlowgraphError("GNU Radio's side of the benchmark has no pipes")

        def ask(**request: Any) -> dict[str, Any]:
            try:
                questions.write(json.dumps(request) + "\n")
                questions.flush()
            except BrokenPipeError as error:
                raise FlowgraphError(_last_words(errors)) from error
            return _answer(answers, errors)

        try:
            yield _answer(answers, errors)["gnuradio"], ask
        except BaseException:
            process.kill()
            raise


def _answer(answers: IO[str], errors: IO[str]) -> dict[str, Any]:
    line = answers.readline()
    if not line:
        raise FlowgraphError(_last_words(errors))
    answer: dict[str, Any] = json.loads(line)
    return answer


def _last_words(errors: IO[str]) -> str:
    errors.seek(0)
    lines = [line.strip() for line in errors.read().splitlines() if line.strip() and ":info:" not in line]
    return f"GNU Radio's side of the benchmark has ended: {lines[-1] if lines else 'it says nothing'}"


@contextmanager
def one_core() -> Iterator[int]:
    """This thread on one core, and which; what it starts inherits that."""
    before = os.sched_getaffinity(0)
    core = max(before)
    os.sched_setaffinity(0, {core})
    try:
        yield core
    finally:
        os.sched_setaffinity(0, before)


@dataclass(frozen=True)
class ModemWork:
    """Samples to be modulated, and as many to be demodulated. packet_symbols: of the paper's uplink.

    gnuradio_packet_symbols: with which GNU Radio is fastest; its five buffers leave the cache sooner than our two.
    """

    samples: int = 40_000_000
    packet_symbols: int = 406
    gnuradio_packet_symbols: int = 203
    numerology: Numerology = field(default_factory=Numerology)

    def settings(self, core: int) -> dict[str, Any]:
        """For `gnuradio_worker`."""
        return {
            "core": core,
            "fft_size": self.numerology.fft_size,
            "cp_samples": self.numerology.cp_samples,
            "carriers": self.numerology.used_subcarriers.tolist(),
            "packet_symbols": self.gnuradio_packet_symbols,
        }

    def ours(self) -> dict[str, Callable[[], Seconds]]:
        """By direction: what the samples take, packet after packet from one array to another."""
        rng = np.random.default_rng(1)
        shape = (self.packet_symbols, self.numerology.data_subcarriers)
        cells = (0.1 * (rng.standard_normal(shape) + 1j * rng.standard_normal(shape))).astype(np.complex64)
        samples = modulate(cells, self.numerology)
        works: dict[str, Callable[[], object]] = {
            "modulate": lambda: modulate(cells, self.numerology, out=samples),
            "demodulate": lambda: demodulate(samples, self.numerology),
        }
        packets = max(1, round(self.samples / samples.size))

        def timed(work: Callable[[], object]) -> Seconds:
            begun = Seconds.now()
            for _ in range(packets):
                work()
            took = Seconds.now().since(begun)
            part = self.samples / (packets * samples.size)
            return Seconds(took.wall * part, took.cpu * part)

        return {direction: partial(timed, work) for direction, work in works.items()}


@dataclass(frozen=True)
class ModemTimes:
    """One (ours, GNU Radio's) for each repetition, by direction."""

    gnuradio_version: str
    pairs: dict[str, list[tuple[Seconds, Seconds]]]


def time_modems(work: ModemWork, repeats: int) -> ModemTimes:
    """Ours and GNU Radio's in alternation on one and the same core; the first of each warms up and is left out."""
    pairs: dict[str, list[tuple[Seconds, Seconds]]] = {direction: [] for direction in DIRECTIONS}
    with one_core() as core, worker("modem", work.settings(core)) as (version, ask):
        ours = work.ours()
        for _ in range(repeats + 1):
            for direction in DIRECTIONS:
                own = ours[direction]()
                theirs = ask(work=direction, samples=work.samples)
                pairs[direction].append((own, Seconds(theirs["wall_s"], theirs["cpu_s"])))
    return ModemTimes(version, {direction: timed[1:] for direction, timed in pairs.items()})


@dataclass(frozen=True)
class ZeromqWork:
    """Samples to be sent, in messages as large as pays: 512 KiB."""

    samples: int = 80_000_000
    message_samples: int = 65_536

    @property
    def messages(self) -> int:
        """How many that are."""
        return -(-self.samples // self.message_samples)


class SampleRoute:
    """A PUSH socket that a thread fills and a PULL socket that this thread empties, with a context each.

    bound: where PUSH waits for whoever pulls. connected: where PULL finds whoever pushes. The same address twice makes
    the route a direct one.
    """

    def __init__(self, work: ZeromqWork, bound: str, connected: str) -> None:
        self.work = work
        self._stack = ExitStack()
        self._push, self._pull = self._socket(zmq.PUSH), self._socket(zmq.PULL)
        self._push.bind(bound)
        self._pull.connect(connected)
        rng = np.random.default_rng(1)
        samples = rng.standard_normal(2 * work.message_samples, dtype=np.float32).view(np.complex64)
        self._message = encode(0, samples)
        self._header_bytes = len(encode(0, samples[:0]))

    def __enter__(self) -> Self:
        """Ready."""
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Closed, and what was not received is dropped."""
        self._stack.close()

    def transfer(self) -> None:
        """Send all messages and receive all their samples; `FlowgraphError` where they stop coming."""
        enough = threading.Event()
        sender = threading.Thread(target=self._send, args=(enough,), name="bench-zeromq-sender")
        sender.start()
        missing = self.work.messages * self.work.message_samples
        try:
            while missing > 0:
                missing -= (len(self._pull.recv(copy=False)) - self._header_bytes) // _SAMPLE_BYTES
        except zmq.Again as error:
            raise FlowgraphError(f"no samples came for {_TIMEOUT_MS / 1000:g} s, {missing} are missing") from error
        finally:
            enough.set()
            sender.join()

    def _send(self, enough: threading.Event) -> None:
        left = self.work.messages
        while left and not enough.is_set():
            # Queues that stay full are no error here: whoever waits for the samples says what is wrong.
            with suppress(zmq.Again):
                self._push.send(self._message, copy=False)
                left -= 1

    def _socket(self, kind: int) -> "zmq.Socket[bytes]":
        context = self._stack.enter_context(zmq.Context())
        made = self._stack.enter_context(context.socket(kind))
        made.set_hwm(_HIGH_WATER_MARK)
        made.linger, made.sndtimeo, made.rcvtimeo = 0, _LOOK_UP_MS, _TIMEOUT_MS
        return made


@contextmanager
def zeromq_routes(work: ZeromqWork) -> Iterator[tuple[str, SampleRoute, SampleRoute]]:
    """GNU Radio's version, the route through a flowgraph of it, and one without."""
    with tempfile.TemporaryDirectory(prefix="airdp-") as name, ExitStack() as stack:
        addresses = {end: f"ipc://{Path(name) / end}" for end in ("in", "out", "direct")}
        settings = {
            "samples_in": addresses["in"],
            "samples_out": addresses["out"],
            "message_samples": work.message_samples,
            "high_water_mark": _HIGH_WATER_MARK,
        }
        relayed = stack.enter_context(SampleRoute(work, addresses["in"], addresses["out"]))
        direct = stack.enter_context(SampleRoute(work, addresses["direct"], addresses["direct"]))
        version, _ = stack.enter_context(worker("relay", settings))
        yield version, relayed, direct
