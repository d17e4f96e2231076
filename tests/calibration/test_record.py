import dataclasses
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from calibration.diagnostics import diagnose_silence
from calibration.errors import CalibrationError, MismatchedRecordError, RecordError, StaleRecordError
from calibration.linearity import measure_linearity
from calibration.links import measure_link
from calibration.noise import noise_of
from calibration.record import (
    CalibrationRecord,
    check_fits,
    load_record,
    new_record,
    save_record,
)
from calibration.silence import observe_silence
from calibration.timing import measure_timing
from hardware.radio.settings import RadioSettings
from phy.frame import sounding_cells
from phy.numerology import Numerology
from tests.calibration.silences import SMALL, tone, white

CREATED = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
LATER = CREATED + timedelta(hours=1)
SETTINGS = RadioSettings(5e6, 2.45e9, 2.45e9, 5e6, -10.0, 40.0)


@pytest.fixture(scope="module")
def record() -> CalibrationRecord:
    rng = np.random.default_rng(100)
    capture = white(32, rng, SMALL)
    silence = observe_silence(capture + tone(capture.size, 9.3, 3e-3, SMALL), SMALL)
    pilots = sounding_cells(SMALL, 4)
    link = measure_link((pilots * (0.3 + 0.4j)).astype(np.complex64), pilots, SMALL, "client-0")
    amplitudes = np.linspace(0.1, 1.0, 5)
    commanded = np.arange(6) * 1000
    return new_record(
        receiver="ps",
        settings=SETTINGS,
        numerology=SMALL,
        noise=noise_of(silence),
        diagnostics=diagnose_silence(silence),
        created=CREATED,
        links=[link],
        transmitter_settings={"client-0": SETTINGS},
        linearity={"client-0": measure_linearity(amplitudes, amplitudes + 0j, 1e-4)},
        timing=[measure_timing(commanded, commanded + rng.standard_normal(6), "client-0")],
    )


@pytest.fixture
def path(record: CalibrationRecord, tmp_path: Path) -> Path:
    made = tmp_path / "calibration.json"
    save_record(record, made)
    return made


def edited(path: Path, change: Callable[[Any], object]) -> Path:
    value = json.loads(path.read_text())
    change(value)
    path.write_text(json.dumps(value))
    return path


def test_a_record_survives_its_file(record: CalibrationRecord, path: Path) -> None:
    assert load_record(path) == record
    assert [entry.name for entry in path.parent.iterdir()] == ["calibration.json"]
    value = json.loads(path.read_text())
    assert value["schema_version"] == 1
    assert datetime.fromisoformat(value["created"]) == CREATED
    assert {"python", "numpy", "scipy", "airdp"} == set(value["versions"])


def test_saving_replaces_the_old_record_only_when_the_new_one_is_whole(
    record: CalibrationRecord, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def broken(*arguments: object, **options: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr("os.fsync", broken)
    with pytest.raises(OSError, match="disk full"):
        save_record(record, path)
    assert path.read_bytes() == before
    assert list(path.parent.iterdir()) == [path]


def test_a_zone_may_be_written_in_either_way(record: CalibrationRecord, path: Path) -> None:
    assert load_record(edited(path, lambda v: v.update(created="2025-03-01T13:00:00+01:00"))) == record


def test_of_many_problems_a_few_are_named(path: Path) -> None:
    def spoil(value: Any) -> None:
        value["links"]["client-0"]["gain_per_subcarrier"] = [None] * 48

    with pytest.raises(RecordError, match="and 45 more") as caught:
        load_record(edited(path, spoil))
    assert "\n" not in str(caught.value)


def test_summary_has_the_keys_of_the_command_line(record: CalibrationRecord) -> None:
    value = json.loads(json.dumps(record.summary_json(), allow_nan=False))
    assert {"noise_var_real", "ci", "confidence", "diagnostics", "links"} <= set(value)
    assert value["noise_var_real"] == record.noise.noise_var_real
    assert len(value["ci"]) == 2
    assert complex(*value["links"]["client-0"]["gain"]) == pytest.approx(0.3 + 0.4j)
    assert value["lower_bound"]["noise_var_real"] <= value["ci"][0]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda v: v.pop("noise"), "key 'noise' is missing"),
        (lambda v: v.update(colour="blue"), "unknown key 'colour'"),
        (lambda v: v["noise"].pop("ci"), "key 'noise.ci' is missing"),
        (lambda v: v["settings"].update(agc=True), "unknown key 'settings.agc'"),
        (
            lambda v: v["noise"].update(noise_var_real="1e-6"),
            "noise.noise_var_real: .* valid number .given '1e-6'",
        ),
        (lambda v: v["noise"].update(noise_var_real=True), "noise.noise_var_real: .* valid number .given True"),
        (lambda v: v["noise"].update(noise_var_real=float("nan")), "noise.noise_var_real: .* finite number"),
        (lambda v: v["noise"]["ci"].__setitem__(1, float("inf")), "noise.ci.2: .* finite number"),
        (lambda v: v["noise"].update(ci=[1.0]), "key 'noise.ci.2' is missing"),
        (lambda v: v["noise"].update(ci=3), "noise.ci: .* valid array .given 3"),
        (lambda v: v["noise"].update(blocks=3.5), "noise.blocks: .* valid integer .given 3.5"),
        (lambda v: v["noise"].update(blocks=True), "noise.blocks: .* valid integer .given True"),
        (lambda v: v["noise"]["dc"].update(name=7), "noise.dc.name: .* valid string .given 7"),
        (
            lambda v: v["diagnostics"]["tests"][2].update(passed=1),
            "diagnostics.tests.gaussian_body.passed: .* valid boolean",
        ),
        (lambda v: v["diagnostics"].update(tests={}), "diagnostics.tests: .* valid array"),
        (lambda v: v["links"]["client-0"].update(gain=[1.0]), "key 'links.client-0.gain.2' is missing"),
        (lambda v: v["links"]["client-0"].update(gain=1.0), "links.client-0.gain: .* valid array .given 1.0"),
        (lambda v: v["linearity"]["client-0"].update(verdict="fine"), "linearity.client-0.verdict: .*'fine'"),
        (lambda v: v.update(created="yesterday"), "created: .* valid datetime.*'yesterday'"),
        (lambda v: v.update(created="2025-03-01T12:00:00"), "created: .* timezone"),
        (lambda v: v.update(created=1740830400), "created: .* valid datetime"),
        (lambda v: v.update(schema_version=True), "schema_version"),
        (lambda v: v["noise"]["bins"].__setitem__(0, 1.0), "noise.bins.1: .* valid integer"),
        (lambda v: v["links"]["client-0"]["gain"].__setitem__(1, float("nan")), "links.client-0.gain.2: .* finite"),
        (lambda v: v["links"]["client-0"]["gain"].__setitem__(1, "0.4"), "links.client-0.gain.2: .* valid number"),
        (lambda v: v["settings"].update(rx_gain_db=True), "settings.rx_gain_db: .* valid number"),
        (lambda v: v["settings"].update(rx_gain_db=float("inf")), "settings.rx_gain_db: .* finite"),
        (lambda v: v["numerology"].update(fft_size=64.0), "numerology.fft_size: .* valid integer"),
        (lambda v: v["noise"]["dc"].update(p_value=1.5), "noise.dc: spur 'DC' has the p-value 1.5"),
        (lambda v: v.update(links=[]), "links: .* an object"),
        (lambda v: v["versions"].update(numpy=1.26), "versions.numpy: .* valid string .given 1.26"),
        (lambda v: v["numerology"].update(fft_size=7), "numerology: fft_size is 7"),
        (lambda v: v["settings"].update(sample_rate_hz=-1.0), "settings: sample_rate_hz is -1.0"),
        (lambda v: v.update(expires=v["created"]), "expires is"),
        (lambda v: v.update(schema_version=2), "schema_version is 2: expected 1; calibrate again"),
        (lambda v: v["settings"].update(sample_rate_hz=4e6), "expected the numerology's 5000000"),
        (lambda v: v["transmitter_settings"].clear(), "transmitter_settings lacks 'client-0'"),
        (lambda v: v["links"]["client-0"]["gain_per_subcarrier"].pop(), "gain_per_subcarrier has 47 entries"),
        # Numbers that somebody made more pleasant.
        (lambda v: v["noise"].update(noise_var_real=2e-6), "noise: noise_var_real = 2e-06: expected"),
        (lambda v: v["noise"]["ci"].__setitem__(0, 1.0), r"noise: ci\[0\]"),
        (lambda v: v["noise"]["quietest"].update(noise_var_real_lower=1.0), "quietest.noise_var_real_lower"),
        (lambda v: v["diagnostics"].update(passed=not v["diagnostics"]["passed"]), "diagnostics: the verdict"),
    ],
)
def test_damaged_records_are_refused_by_the_name_of_the_key(
    path: Path, change: Callable[[Any], object], reason: str
) -> None:
    with pytest.raises(RecordError, match=reason) as caught:
        load_record(edited(path, change))
    assert str(path) in str(caught.value)
    assert isinstance(caught.value, CalibrationError)


@pytest.mark.parametrize("text", ["", "{", "[]", "null", "3", '{"a": 1, "a": 2}', "\x00\xff"])
def test_files_that_are_no_records_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "calibration.json"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(RecordError, match=r"calibration\.json"):
        load_record(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="does not exist: calibrate the lab first"):
        load_record(tmp_path / "none.json")
    with pytest.raises(RecordError, match="cannot be read"):
        load_record(tmp_path)


def test_a_record_that_fits(record: CalibrationRecord) -> None:
    check_fits(record, SETTINGS, SMALL, LATER, receiver="ps")
    check_fits(record, SETTINGS, SMALL, CREATED, transmitter_settings={"client-0": SETTINGS})


def test_parking_the_receiver_changes_nothing_about_what_it_hears(record: CalibrationRecord) -> None:
    parked = dataclasses.replace(SETTINGS, tx_gain_db=-89.75)
    check_fits(record, parked, SMALL, LATER)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("rx_gain_db", 41.0, "rx_gain_db was 40 and is now 41"),
        ("sample_rate_hz", 4e6, "sample_rate_hz was 5000000 and is now 4000000"),
        ("rx_center_hz", 2.46e9, "rx_center_hz was 2450000000 and is now 2460000000"),
        ("bandwidth_hz", 4e6, "bandwidth_hz was 5000000 and is now 4000000"),
    ],
)
def test_other_settings_are_refused_with_what_differs(
    record: CalibrationRecord, name: str, value: float, reason: str
) -> None:
    with pytest.raises(MismatchedRecordError, match=reason) as caught:
        check_fits(record, dataclasses.replace(SETTINGS, **{name: value}), SMALL, LATER)
    assert "calibrate again, or go back to the settings of the record" in str(caught.value)


def test_every_difference_is_named(record: CalibrationRecord) -> None:
    settings = dataclasses.replace(SETTINGS, rx_gain_db=0.0)
    other = dataclasses.replace(SETTINGS, tx_gain_db=-3.0)
    numerology = Numerology(fft_size=64, cp_samples=8, data_subcarriers=48)
    with pytest.raises(MismatchedRecordError) as caught:
        check_fits(record, settings, numerology, LATER, "usrp", {"client-0": other, "client-7": other})
    for reason in (
        "rx_gain_db was 40 and is now 0",
        "numerology.cp_samples was 16 and is now 8",
        "receiver was 'ps' and is now 'usrp'",
        "client-0.tx_gain_db was -10 and is now -3",
        "transmitter 'client-7' was not there",
    ):
        assert reason in str(caught.value)


def test_stale_records_are_refused(record: CalibrationRecord) -> None:
    with pytest.raises(StaleRecordError, match=r"expired at 2025-03-02 00:00:00 UTC.*calibrate again"):
        check_fits(record, SETTINGS, SMALL, CREATED + timedelta(hours=12))
    with pytest.raises(StaleRecordError, match=r"which is after now.*set the clock"):
        check_fits(record, SETTINGS, SMALL, CREATED - timedelta(seconds=1))
    with pytest.raises(RecordError, match="without zone"):
        check_fits(record, SETTINGS, SMALL, datetime(2025, 3, 1, 13, 0))  # noqa: DTZ001


def test_records_are_made_with_a_zone(record: CalibrationRecord) -> None:
    with pytest.raises(RecordError, match="without zone"):
        new_record("ps", SETTINGS, SMALL, record.noise, record.diagnostics, datetime(2025, 3, 1))  # noqa: DTZ001
    with pytest.raises(RecordError, match=r"noise\.bins"):
        new_record("ps", SETTINGS, Numerology(), record.noise, record.diagnostics, CREATED)
