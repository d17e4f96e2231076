"""A calibration is held against radios of the simulated air: the right one is taken, every wrong one refused."""

import dataclasses
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from typing import Any

import numpy as np
import pytest

from calibration.errors import MismatchedRecordError, RecordError, StaleRecordError
from calibration.noise import NoiseMeasurement, SigmaBound, noise_of
from calibration.procedure import SCALE, Plan, calibrate, linearity_key
from calibration.record import CalibrationRecord
from calibration.silence import observe_silence
from fl.nodes.air_format import AirFormat
from fl.nodes.calibrated import LARGEST_GAIN_CHANGE, CalibrationCheck, NoiseChangedError
from fl.nodes.precoding import noise_gain_lower, relative_gain_upper
from fl.nodes.radio_uplink import RadioUplink
from fl.nodes.server import ServerNode
from fl.random_streams import generator
from hardware.lab.model import Lab
from hardware.lab.opened import open_lab
from hardware.radio.errors import HardwareError
from phy.numerology import Numerology
from tests.fl.nodes.radios import (
    BAND,
    NOISE_VAR_COMPLEX,
    NUMEROLOGY,
    SIZES,
    SYMBOL,
    TAU,
    Exchange,
    exchange,
    lab_of,
    power_of,
    state_of,
    updates_of,
)

NOW = datetime(2025, 3, 1, 12, 0, tzinfo=UTC)
LATER = NOW + timedelta(hours=1)
PLAN = Plan(silence_samples=256 * 256, soundings=4, repeats=2, scales_db=(0.0, -6.0, -12.0, -18.0), gain_steps=2)
AIR = AirFormat(NUMEROLOGY, 384, quiet_samples=64 * 256)
GAIN_DB = -12.0
NAMES = ("client-1", "client-2")


def lab_with(**medium: Any) -> Lab:
    return lab_of(clients=2, jammer=False, **{"gain_db": GAIN_DB, **medium})


@cache
def calibrated(pa_saturation: float | None = None) -> CalibrationRecord:
    lab = lab_with() if pa_saturation is None else lab_with(pa_saturation=pa_saturation)
    return _record_of(lab)


@pytest.fixture
def check() -> CalibrationCheck:
    return CalibrationCheck(calibrated(), "lab.json")


def silence_of(lab: Lab, seed: int = 5) -> NoiseMeasurement:
    """As an uplink measures it, with transmitters that are ready to send."""
    with open_lab(lab, seed) as opened:
        capture = opened.ps.receive(AIR.quiet_samples, opened.start_sample(4096))
    return noise_of(observe_silence(capture.samples, NUMEROLOGY), 2 * AIR.confidence - 1)


def test_the_calibration_of_these_radios_is_taken(check: CalibrationCheck) -> None:
    check.require_usable(LATER)
    with open_lab(lab_with(), 7) as opened:
        check.check_radios(opened, AIR, LATER)
        assert all(not radio.parked for radio in opened.radios.values())


def other_gain(lab: Lab) -> Lab:
    first, *others = lab.radios
    return dataclasses.replace(
        lab, radios=(dataclasses.replace(first, settings=dataclasses.replace(first.settings, rx_gain_db=3.0)), *others)
    )


def weaker_client(lab: Lab) -> Lab:
    *others, last = lab.radios
    settings = dataclasses.replace(last.settings, tx_gain_db=-2.0)
    return dataclasses.replace(lab, radios=(*others, dataclasses.replace(last, settings=settings)))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (other_gain, "rx_gain_db was 0 and is now 3"),
        (weaker_client, r"client-2\.tx_gain_db was 0 and is now -2"),
        (lambda lab: dataclasses.replace(lab, name="elsewhere"), "receiver was 'ps of test .loopback.' and is now"),
        (lambda lab: lab_of(clients=3, jammer=False), "transmitter 'client-3' was not there"),
    ],
)
def test_other_radios_are_refused_with_what_differs(
    check: CalibrationCheck, change: Callable[[Lab], Lab], reason: str
) -> None:
    with open_lab(change(lab_with()), 7) as opened, pytest.raises(MismatchedRecordError, match=reason) as caught:
        check.check_radios(opened, AIR, LATER)
    assert str(caught.value).startswith("calibration record lab.json: ")
    assert "calibrate again" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_numerology_is_refused(check: CalibrationCheck) -> None:
    air = AirFormat(Numerology(data_subcarriers=128), 384)
    with open_lab(lab_with(), 7) as opened, pytest.raises(MismatchedRecordError, match=r"data_subcarriers was 192"):
        check.check_radios(opened, air, LATER)


def test_an_expired_calibration_is_refused_before_and_after_opening(check: CalibrationCheck) -> None:
    for time, reason in ((NOW + timedelta(hours=12), "expired"), (NOW - timedelta(seconds=1), "set the clock")):
        with pytest.raises(StaleRecordError, match=reason):
            check.require_usable(time)
        with open_lab(lab_with(), 7) as opened, pytest.raises(StaleRecordError, match=reason):
            check.check_radios(opened, AIR, time)


def test_noise_that_no_bound_may_rest_on_is_refused() -> None:
    record = calibrated()
    tests = tuple(
        dataclasses.replace(test, p_value=0.0, passed=False) if test.name == "stationary" else test
        for test in record.diagnostics.tests
    )
    spoilt = dataclasses.replace(record.diagnostics, tests=tests, passed=False, verdict="it drifts")
    with pytest.raises(RecordError, match="it drifts; find the cause"):
        CalibrationCheck(dataclasses.replace(record, diagnostics=spoilt), "lab.json").require_usable(LATER)


def test_linear_transmitters_cost_little(check: CalibrationCheck) -> None:
    margin = check.gain_margin(NAMES, AIR)
    assert 1.0 < margin < 1.01
    # The client that is known least well decides.
    assert margin == max(check.gain_margin([name], AIR) for name in NAMES)


def test_mild_compression_is_in_the_margin() -> None:
    """Oracle: the amplifier's gain on the sounding itself, against that of small signals."""
    true = _compression(1.9)
    assert 1.005 < true < 1.01
    margin = CalibrationCheck(calibrated(1.9), "lab.json").gain_margin(NAMES, AIR)
    assert true < margin < true + 0.01


def test_strong_compression_is_refused_with_the_number() -> None:
    true = _compression(1.3)
    assert true > 1 + LARGEST_GAIN_CHANGE
    with pytest.raises(RecordError, match=r"the gain of 'client-1' may differ by (\d\.\d) %") as caught:
        CalibrationCheck(calibrated(1.3), "lab.json").gain_margin(NAMES, AIR)
    said = float(str(caught.value).split("differ by ")[1].split(" %")[0])
    assert 100 * (true - 1) <= said < 100 * (true - 1) + 1.5
    assert "lower its tx_gain_db" in str(caught.value)


def _compression(saturation: float) -> float:
    from phy.frame import sounding_samples
    from phy.impairments import soft_limit

    sent = sounding_samples(AIR.sounding)
    amplified = soft_limit(sent, saturation, 2.0)
    return float(np.vdot(sent, sent).real / abs(np.vdot(sent, amplified)))


def test_levels_that_were_not_measured_are_refused() -> None:
    record = calibrated()
    key = linearity_key("client-2", SCALE)
    others = {name: value for name, value in record.linearity.items() if name != key}
    with pytest.raises(RecordError, match="does not say how linear 'client-2' is"):
        CalibrationCheck(dataclasses.replace(record, linearity=others), "lab.json").gain_margin(NAMES, AIR)
    quiet = dataclasses.replace(AIR, payload_rms=0.02)
    with pytest.raises(RecordError, match=r"'client-1': linearity was measured from 0\.0 to -18\.0 dB: expected 0 to"):
        CalibrationCheck(record, "lab.json").gain_margin(NAMES, quiet)


def test_the_same_noise_is_no_news(check: CalibrationCheck) -> None:
    assert check.metrics() == {}
    for seed in range(5, 10):
        check.check_silence(silence_of(lab_with(), seed))
        assert not check.changed
        assert check.metrics()["noise_changed"] == 0.0
        assert abs(check.metrics()["noise_change_db"]) < 5 * 0.06  # 4.34 dB sqrt(1/(64 * 192) + 1/(256 * 192))


@pytest.mark.parametrize("change_db", [-0.6, 0.6])
def test_a_small_change_is_a_warning(check: CalibrationCheck, change_db: float) -> None:
    check.check_silence(silence_of(lab_with(noise_var_complex=NOISE_VAR_COMPLEX * 10 ** (change_db / 10))))
    assert check.changed
    assert check.metrics()["noise_changed"] == 1.0
    assert check.metrics()["noise_change_db"] == pytest.approx(change_db, abs=0.3)


@pytest.mark.parametrize("change_db", [-2.0, 2.0])
def test_a_gross_change_is_refused_with_both_numbers(check: CalibrationCheck, change_db: float) -> None:
    noise = silence_of(lab_with(noise_var_complex=NOISE_VAR_COMPLEX * 10 ** (change_db / 10)))
    with pytest.raises(NoiseChangedError, match="more than 1 dB") as caught:
        check.check_silence(noise)
    assert isinstance(caught.value, HardwareError)
    for number in (noise.noise_var_real, calibrated().noise.noise_var_real):
        assert f"{number:.4g}" in str(caught.value)
    assert check.changed


def test_what_may_be_charged_at_most_is_the_records_level(check: CalibrationCheck) -> None:
    air = check.applied_to(AIR, NAMES)
    assert air.noise_std_real_limit == calibrated().noise.noise_std_real
    assert air.gain_margin == check.gain_margin(NAMES, AIR)


def test_the_margin_is_on_the_clients_gain_and_off_the_jammers() -> None:
    state = state_of(np.full(BAND.data_subcarriers, 0.5), std=1e-3)
    wide = dataclasses.replace(AIR, gain_margin=1.02)
    assert relative_gain_upper(state, wide) == pytest.approx(1.02 * relative_gain_upper(state, AIR))
    assert noise_gain_lower(state, wide) == pytest.approx(noise_gain_lower(state, AIR) / 1.02)


@pytest.mark.parametrize("share", [0.5, 2.0])
def test_the_smaller_of_silence_and_calibration_is_counted(share: float) -> None:
    lab = lab_with()
    free = _sigma(lab, AIR)
    with open_lab(lab, 3) as opened:
        level = ServerNode(opened.ps, AIR, shared_clock=True, names=NAMES).measure_silence(opened.start_sample(4096))
    limit = math.sqrt(share) * level.noise.noise_std_real
    counted = _sigma(lab, dataclasses.replace(AIR, noise_std_real_limit=limit))
    assert counted.noise_var_real == pytest.approx(min(1.0, share) * free.noise_var_real)
    assert ("vouches for no more" in counted.reason) == (share < 1)


def _sigma(lab: Lab, air: AirFormat) -> SigmaBound:
    with open_lab(lab, 3) as opened:
        server = ServerNode(opened.ps, air, shared_clock=True, names=NAMES)
        return server.measure_silence(opened.start_sample(4096)).sigma


def test_a_payload_through_an_amplifier_that_compresses_keeps_to_the_charged_bound() -> None:
    """Low noise and 0.75 % of compression: the sum arrives as much larger than the sounding alone has it."""
    lab = lab_of(jammer=False, gain_db=GAIN_DB, pa_saturation=1.9, noise_var_complex=1e-9)
    plain = AirFormat(NUMEROLOGY, 40 * SYMBOL, level_symbols=0)
    air = CalibrationCheck(_record_of(lab), "lab.json").applied_to(plain, [radio.name for radio in lab.clients])
    trusted, calibrated = (_exchange(lab, one) for one in (plain, air))
    for done in (trusted, calibrated):
        # Within its power limit nobody backs off, and all send the same: the sum grows as each gain does.
        assert done.contributions.backoffs.max() == 1.0
        arrived = 1.0 + float(done.error @ done.exact / (done.exact @ done.exact))
        assert arrived == pytest.approx(_compression(1.9), abs=1e-3)
    charged, alone = (max(done.plan.mechanism.received_gains) for done in (calibrated, trusted))
    assert charged == pytest.approx(air.gain_margin * alone)
    assert arrived < air.gain_margin < charged


def _exchange(lab: Lab, air: AirFormat) -> Exchange:
    with open_lab(lab, 2) as radios:
        rules, streams = power_of(alpha_u=0.5), partial(generator, 2)
        uplink = RadioUplink(radios, air, SIZES, TAU, rules, record_bounded=False, streams=streams)
        return exchange(uplink, 1, updates_of(air.coordinates))


def _record_of(lab: Lab) -> CalibrationRecord:
    with open_lab(lab, 1) as opened:
        return calibrate(opened, NOW, PLAN).record
