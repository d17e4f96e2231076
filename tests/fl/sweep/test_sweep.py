"""`airdp sweep` on a Dask cluster within this process: what it runs, tells, keeps and refuses."""

import json
import re
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import tomli_w

import fl.cluster.connection
from fl.cluster.access import Access
from fl.errors import ConfigError, RunFolderError, SweepError
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.cluster.expectation import expect
from fl.run.folder import RunFolder, locked
from fl.sweep.plan import SweepFolder, load_plan
from fl.sweep.schedule import run_sweep
from fl.sweep.session import SweepProgress
from tests.conftest import TINY, Outcome
from tests.dask_commands import make_certificates
from tests.fl.cli.test_bad_input import assert_refused

if TYPE_CHECKING:
    from distributed import LocalCluster

pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")
Command = Callable[..., Outcome]
Snapshot = Callable[[Path], dict[str, str]]
GRID = """
name = "grid"
title = "Two algorithms"
base = "tiny.toml"
trials = 2
[[axis]]
name = "algorithm"
point = [
    { name = "FedAvg", set = { "algorithm.name" = "fedavg" } },
    { name = "FedProx", set = { "algorithm.name" = "fedprox" } },
]
"""


def make_cluster(**options: Any) -> "LocalCluster":
    """Scheduler and workers in this process, reached like any other by address."""
    from distributed import LocalCluster

    options |= {"dashboard_address": None, "scheduler_kwargs": {"dashboard_address": "127.0.0.1:0"}}
    return LocalCluster(processes=False, protocol="tcp://", memory_limit=None, **options)


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    with make_cluster(n_workers=1, threads_per_worker=1) as made:
        yield made.scheduler_address


@pytest.fixture
def grid(tmp_path: Path) -> Path:
    (tmp_path / "tiny.toml").write_text(tomli_w.dumps(TINY))
    path = tmp_path / "grid.toml"
    path.write_text(GRID)
    return path


@pytest.fixture
def out(tmp_path: Path) -> Path:
    return tmp_path / "out"


def test_a_sweep_is_the_runs_of_its_grid(command: Command, cluster: str, grid: Path, out: Path, tmp_path: Path) -> None:
    outcome = command("sweep", grid, "--insecure", "--cluster", cluster, "--out", out, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    said = outcome.json
    assert (said["name"], said["title"], said["out"]) == ("grid", "Two algorithms", str(out))
    assert [point["point"] for point in said["points"]] == ["fedavg", "fedprox"]
    for point in said["points"]:
        results = [
            run({**TINY, "seed": seed, "algorithm": {"name": point["point"]}}, tmp_path / f"{point['point']}-{seed}")
            for seed in (1, 2)
        ]
        accuracies = [result.accuracy for result in results]
        assert point["trials"] == [1, 2]
        assert point["model_sha256"] == [result.model_sha256 for result in results]
        assert point["accuracy"] == pytest.approx(statistics.fmean(accuracies))
        # The interval of two is so wide that it says nothing.
        assert point["accuracy_interval_95"] is None
        for accountant, epsilon in point["epsilon"].items():
            assert epsilon == max(result.to_json()["epsilon"][accountant] for result in results)
        assert (point["label"], point["neighbours"], point["delta"]) == ("paper-claim", "zero-out", 1e-5)

    assert sorted(path.name for path in out.iterdir()) == ["fedavg", "fedprox", "sweep.json", "timing.json"]
    folder = SweepFolder(out)
    plan = folder.plan()
    assert plan == load_plan(str(grid))
    for point in plan.points:
        assert folder.finished(point) == [1, 2]
        for trial in (1, 2):
            held = folder.run_folder(point, trial).config()
            assert held.local.workers == 1
            assert held.digest() == point.trial_config(trial).digest()

    timing = json.loads((out / "timing.json").read_text())
    assert (timing["jobs"], timing["cluster"]) == (1, cluster)
    assert [(entry["point"], entry["trial"]) for entry in timing["trials"]] == [
        ("fedavg", 1),
        ("fedavg", 2),
        ("fedprox", 1),
        ("fedprox", 2),
    ]
    assert all(entry["uplinks"] == 4 for entry in timing["trials"])
    assert 0 < sum(entry["wall_seconds"] for entry in timing["trials"]) <= timing["wall_seconds"]
    assert said["seconds"] == timing["wall_seconds"]
    assert said["cpu_seconds"] == pytest.approx(sum(entry["cpu_seconds"] for entry in timing["trials"]))


def test_a_sweep_for_people_tells_what_its_numbers_mean(command: Command, cluster: str, grid: Path, out: Path) -> None:
    outcome = command("sweep", grid, "--insecure", "--cluster", cluster, "--out", out)
    assert outcome.code == 0
    # Without a terminal there is a line for each trial, or for several that have finished at once.
    assert all(line.startswith("grid: ") for line in outcome.err.splitlines())
    text = " ".join(outcome.out.split())
    for part in (
        "Two algorithms",
        "FedAvg",
        "FedProx",
        "from 3 trials on",
        "paper-claim",
        "1e-05",
        "zero-out",
        "95 %",
        "not proven",
    ):
        assert part in text
    assert str(out) in outcome.out.replace("\n", "")


def test_more_trials_can_be_added_and_what_is_there_stays(
    command: Command, cluster: str, grid: Path, out: Path, snapshot: Snapshot
) -> None:
    options = ("--insecure", "--cluster", cluster, "--out", out, "--resume", "--json")
    first = command("sweep", grid, *options, "--trials", 1).json
    before = {name: digest for name, digest in snapshot(out).items() if "trial-01" in name}
    wall_seconds = SweepFolder(out).timing()["wall_seconds"]
    second = command("sweep", grid, *options).json
    assert [point["trials"] for point in second["points"]] == [[1, 2], [1, 2]]
    assert [point["model_sha256"][0] for point in second["points"]] == [
        point["model_sha256"][0] for point in first["points"]
    ]
    assert before.items() <= snapshot(out).items()
    assert SweepFolder(out).timing()["wall_seconds"] > wall_seconds
    # Fewer trials than there are: nothing to do, nothing forgotten, and no cluster needed.
    held = snapshot(out)
    third = command("sweep", grid, "--out", out, "--resume", "--json", "--trials", 1)
    assert (third.code, third.json["points"]) == (0, second["points"])
    assert snapshot(out) == held
    assert SweepFolder(out).plan().trials == 2


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uplinks take long enough for a sweep, which looks every 0.2 s, to see trials between start and end."""
    append = RunFolder.append_metrics

    def wait(folder: RunFolder, row: dict[str, Any]) -> None:
        time.sleep(0.05)
        append(folder, row)

    monkeypatch.setattr(RunFolder, "append_metrics", wait)


@pytest.mark.usefixtures("unhurried")
def test_progress_is_told_in_uplinks_with_the_time_that_remains(cluster: str, grid: Path, out: Path) -> None:
    told: list[SweepProgress] = []
    seconds: list[float] = []

    def on_progress(now: SweepProgress) -> None:
        told.append(now)
        seconds.append(time.perf_counter())

    run_sweep(
        load_plan(str(grid), ["uplink.uplinks=30"]),
        out,
        cluster=Access(cluster, insecure=True),
        on_progress=on_progress,
    )
    assert {(now.trials_total, now.uplinks_total) for now in told} == {(4, 120)}
    assert (told[-1].trials, told[-1].uplinks, told[-1].running, told[-1].remaining_seconds) == (4, 120, (), 0.0)
    done = [now.uplinks for now in told]
    assert done == sorted(done)
    running = [trial for now in told for trial in now.running]
    assert {trial.uplinks_total for trial in running} == {30}
    assert any(trial.accuracy is not None for trial in running)
    assert all(len(now.running) <= 2 for now in told)
    # Uplinks that remain take as long as those since the first that was seen.
    first = next(index for index, uplinks in enumerate(done) if uplinks)
    assert all(now.remaining_seconds is None for now in told[: first + 1])
    ratios = [
        now.remaining_seconds / (elapsed * (120 - now.uplinks) / (now.uplinks - done[first]))
        for now, elapsed in ((now, when - seconds[first]) for now, when in zip(told, seconds, strict=True))
        if now.remaining_seconds
    ]
    assert len(ratios) > 1
    assert statistics.median(ratios) == pytest.approx(1, rel=0.3)


def test_resumed_progress_starts_where_the_trials_are(cluster: str, grid: Path, out: Path) -> None:
    run_sweep(load_plan(str(grid), trials=1), out, cluster=Access(cluster, insecure=True))
    told: list[SweepProgress] = []
    run_sweep(load_plan(str(grid)), out, cluster=Access(cluster, insecure=True), resume=True, on_progress=told.append)
    assert min(now.uplinks for now in told) >= 8
    assert (told[-1].trials, told[-1].uplinks, told[-1].uplinks_total) == (4, 16, 16)


@pytest.fixture
def failing(grid: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """FedProx's trials fail in their first uplink; there are five of each."""
    append = RunFolder.append_metrics

    def fail(folder: RunFolder, row: dict[str, Any]) -> None:
        if "fedprox" in folder.path.parts:
            raise RunFolderError("the disk is on fire")
        append(folder, row)

    monkeypatch.setattr(RunFolder, "append_metrics", fail)
    grid.write_text(GRID.replace("trials = 2", "trials = 5"))
    return grid


def without_progress(outcome: Outcome) -> Outcome:
    """Without the lines that tell of finished trials where there is no terminal."""
    said = [line for line in outcome.err.splitlines(keepends=True) if not line.startswith("grid: ")]
    return Outcome(outcome.code, outcome.out, "".join(said))


def test_a_failed_trial_ends_the_sweep_with_its_name_and_reason(
    command: Command, cluster: str, failing: Path, out: Path, snapshot: Snapshot
) -> None:
    outcome = command("sweep", failing, "--insecure", "--cluster", cluster, "--out", out)
    assert_refused(without_progress(outcome), "trial 1 of point 'FedProx' failed: the disk is on fire", "--resume")
    folder = SweepFolder(out)
    fedavg, fedprox = folder.plan().points
    # The trial before it is kept; one that ran meanwhile rests after a whole uplink, and no other was begun.
    assert 1 in folder.finished(fedavg)
    assert folder.finished(fedprox) == []
    assert not folder.run_folder(fedavg, 4).path.exists()
    assert not list(out.glob(".running-*"))
    assert [entry["point"] for entry in folder.timing()["trials"]] == ["fedavg"] * len(folder.finished(fedavg))
    # It goes on where it was.
    before = snapshot(folder.run_folder(fedavg, 1).path)
    again = command("sweep", failing, "--insecure", "--cluster", cluster, "--out", out, "--resume")
    assert_refused(without_progress(again), "trial 1 of point 'FedProx' failed: ")
    assert snapshot(folder.run_folder(fedavg, 1).path) == before


def test_a_defect_in_a_worker_is_not_hidden(
    cluster: str, grid: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fl.run.learner

    def fail(*arguments: object, **options: object) -> None:
        raise ZeroDivisionError("a defect")

    monkeypatch.setattr(fl.run.learner, "evaluate", fail)
    with pytest.raises(ZeroDivisionError, match="a defect"):
        run_sweep(load_plan(str(grid)), out, cluster=Access(cluster, insecure=True))


def test_an_interrupt_between_two_uplinks_leaves_whole_uplinks(cluster: str, grid: Path, out: Path) -> None:
    stopping: list[bool] = []

    def stop(now: SweepProgress) -> None:
        stopping.append(now.stopping)
        if now.uplinks > 10 and not now.stopping:
            raise KeyboardInterrupt

    plan = load_plan(str(grid), ["uplink.uplinks=40"])
    with pytest.raises(KeyboardInterrupt):
        run_sweep(plan, out, cluster=Access(cluster, insecure=True), on_progress=stop)
    folder = SweepFolder(out)
    begun = [folder.run_folder(p, n) for p in plan.points for n in (1, 2) if folder.run_folder(p, n).path.exists()]
    assert begun
    for run_folder in begun:
        contents = read_ledger(run_folder.ledger_path)
        checkpoint = run_folder.load_checkpoint()
        assert checkpoint is not None
        assert contents.authorised == contents.accounted == checkpoint.uplink
    assert sum(len(folder.finished(point)) for point in plan.points) < 4
    assert stopping == [False] * (len(stopping) - 1) + [True]
    assert not list(out.glob(".running-*"))
    run_sweep(plan, out, cluster=Access(cluster, insecure=True), resume=True)
    assert [folder.finished(point) for point in plan.points] == [[1, 2], [1, 2]]


@pytest.fixture
def refused(command: Command, tmp_path: Path, snapshot: Snapshot) -> Callable[..., None]:
    """`airdp sweep` with these arguments: refused with `parts`, and no file made or changed."""

    def check(arguments: list[object], *parts: str) -> None:
        before = snapshot(tmp_path)
        assert_refused(command("sweep", *arguments), *parts)
        assert snapshot(tmp_path) == before

    return check


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--trials", "0"], ("--trials is 0",)),
        (["--jobs", "0"], ("--jobs is 0",)),
        (["--jobs", "2", "--cluster", "tcp://localhost:1"], ("give one of them",)),
        (["--resume"], ("--resume needs --out",)),
        (["--set", "local.epoch=3"], ("point 'FedAvg'", "unknown key 'local.epoch'", "did you mean 'epochs'?")),
        (["--set", "local.epochs"], ("expected a.b=value",)),
        (["--set", "partition.clients=301"], ("point 'FedAvg'", "301 clients", "300")),
        (["--set", "data.set=emnist"], ("point 'FedAvg'", "no EMNIST data", "airdp data emnist")),
        (["--set", "model.module=no.such:Net"], ("no.such:Net", "cannot be imported")),
        (["--cluster", "tcp://localhost:1"], ("without TLS", "runs code with your rights", "--insecure")),
        (["--cluster", "localhost:8786"], ("without TLS",)),
        (["--insecure"], ("--insecure is for --cluster",)),
        (["--tls", "."], ("--tls is for --cluster",)),
        (["--cluster", "tls://localhost:1", "--tls", "."], (". has no ca.pem",)),
        (["--cluster", "tls://localhost:1"], ("'tls://localhost:1' asks for certificates", "--tls DIR with ca.pem")),
        (["--insecure", "--cluster", "nonsense"], ("no Dask scheduler answers at 'nonsense'", "tcp://host:8786")),
        (["--insecure", "--cluster", "http://localhost:1"], ("no Dask scheduler answers at 'http://localhost:1'",)),
        (
            ["--insecure", "--cluster", "tcp://localhost:1"],
            ("no Dask scheduler answers at 'tcp://localhost:1'", "`dask scheduler`"),
        ),
    ],
)
def test_what_a_sweep_refuses(
    refused: Callable[..., None],
    grid: Path,
    options: list[str],
    parts: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("AIRDP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(fl.cluster.connection, "ANSWER_S", 0.5)
    refused([grid, *options], *parts)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificates(tmp_path_factory.mktemp("tls"))


def test_a_cluster_over_tls_and_who_has_no_certificate(
    command: Command, grid: Path, out: Path, certificates: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oracle for "may not": Dask's own client, without a certificate and with one of another authority."""
    from distributed import Client, LocalCluster
    from distributed.security import Security

    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        security=Security(
            require_encryption=True,
            tls_ca_file=str(certificates / "ca.pem"),
            **{
                f"tls_{role}_{part}": str(certificates / f"{part}.pem")
                for role in ("scheduler", "worker", "client")
                for part in ("cert", "key")
            },
        ),
        dashboard_address=None,
        scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
        memory_limit=None,
    ) as made:
        address = made.scheduler_address
        assert address.startswith("tls://")
        for stranger in (Security(), Security.temporary()):
            with pytest.raises((OSError, TypeError, RuntimeError, ValueError)):
                Client(address, security=stranger, timeout=2, set_as_default=False)
        monkeypatch.setattr(fl.cluster.connection, "ANSWER_S", 2.0)
        without = command("sweep", grid, "--trials", 1, "--cluster", address, "--out", out)
        assert_refused(without, f"'{address}' asks for certificates")
        monkeypatch.setattr(fl.cluster.connection, "ANSWER_S", 30.0)
        done = command(
            "sweep", grid, "--trials", 1, "--cluster", address, "--tls", certificates, "--out", out, "--json"
        )
        assert done.code == 0, done.err


def test_a_point_is_only_named_where_there_are_several(refused: Callable[..., None], tmp_path: Path) -> None:
    refused(["quickstart", "--set", "partition.clients=5000", "--out", tmp_path / "x"], "error: 5000 clients")


def test_another_server_than_a_scheduler(
    refused: Callable[..., None], grid: Path, out: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import socket

    from distributed import Client

    monkeypatch.setattr(fl.cluster.connection, "ANSWER_S", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"tcp://127.0.0.1:{silent.getsockname()[1]}"
        refused([grid, "--out", out, "--insecure", "--cluster", address], "no Dask scheduler answers at", "waited")
    with Client(cluster, set_as_default=False) as client:
        (worker,) = client.nthreads()
    refused(
        [grid, "--out", out, "--insecure", "--cluster", worker],
        f"no Dask scheduler answers at '{worker}' (a Worker does)",
    )


def test_clusters_without_the_right_workers(
    refused: Callable[..., None], grid: Path, out: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fl.cluster.connection, "ANSWER_S", 0.5)
    with make_cluster(n_workers=0) as made:
        address = made.scheduler_address
        refused(
            [grid, "--out", out, "--insecure", "--cluster", address],
            "has no workers",
            f"`dask worker {address} --nthreads 1`",
        )
    with make_cluster(n_workers=1, threads_per_worker=2) as made:
        address = made.scheduler_address
        refused([grid, "--out", out, "--insecure", "--cluster", address], "has 2 threads", "--nworkers 2 --nthreads 1")


def test_a_worker_unlike_this_machine(
    refused: Callable[..., None], grid: Path, out: Path, cluster: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The worker is in this process: what is expected of it is changed instead of what it has.
    for change in ({"code_sha256": "0"}, {"parts_sha256": "0"}, {"update_sha256": "0"}):
        monkeypatch.setattr("fl.sweep.schedule.expect", lambda *given, change=change: replace(expect(*given), **change))
        refused([grid, "--out", out, "--insecure", "--cluster", cluster], "worker tcp://127.0.0.1:")


def test_folders_of_other_things(
    command: Command, refused: Callable[..., None], cluster: str, grid: Path, out: Path, tmp_path: Path
) -> None:
    command("sweep", grid, "--insecure", "--cluster", cluster, "--out", out, "--trials", 1)
    refused([grid, "--out", out], "already holds this sweep", "--resume")
    for resume in ([], ["--resume"]):
        refused(
            [grid, "--out", out, *resume, "--set", "local.lr=0.01", "--set", "seed=5"],
            "holds another grid (fedavg differs in seed, local.lr; fedprox differs in seed, local.lr)",
            "choose another folder",
        )
    other = tmp_path / "other.toml"
    other.write_text(GRID.replace("FedAvg", "Average"))
    refused([other, "--out", out, "--resume"], "holds another grid (it lacks average; it has fedavg)")
    refused([grid, "--out", out / "fedavg" / "trial-01", "--resume"], "is not the folder of a sweep")
    (tmp_path / "file").touch()
    refused([grid, "--out", tmp_path / "file"], "is a file")


def test_one_sweep_at_a_time_in_a_folder(command: Command, cluster: str, grid: Path, out: Path) -> None:
    options = ("sweep", grid, "--insecure", "--cluster", cluster, "--out", out, "--resume")
    command(*options, "--trials", 1)
    with locked(RunFolder(out)):
        assert_refused(command(*options), "another process is running in")
    assert command(*options).code == 0


@pytest.mark.parametrize(
    ("radio", "said"),
    [
        ("backend='pluto'", "uses real radios, which only one trial can have at a time: use --jobs 1"),
        ("lab='gnuradio'", "uses the address tcp://127.0.0.1:5702 (gnuradio.monitor), which only one trial can have"),
    ],
)
def test_what_only_one_run_can_have_serves_one_trial_at_a_time(radio: str, said: str) -> None:
    from fl.sweep import schedule as sweep

    points = load_plan("loopback", [f"radio.{radio}"]).points
    assert sweep._check_jobs(points, None, None) == sweep._check_jobs(points, 1, None) == 1
    for jobs, cluster in ((2, None), (None, Access("tls://localhost:1"))):
        with pytest.raises(ConfigError, match=re.escape(said)):
            sweep._check_jobs(points, jobs, cluster)


@pytest.mark.parametrize("radio", ["backend='loopback'", "lab='pluto-virtual'", "backend='gnuradio'"])
def test_air_that_each_run_has_for_itself_serves_many(radio: str) -> None:
    from fl.sweep import schedule as sweep

    assert sweep._check_jobs(load_plan("loopback", [f"radio.{radio}"]).points, 3, None) == 3


def test_a_cluster_that_goes_away_is_told(grid: Path, out: Path) -> None:
    made = make_cluster(n_workers=1, threads_per_worker=1)

    def leave(now: SweepProgress) -> None:
        if now.uplinks:
            made.close()

    try:
        with pytest.raises(SweepError, match="connection to the cluster is lost"):
            run_sweep(
                load_plan(str(grid), ["uplink.uplinks=100"]),
                out,
                cluster=Access(made.scheduler_address, insecure=True),
                on_progress=leave,
            )
    finally:
        made.close()
    assert not list(out.glob(".running-*"))
