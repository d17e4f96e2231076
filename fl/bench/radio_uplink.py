"""An uplink over radios of a simulated lab, sample by sample: its time, a run's memory, the overhead of sounding.

What is timed is `RadioUplink.exchange`, which is what a run calls.
"""

import statistics
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import scipy.fft
import tomli_w

from fl.bench.measure import Measurement, compare
from fl.bench.paper_uplink import paper_config
from fl.learning.workforce import Workforce
from fl.nodes.air_format import AirFormat
from fl.nodes.coordinated import RadioRules
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.clipping import clip_update
from fl.random_streams import Stream, generator
from fl.run.runner import run_experiment
from fl.uplink.alpha_u import Fixed, PowerSettings
from fl.uplink.contract import UplinkPlan
from fl.uplink.jammer import JammerSettings
from hardware.lab.file import find_lab, parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab
from phy.numerology import Numerology

Taps = tuple[tuple[int, float], ...]
_LAB = Path(__file__).with_suffix(".toml")


FLAT = ((0, 0.0),)
MULTIPATH = ((0, 0.0), (3, -6.0), (7, -10.0))
"""Paths as the lab `loopback-harsh` has them: [delay in samples, power in dB] of each."""


def work_lab(clients: int, taps: Taps = FLAT) -> Lab:
    """The lab file beside this module, with so many clients and these paths."""
    tables = tomllib.loads(_LAB.read_text(encoding="utf-8"))
    for radio in tables["radio"]:
        if radio["role"] == "client":
            radio["count"] = clients
    tables["medium"]["taps"] = taps
    return parse_lab(tables, str(_LAB))


class RadioWork:
    """One uplink with the paper's d = 155,830, sample by sample: Rayleigh fading and noise, nothing else."""

    def __init__(self, clients: int, stack: ExitStack, taps: Taps = FLAT) -> None:
        self.air = AirFormat(Numerology(), 155_830)
        # As in a run: linear algebra on one thread.
        stack.enter_context(Workforce(1))
        lab = stack.enter_context(open_lab(work_lab(clients, taps), seed=1))
        self.uplinks = {
            diagnosed: RadioUplink(
                lab,
                self.air,
                np.full(clients, 200),
                1.0,
                rules(alpha_u=2.0, diagnosis=diagnosed),
                record_bounded=False,
                streams=partial(generator, 1),
            )
            for diagnosed in (False, True)
        }
        self.update = clip_update(generator(1, Stream.DATA).standard_normal(155_830, dtype=np.float32), 1.0)
        self.clients, self.number = clients, 0

    def plan(self, *, diagnosed: bool = False) -> UplinkPlan:
        """Sound and plan the next uplink."""
        self.number += 1
        return self.uplinks[diagnosed].plan(self.number)

    def exchange(self, plan: UplinkPlan, *, diagnosed: bool = False) -> object:
        """From updates at the clients to their sum at the server, as a run does it; nothing is written to a ledger."""
        updates = ((client, self.update) for client in plan.senders)
        return self.uplinks[diagnosed].exchange(plan, updates, authorise=lambda: None)


def rules(alpha_u: float, *, diagnosis: bool = False) -> RadioRules:
    """No jammer, a fixed alpha_u."""
    return RadioRules(PowerSettings(Fixed(alpha_u)), JammerSettings(), 0.1, attempts=3, diagnosis=diagnosis)


def radio_uplink(repeats: int) -> Measurement:
    """An uplink from updates to their sum over flat channels, against the FFTs in it."""
    return _against_its_ffts(repeats, FLAT, "Rayleigh", _all_facts)


def radio_uplink_multipath(repeats: int) -> Measurement:
    """The same over channels of three paths, each of which a client undoes with a filter of 2,049 taps."""
    return _against_its_ffts(repeats, MULTIPATH, "Rayleigh on three paths, undone by filters", lambda *_: {})


def _against_its_ffts(
    repeats: int, taps: Taps, channels: str, facts_of: Callable[["RadioWork", int], dict[str, Any]]
) -> Measurement:
    with ExitStack() as stack:
        work = RadioWork(50, stack, taps)
        symbols, size = work.air.grid.symbols, work.air.payload_numerology.fft_size
        grids = np.ones((work.clients, symbols, size), np.complex64)

        def bare() -> None:
            for grid in grids:
                scipy.fft.ifft(grid, norm="ortho", workers=1)
            scipy.fft.fft(grids[0], norm="ortho", workers=1)

        plans = [work.plan()]
        # Planned between the timed calls: a plan is good for one exchange.
        return compare(
            lambda: work.exchange(plans[0]),
            bare,
            # Tens of milliseconds each: more pairs make the median steady.
            8 * repeats,
            before=lambda: plans.__setitem__(0, work.plan()),
            one_thread=True,
            workload=f"50 clients, d = 155,830, {channels}, noise: whitening, precoding, OFDM, air, receiver, "
            "accounting; processor time",
            reference=f"its {work.clients + 1} x {symbols} FFTs of {size} points, scipy.fft, complex64, one worker",
            facts=facts_of(work, repeats),
        )


def _all_facts(work: RadioWork, repeats: int) -> dict[str, Any]:
    return {**_diagnosis_facts(work, repeats), **_radio_facts()}


def _diagnosis_facts(work: RadioWork, repeats: int) -> dict[str, Any]:
    """What the comparison with the exact sum, and the pictures' material, add to an uplink."""
    times: dict[bool, list[float]] = {False: [], True: []}
    for _ in range(8 * repeats + 1):
        for diagnosed, taken in times.items():
            plan = work.plan(diagnosed=diagnosed)
            # Of the processor: a small difference that other work on the machine would drown on the wall.
            begun = time.process_time()
            work.exchange(plan, diagnosed=diagnosed)
            taken.append(time.process_time() - begun)
    alone, together = (statistics.median(times[diagnosed][1:]) for diagnosed in (False, True))
    return {"diagnosis_share": round(together / alone - 1, 3)}


def _radio_facts() -> dict[str, Any]:
    """Peak memory of a process that runs two uplinks, for 10 and 200 clients, and the overhead of sounding."""
    peaks = {clients: _peak_mib(clients) for clients in (10, 200)}
    overheads = _overheads(uplinks=100)
    return {
        "peak_mib_10_clients": round(peaks[10], 1),
        "peak_mib_200_clients": round(peaks[200], 1),
        "peak_growth": round(peaks[200] / peaks[10] - 1, 4),
        "overhead_samples_mean": float(np.mean(overheads)),
        "overhead_samples_p99": float(np.percentile(overheads, 99)),
    }


def _peak_mib(clients: int) -> float:
    """Largest resident memory of a fresh process that runs two uplinks, in MiB."""
    script = f"from fl.bench.radio_uplink import peak_of_a_run; print(peak_of_a_run({clients}))"
    outcome = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return float(outcome.stdout)


def peak_of_a_run(clients: int) -> float:
    """Run two uplinks of the paper's model and data over radios; the process's largest resident memory in MiB."""
    with TemporaryDirectory() as name:
        scratch = Path(name)
        lab = scratch / "lab.toml"
        lab.write_text(tomli_w.dumps(work_lab(clients).to_tables()), encoding="utf-8")
        changes = ("uplink.kind=radio", f"radio.lab={lab}", f"partition.clients={clients}", "local.epochs=1")
        config, _ = paper_config(scratch, 2, *changes, "power.alpha_u=2.0")
        run_experiment(config, scratch / "run")
    # Not getrusage: its peak is inherited from the process that started this one.
    status = Path("/proc/self/status").read_text()
    return float(status.split("VmHWM:")[1].split()[0]) / 1024


def _overheads(uplinks: int) -> list[int]:
    """Samples without payload of each uplink, soundings that were given up included: 5 clients, digits' d."""
    lab = find_lab("loopback-harsh")
    air = AirFormat(Numerology(), 14_710)
    with open_lab(lab, seed=1) as radios:
        uplink = RadioUplink(
            radios, air, np.full(5, 287), 1.0, rules(0.5), record_bounded=False, streams=partial(generator, 1)
        )
        senders = len(lab.clients)
        given_up = air.sounding_phase_samples(senders)
        return [
            air.overhead_samples(senders) + uplink.plan(number).postponed * given_up for number in range(1, uplinks + 1)
        ]
