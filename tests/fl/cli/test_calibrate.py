"""`airdp calibrate`: what it prints, what it writes, and that it leaves nothing behind where it fails."""

import json
import os
import re
import signal
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from numpy.typing import NDArray

import calibration.procedure
from calibration.links import measure_sounding
from calibration.record import load_record
from hardware.loopback.radio import LoopbackRadio
from tests.conftest import Outcome

Command = Callable[..., Outcome]
Snapshot = Callable[[Path], dict[str, str]]
PNG = b"\x89PNG\r\n\x1a\n"
PICTURES = {"noise_psd", "noise_histogram", "noise_constellation", "sounding_client-1", "residual_phase"}
LAB: dict[str, Any] = {
    "lab": {
        "name": "bench",
        "backend": "loopback",
        "sample_rate_hz": 5e6,
        "center_hz": 2.45e9,
        "tx_gain_db": 0.0,
        "rx_gain_db": 0.0,
    },
    "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0, "max_rx_gain_db": 40.0},
    "radio": [{"name": "ps", "role": "ps"}, {"name": "client-1", "role": "client"}],
    "medium": {"gain_db": -12.0, "delay_samples": 3.25, "noise_var_complex": 1e-5, "dc_offset_dbfs": -40.0},
}


def lab_file(folder: Path, name: str = "bench.toml", **sections: Mapping[str, Any]) -> Path:
    path = folder / name
    path.write_text(tomli_w.dumps({key: {**LAB[key], **sections[key]} if key in sections else LAB[key] for key in LAB}))
    return path


@pytest.fixture
def transmitted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the radios that sent something, as they do."""
    sent: list[str] = []
    send = LoopbackRadio._send

    def spy(radio: LoopbackRadio, samples: NDArray[np.complex64], start_sample: int) -> None:
        sent.append(radio.name)
        send(radio, samples, start_sample)

    monkeypatch.setattr(LoopbackRadio, "_send", spy)
    return sent


def refused(outcome: Outcome, *parts: str) -> None:
    """One line on stderr, nothing on stdout, exit code 2."""
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.startswith("airdp: error: ")
    assert outcome.err.count("\n") == 1
    for part in parts:
        assert part in outcome.err


@pytest.fixture
def no_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    import fl.cli.labs.calibrate

    monkeypatch.setattr(fl.cli.labs.calibrate, "_draw", lambda calibration, folder: [])


def test_json_record_and_pictures(command: Command, tmp_path: Path) -> None:
    out = tmp_path / "lab.json"
    outcome = command("calibrate", lab_file(tmp_path), "--out", out, "--seed", 3, "--hours", 2, "--json")
    assert (outcome.code, outcome.err) == (0, "")
    said = outcome.json
    # sigma_c^2 is half of E|z|^2 = 1e-5; 393,216 degrees of freedom give an interval of +-0.44 %.
    low, high = said["ci"]
    assert low <= 5e-6 <= high
    assert not low <= 5.05e-6 <= high
    assert low <= said["noise_var_real"] <= high
    assert said["confidence"] == 0.95
    assert said["diagnostics"]["passed"]
    assert len(said["diagnostics"]["tests"]) == 6
    assert said["dc"]["level_dbfs"] == pytest.approx(-40.0, abs=0.01)
    assert set(said["links"]) == {"client-1"}
    link = said["links"]["client-1"]
    gain_db = 20 * np.log10(abs(complex(*link["gain"])))
    assert gain_db == pytest.approx(-12.0, abs=0.01)
    assert link["delay_samples"] == pytest.approx(3.25, abs=4 * link["delay_samples_std"] + 2e-3)
    assert link["cfo_hz"] == pytest.approx(0.0, abs=4 * link["cfo_hz_std"])
    assert set(said["linearity"]) == {"client-1/digital scale", "client-1/attenuator"}
    assert {one["verdict"] for one in said["linearity"].values()} == {"within tolerance"}
    assert (said["unmeasured"], set(said["timing"])) == ({}, {"client-1"})
    assert said["path"] == str(out)
    record = load_record(out)
    assert record.noise.noise_var_real == said["noise_var_real"]
    assert record.expires - record.created == timedelta(hours=2)
    assert sorted(said["figures"]) == sorted(str(path) for path in (tmp_path / "lab").iterdir())
    assert {Path(figure).stem for figure in said["figures"]} == PICTURES
    assert all(Path(figure).read_bytes().startswith(PNG) for figure in said["figures"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.toml", "lab", "lab.json"]
    # The same air gives the same measurement.
    again = command("calibrate", tmp_path / "bench.toml", "--out", tmp_path / "b.json", "--seed", 3, "--json").json
    assert (again["noise_var_real"], again["links"]) == (said["noise_var_real"], said["links"])


def test_tables_for_people(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    monkeypatch.chdir(tmp_path)
    lab_file(tmp_path, lab={"name": "my [bold]bench/1", "tx_gain_db": -89.75}, medium={"gain_db": 76.0})
    outcome = command("calibrate", "bench.toml", "--samples", 16384)
    assert (outcome.code, outcome.err) == (0, "")
    for part in (
        "my [bold]bench/1: noise of ps in silence",
        "sigma_c^2",
        "95 % interval",
        "accounted",
        "-40.0 dBFS, left out",
        "spurs",
        "none found",
        "white frequency",
        "gaussian tails",
        "p-value",
        "passed",
        "64 blocks, 192 subcarriers",
        "client-1",
        "gain dB",
        "delay samples",
        "CFO Hz",
        "-13.7",
        "within",
        "not measured",
        "client-1/attenuator was not measured: -89.75 dB is at the lowest gain of the radio",
        "for 12 hours",
    ):
        assert part in outcome.out
    (path,) = tmp_path.glob("calibration-*.json")
    assert re.fullmatch(r"calibration-my-bold-bench-1-\d{8}T\d{6}Z", path.stem)
    assert str(path.name) in outcome.out
    assert path.with_suffix("").is_dir()


def test_bad_noise_and_clocks_are_told(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    lab = lab_file(
        tmp_path,
        lab={"clock": "free-running"},
        medium={"iq_image_db": -25.0, "radio": {"client-1": {"clock_ppm": 0.5}}},
    )
    text = command("calibrate", lab, "--out", tmp_path / "a.json", "--samples", 65536).out
    assert "failed: power of I is" in " ".join(text.split())
    assert "the accounted value allows for that" in text
    assert "passed above 0.01, corrected for 6 tests (Holm)" in " ".join(text.split())
    assert "(corrected p = " in text
    assert "clocks run freely: client-1 -0.5" in text
    # A receiver whose gain jumps in mid-capture: no bound may rest on it.
    listen = LoopbackRadio._listen

    def jumpy(radio: LoopbackRadio, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        samples, clipped = listen(radio, count, start_sample)
        samples[count // 2 :] *= np.float32(1.3)
        return samples, clipped

    monkeypatch.setattr(LoopbackRadio, "_listen", jumpy)
    text = command("calibrate", lab_file(tmp_path), "--out", tmp_path / "b.json", "--samples", 65536).out
    assert "failed: power changed by" in " ".join(text.split())
    assert "no accounting may rest on it" in text


@pytest.mark.parametrize("name", ["loopback", "loopback-harsh", "loopback-free-clock"])
def test_shipped_labs(name: str, command: Command, tmp_path: Path, no_pictures: None) -> None:
    outcome = command("calibrate", name, "--out", tmp_path / "x.json", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    said = outcome.json
    assert set(said["links"]) == {"client-1", "client-2", "client-3", "client-4", "client-5", "jammer"}
    # 12- and 14-bit converters and the image of -35 dB add less than 0.5 %, the interval is as wide.
    assert said["noise_var_real"] == pytest.approx(5e-6, rel=0.015)
    record = load_record(tmp_path / "x.json")
    assert record.receiver == f"ps of {name} (loopback)"


@pytest.mark.parametrize(
    ("sections", "parts"),
    [
        ({"lab": {"sample_rate_hz": 100e6, "bandwidth_hz": 5e6}}, ["sample_rate_hz", "this radio does"]),
        ({"lab": {"center_hz": 10e9}, "limits": {"band_hz": [9e9, 11e9]}}, ["center_hz", "this radio does"]),
        ({"lab": {"center_hz": 2.47e9}}, ["limits.band_hz"]),
        ({"lab": {"tx_gain_db": 3.0}}, ["tx_gain_db is 3 dB", "limits.max_tx_gain_db"]),
        ({"lab": {"rx_gain_db": 90.0}, "limits": {"max_rx_gain_db": 99.0}}, ["rx_gain_db is 90", "this radio does"]),
        ({"lab": {"backend": "lopback"}}, ["did you mean 'loopback'"]),
        ({"lab": {"gain": 1.0}}, ["unknown key 'lab.gain'"]),
        ({"medium": {"noise_var_complex": 0.0, "dc_offset_dbfs": -400.0}}, ["one value throughout"]),
        ({"medium": {"noise_var_complex": 1.0, "adc_bits": 12}}, ["saturated"]),
        ({"medium": {"noise_var_complex": float("nan")}}, ["noise_var_complex"]),
    ],
)
def test_labs_that_cannot_be_measured(
    sections: dict[str, Any],
    parts: list[str],
    command: Command,
    tmp_path: Path,
    snapshot: Snapshot,
    transmitted: list[str],
) -> None:
    lab = lab_file(tmp_path, **sections)
    before = snapshot(tmp_path)
    refused(command("calibrate", lab, "--out", tmp_path / "x.json"), *parts)
    assert snapshot(tmp_path) == before
    assert transmitted == []


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (["loopback-hash"], ["no lab 'loopback-hash'", "did you mean 'loopback-harsh'?"]),
        (["loopback", "--out", "x.json", "--samples", 4095], ["4095 samples is too short", "4096"]),
        (["loopback", "--out", "x.json", "--samples", -1], ["too short"]),
        (["loopback", "--out", "x.json", "--samples", 10**10], ["time-out"]),
        (["loopback", "--out", "x.json", "--samples", "many"], ["--samples", "many"]),
        (["loopback", "--out", "x.json", "--hours", 0], ["--hours is 0"]),
        (["loopback", "--out", "x.json", "--hours", "nan"], ["--hours is nan"]),
        (["loopback", "--out", "x.json", "--hours", "1e9"], ["--hours is 1e+09"]),
        (["loopback", "--out", "x.json", "--seed", -1], ["seed is -1"]),
        (["loopback", "--out", "x.json", "--backend", "plutto"], ["backend 'plutto' is not one of"]),
        (["loopback", "--out", "x"], ["ends in .json"]),
        (["loopback", "--out", "nowhere/x.json"], ["folder nowhere does not exist"]),
        (["loopback", "--out", "taken.json"], ["taken.json exists already"]),
        (["loopback", "--out", "folder.json"], ["folder exists already"]),
        (["loopback", "--check", "none.json"], ["none.json does not exist"]),
        (["loopback", "--check", "taken.json"], ["taken.json"]),
        (["loopback", "--check", "taken.json", "--out", "x.json"], ["--out and --check exclude each other"]),
        (["loopback", "--check", "taken.json", "--samples", 4096], ["--samples and --check exclude each other"]),
    ],
)
def test_arguments_that_cannot_be_used(
    arguments: list[Any],
    parts: list[str],
    command: Command,
    tmp_path: Path,
    snapshot: Snapshot,
    transmitted: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken.json").write_text("precious")
    (tmp_path / "folder").mkdir()
    before = snapshot(tmp_path)
    outcome = command("calibrate", *arguments)
    assert (outcome.code, outcome.out, outcome.err.count("\n")) == (2, "", 1)
    for part in parts:
        assert part in outcome.err
    assert snapshot(tmp_path) == before
    assert transmitted == []


def test_nan_samples_are_refused(
    command: Command, tmp_path: Path, snapshot: Snapshot, transmitted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        LoopbackRadio, "_listen", lambda radio, count, start: (np.full(count, np.nan, dtype=np.complex64), 0)
    )
    lab = lab_file(tmp_path)
    before = snapshot(tmp_path)
    refused(command("calibrate", lab, "--out", tmp_path / "x.json"), "NaN or infinite")
    monkeypatch.setattr(LoopbackRadio, "_listen", lambda radio, count, start: (np.zeros(count, dtype=np.complex64), 0))
    refused(command("calibrate", lab, "--out", tmp_path / "x.json"), "all zero")
    assert snapshot(tmp_path) == before
    assert transmitted == []


@pytest.fixture
def record_file(command: Command, tmp_path: Path, no_pictures: None) -> Path:
    out = tmp_path / "record.json"
    assert command("calibrate", lab_file(tmp_path), "--out", out, "--samples", 4096).code == 0
    return out


def test_check_says_whether_a_record_still_fits(
    record_file: Path, command: Command, tmp_path: Path, transmitted: list[str], snapshot: Snapshot
) -> None:
    lab = tmp_path / "bench.toml"
    louder = lab_file(tmp_path, "louder.toml", lab={"rx_gain_db": 10.0})
    quieter = lab_file(tmp_path, "quieter.toml", lab={"tx_gain_db": -3.0})
    slower = lab_file(tmp_path, "slower.toml", lab={"sample_rate_hz": 4e6})
    other = lab_file(tmp_path, "other.toml", lab={"name": "elsewhere"})
    before = snapshot(tmp_path)
    good = command("calibrate", lab, "--check", record_file)
    assert (good.code, good.err) == (0, "")
    assert "fits bench, for 12.0 hours more" in good.out
    said = command("calibrate", lab, "--check", record_file, "--json").json
    assert (said["fits"], said["path"]) == (True, str(record_file))
    refused(command("calibrate", louder, "--check", record_file), "rx_gain_db was 0 and is now 10")
    refused(command("calibrate", quieter, "--check", record_file), "client-1.tx_gain_db was 0 and is now -3")
    refused(command("calibrate", slower, "--check", record_file, "--json"), "sample_rate_hz was 5000000")
    refused(command("calibrate", other, "--check", record_file), "'ps of bench (loopback)'", "'ps of elsewhere")
    assert snapshot(tmp_path) == before
    assert transmitted == []


def test_check_refuses_records_that_expired_or_have_another_numerology(
    record_file: Path, command: Command, tmp_path: Path
) -> None:
    lab = tmp_path / "bench.toml"
    original = json.loads(record_file.read_text())

    def changed(**values: Any) -> Path:
        path = tmp_path / "changed.json"
        path.write_text(json.dumps({**original, **values}))
        return path

    created = datetime.fromisoformat(original["created"])
    old = {name: (created - timedelta(days=days)).isoformat() for name, days in (("created", 2), ("expires", 1))}
    refused(command("calibrate", lab, "--check", changed(**old)), "expired at", "calibrate again")
    wide = {**original["numerology"], "cp_samples": 32}
    refused(command("calibrate", lab, "--check", changed(numerology=wide)), "numerology.cp_samples was 32")
    refused(command("calibrate", lab, "--check", changed(schema_version=99)), "schema_version is 99")
    noisier = {**original["noise"], "noise_var_real": 2 * original["noise"]["noise_var_real"]}
    refused(command("calibrate", lab, "--check", changed(noise=noisier)), "noise_var_real")


def test_nothing_stays_where_writing_fails(
    command: Command, tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch, no_pictures: None
) -> None:
    lab = lab_file(tmp_path)
    before = snapshot(tmp_path)

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        refused(command("calibrate", lab, "--out", tmp_path / "x.json"), "No space left")
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize(("way", "code"), [("interrupt", 130), ("terminate", 128 + signal.SIGTERM)])
def test_interrupted_half_way_it_parks_and_leaves_nothing(
    way: str, code: int, command: Command, tmp_path: Path, snapshot: Snapshot, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = lab_file(tmp_path)
    before = snapshot(tmp_path)
    radios: dict[str, bool] = {}
    close = LoopbackRadio.close
    handler = signal.getsignal(signal.SIGTERM)

    def stop(*arguments: Any) -> Any:
        if way == "interrupt":
            raise KeyboardInterrupt
        os.kill(os.getpid(), signal.SIGTERM)
        return measure_sounding(*arguments)

    def closing(radio: LoopbackRadio) -> None:
        close(radio)
        radios[radio.name] = radio.parked

    monkeypatch.setattr(calibration.procedure, "measure_sounding", stop)
    monkeypatch.setattr(LoopbackRadio, "close", closing)
    outcome = command("calibrate", lab, "--out", tmp_path / "x.json")
    assert (outcome.code, outcome.out) == (code, "")
    assert radios == {"ps": True, "client-1": True}
    assert snapshot(tmp_path) == before
    assert signal.getsignal(signal.SIGTERM) is handler


def test_what_appears_meanwhile_is_not_overwritten(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import fl.cli.labs.calibrate

    def draw(made: object, folder: Path) -> list[str]:
        (tmp_path / "x.json").write_text("precious")
        return []

    monkeypatch.setattr(fl.cli.labs.calibrate, "_draw", draw)
    refused(command("calibrate", lab_file(tmp_path), "--out", tmp_path / "x.json"), "exists already")
    assert (tmp_path / "x.json").read_text() == "precious"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bench.toml", "x.json"]


def test_spurs_are_listed(command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_pictures: None) -> None:
    listen = LoopbackRadio._listen

    def whistling(radio: LoopbackRadio, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        samples, clipped = listen(radio, count, start_sample)
        turns = (start_sample + np.arange(count)) * (37.4 / 256)
        return samples + (0.002 * np.exp(2j * np.pi * turns)).astype(np.complex64), clipped

    monkeypatch.setattr(LoopbackRadio, "_listen", whistling)
    text = " ".join(command("calibrate", lab_file(tmp_path), "--out", tmp_path / "x.json").out.split())
    # 0.002 of full scale is -54.0 dBFS, 37.4 bins of 19.53 kHz are +730.5 kHz.
    assert "-54.0 dBFS" in text
    assert "191 subcarriers" in text
    (spur,) = load_record(tmp_path / "x.json").noise.spurs
    assert spur.offset_hz == pytest.approx(730_468.75, abs=5.0)
