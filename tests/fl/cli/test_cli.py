"""The command line: what each command prints, for people and for machines, and with which code it ends."""

import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from importlib.metadata import requires
from pathlib import Path
from typing import Any

import pytest

import fl.cli.experiments.configs
import fl.cli.labs.doctor
import flowgraphs.runtime
import hardware.lab.requirements
from fl.cli.main import COMMANDS
from fl.run.config import RunConfig, parse_config, shipped_configs
from fl.sweep.plan import shipped_sweeps
from hardware.lab.registry import registry
from tests.conftest import REPOSITORY, START, Outcome

Command = Callable[..., Outcome]
PAPER = ("--rounds", 80, "--samples", 10_000, "--sigma", "7.41e-4", "--delta", "1e-5")


def good(outcome: Outcome) -> Any:
    assert (outcome.code, outcome.err) == (0, "")
    return outcome.json


def test_account_gives_the_papers_epsilon(command: Command) -> None:
    # The issue: paper 6.52 and exact 5.45, each within 0.01, and PLD within 1 % of exact.
    assert set(good(command("account", *PAPER, "--json"))["epsilon"]) == {"paper", "exact"}
    said = good(command("account", *PAPER, "--all", "--json"))
    assert set(said["epsilon"]) == {"paper", "exact", "liu-simeone", "rdp", "pld"}
    assert said["epsilon"]["paper"] == pytest.approx(6.52, abs=0.01)
    assert said["epsilon"]["exact"] == pytest.approx(5.45, abs=0.01)
    assert said["epsilon"]["pld"] == pytest.approx(said["epsilon"]["exact"], rel=0.01)
    assert said["epsilon"]["exact"] < said["epsilon"]["rdp"] < said["epsilon"]["paper"]
    # S = M / (2 n^2 sigma^2), mu = sqrt(2 S).
    loss = 80 / (2 * (10_000 * 7.41e-4) ** 2)
    assert said["S"] == pytest.approx(loss, rel=1e-12)
    assert said["mu"] == pytest.approx(math.sqrt(2 * loss), rel=1e-12)
    assert (said["label"], said["neighbours"], said["delta"]) == ("paper-claim", "zero-out", 1e-5)
    assert (said["rounds"], said["samples"], said["sigma"], said["backoff"]) == (80, 10_000, 7.41e-4, 1.0)
    assert said["sigma_origin"] == "set"


@pytest.mark.parametrize(
    ("sigma", "epsilon"), [("1e-320", "inf"), ("1e-300", "inf"), ("1e-200", "inf"), ("1e-100", 4e193), ("1e150", 0.0)]
)
def test_account_at_the_ends_of_what_floats_hold(command: Command, sigma: str, epsilon: float | str) -> None:
    """M/(2 n^2 sigma^2) where it is so large that nothing else counts; no accountant is below it."""
    said = good(command("account", *PAPER[:4], "--sigma", sigma, "--delta", "1e-5", "--all", "--json"))
    assert said["epsilon"]["exact"] == (epsilon if epsilon == "inf" else pytest.approx(epsilon))
    assert min(float(value) for value in said["epsilon"].values()) >= 0.999999 * float(said["epsilon"]["exact"])


def test_account_at_the_papers_other_delta(command: Command) -> None:
    # MODEL.md: the same run is (4.4, 0.01), and exactly 2.99 there.
    said = good(command("account", *PAPER[:-1], "0.01", "--json"))
    assert said["epsilon"]["paper"] == pytest.approx(4.4, abs=0.01)
    assert said["epsilon"]["exact"] == pytest.approx(2.99, abs=0.01)


def test_account_backoff_neighbours_and_labels(command: Command) -> None:
    def loss(*more: object) -> float:
        return float(good(command("account", *PAPER, *more, "--json"))["S"])

    plain = loss()
    assert loss("--backoff", 2) == pytest.approx(plain / 4)
    assert loss("--neighbours", "replace-one") == pytest.approx(4 * plain)
    assert loss("--label", "record") == pytest.approx(plain)
    # A client with 200 of 10,000 samples weighs 200 times one sample.
    assert loss("--label", "client", "--client-samples", 200) == pytest.approx(200**2 * plain)
    said = good(command("account", *PAPER, "--backoff", 2, "--json"))
    assert said["epsilon_without_backoff"]["paper"] == pytest.approx(6.52, abs=0.01)


def test_account_for_people_says_what_the_number_means(command: Command) -> None:
    outcome = command("account", *PAPER)
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("6.521", "5.451", "paper-claim", "zero-out", "1e-05", "sigma set", "not proven"):
        assert part in outcome.out


JAMMER = (
    *("--epsilon", 1, "--delta", "1e-5", "--rounds", 80, "--samples", 10_000),
    *("--alpha-u", 1349, "--h-cj", 0.5, "--sigma-c", 1),
)


def test_jammer_is_theorem_2(command: Command) -> None:
    said = good(command("jammer", *JAMMER, "--json"))
    assert {"alpha_cj", "needed", "sigma_required"} <= set(said)
    log = math.log(1e5)
    a = -log + math.sqrt(log**2 + 1 * log)
    squared = 80 * log / (2 * 10_000**2 * a**2)
    assert said["sigma_required"] == pytest.approx(math.sqrt(squared), rel=1e-9)
    assert said["alpha_cj"] == pytest.approx(1349 / 0.5 * math.sqrt(squared - (1 / 1349) ** 2), rel=1e-9)
    assert said["needed"] is True
    assert said["sigma"] == pytest.approx(math.sqrt(squared), rel=1e-9)
    assert (said["label"], said["neighbours"], said["delta"]) == ("paper-claim", "zero-out", 1e-5)


def test_jammer_and_account_agree(command: Command) -> None:
    for accountant in ("paper", "exact"):
        sized = good(command("jammer", *JAMMER, "--accountant", accountant, "--json"))
        options = ("--rounds", 80, "--samples", 10_000, "--sigma", repr(sized["sigma"]), "--delta", "1e-5")
        assert good(command("account", *options, "--json"))["epsilon"][accountant] == pytest.approx(1, abs=1e-6)


def test_jammer_is_silent_where_the_channel_is_enough(command: Command) -> None:
    said = good(command("jammer", *JAMMER[:8], "--alpha-u", 1, "--h-cj", 0, "--sigma-c", 1, "--json"))
    assert (said["alpha_cj"], said["needed"]) == (0.0, False)
    text = command("jammer", *JAMMER[:8], "--alpha-u", 1, "--h-cj", 1, "--sigma-c", 1)
    assert "stays silent" in text.out


def test_jammer_factor(command: Command) -> None:
    plain = good(command("jammer", *JAMMER, "--json"))["alpha_cj"]
    amplitude = good(command("jammer", *JAMMER, "--factor", 7, "--json"))["alpha_cj"]
    variance = good(command("jammer", *JAMMER, "--factor", 7, "--factor-on", "variance", "--json"))["alpha_cj"]
    assert amplitude == pytest.approx(7 * plain)
    assert variance == pytest.approx(math.sqrt(7) * plain)


def test_jammer_for_people(command: Command) -> None:
    outcome = command("jammer", *JAMMER)
    assert (outcome.code, outcome.err) == (0, "")
    for part in ("must send", "paper-claim", "zero-out", "1e-05", "accountant paper"):
        assert part in " ".join(outcome.out.split())


def test_configs(command: Command) -> None:
    said = good(command("configs", "--json"))
    assert set(said) == {*shipped_configs(), *shipped_sweeps()}
    listed = command("configs")
    assert (listed.code, listed.err) == (0, "")
    for name in shipped_configs():
        assert name in listed.out
    shown = command("configs", "quickstart")
    assert (shown.code, shown.err) == (0, "")
    import tomllib

    assert parse_config(tomllib.loads(shown.out)).name == "quickstart"
    assert RunConfig.model_validate_json(json.dumps(good(command("configs", "quickstart", "--json")))) is not None


@pytest.mark.usefixtures("no_figures", "one_thread", "no_waiting")
def test_run_and_ledger_in_one_process(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    said = good(command("run", tiny_file, "--out", out, "--set", "seed=4", "--set", "uplink.uplinks=3", "--json"))
    assert (said["uplinks"], said["rounds"], said["out"]) == (3, 6, str(out))
    again = good(
        command("run", tiny_file, "--out", out, "--set", "seed=4", "--set", "uplink.uplinks=3", "--resume", "--json")
    )
    assert again["model_sha256"] == said["model_sha256"]

    ledger = good(command("ledger", out, "--json"))
    assert (ledger["valid"], ledger["authorised"], ledger["accounted"]) == (True, 3, 3)
    assert (ledger["clients"], ledger["samples"]) == (3, 300)
    assert ledger["epsilon"] == said["epsilon"]
    assert [one["label"] for one in ledger["privacy"]] == ["paper-claim", "record", "client"]
    assert ledger["privacy"] == said["privacy"]
    assert good(command("ledger", out / "ledger.jsonl", "--json")) == ledger

    other = good(command("ledger", out, "--delta", "0.01", "--neighbours", "replace-one", "--json"))
    assert (other["delta"], other["neighbours"]) == (0.01, "replace-one")
    assert other["S"] == pytest.approx(4 * ledger["S"])
    text = command("ledger", out)
    for part in ("chain intact", "3 transmissions authorised", "paper-claim", "record", "client", "infinite"):
        assert part in " ".join(text.out.split())


@pytest.mark.usefixtures("no_figures", "one_thread", "no_waiting")
def test_ledger_with_every_accountant(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    options = ("--set", "local.mode=record", "--set", "uplink.uplinks=2", "--set", "partition.clients=2")
    good(command("run", tiny_file, "--out", tmp_path / "run", *options, "--json"))
    said = good(command("ledger", tmp_path / "run", "--all", "--json"))
    for statement in said["privacy"]:
        epsilon = statement["epsilon"]
        assert set(epsilon) == {"paper", "exact", "liu-simeone", "rdp", "pld"}
        assert epsilon["pld"] == pytest.approx(epsilon["exact"], rel=0.01)


@pytest.mark.usefixtures("no_figures", "one_thread", "no_waiting")
def test_run_for_people(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    outcome = command("run", tiny_file, "--out", tmp_path / "run")
    assert outcome.code == 0
    assert all(line.startswith("uplink ") for line in outcome.err.splitlines())
    text = " ".join(outcome.out.split())
    for part in ("test accuracy", "paper-claim", "zero-out", "1e-05", "sigma simulated", "not proven", str(tmp_path)):
        assert part in text


def test_run_as_a_process_prints_one_object_and_nothing_else(airdp: Command, tiny_file: Path, tmp_path: Path) -> None:
    outcome = airdp("run", tiny_file, "--json")
    said = good(outcome)
    assert {"accuracy", "loss", "rounds", "uplinks", "epsilon", "label", "delta", "out", "seconds"} <= set(said)
    # Without --out: runs/NAME-TIME in the folder where it was started.
    out = tmp_path / said["out"]
    assert out.parent == tmp_path / "runs"
    assert {"learning.png", "power.png", "privacy.png"} <= {path.name for path in (out / "figures").iterdir()}
    held = json.loads((out / "result.json").read_text())
    assert held == {key: value for key, value in said.items() if key != "seconds"}


def test_accounting_does_not_wait_for_pytorch() -> None:
    check = (
        "import sys; from fl.cli.main import main; "
        f"assert main({list(map(str, ('account', *PAPER, '--json')))}) == 0; assert main(['configs', '--json']) == 0; "
        "sys.exit(any(name in sys.modules for name in ('torch', 'matplotlib', 'sklearn', 'dask')))"
    )
    done = subprocess.run(
        [sys.executable, "-c", check],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        timeout=240,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_doctor(command: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fl.cli.labs.doctor, "package_version", lambda name: "1.0")
    monkeypatch.setenv("AIRDP_DATA", str(tmp_path))
    said = good(command("doctor", "--json"))
    assert said["complete"] is True
    found = {finding["name"]: finding for finding in said["findings"]}
    assert {"python", "torch", "numpy", "EMNIST data", "iio", "uhd", "gnuradio", "flwr", "mlflow-skinny"} <= set(found)
    needed = {re.split(r"[<>=!~ ;\[]", one)[0] for one in requires("airdp") or () if "extra ==" not in one}
    assert {name.lower() for name in needed} <= set(found)
    for finding in found.values():
        assert {"name", "needed_for", "present", "detail", "help"} <= set(finding)
        assert finding["present"] or finding["help"]
    assert found["EMNIST data"]["present"] is True
    nothing_wrong(monkeypatch)
    monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "missing"))
    assert not {f["name"]: f for f in good(command("doctor", "--json"))["findings"]}["EMNIST data"]["present"]
    text = command("doctor")
    assert text.code == 0
    assert "The core is complete" in text.out


def nothing_wrong(monkeypatch: pytest.MonkeyPatch, **but: str) -> None:
    """Importing everything takes seconds; once is enough."""
    monkeypatch.setattr(
        fl.cli.labs.doctor, "import_problems", lambda names: {name: but.get(name, "") for name in names}
    )


def test_doctor_of_a_package_that_does_not_import(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_wrong(monkeypatch, sklearn="ImportError: libgomp.so.1: cannot open shared object file")
    outcome = command("doctor", "--json")
    assert (outcome.code, outcome.json["complete"]) == (2, False)
    found = {finding["name"]: finding for finding in outcome.json["findings"]}
    assert not found["scikit-learn"]["present"]
    assert "libgomp.so.1" in found["scikit-learn"]["detail"]
    assert found["torch"]["present"]


def test_doctor_finds_gnuradio_where_runs_do(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {"/elsewhere/python3": ""}
    monkeypatch.setattr(flowgraphs.runtime, "gnuradio_python", lambda: "/elsewhere/python3")
    monkeypatch.setattr(
        hardware.lab.requirements, "import_problems", lambda names, python: dict.fromkeys(names, here.get(python, "no"))
    )
    gnuradio = next(one for one in registry().backends["gnuradio"].requirements() if one.name == "gnuradio")
    assert (gnuradio.present, gnuradio.detail) == (True, "imported by /elsewhere/python3")


def test_doctor_of_an_incomplete_installation(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing_wrong(monkeypatch)
    monkeypatch.setattr(fl.cli.labs.doctor, "package_version", lambda name: None if name == "torch" else "1.0")
    outcome = command("doctor", "--json")
    assert (outcome.code, outcome.json["complete"]) == (2, False)
    text = command("doctor")
    assert text.code == 2
    assert "torch: make setup" in text.out


def test_help(command: Command) -> None:
    outcome = command("--help")
    assert (outcome.code, outcome.err) == (0, "")
    for name in COMMANDS:
        assert name in outcome.out
        one = command(name, "--help")
        assert (one.code, one.err) == (0, "")
        assert "usage: airdp" in one.out


def test_every_command_of_the_issue_is_there() -> None:
    assert {"run", "account", "jammer", "bench", "ledger", "configs", "doctor"} <= set(COMMANDS)


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (KeyboardInterrupt(), 130, "airdp: interrupted\n"),
        (
            OSError(28, "No space left on device", "/x"),
            2,
            "airdp: error: /x: No space left on device; make room there, or choose a folder on another disk\n",
        ),
    ],
)
def test_interruptions_and_full_disks_are_one_line(
    command: Command, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int, told: str
) -> None:
    def fail(options: object) -> int:
        raise error

    monkeypatch.setattr(fl.cli.experiments.configs, "call", fail)
    outcome = command("configs")
    assert (outcome.code, outcome.out, outcome.err) == (code, "", told)


def test_a_defect_is_not_hidden(command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(options: object) -> int:
        raise ZeroDivisionError

    monkeypatch.setattr(fl.cli.experiments.configs, "call", fail)
    with pytest.raises(ZeroDivisionError):
        command("configs")


def test_a_reader_that_goes_away_is_no_error() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", START, "configs", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    told = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=240), told) == (0, b"")


def test_ctrl_c_stops_a_run_and_says_how_it_goes_on(airdp: Command, tiny_file: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    options = ["--out", str(out), "--set", "uplink.uplinks=200"]
    process = subprocess.Popen(
        [sys.executable, "-c", START, "run", str(tiny_file), *options, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )
    deadline = time.monotonic() + 60
    while not (out / "checkpoint.npz").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    told, complaints = process.communicate(timeout=240)
    assert (process.returncode, told) == (130, "")
    again = f"airdp run {tiny_file} --set uplink.uplinks=200 --out {out} --resume"
    assert complaints == f"airdp: the run so far is in {out}; to go on: {again}\nairdp: interrupted\n"
    ledger = good(airdp("ledger", out, "--json"))
    assert 1 <= ledger["authorised"] < 200
