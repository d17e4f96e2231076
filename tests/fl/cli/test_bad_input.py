"""Everything that can be given wrongly: one line on stderr, exit code 2, and what was there is untouched."""

import io
import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.special import erfinv

from fl.privacy.ledger import read_ledger
from tests.conftest import REPOSITORY, Outcome

Command = Callable[..., Outcome]
Snapshot = Callable[[Path], dict[str, str]]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


def assert_refused(outcome: Outcome, *parts: str) -> None:
    """One line that says what is wrong, nothing on stdout, code 2."""
    assert outcome.out == ""
    assert outcome.err.startswith("airdp")
    assert outcome.err.count("\n") == 1
    assert outcome.err.endswith("\n")
    assert len(outcome.err) < 1000
    for part in parts:
        assert part in outcome.err
    assert outcome.code == 2


@pytest.fixture
def refused(command: Command, tiny_file: Path, tmp_path: Path, snapshot: Snapshot) -> Callable[..., None]:
    """`airdp run` of the small config with more options: refused with `parts`, and no file made or changed."""

    def check(options: list[object], *parts: str) -> None:
        before = snapshot(tmp_path)
        assert_refused(command("run", tiny_file, *options), *parts)
        assert snapshot(tmp_path) == before

    return check


def test_a_place_for_a_page_that_was_not_asked_for(refused: Callable[..., None], tmp_path: Path) -> None:
    refused(["--live-at", "127.0.0.1:0", "--out", tmp_path / "run"], "add --live")


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("local.epoch=3", ("unknown key 'local.epoch'", "did you mean 'epochs'?")),
        ("lokal.epochs=3", ("unknown key 'lokal'", "did you mean 'local'?")),
        ("local.epochs=many", ("local.epochs",)),
        pytest.param(f"seed={'9' * 5000}", ("seed: ", "9…)"), id="a seed of 5,000 digits"),
        ("local.epochs", ("expected a.b=value",)),
        ("privacy.delta=0", ("privacy.delta", "greater than 0")),
        ("privacy.delta=1", ("privacy.delta", "less than 1")),
        ("privacy.delta=-1e-5", ("privacy.delta",)),
        ("privacy.delta=nan", ("privacy.delta",)),
        ("channel.noise_std_real=0", ("channel.noise_std_real",)),
        ("channel.noise_std_real=-1", ("channel.noise_std_real",)),
        ("algorithm.name=fedaverage", ("fedaverage", "fedavg")),
        ("algorithm.schedule=[[5, nan]]", ("algorithm.schedule",)),
        ("algorithm.schedule=[]", ("algorithm.schedule",)),
        ("partition.clients=301", ("301 clients", "300")),
        ("partition.clients=0", ("partition.clients",)),
        ("partition.classes_per_client=0", ("partition.classes_per_client",)),
        ("data.train_samples=1797", ("train_samples",)),
        ("data.set=emnist", ("no EMNIST data", "airdp data emnist")),
        ("model.module=no.such.module:Net", ("no.such.module:Net", "cannot be imported")),
        ("model.module=torch.nn:NoSuchLayer", ("torch.nn:NoSuchLayer",)),
        ("model.module=torch.nn:Flatten", ("float32 parameters",)),
        ("model.module=torch", ("expected an import path",)),
        ("privacy.label=record", ("needs local.mode = 'record'",)),
        ("channel.fading=file", ("needs channel.path",)),
        ("partition.kind=natural", ("needs data with clients",)),
    ],
)
def test_what_a_run_refuses(
    refused: Callable[..., None], override: str, parts: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("AIRDP_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    refused(["--set", override, "--out", tmp_path / "deep" / "run"], *parts)


def test_more_clients_than_the_classes_allow(refused: Callable[..., None], tmp_path: Path) -> None:
    options: list[object] = ["--set", "partition.kind=classes", "--set", "partition.classes_per_client=10"]
    refused([*options, "--set", "partition.clients=200", "--out", tmp_path / "run"], "200 clients", "at most")


def test_an_empty_client_cannot_be(refused: Callable[..., None], tmp_path: Path) -> None:
    """Synthetic data cut down so far that a client would have nothing left to train on."""
    options: list[object] = ["--set", "data.set=synthetic", "--set", "data.synthetic_max_client_samples=1"]
    refused([*options, "--out", tmp_path / "run"], "max_client_samples")


def test_a_config_that_is_not_there(command: Command, tmp_path: Path, snapshot: Snapshot) -> None:
    (tmp_path / "broken.toml").write_text("seed = = 3\n")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00\x01")
    before = snapshot(tmp_path)
    assert_refused(command("run", "quickstrat", "--out", tmp_path / "run"), "did you mean 'quickstart'?")
    assert_refused(command("run", tmp_path / "none.toml", "--out", tmp_path / "run"), "none.toml")
    assert_refused(command("run", tmp_path, "--out", tmp_path / "run"), "no config")
    assert_refused(command("run", tmp_path / "broken.toml", "--out", tmp_path / "run"), "broken.toml")
    assert_refused(command("run", tmp_path / "binary.toml", "--out", tmp_path / "run"), "binary.toml")
    assert snapshot(tmp_path) == before


def test_missing_and_damaged_data_files(
    refused: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "text.npz").write_text("not an archive")
    (tmp_path / "empty").mkdir()
    np.savez(tmp_path / "shape.npz", x=np.zeros((4, 8, 8), np.uint8), y=np.zeros(4, np.int64))
    out: list[object] = ["--set", "data.set=emnist", "--out", tmp_path / "run"]
    for name, part in (
        ("none.npz", "does not exist"),
        ("text.npz", "cannot be read"),
        ("empty", "holds no EMNIST data"),
        ("shape.npz", "expected an .npz"),
    ):
        refused([*out, "--set", f"data.path={tmp_path / name}"], name, part)
        monkeypatch.setenv("AIRDP_DATA", str(tmp_path / name))
        refused(out, name, part)


CSV = "uplink,transmitter,re,im\n"
STATIC = "1,0,1,0\n1,1,1,0\n1,2,1,0\n"


def _npz(**arrays: Any) -> bytes:
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("none.csv", None, "does not exist"),
        ("gains.txt", b"x", "expected .csv or .npz"),
        ("gains.csv", b"", "header"),
        ("gains.csv", b"a,b\n1,2\n", "header"),
        ("gains.csv", b"\xff\xfe\x00", "gains.csv"),
        ("gains.csv", CSV.encode(), "no client's gain"),
        ("gains.csv", f"{CSV}1,0,1,0\n".encode(), "gains of 1 clients: the run has 3"),
        ("gains.csv", f"{CSV}{STATIC}2,0,1,0\n2,1,1,0\n2,2,1,0\n".encode(), "2 uplinks"),
        ("gains.csv", f"{CSV}1,0,1,0\n1,2,1,0\n".encode(), "gains.csv"),
        ("gains.csv", f"{CSV}1,0,nan,0\n1,1,1,0\n1,2,1,0\n".encode(), "NaN"),
        ("gains.csv", f"{CSV}1,0,1\n".encode(), "line 2"),
        ("gains.csv", f"{CSV}1,0,one,0\n".encode(), "line 2"),
        ("gains.csv", f"{CSV}{STATIC}1,0,1,0\n".encode(), "twice"),
        ("gains.csv", f"{CSV}0,0,1,0\n".encode(), "line 2"),
        ("gains.npz", b"", "gains.npz"),
        ("gains.npz", b"not an archive", "gains.npz"),
        ("gains.npz", _npz(other=np.ones(3)), "client_gains"),
        ("gains.npz", _npz(client_gains=np.ones(3)), "shape"),
        ("gains.npz", _npz(client_gains=np.full((1, 3), np.inf)), "infinite"),
        ("gains.npz", _npz(client_gains=np.ones((1, 2))), "gains of 2 clients"),
    ],
)
def test_files_of_gains(
    refused: Callable[..., None], tmp_path: Path, name: str, content: bytes | None, part: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    options = ["--set", "channel.fading=file", "--set", f"channel.path={tmp_path / name}", "--out", tmp_path / "run"]
    refused(options, part)


def test_gains_without_the_jammers(refused: Callable[..., None], tmp_path: Path) -> None:
    path = tmp_path / "gains.csv"
    path.write_text(CSV + STATIC)
    options = ["--set", "channel.fading=file", "--set", f"channel.path={path}", "--out", tmp_path / "run"]
    refused([*options, "--set", "jammer.role=dedicated"], "no gains of the jammer")


def test_a_jammer_that_cannot_be_heard(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    """Found when the first uplink is planned: there is a folder then, and nothing was sent."""
    path = tmp_path / "gains.csv"
    path.write_text(f"{CSV}{STATIC}1,jammer,0,0\n")
    outcome = command(
        *("run", tiny_file, "--out", tmp_path / "run", "--set", "channel.fading=file"),
        *("--set", f"channel.path={path}", "--set", "jammer.role=dedicated", "--set", "power.channel_epsilon=50"),
    )
    assert_refused(outcome, "no client may send")
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 0


def test_updates_that_are_not_numbers(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    options = ("--set", "local.lr=1e8", "--set", "local.epochs=5", "--out", tmp_path / "run")
    assert_refused(command("run", tiny_file, *options), "NaN or infinite", "not sent", "local.lr")
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 0


def test_a_model_whose_code_is_wrong(
    refused: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "nets_with_faults.py").write_text(
        "from torch import nn\n\n\nclass Wrong(nn.Linear):\n    def __init__(self):\n        super().__init__(64, 9)\n"
    )
    (tmp_path / "nets_with_syntax.py").write_text("def (:\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    out = ["--out", tmp_path / "run"]
    refused(["--set", "model.module=nets_with_faults:Wrong", *out], "expected (2, 10) outputs")
    refused(["--set", "model.module=nets_with_faults:Wrong", "--set", "model.arguments.x=1", *out], "cannot be built")
    refused(["--set", "model.module=nets_with_syntax:Net", *out], "cannot be imported")


@pytest.fixture
def held(command: Command, tiny_file: Path, tmp_path: Path) -> Path:
    """A folder with a finished run."""
    assert command("run", tiny_file, "--out", tmp_path / "held", "--json").code == 0
    return tmp_path / "held"


def test_a_folder_that_holds_another_run(refused: Callable[..., None], held: Path, tmp_path: Path) -> None:
    refused(["--out", held], "already holds this run", "--resume")
    refused(["--out", held, "--set", "seed=2"], "holds another run", "differs in seed")
    refused(["--out", held, "--set", "seed=2", "--resume"], "holds another run", f"its own config, {held}/config.toml")
    refused(["--resume"], "--resume needs --out")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("years of work")
    refused(["--out", tmp_path / "mine"], "is not the folder of a run, and not empty", "choose a new folder")
    refused(["--out", tmp_path / "mine", "--resume"], "is not the folder of a run")


def test_places_where_no_folder_can_be(refused: Callable[..., None], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    refused(["--out", tmp_path / "file"], "is a file")
    refused(["--out", tmp_path / "file" / "run"], "cannot make")
    refused(["--out", "/proc/airdp-run"], "cannot make /proc/airdp-run")
    refused(["--out", tmp_path / ("x" * 300)], "too long")


def test_the_current_folder_cannot_be_replaced(
    refused: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    refused(["--out", "."], "choose a new folder")


def _truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-15])
    path.with_name("ledger.jsonl.next").unlink()


def _edited(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"sigma":0.0', b'"sigma":0.1', 1))


def _missing_row(path: Path) -> None:
    rows = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(rows[:3] + rows[4:]))


def _not_json(path: Path) -> None:
    path.write_bytes(path.read_bytes() + b"\xff\xfe\n")


@pytest.mark.parametrize(
    ("damage", "part"),
    [
        (_truncated, "is truncated"),
        (_edited, "does not match its hash"),
        (_missing_row, "does not follow the line before"),
        (_not_json, "does not match its hash"),
        (lambda path: path.write_bytes(b""), "is empty"),
        (lambda path: path.unlink(), "cannot read ledger"),
    ],
    ids=["truncated", "edited", "a row missing", "rubbish at the end", "empty", "gone"],
)
def test_a_damaged_ledger(
    command: Command,
    refused: Callable[..., None],
    held: Path,
    snapshot: Snapshot,
    damage: Callable[[Path], object],
    part: str,
) -> None:
    damage(held / "ledger.jsonl")
    before = snapshot(held)
    assert_refused(command("ledger", held), part)
    assert_refused(command("ledger", held, "--json"), part)
    if (held / "ledger.jsonl").exists() and (held / "ledger.jsonl").stat().st_size:
        refused(["--out", held, "--resume"], part)
    assert snapshot(held) == before


def test_a_ledger_that_is_not_there(command: Command, tmp_path: Path) -> None:
    assert_refused(command("ledger", tmp_path), "cannot read ledger", "give the folder of a run")
    assert_refused(command("ledger", tmp_path / "none"), "cannot read ledger")


def test_another_delta_for_a_ledger(command: Command, held: Path) -> None:
    for delta in ("0", "1", "-1e-5", "nan", "inf"):
        assert_refused(command("ledger", held, "--delta", delta), "delta is")


ACCOUNT = {"--rounds": "80", "--samples": "10000", "--sigma": "1e-3", "--delta": "1e-5"}


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--delta", "0", "delta is 0.0"),
        ("--delta", "1", "delta is 1.0"),
        ("--delta", "-0.5", "delta is -0.5"),
        ("--delta", "-1e-5", "delta is -1e-05"),
        ("--delta", "nan", "delta is nan"),
        ("--sigma", "0", "--sigma is 0.0"),
        ("--sigma", "-1", "--sigma is -1.0"),
        ("--sigma", "-7.41e-4", "--sigma is -0.000741"),
        ("--sigma", "nan", "--sigma is nan"),
        ("--sigma", "inf", "--sigma is inf"),
        ("--sigma", "-inf", "--sigma is -inf"),
        ("--sigma", "little", "--sigma"),
        ("--rounds", "0", "--rounds is 0"),
        ("--rounds", "-3", "--rounds is -3"),
        ("--rounds", "2.5", "--rounds"),
        ("--rounds", "1000000000000", "--rounds is 1000000000000"),
        ("--samples", "0", "--samples is 0"),
        ("--samples", "1" + "0" * 30, "--samples is 1"),
        ("--backoff", "0.5", "--backoff is 0.5"),
        ("--backoff", "nan", "--backoff is nan"),
        ("--label", "clients", "clients"),
        ("--label", "client", "needs --client-samples"),
        ("--client-samples", "0", "--client-samples is 0"),
        ("--client-samples", "10001", "--client-samples is 10001"),
        ("--sigme", "1", "--sigme"),
    ],
)
def test_account(command: Command, option: str, value: str, part: str) -> None:
    options = {**ACCOUNT, option: value}
    for more in ((), ("--json",)):
        assert_refused(command("account", *(word for pair in options.items() for word in pair), *more), part)


JAMMER = {
    "--epsilon": "1",
    "--delta": "1e-5",
    "--rounds": "80",
    "--samples": "10000",
    "--alpha-u": "1349",
    "--h-cj": "1",
    "--sigma-c": "1",
}


@pytest.mark.parametrize(
    ("option", "value", "part"),
    [
        ("--epsilon", "0", "epsilon is 0.0"),
        ("--epsilon", "-1", "epsilon is -1.0"),
        ("--epsilon", "inf", "epsilon is inf"),
        ("--delta", "1", "delta is 1.0"),
        ("--delta", "nan", "delta is nan"),
        ("--rounds", "0", "is 0"),
        ("--samples", "-1", "--samples is -1"),
        ("--samples", "1" + "0" * 30, "--samples is 1"),
        ("--alpha-u", "0", "alpha_u is 0.0"),
        ("--alpha-u", "-1e-3", "alpha_u is -0.001"),
        ("--alpha-u", "nan", "alpha_u is nan"),
        ("--h-cj", "nan", "--h-cj is nan"),
        ("--h-cj", "inf", "--h-cj is inf"),
        ("--h-cj", "-1", "--h-cj is -1.0"),
        ("--sigma-c", "0", "is 0.0"),
        ("--sigma-c", "-1", "is -1.0"),
        ("--factor", "0.5", "factor is 0.5"),
        ("--factor", "nan", "factor is nan"),
        ("--factor-on", "power", "power"),
        ("--accountant", "pld", "pld"),
        ("--epsilon", "1e-300", "too small to size noise for"),
    ],
)
@pytest.mark.parametrize("alpha_u", ["1349", "1"], ids=["needed", "not needed"])
def test_jammer(command: Command, option: str, value: str, part: str, alpha_u: str) -> None:
    options = {**JAMMER, "--alpha-u": alpha_u, option: value}
    for more in ((), ("--json",)):
        assert_refused(command("jammer", *(word for pair in options.items() for word in pair), *more), part)


def test_a_needed_jammer_without_a_channel(command: Command) -> None:
    options = {**JAMMER, "--h-cj": "0"}
    assert_refused(command("jammer", *(word for pair in options.items() for word in pair)), "cannot be heard")
    options["--h-cj"] = "1e-320"
    assert_refused(command("jammer", *(word for pair in options.items() for word in pair)), "infinite amplitude")


def test_the_exact_accountant_sizes_noise_for_the_smallest_epsilon(command: Command) -> None:
    """Where epsilon is nothing beside delta, erf(sqrt(S)/2) = delta; the search for it ends."""
    options = {**JAMMER, "--epsilon": "1e-200", "--accountant": "exact"}
    outcome = command("jammer", *(word for pair in options.items() for word in pair), "--json")
    loss = 4 * float(erfinv(float(JAMMER["--delta"]))) ** 2
    sigma = math.sqrt(int(JAMMER["--rounds"]) / (2 * loss)) / int(JAMMER["--samples"])
    assert outcome.json["sigma_required"] == pytest.approx(sigma, rel=1e-9)


def test_commands_and_options_that_do_not_exist(command: Command) -> None:
    assert command().code == 0
    assert_refused(command("runn", "quickstart"), "runn", "run")
    assert_refused(command("run"), "CONFIG")
    assert_refused(command("run", "quickstart", "--outt", "x"), "--outt", "see airdp run --help")
    assert_refused(command("run", "loopback", "--backend", "a'b", "--dry-run"), "backend 'a'b' is not one of")
    assert_refused(command("run", "quickstart", "--uplinks", "10"), "--uplinks 10", "overridden with --set A.B=C")
    assert_refused(command("run", "QUICKSTART"), "did you mean 'quickstart'?")
    assert_refused(
        command("run", "loopback", "--set", "medium.gain_db=1"), "unknown key 'medium'", "[medium] is for lab files"
    )
    assert_refused(
        command("validate", "loopback", "--trials", 10**12), "--trials is 1000000000000: expected 32 to 1000000"
    )
    assert_refused(command("account"), "--rounds")
    assert_refused(command("bench", "no-such"), "no benchmark 'no-such'", "local-round")
    assert_refused(command("bench", "--repeats", "0"), "--repeats is 0")
    assert_refused(command("configs", "no-such"), "no config 'no-such'")
    assert_refused(command("data", "mnist"), "mnist")


def test_a_refusal_of_the_real_process(airdp: Command, tiny_file: Path, tmp_path: Path, snapshot: Snapshot) -> None:
    """Of the installed command, with all that start-up and libraries could print beside the one line."""
    before = snapshot(tmp_path)
    options = ("--set", "local.lr=1e8", "--set", "local.epochs=5", "--set", "partition.kind=classes")
    assert_refused(airdp("run", tiny_file, "--out", tmp_path / "run", *options), "NaN or infinite")
    assert {name: digest for name, digest in snapshot(tmp_path).items() if not name.startswith("run")} == before
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 0


def test_a_full_disk(command: Command, tiny_file: Path, tmp_path: Path) -> None:
    """No file may grow beyond 4 kB: the first checkpoint does not fit. With space again, the run goes on."""
    limited = (
        "import resource, sys; from fl.cli.main import main; "
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY)); sys.exit(main(sys.argv[1:]))"
    )
    options = ["run", str(tiny_file), "--out", str(tmp_path / "run")]
    done = subprocess.run(
        [sys.executable, "-c", limited, *options],
        capture_output=True,
        text=True,
        # Without the second, Python could leave compiled modules behind that are cut off at the limit.
        env={**os.environ, "PYTHONPATH": str(REPOSITORY), "PYTHONDONTWRITEBYTECODE": "1"},
        timeout=240,
        check=False,
    )
    assert_refused(Outcome(done.returncode, done.stdout, done.stderr), "File too large")
    assert read_ledger(tmp_path / "run" / "ledger.jsonl").authorised == 1
    said = command(*options, "--resume", "--json").json
    # The uplink that could not be kept was sent, so it is charged a second time.
    assert (said["uplinks"], said["transmissions_charged"]) == (4, 5)
