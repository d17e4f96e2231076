"""Runs over radios: what failures cost, what resuming gives, radios that are always left parked, and bad input."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import fl.run.assemble
from fl.nodes.coordinator import CoherenceError, Coordinator
from fl.nodes.radio_uplink import RadioUplink
from fl.nodes.server import ServerNode
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import read_ledger
from fl.privacy.mechanism import SigmaOrigin
from fl.run import run
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED, RunResult
from fl.run.folder import RunFolder
from fl.uplink.contract import Aggregate, NotSentError
from hardware.lab.file import find_lab
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab, open_lab
from hardware.radio.ad936x import AD936X
from hardware.radio.errors import HardwareError, LateError, RxOverflowError
from tests.conftest import Outcome
from tests.fl.nodes.radios import Fault, fault, watch_air
from tests.fl.nodes.small_runs import before, rows_of, small_run
from tests.hardware.simulated import medium_in

Snapshot = Callable[[Path], dict[str, str]]
Command = Callable[..., Outcome]
UPLINKS = 4
LABS = ["loopback", "loopback-harsh", "loopback-free-clock"]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


class CrashError(BaseException):
    """Not an `Exception`, so that nothing between here and the test can mistake it for an error to be handled."""


def sections_of(lab: str = "loopback", **changes: Any) -> dict[str, Any]:
    return small_run(lab, clients=5, uplinks=UPLINKS, **changes)


@pytest.fixture
def labs(monkeypatch: pytest.MonkeyPatch) -> list[OpenLab]:
    """Every lab that a run opens, also after it is closed again."""
    seen: list[OpenLab] = []

    @contextmanager
    def watched(lab: Lab, seed: int) -> Iterator[OpenLab]:
        with open_lab(lab, seed) as radios:
            seen.append(radios)
            yield radios

    monkeypatch.setattr(fl.run.assemble, "open_lab", watched)
    return seen


def assert_parked(labs: list[OpenLab]) -> None:
    """All radios are silenced, at their lowest gain as the air itself has it, and take no orders any more."""
    assert labs
    for lab in labs:
        medium = medium_in(lab)
        for name, radio in lab.radios.items():
            assert radio.parked
            assert medium.settings(name).tx_gain_db == AD936X.tx_gain_db[0]
            with pytest.raises(HardwareError, match="closed"):
                radio.receive(1, 0)


def test_a_run_over_radios(tmp_path: Path, labs: list[OpenLab]) -> None:
    result = run(sections_of(), tmp_path / "run")
    assert (result.status, result.uplinks, result.transmissions_charged) == (FINISHED, UPLINKS, UPLINKS)
    contents = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert all(mechanism.sigma_origin is SigmaOrigin.MEASURED for mechanism in contents.mechanisms)
    assert result.to_json()["sigma_origin"] == "measured"
    assert rows_of(tmp_path / "run") == ["open", *["authorise", "account"] * UPLINKS]
    for row in RunFolder(tmp_path / "run").metrics():
        assert {"nmse_db", "thermal_db", "nmse_other", "clipped_samples"} <= set(row["diagnostics"])
    assert_parked(labs)


def test_epsilon_is_the_targets(tmp_path: Path) -> None:
    """The noise is sized for the bounds that will be charged, so the target is met and not passed; the loss is within
    the few percent by which clients' bounds differ."""
    for lab in LABS:
        sections = sections_of(lab, radio={"sounding_symbols": 32, "quiet_samples": 65536}, privacy={"epsilon": 5.0})
        result = run(sections, tmp_path / lab)
        epsilon = result.privacy[0].epsilon[Accountant.PAPER]
        assert epsilon <= 5.0 * (1 + 1e-9)
        assert epsilon > (4.5 if lab != "loopback-harsh" else 3.0)


@pytest.mark.parametrize("fft_size", [64, 1024])
def test_other_numerologies_run(tmp_path: Path, fft_size: int) -> None:
    """Silence before and guards around a payload must be long enough to measure noise in, whatever the symbol: a guard
    that is too short would show after everything was sent and charged."""
    radio = {
        "fft_size": fft_size,
        "cp_samples": fft_size // 4,
        "data_subcarriers": fft_size * 3 // 4,
        "quiet_samples": 32768,
    }
    result = run(sections_of(radio=radio, uplink={"uplinks": 2}), tmp_path / "run")
    assert (result.status, result.transmissions_charged) == (FINISHED, 2)


# Failures.


@pytest.mark.parametrize(
    "inject",
    [
        fault("client-2", "transmit", LateError("late")),
        fault("jammer", "transmit", LateError("late")),
        fault("ps", "receive", RxOverflowError("lost")),
    ],
    ids=["client late", "jammer late", "overflow"],
)
def test_a_failure_before_anything_is_sent_costs_nothing(tmp_path: Path, inject: Fault, labs: list[OpenLab]) -> None:
    folder = tmp_path / "run"
    with before("plan", 2, inject):
        result = run(sections_of(), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, UPLINKS)
    assert rows_of(folder) == ["open", *["authorise", "account"] * UPLINKS]
    assert [row["postponed"] for row in RunFolder(folder).metrics()] == [0, 1, 0, 0]
    assert_parked(labs)


def test_a_failure_after_sending_leaves_the_worst_case_standing(tmp_path: Path, labs: list[OpenLab]) -> None:
    """The payload of uplink 2 is lost at the receiver: what was authorised stays, the uplink is sent again under a row
    of its own, and both count."""
    folder = tmp_path / "run"
    with before("exchange", 2, fault("ps", "receive", RxOverflowError("lost"))):
        result = run(sections_of(), folder)
    whole = run(sections_of(), tmp_path / "whole")
    assert (result.status, result.uplinks, result.transmissions_charged) == (FINISHED, UPLINKS, UPLINKS + 1)
    kinds = rows_of(folder)
    assert kinds == ["open", *["authorise", "account"], "authorise", *["authorise", "account"] * 3]
    mechanisms = read_ledger(folder / "ledger.jsonl").mechanisms
    assert [mechanism.uplink for mechanism in mechanisms] == [1, 2, 2, 3, 4]
    assert result.privacy[0].epsilon[Accountant.PAPER] > whole.privacy[0].epsilon[Accountant.PAPER]
    assert [row["postponed"] for row in RunFolder(folder).metrics()] == [0, 1, 0, 0]
    assert_parked(labs)


def test_a_radio_that_fails_for_good_ends_the_run(tmp_path: Path, labs: list[OpenLab]) -> None:
    """Three attempts at the payload, each charged, then the error; the run can go on later."""

    def always(self: ServerNode, *arguments: object, **options: object) -> Any:
        raise RxOverflowError("lost")

    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ServerNode, "receive", always)
        with pytest.raises(RxOverflowError, match="lost"):
            run(sections_of(), folder)
    assert rows_of(folder) == ["open", *["authorise"] * 3]
    assert_parked(labs)
    result = run(sections_of(), folder, resume=True)
    assert (result.status, result.transmissions_charged) == (FINISHED, UPLINKS + 3)
    assert_parked(labs)


def test_a_needed_jammer_that_never_comes_ends_the_run_unsent(
    tmp_path: Path, labs: list[OpenLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    bursts = watch_air(monkeypatch)

    def asleep(uplink: RadioUplink) -> None:
        for _ in range(3):
            fault("jammer", "transmit", LateError("asleep"))(uplink)

    folder = tmp_path / "run"
    with before("plan", 1, asleep), pytest.raises(NotSentError, match="nothing was sent: asleep"):
        run(sections_of(), folder)
    assert rows_of(folder) == ["open"]
    assert len({samples for _, samples in bursts}) == 1
    assert {name for name, _ in bursts} == {f"client-{number}" for number in range(1, 6)}
    assert_parked(labs)


def test_an_incoherent_uplink_is_refused_and_not_charged(
    tmp_path: Path, labs: list[OpenLab], monkeypatch: pytest.MonkeyPatch
) -> None:
    bursts = watch_air(monkeypatch)
    folder = tmp_path / "run"
    sections = sections_of("loopback-free-clock", radio={"max_phase_error_rad": 1e-4})
    with pytest.raises(CoherenceError, match=r"more than radio\.max_phase_error_rad = 0\.0001"):
        run(sections, folder)
    assert rows_of(folder) == ["open"]
    assert len({samples for _, samples in bursts}) == 1
    assert_parked(labs)


def test_a_budget_stops_before_sending(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Sounding is free; the payload that would exceed the budget does not leave."""
    bursts = watch_air(monkeypatch)
    result = run(sections_of(privacy={"budget_epsilon": 4.0}), tmp_path / "run")
    assert result.status == "budget spent"
    assert 0 < result.uplinks < UPLINKS
    assert result.privacy[0].epsilon[Accountant.PAPER] <= 4.0
    lengths = [samples for _, samples in bursts]
    # Six radios sound in each uplink, the one that was not sent included.
    sounding = lengths[0]
    assert lengths.count(sounding) == 6 * (result.uplinks + 1)
    assert len(lengths) == 6 * (result.uplinks + 1) + 6 * result.uplinks


# Resuming.


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], RunResult]:
    """The run that nothing interrupts, of each lab."""
    made: dict[str, RunResult] = {}

    def make(lab: str) -> RunResult:
        if lab not in made:
            made[lab] = run(sections_of(lab), tmp_path_factory.mktemp("whole") / "run")
        return made[lab]

    return make


def assert_the_same(folder: Path, result: RunResult, other: RunResult) -> None:
    assert result.model_sha256 == other.model_sha256
    rows, expected = RunFolder(folder).metrics(), RunFolder(other.out).metrics()
    for row, whole_row in zip(rows, expected, strict=True):
        assert row["epsilon"] >= whole_row["epsilon"] * (1 - 1e-12)
        assert {key: value for key, value in row.items() if key not in ("seconds", "epsilon")} == {
            key: value for key, value in whole_row.items() if key not in ("seconds", "epsilon")
        }


@pytest.mark.parametrize("lab", LABS)
@pytest.mark.parametrize("stop", [1, 3])
def test_a_run_that_was_stopped_goes_on_bit_for_bit(
    tmp_path: Path, whole: Callable[[str], RunResult], labs: list[OpenLab], lab: str, stop: int
) -> None:
    """Free-running counters have drifted by then, and the radios that a resumed run opens have heard no sounding."""

    def give_up(metrics: UplinkMetrics) -> None:
        if metrics.uplink == stop:
            raise CrashError

    folder = tmp_path / "run"
    with pytest.raises(CrashError):
        run(sections_of(lab), folder, on_uplink=give_up)
    assert_parked(labs)
    result = run(sections_of(lab), folder, resume=True)
    assert_the_same(folder, result, whole(lab))
    assert result.transmissions_charged == UPLINKS
    assert result.privacy == whole(lab).privacy
    assert_parked(labs)


@pytest.mark.parametrize("point", ["plan", "exchange", "carry", "receive"])
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_a_crash_within_an_uplink(
    tmp_path: Path, whole: Callable[[str], RunResult], labs: list[OpenLab], point: str, after: bool
) -> None:
    """The resumed run makes the uplink again with the same outcome; it is charged again where it was authorised."""
    owner: Any = {"receive": ServerNode, "carry": Coordinator}.get(point, RadioUplink)
    original, calls = getattr(owner, point), 0

    def crashing(self: Any, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 3 and not after:
            raise CrashError
        outcome = original(self, *arguments, **options)
        if calls == 3:
            raise CrashError
        return outcome

    folder = tmp_path / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, point, crashing)
        with pytest.raises(CrashError):
            run(sections_of(), folder)
    assert_parked(labs)
    result = run(sections_of(), folder, resume=True)
    assert_the_same(folder, result, whole("loopback"))
    sent_twice = point in ("carry", "receive") or (point == "exchange" and after)
    assert result.transmissions_charged == UPLINKS + sent_twice
    assert_parked(labs)


@pytest.mark.parametrize("moment", ["planned", "sent", "done"])
def test_an_interrupt_parks_the_radios(
    tmp_path: Path, labs: list[OpenLab], moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange = RadioUplink.exchange

    def interrupted(self: RadioUplink, *arguments: Any) -> Aggregate:
        assert not any(radio.parked for radio in self.lab.radios.values())
        if moment == "planned":
            raise KeyboardInterrupt
        aggregate = exchange(self, *arguments)
        if moment == "sent":
            raise KeyboardInterrupt
        return aggregate

    def stop(metrics: UplinkMetrics) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(RadioUplink, "exchange", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(sections_of(), tmp_path / "run", on_uplink=stop)
    assert_parked(labs)
    assert rows_of(tmp_path / "run")[:2] == ["open", *(["authorise"] if moment != "planned" else [])]


def test_any_error_parks_the_radios(tmp_path: Path, labs: list[OpenLab], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: RadioUplink, *arguments: Any) -> Aggregate:
        raise ZeroDivisionError

    monkeypatch.setattr(RadioUplink, "exchange", broken)
    with pytest.raises(ZeroDivisionError):
        run(sections_of(), tmp_path / "run")
    assert_parked(labs)


# Bad input, as it is given.


@pytest.fixture
def refused(
    command: Command, tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, labs: list[OpenLab]
) -> Callable[..., None]:
    """One line on stderr with these parts, exit code 2, no radio opened and nothing made."""
    monkeypatch.chdir(tmp_path)

    def check(*arguments: str, parts: tuple[str, ...]) -> None:
        held = snapshot(tmp_path)
        outcome = command("run", *arguments)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.count("\n") == 1
        assert outcome.err.startswith("airdp: error: ")
        for part in parts:
            assert part in outcome.err
        assert snapshot(tmp_path) == held
        assert labs == []

    return check


@pytest.mark.parametrize(
    ("override", "parts"),
    [
        ("partition.clients=4", ("lab 'loopback' has 5 clients and the run 4", "--set partition.clients=5")),
        ("radio.lab=loopback-hash", ("no lab 'loopback-hash'", "did you mean 'loopback-harsh'?")),
        ("radio.lab=elsewhere.toml", ("no lab 'elsewhere.toml'", "expected a lab file or one of gnuradio, loopback")),
        ("radio.backend=lopback", ("backend 'lopback' is not one of", "did you mean 'loopback'?")),
        ("radio.sounding_symbols=1", ("radio.sounding_symbols", "2")),
        ("radio.confidence=0.5", ("radio.confidence", "0.5")),
        ("privacy.delta=1e-12", ("leaves 1.8e-16 for each of 570 measured bounds", "privacy.bounds_share")),
        ("radio.max_phase_error_rad=0", ("radio.max_phase_error_rad",)),
        ("radio.cp_samples=8", ("early_samples",)),
        ("radio.data_subcarriers=256", ("data_subcarriers is 256",)),
        ("radio.fft_size=8192", ("quiet_samples is 65536: too short",)),
        ("radio.sounding_symbol=3", ("unknown key 'radio.sounding_symbol'", "did you mean 'sounding_symbols'?")),
    ],
)
def test_refused_before_a_radio_is_opened(refused: Callable[..., None], override: str, parts: tuple[str, ...]) -> None:
    refused("loopback", "--set", override, parts=parts)


def test_an_unknown_backend_by_its_option(refused: Callable[..., None]) -> None:
    refused(
        "loopback",
        "--backend",
        "pluot",
        parts=("backend 'pluot' is not one of gnuradio, loopback, loopback-served, pluto",),
    )


def lab_file(path: Path, **changes: Any) -> Path:
    """The shipped lab as a file, with sections replaced."""
    tables: dict[str, Any] = {
        "lab": {
            "name": "own",
            "backend": "loopback",
            "sample_rate_hz": 5e6,
            "center_hz": 2.45e9,
            "tx_gain_db": 0.0,
            "rx_gain_db": 0.0,
        },
        "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
        "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": 5}],
        "medium": {"noise_var_complex": 1e-5},
        **changes,
    }
    path.write_text(tomli_w.dumps(tables))
    return path


def test_a_lab_without_the_jammer(refused: Callable[..., None], tmp_path: Path) -> None:
    path = lab_file(tmp_path / "lab.toml")
    for role in ("dedicated", "external"):
        overrides = ("--set", f"radio.lab={path}", "--set", f"jammer.role={role}")
        refused("loopback", *overrides, parts=("lab 'own' has no jammer", "jammer.role = 'none'"))


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        (
            {"radio": [{"name": "a", "role": "ps"}, {"name": "b", "role": "ps"}]},
            ("2 radios have the role 'ps' (a, b)",),
        ),
        ({"limits": {"band_hz": [2.44e9, 2.45e9], "max_tx_gain_db": 0.0}}, ("limits.band_hz",)),
        ({"limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": -3.0}}, ("limits.max_tx_gain_db",)),
        ({"medium": {"noise": 1e-5}}, ("medium.noise",)),
    ],
    ids=["two servers", "band", "gain", "unknown key"],
)
def test_lab_files_that_cannot_be(
    refused: Callable[..., None], tmp_path: Path, changes: dict[str, Any], parts: tuple[str, ...]
) -> None:
    path = lab_file(tmp_path / "lab.toml", **changes)
    refused("loopback", "--set", f"radio.lab={path}", "--set", "jammer.role=none", parts=(str(path), *parts))


def test_a_refused_uplink_is_one_line_too(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is there by then; its ledger shows that nothing was sent."""
    bursts = watch_air(monkeypatch)
    config = tmp_path / "config.toml"
    config.write_text(tomli_w.dumps(sections_of("loopback-free-clock", radio={"max_phase_error_rad": 1e-4})))
    outcome = command("run", config, "--out", tmp_path / "run")
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    assert "share a reference clock" in outcome.err
    assert rows_of(tmp_path / "run") == ["open"]
    assert len({samples for _, samples in bursts}) == 1


def test_one_lab_on_its_own_file_is_the_same(tmp_path: Path, whole: Callable[[str], RunResult]) -> None:
    """By path or by name, through the named backend or the file's own: the same air."""
    path = tmp_path / "copy.toml"
    path.write_text(Path(find_lab("loopback").source).read_text())
    result = run(sections_of(radio={"lab": str(path), "backend": "loopback"}), tmp_path / "run")
    assert result.model_sha256 == whole("loopback").model_sha256
