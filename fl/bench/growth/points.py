"""Time and memory of one uplink, for so many clients and coordinates, in a process of its own.

What is timed is what a run does in an uplink: sounding, planning, and the exchange from updates to their sum. Training
is left out: it is linear in its data, and somebody else's.
"""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from fl.bench.radio_uplink import rules, work_lab
from fl.learning.workforce import Workforce
from fl.nodes.air_format import AirFormat
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.clipping import clip_update
from fl.random_streams import Stream, generator
from fl.uplink.alpha_u import Fixed, PowerSettings
from fl.uplink.channel import RayleighChannel
from fl.uplink.contract import Uplink
from fl.uplink.jammer import JammerSettings
from fl.uplink.symbol import SymbolUplink
from hardware.lab.opened import open_lab
from phy.numerology import Numerology

SYMBOL, RADIO = "symbol", "radio"
CLIENTS = (10, 100, 1_000, 10_000)
"""With `FEW_COORDINATES`."""
COORDINATES = (10_000, 100_000, 1_000_000, 10_000_000)
"""With `FEW_CLIENTS`."""
FEW_CLIENTS, FEW_COORDINATES = 10, 10_000
_SAMPLES_EACH = 200
_FAILURE = 1e-6
"""Probability that any bound of an uplink fails, as a share of delta = 1e-5 is."""


@dataclass(frozen=True)
class Point:
    """plan_s, exchange_s: of the processor, the quickest of several. peak_mib: largest resident memory of the process;
    start_mib: what it was before there was an uplink."""

    fidelity: str
    clients: int
    coordinates: int
    plan_s: float
    exchange_s: float
    start_mib: float
    peak_mib: float

    @property
    def uplink_s(self) -> float:
        """Both together."""
        return self.plan_s + self.exchange_s


def measured_apart(fidelity: str, clients: int, coordinates: int, repeats: int) -> Point:
    """`measure` in a fresh process: the peak of a process never falls."""
    call = f"measure({fidelity!r}, {clients}, {coordinates}, {repeats})"
    script = f"import json, dataclasses; from fl.bench.growth.points import measure; print({call})"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return Point(**json.loads(outcome.stdout))


def measure(fidelity: str, clients: int, coordinates: int, repeats: int) -> str:
    """The point of this process as JSON."""
    start_mib = peak_mib()
    with ExitStack() as stack:
        # As in a run: linear algebra on one thread.
        stack.enter_context(Workforce(1))
        make = _symbol if fidelity == SYMBOL else _radio
        uplink = make(clients, coordinates, stack)
        update = clip_update(generator(1, Stream.DATA).standard_normal(coordinates, dtype=np.float32), 1.0)
        times = []
        for number in range(1, repeats + 2):
            begun = time.process_time()
            plan = uplink.plan(number)
            planned = time.process_time()
            uplink.exchange(plan, ((client, update) for client in plan.senders), authorise=lambda: None)
            times.append((planned - begun, time.process_time() - planned))
    plan_s, exchange_s = (min(part) for part in zip(*times[1:], strict=True))
    return json.dumps(asdict(Point(fidelity, clients, coordinates, plan_s, exchange_s, start_mib, peak_mib())))


def peak_mib() -> float:
    """Largest resident memory of this process until now, in MiB."""
    # Not getrusage: its peak is inherited from the process that started this one.
    return float(Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) / 1024


def _symbol(clients: int, coordinates: int, stack: ExitStack) -> Uplink:
    del stack
    return SymbolUplink(
        sizes=np.full(clients, _SAMPLES_EACH),
        coordinates=coordinates,
        clip_norm=1.0,
        record_bounded=False,
        channel=RayleighChannel(clients, 1.0),
        noise_std_real=1.0,
        limits=np.full(clients, float(coordinates)),
        power=PowerSettings(Fixed(1.0)),
        jammer=JammerSettings(),
        streams=partial(generator, 1),
    )


def _radio(clients: int, coordinates: int, stack: ExitStack) -> Uplink:
    lab = stack.enter_context(open_lab(work_lab(clients), seed=1))
    air = AirFormat(Numerology(), coordinates, confidence=1.0 - _FAILURE / clients)
    sizes = np.full(clients, _SAMPLES_EACH)
    return RadioUplink(lab, air, sizes, 1.0, rules(2.0), record_bounded=False, streams=partial(generator, 1))


def exponent(sizes: Sequence[float], values: Sequence[float]) -> float:
    """p of values ~ sizes^p over the last step, where what is constant weighs least."""
    return float(np.log(values[-1] / values[-2]) / np.log(sizes[-1] / sizes[-2]))
