"""A sweep over processes: on this machine and on a cluster of Dask's own commands, with processes killed on the way.

Whatever happens, the models are those of plain runs, bit for bit.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
import tomli_w
from distributed import Client

import fl.sweep.session
from fl.cluster.access import Access
from fl.errors import SweepError
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.sweep.plan import SweepFolder, load_plan
from fl.sweep.schedule import run_sweep
from fl.sweep.session import SweepProgress
from fl.sweep.summary import summarise_sweep
from tests.conftest import START, Outcome
from tests.dask_commands import ENVIRONMENT, dask, gone

# Most of the time goes into starting Python with PyTorch in each process, which takes long on a busy machine.
pytestmark = pytest.mark.timeout(300)
UPLINKS = 24
CONFIG: dict[str, Any] = {
    "name": "victim",
    "data": {"train_samples": 600},
    "partition": {"clients": 4},
    "model": {"hidden": 16},
    "local": {"epochs": 10},
    "uplink": {"uplinks": UPLINKS},
}
GRID = """
name = "grid"
base = "victim.toml"
trials = 2
[[axis]]
name = "algorithm"
point = [
    { name = "FedAvg", set = { "algorithm.name" = "fedavg" } },
    { name = "FedProx", set = { "algorithm.name" = "fedprox" } },
]
"""
TRIALS = [f"{name}/trial-0{number}" for name in ("fedavg", "fedprox") for number in (1, 2)]
ONE_EACH = ("--jobs", "1", "--trials", "1")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sweep")
    (path / "victim.toml").write_text(tomli_w.dumps(CONFIG))
    (path / "grid.toml").write_text(GRID)
    return path


@pytest.fixture(scope="module")
def models(home: Path) -> dict[str, list[str]]:
    """Digests of the models of plain runs by point, trial 1 first."""
    import fl.run.figures

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fl.run.figures, "draw_run", lambda folder: None)
        return {
            name: [
                run({**CONFIG, "seed": seed, "algorithm": {"name": name}}, home / f"{name}-{seed}").model_sha256
                for seed in (1, 2)
            ]
            for name in ("fedavg", "fedprox")
        }


class Sweep:
    """`airdp sweep` in a session of its own, as in a terminal of its own."""

    def __init__(self, home: Path, out: Path) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, "sweep", home / "grid.toml", "--out", out, "--resume", "--json", *ONE_EACH],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=ENVIRONMENT,
            start_new_session=True,
        )

    def wait_for(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 120
        while not condition():
            assert self.process.poll() is None, self.process.communicate()
            assert time.monotonic() < deadline, "the sweep does not get anywhere"
            time.sleep(0.01)

    def end(self) -> Outcome:
        out, err = self.process.communicate(timeout=120)
        return Outcome(self.process.returncode, out, err)


@contextmanager
def started(home: Path, out: Path) -> Iterator[Sweep]:
    sweep = Sweep(home, out)
    try:
        yield sweep
    finally:
        if sweep.process.poll() is None:
            sweep.process.kill()
        sweep.process.communicate()


def workers_of(pid: int) -> list[psutil.Process]:
    children = psutil.Process(pid).children(recursive=True)
    return [child for child in children if "spawn_main" in " ".join(child.cmdline())]


def uplinks_of(out: Path, trial: str) -> int:
    path = out / trial / "metrics.jsonl"
    return path.read_bytes().count(b"\n") if path.exists() else 0


def resumes_of(out: Path) -> dict[str, int]:
    """How often each trial that was begun was taken up again."""
    return {str(path.parent.relative_to(out)): read_ledger(path).resumes for path in out.glob("*/trial-*/ledger.jsonl")}


def models_of(out: Path) -> dict[str, list[str]]:
    return {summary.point.slug: list(summary.model_sha256) for summary in summarise_sweep(SweepFolder(out))}


def assert_whole(out: Path) -> None:
    """Every uplink once, in order, in every trial; nothing left lying about."""
    folder = SweepFolder(out)
    for point in folder.plan().points:
        assert folder.finished(point) == [1, 2]
        for trial in (1, 2):
            rows = folder.run_folder(point, trial).metrics()
            assert [row["uplink"] for row in rows] == list(range(1, UPLINKS + 1))
    assert {(entry["point"], entry["trial"]) for entry in folder.timing()["trials"]} == {
        (name, trial) for name in ("fedavg", "fedprox") for trial in (1, 2)
    }
    assert [path for path in out.rglob(".*") if path.is_file()] == []


class Killer:
    """Kills one of several processes as soon as it is in the middle of a trial, which it has locked."""

    def __init__(self, out: Path, processes: Callable[[], list[psutil.Process]]) -> None:
        self.out, self.processes = out, processes
        self.hit = ""

    def __call__(self, now: SweepProgress) -> None:
        for trial in now.running:
            name, lock = f"{trial.point.slug}/trial-{trial.trial:02d}", f".trial-{trial.trial:02d}.lock"
            if self.hit or not 0 < trial.uplinks < 2 * UPLINKS // 3:
                continue
            for process in self.processes():
                if any(file.path == str(self.out / trial.point.slug / lock) for file in process.open_files()):
                    process.kill()
                    self.hit = name


def test_a_worker_is_killed(
    home: Path, models: dict[str, list[str]], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = home / "local"
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    killer = Killer(out, lambda: workers_of(os.getpid()))
    run_sweep(load_plan(str(home / "grid.toml")), out, jobs=2, on_progress=killer)
    assert models_of(out) == models
    # The trial was taken up again; no other was repeated.
    assert killer.hit
    assert resumes_of(out) == {name: int(name == killer.hit) for name in TRIALS}
    assert_whole(out)
    assert not (out / "dask.log").exists()
    # All is as before, and nobody has said anything.
    assert workers_of(os.getpid()) == []
    assert "OMP_NUM_THREADS" not in os.environ
    assert capfd.readouterr() == ("", "")


DEADLY = """
import multiprocessing, os
from torch import nn

class Net(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 10))
        if multiprocessing.parent_process() is not None:
            os.kill(os.getpid(), 9)
"""


def test_a_trial_that_takes_its_workers_down_is_given_up(
    home: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "deadly.py").write_text(DEADLY)
    monkeypatch.syspath_prepend(home)
    plan = load_plan(str(home / "victim.toml"), ["model.module=deadly:Net"])
    monkeypatch.setattr(fl.sweep.session, "_VAIN_ATTEMPTS", 2)
    with pytest.raises(SweepError, match="trial 1 of point 'victim' took several workers down before its next uplink"):
        run_sweep(plan, home / "deadly", jobs=1)
    assert workers_of(os.getpid()) == []
    assert capfd.readouterr() == ("", "")


def test_interrupted_at_the_terminal_and_resumed(home: Path, models: dict[str, list[str]]) -> None:
    out = home / "interrupted"
    with started(home, out) as sweep:
        sweep.wait_for(lambda: uplinks_of(out, "fedavg/trial-01") > 1)
        workers = workers_of(sweep.process.pid)
        assert len(workers) == 1
        # Ctrl-C goes to all processes of the terminal.
        os.killpg(sweep.process.pid, signal.SIGINT)
        outcome = sweep.end()
        assert (outcome.code, outcome.out) == (130, "")
        assert outcome.err.endswith("airdp: interrupted\n")
        assert gone(workers)
    assert sorted(path.name for path in out.iterdir()) == ["fedavg", "fedprox", "sweep.json", "timing.json"]
    # The uplink that was running was finished: nothing is charged that was not used.
    contents = read_ledger(out / "fedavg" / "trial-01" / "ledger.jsonl")
    assert contents.authorised == contents.accounted == uplinks_of(out, "fedavg/trial-01") < UPLINKS
    with started(home, out) as sweep:
        outcome = sweep.end()
    assert outcome.code == 0
    assert all(line.startswith("grid: ") for line in outcome.err.splitlines())
    assert [point["model_sha256"] for point in outcome.json["points"]] == [models["fedavg"][:1], models["fedprox"][:1]]
    assert resumes_of(out) == {"fedavg/trial-01": 1, "fedprox/trial-01": 0}


def test_workers_do_not_outlive_a_sweep_that_is_killed(home: Path) -> None:
    with started(home, home / "killed") as sweep:
        sweep.wait_for((home / "killed").exists)
        workers = workers_of(sweep.process.pid)
        assert len(workers) == 1
        # Nobody can connect to a sweep on one machine: neither by TCP nor by a socket that has a name.
        for process in (psutil.Process(sweep.process.pid), *workers):
            assert process.net_connections("inet") == []
            assert [one for one in process.net_connections("unix") if one.laddr] == []
        sweep.process.kill()
        assert gone(workers)


def test_on_a_cluster_that_loses_a_machine_and_then_its_scheduler(
    home: Path, models: dict[str, list[str]], tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
    scheduler = ("scheduler", "--host", address, "--dashboard-address", "127.0.0.1:0")
    worker = ("worker", address, "--nthreads", "1", "--local-directory", str(tmp_path), "--host", "127.0.0.1")
    plan = load_plan(str(home / "grid.toml"))
    out = home / "cluster"
    with dask(*scheduler, folder=tmp_path) as chief, dask(*worker, folder=tmp_path):
        with dask(*worker, "--no-nanny", folder=tmp_path) as machine:
            with Client(address, timeout=240, set_as_default=False) as client:
                client.wait_for_workers(2, timeout=240)
            # As a machine that is switched off: no nanny starts it again.
            killer = Killer(out, lambda: [machine])
            run_sweep(plan, out, cluster=Access(address, insecure=True), on_progress=killer)
        assert models_of(out) == models
        assert killer.hit
        assert resumes_of(out) == {name: int(name == killer.hit) for name in TRIALS}
        assert_whole(out)
        timing = SweepFolder(out).timing()
        assert (timing["cluster"], timing["jobs"]) == (address, 2)

        def leave(now: SweepProgress) -> None:
            if now.uplinks:
                chief.kill()

        with pytest.raises(SweepError, match="connection to the cluster is lost"):
            run_sweep(plan, home / "left", cluster=Access(address, insecure=True), on_progress=leave)
        assert not list((home / "left").glob(".running-*"))
