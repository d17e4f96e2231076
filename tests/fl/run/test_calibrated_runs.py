"""Runs that rest on a calibration, as a user makes them: calibrate, run, resume."""

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w

from fl.errors import RunFolderError
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.replay import replay
from tests.conftest import Outcome
from tests.fl.nodes.small_runs import rows_of, small_run

Command = Callable[..., Outcome]
Snapshot = Callable[[Path], dict[str, str]]
pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")

UPLINKS = 2
LAB = """
[lab]
name = "bench"
backend = "loopback"
sample_rate_hz = 5e6
center_hz = 2.45e9
tx_gain_db = 0.0
rx_gain_db = 0.0
[limits]
band_hz = [2.44e9, 2.46e9]
max_tx_gain_db = 0.0
[[radio]]
name = "ps"
role = "ps"
[[radio]]
name = "client"
role = "client"
count = 2
[[radio]]
name = "jammer"
role = "jammer"
[medium]
gain_db = -12.0
noise_var_complex = 1e-5
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a lab file and its calibration, made by the command."""
    from fl.cli.main import main

    folder = tmp_path_factory.mktemp("bench")
    (folder / "lab.toml").write_text(LAB)
    calibrate = ["calibrate", str(folder / "lab.toml"), "--samples", str(256 * 256), "--json"]
    assert main([*calibrate, "--out", str(folder / "lab.json")]) == 0
    return folder


@pytest.fixture
def bench(made: Path, tmp_path: Path) -> Path:
    """A copy that a test may change, with a config beside it."""
    for name in ("lab.toml", "lab.json"):
        shutil.copy(made / name, tmp_path / name)
    (tmp_path / "run.toml").write_text(tomli_w.dumps(sections_of(tmp_path)))
    return tmp_path


def sections_of(bench: Path, **changes: Any) -> dict[str, Any]:
    return small_run(str(bench / "lab.toml"), clients=2, uplinks=UPLINKS, **changes)


def calibrated(bench: Path) -> dict[str, Any]:
    return sections_of(bench, radio={"calibration": str(bench / "lab.json")})


def test_a_calibrated_run_is_replayed_with_its_own_record(bench: Path) -> None:
    """The file that it was given may be gone by then, and the record expired."""
    run(sections_of(bench, radio={"calibration": str(bench / "lab.json"), "record": "all"}), bench / "run")
    (bench / "lab.json").unlink()
    played = replay(RunFolder(bench / "run"))
    assert played.same
    assert played.model


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert text.count(old) == 1
    path.write_text(text.replace(old, new))


def test_the_command_takes_a_calibration_and_keeps_it(bench: Path, command: Command) -> None:
    done = command("run", bench / "run.toml", "--calibration", bench / "lab.json", "--out", bench / "run", "--json")
    assert (done.code, done.json["status"]) == (0, FINISHED)
    assert (bench / "run" / "calibration.json").read_bytes() == (bench / "lab.json").read_bytes()
    kept = RunFolder(bench / "run")
    assert set(kept.read_json("inputs.json")["sha256"]) == {"radio.calibration"}
    assert kept.config().radio.calibration == str(bench / "lab.json")


def refused(command: Command, bench: Path, *reasons: str) -> None:
    """One line, exit code 2, and nothing left behind: no folder, no ledger."""
    before = sorted(bench.iterdir())
    done = command("run", bench / "run.toml", "--calibration", bench / "lab.json", "--out", bench / "run")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    for reason in (str(bench / "lab.json"), *reasons):
        assert reason in done.err
    assert sorted(bench.iterdir()) == before


def test_an_expired_calibration_is_refused(command: Command, bench: Path) -> None:
    record = json.loads((bench / "lab.json").read_text())
    record |= {"created": "2025-03-01T12:00:00Z", "expires": "2025-03-02T00:00:00Z"}
    (bench / "lab.json").write_text(json.dumps(record))
    refused(command, bench, "expired at 2025-03-02 00:00:00 UTC", "calibrate again")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('name = "bench"', 'name = "other"', "the receiver was 'ps of bench (loopback)' and is now 'ps of other"),
        ("rx_gain_db = 0.0", "rx_gain_db = 6.0", "rx_gain_db was 0 and is now 6"),
        ("\ntx_gain_db = 0.0", "\ntx_gain_db = -3.0", "client-1.tx_gain_db was 0 and is now -3"),
        ("sample_rate_hz = 5e6", "sample_rate_hz = 4e6", "sample_rate_hz was 5000000 and is now 4000000"),
        ("center_hz = 2.45e9", "center_hz = 2.451e9", "rx_center_hz was 2450000000 and is now 2451000000"),
    ],
)
def test_the_calibration_of_another_lab_is_refused(
    command: Command, bench: Path, old: str, new: str, reason: str
) -> None:
    edit(bench / "lab.toml", old, new)
    refused(command, bench, reason, "calibrate again")


def test_another_format_is_refused_and_its_own_calibration_taken(command: Command, bench: Path) -> None:
    radio = {"fft_size": 128, "cp_samples": 32, "data_subcarriers": 96}
    (bench / "run.toml").write_text(tomli_w.dumps(sections_of(bench, radio=radio)))
    refused(command, bench, "numerology.fft_size was 256 and is now 128")
    again = ("calibrate", bench / "lab.toml", "--samples", 32768, "--out", bench / "small.json", "--json")
    assert command(*again, "--numerology", 128, 32, 96).code == 0
    taken = command("run", bench / "run.toml", "--calibration", bench / "small.json", "--out", bench / "run", "--json")
    assert taken.json["status"] == FINISHED


@pytest.mark.parametrize("text", ["", "{}", "[1]"])
def test_what_is_no_record_is_refused(command: Command, bench: Path, text: str) -> None:
    (bench / "lab.json").write_text(text)
    refused(command, bench)


def test_an_amplifier_that_compresses_is_refused(command: Command, bench: Path) -> None:
    with (bench / "lab.toml").open("a") as file:
        file.write("pa_saturation = 1.3\n")
    (bench / "lab.json").unlink()
    assert command("calibrate", bench / "lab.toml", "--out", bench / "lab.json", "--json").code == 0
    refused(command, bench, "the gain of 'client-1' may differ by", "lower its tx_gain_db")


def test_noise_that_is_not_the_records_is_not_sent_in(command: Command, bench: Path) -> None:
    """The lab file says twice the noise that was calibrated: 3 dB, which nothing but the silences can show."""
    edit(bench / "lab.toml", "noise_var_complex = 1e-5", "noise_var_complex = 2e-5")
    done = command("run", bench / "run.toml", "--calibration", bench / "lab.json", "--out", bench / "run")
    assert (done.code, done.out) == (2, "")
    assert done.err.count("\n") == 1
    for part in ("nothing was sent", "the noise has changed by +", "more than 1 dB", str(bench / "lab.json")):
        assert part in done.err
    assert rows_of(bench / "run") == ["open"]
    assert RunFolder(bench / "run").metrics() == []


def test_noise_that_is_a_little_off_is_a_warning(command: Command, bench: Path) -> None:
    """1.12e-5 is 0.49 dB above 1e-5: within the tolerance, and nine standard deviations of the comparison."""
    edit(bench / "lab.toml", "noise_var_complex = 1e-5", "noise_var_complex = 1.12e-5")
    (bench / "run.toml").write_text(tomli_w.dumps(sections_of(bench, radio={"quiet_samples": 65536})))
    done = command("run", bench / "run.toml", "--calibration", bench / "lab.json", "--out", bench / "run", "--json")
    assert done.json["status"] == FINISHED
    assert f"warning: in {UPLINKS} uplinks the noise was not that of the calibration, by up to +0." in done.err
    for row in RunFolder(bench / "run").metrics():
        assert row["diagnostics"]["noise_changed"] == 1.0
        assert row["diagnostics"]["noise_change_db"] == pytest.approx(0.49, abs=0.15)
    # The noise that came since is not counted.
    charged = [mechanism.noise_std_real for mechanism in read_ledger(bench / "run" / "ledger.jsonl").mechanisms]
    run(sections_of(bench, radio={"quiet_samples": 65536}), bench / "trusting")
    trusted = [mechanism.noise_std_real for mechanism in read_ledger(bench / "trusting" / "ledger.jsonl").mechanisms]
    # Both levels are measured, the record's to a percent or so; all of the noise would be 5.8 % more.
    np.testing.assert_allclose(np.array(charged) / trusted, math.sqrt(1 / 1.12), rtol=0.03)


def test_noise_that_is_the_records_is_no_news(command: Command, bench: Path) -> None:
    run_it = ("run", bench / "run.toml", "--out", bench / "run", "--json")
    assert command(*run_it, "--calibration", bench / "lab.json").err == ""
    plain = run(sections_of(bench), bench / "plain")
    for row in RunFolder(bench / "run").metrics():
        assert row["diagnostics"]["noise_changed"] == 0.0
    with_it, without = (read_ledger(bench / name / "ledger.jsonl").mechanisms for name in ("run", "plain"))
    for charged, trusted in zip(with_it, without, strict=True):
        # Soundings are shorter with a record, so silences are others.
        assert charged.noise_std_real <= 1.05 * trusted.noise_std_real
        ratios = np.array(charged.received_gains) / np.array(trusted.received_gains)
        # The record's margin in the place of what soundings at a payload's level show.
        assert np.all(np.abs(ratios - 1.0) < 0.02)
    assert plain.status == FINISHED


def test_a_calibration_is_for_radios(command: Command, bench: Path, tiny_file: Path) -> None:
    done = command("run", tiny_file, "--calibration", bench / "lab.json", "--out", bench / "run")
    assert done.code == 2
    assert "radio.calibration is for uplink.kind = 'radio'" in done.err


class StopError(BaseException):
    """The run is stopped from outside."""


def stop_after_one(sections: dict[str, Any], folder: Path) -> None:
    def stop(metrics: UplinkMetrics) -> None:
        raise StopError

    with pytest.raises(StopError):
        run(sections, folder, on_uplink=stop)


def test_a_run_goes_on_with_the_same_calibration_wherever_it_lies(bench: Path) -> None:
    stop_after_one(calibrated(bench), bench / "run")
    (bench / "lab.json").rename(bench / "moved.json")
    moved = sections_of(bench, radio={"calibration": str(bench / "moved.json")})
    assert run(moved, bench / "run", resume=True).status == FINISHED


def test_a_run_goes_on_with_no_other_calibration(bench: Path, snapshot: Snapshot) -> None:
    stop_after_one(calibrated(bench), bench / "run")
    rows, before = rows_of(bench / "run"), snapshot(bench / "run")
    text = (bench / "lab.json").read_text()
    (bench / "lab.json").write_text(text + "\n")
    for sections in (calibrated(bench), sections_of(bench)):
        with pytest.raises(RunFolderError, match=r"another content of radio\.calibration"):
            run(sections, bench / "run", resume=True)
    (bench / "lab.json").write_text(text)
    assert (rows_of(bench / "run"), snapshot(bench / "run")) == (rows, before)
    assert run(calibrated(bench), bench / "run", resume=True).status == FINISHED


def test_a_run_that_began_without_a_calibration_does_not_get_one(bench: Path) -> None:
    stop_after_one(sections_of(bench), bench / "run")
    with pytest.raises(RunFolderError, match=r"another content of radio\.calibration"):
        run(calibrated(bench), bench / "run", resume=True)
