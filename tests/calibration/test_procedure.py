"""A whole calibration against what the simulated air is known to be, and in which order it goes about it."""

import dataclasses
import json
import math
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.errors import MeasurementError, MismatchedRecordError, StaleRecordError
from calibration.linearity import Verdict
from calibration.links import LinkMeasurement
from calibration.noise import BoundSource, sigma_lower_bound
from calibration.procedure import (
    ATTENUATOR,
    SCALE,
    SENT_POINTS,
    Calibration,
    Plan,
    calibrate,
    check_lab,
    linearity_key,
    repeatable,
)
from calibration.record import CalibrationRecord
from calibration.schema import from_json, to_json
from calibration.timing import measure_timing
from hardware.air.medium import Medium
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab, parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab, open_lab
from hardware.loopback.radio import LoopbackRadio
from hardware.radio.contract import Radio
from hardware.radio.errors import CaptureError, HardwareError, RxOverflowError
from hardware.radio.settings import RadioSettings
from phy.estimation import delay_estimate
from phy.frame import sounding_samples
from phy.impairments import soft_limit
from phy.numerology import Numerology
from phy.units import db_to_amplitude_ratio, db_to_power_ratio
from tests.hardware.simulated import medium_in

NOW = datetime(2025, 3, 1, 12, tzinfo=UTC)
SHIPPED = ("loopback", "loopback-harsh", "loopback-free-clock")
# Short silence, few soundings: for what does not depend on precision.
QUICK = Plan(silence_samples=4096, soundings=4, symbols=8, repeats=1, scales_db=(0.0, -6.0, -12.0), gain_steps=2)


def small_lab(medium: dict[str, Any] | None = None, lab: dict[str, Any] | None = None, clients: int = 1) -> Lab:
    return parse_lab(
        {
            "lab": {
                "name": "small",
                "backend": "loopback",
                "sample_rate_hz": 5e6,
                "center_hz": 2.45e9,
                "tx_gain_db": -1.0,
                "rx_gain_db": 0.0,
                **(lab or {}),
            },
            "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": -1.0, "max_rx_gain_db": 40.0},
            "radio": [{"name": "ps", "role": "ps"}, {"name": "client", "role": "client", "count": clients}],
            "medium": {"gain_db": -12.0, "noise_var_complex": 1e-5, **(medium or {})},
        }
    )


def measure(lab: Lab, plan: Plan = QUICK, seed: int = 1) -> Calibration:
    with open_lab(lab, seed) as opened:
        return calibrate(opened, NOW, plan)


@dataclasses.dataclass(frozen=True)
class Truth:
    """What the medium knows of a link. channel: H[k] of the taps alone, without the link's own delay."""

    channel: NDArray[np.complex128]
    delay_samples: float
    cfo_hz: float
    clock_offset_ppm: float


def truth_of(medium: Medium, sender: str) -> Truth:
    numerology = Numerology()
    taps = medium.taps(sender, "ps")
    ramp = np.exp(-2j * np.pi * np.outer(numerology.used_frequencies, np.arange(taps.size)))
    channel = ramp @ taps
    strongest = float(delay_estimate(channel.astype(np.complex64), numerology).delay_samples)
    cfo_hz = medium.cfo_hz(sender, "ps")
    # One crystal makes carrier and sampling clock: a carrier low by x ppm has samples that last x ppm longer.
    ppm = -cfo_hz / medium.settings("ps").rx_center_hz * 1e6
    return Truth(channel, medium.link(sender, "ps").delay_samples + strongest, cfo_hz, ppm)


@cache
def shipped(name: str) -> tuple[Calibration, dict[str, Truth], Lab]:
    lab = find_lab(name)
    with open_lab(lab, 1) as opened:
        calibration = calibrate(opened, NOW)
        truths = {sender: truth_of(medium_in(opened), sender) for sender in calibration.record.links}
    return calibration, truths, lab


def true_noise_var_real(lab: Lab) -> float:
    """Half of E|z|^2, with the image of an I/Q imbalance (x + rho x*) and the converter's 1/(12 q^2)."""
    medium = medium_of(lab)
    assert medium.adc_bits is not None
    image = 0.0 if medium.iq_image_db is None else db_to_power_ratio(medium.iq_image_db)
    step = 1.0 / float(2 ** (medium.adc_bits - 1) - 1)
    return medium.noise_var_complex / 2.0 * (1.0 + image) + step**2 / 12.0


@pytest.mark.parametrize("name", SHIPPED)
def test_noise_of_the_shipped_labs(name: str) -> None:
    calibration, _, lab = shipped(name)
    noise = calibration.record.noise
    low, high = noise.ci
    truth = true_noise_var_real(lab)
    assert low <= truth <= high
    # The interval is narrow enough to refuse noise that is 1 % off, and the variance of a whole complex cell.
    assert not low <= 1.01 * truth <= high
    assert not low <= 0.99 * truth <= high
    assert not low <= 2.0 * truth <= high
    assert sigma_lower_bound(noise).noise_var_real <= truth
    assert noise.blocks == 1024
    if medium_of(lab).dc_offset_dbfs is not None:
        assert noise.dc.level_dbfs == pytest.approx(medium_of(lab).dc_offset_dbfs, abs=0.05)


def test_noise_of_the_harsh_lab_is_seen_to_be_improper_and_the_bound_allows_for_it() -> None:
    calibration, _, _ = shipped("loopback-harsh")
    diagnostics = calibration.record.diagnostics
    assert [test.name for test in diagnostics.tests if not test.passed] == ["circular"]
    assert diagnostics.bound_holds
    # y = x + rho x*: E[y^2]/E|y|^2 = 2 rho / (1 + |rho|^2), and its uncertainty is 1/sqrt(N), N = 196,608.
    rho = db_to_amplitude_ratio(-35.0)
    assert calibration.record.noise.impropriety.size == pytest.approx(
        2 * rho / (1 + rho**2), abs=4 / math.sqrt(196_608)
    )
    bound = sigma_lower_bound(calibration.record.noise)
    assert bound.source is BoundSource.QUIETEST
    # The quietest direction of I and Q has (1 - 2 rho) of the variance.
    assert bound.noise_var_real <= (1 - 2 * rho) * true_noise_var_real(find_lab("loopback-harsh"))
    assert shipped("loopback-free-clock")[0].record.diagnostics.passed


@pytest.mark.parametrize("name", SHIPPED)
def test_gains_of_the_shipped_labs(name: str) -> None:
    calibration, truths, _ = shipped(name)
    assert set(truths) == {"client-1", "client-2", "client-3", "client-4", "client-5", "jammer"}
    for sender, truth in truths.items():
        link = calibration.record.links[sender]
        measured, expected = np.abs(link.gain_per_subcarrier), np.abs(truth.channel)
        std = link.gain_per_subcarrier_std
        # 192 errors of one standard uncertainty: their rms is within 1 +- 0.2, or below where the image, which cancels
        # in the gains, was counted as noise; the interpolation of a fractional delay adds 0.1 % of the gain.
        slack = 1e-3 * expected
        errors = np.maximum(np.abs(measured - expected) - slack, 0.0) / std
        assert np.sqrt(np.mean(errors**2)) < 1.2
        assert errors.max() < 4.5
        wrong = np.maximum(np.abs(measured - 1.03 * expected) - slack, 0.0) / std
        assert np.sqrt(np.mean(wrong**2)) > 1.2


@pytest.mark.parametrize("name", SHIPPED)
def test_delays_and_frequencies_of_the_shipped_labs(name: str) -> None:
    calibration, truths, lab = shipped(name)
    for sender, truth in truths.items():
        link, timing = calibration.record.links[sender], calibration.record.timing[sender]
        assert abs(link.cfo_hz - truth.cfo_hz) < 4 * link.cfo_hz_std
        assert abs(link.cfo_hz - truth.cfo_hz - 5.0) > 4 * link.cfo_hz_std
        assert abs(timing.clock_offset_ppm - truth.clock_offset_ppm) < 6 * timing.clock_offset_ppm_std
        assert timing.jitter_samples < 0.005
        if lab.name == "loopback-free-clock":
            assert abs(timing.clock_offset_ppm + truth.clock_offset_ppm) > 6 * timing.clock_offset_ppm_std
            continue
        # 0.002 samples: the interpolation of the fractional delay, -60 dB.
        assert abs(link.delay_samples - truth.delay_samples) < 4 * link.delay_samples_std + 2e-3
        assert abs(timing.offset_samples - truth.delay_samples) < 4 * timing.offset_samples_std + 2e-3
        assert abs(link.delay_samples - truth.delay_samples - 0.05) > 4 * link.delay_samples_std + 2e-3


@pytest.mark.parametrize("name", SHIPPED)
def test_the_shipped_labs_are_linear(name: str) -> None:
    calibration, truths, _ = shipped(name)
    for sender in truths:
        scale = calibration.record.linearity[linearity_key(sender, SCALE)]
        steps = calibration.record.linearity[linearity_key(sender, ATTENUATOR)]
        assert (scale.verdict, steps.verdict) == (Verdict.WITHIN, Verdict.WITHIN)
        assert max(steps.set_db) == 0.0
        assert np.allclose(np.diff(steps.set_db), -0.25)
    assert calibration.unmeasured == {}


def test_uncertainties_are_as_large_as_errors() -> None:
    """Over 60 airs, errors in units of their standard uncertainty scatter by one, or by less: the larger one counts."""
    lab = small_lab({"fading": "rayleigh", "max_delay_samples": 9.0, "max_clock_ppm": 0.5}, {"clock": "free-running"})
    scaled = []
    for seed in range(60):
        with open_lab(lab, seed) as opened:
            link = calibrate(opened, NOW, QUICK).record.links["client-1"]
            truth = truth_of(medium_in(opened), "client-1")
        gain = float(np.abs(truth.channel).mean()) * db_to_amplitude_ratio(-1.0)
        scaled.append([(abs(link.gain) - gain) / link.gain_std, (link.cfo_hz - truth.cfo_hz) / link.cfo_hz_std])
    errors = np.array(scaled)
    # The mean of 60 such values scatters by 0.13, the standard deviation by 0.09.
    assert np.all(np.abs(errors.mean(axis=0)) < 0.45)
    assert np.all((errors.std(axis=0) > 0.55) & (errors.std(axis=0) < 1.25))


def test_record_is_bound_to_what_was_read_back() -> None:
    calibration, _, lab = shipped("loopback")
    record = calibration.record
    assert (record.created, record.expires) == (NOW, NOW + timedelta(hours=12))
    assert record.receiver == "ps of loopback (loopback)"
    assert record.numerology == Numerology()
    assert record.settings == dataclasses.replace(lab.ps.settings, tx_gain_db=record.settings.tx_gain_db)
    assert record.transmitter_settings == {
        radio.name: radio.settings for radio in lab.radios if radio.name != lab.ps.name
    }
    assert {"python", "numpy", "scipy"} <= set(record.versions)
    assert from_json(CalibrationRecord, json.dumps(to_json(record)).encode()) == record


def test_gain_rate_and_lifetime_are_those_of_the_lab() -> None:
    lab = small_lab({}, {"sample_rate_hz": 2.5e6, "tx_gain_db": -3.1, "rx_gain_db": 6.0})
    with open_lab(lab, 1) as opened:
        record = calibrate(opened, NOW, QUICK, timedelta(hours=2)).record
    assert record.expires - record.created == timedelta(hours=2)
    assert record.numerology.sample_rate_hz == 2.5e6
    # Read back, not written: the radio has steps of 0.25 dB.
    assert record.transmitter_settings["client-1"].tx_gain_db == -3.0
    gain_db = 20 * math.log10(abs(record.links["client-1"].gain))
    assert gain_db == pytest.approx(-12.0 - 3.0 + 6.0, abs=0.1)
    assert record.noise.noise_var_real == pytest.approx(5e-6 * db_to_power_ratio(6.0), rel=0.1)


class Spy:
    """What radios were told, in order: (call, radio, transmit gain), and who else was not parked then."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[tuple[str, str, float]] = []
        self.others: set[str] = set()
        self.opened: OpenLab | None = None
        for name in ("transmit", "receive", "configure"):
            monkeypatch.setattr(Radio, name, self._wrapped(name, getattr(Radio, name)))

    def _wrapped(self, name: str, call: Any) -> Any:
        def wrapped(radio: Radio, *arguments: Any, **more: Any) -> Any:
            result = call(radio, *arguments, **more)
            self.calls.append((name, radio.name, radio.settings.tx_gain_db))
            if name == "transmit" and self.opened is not None:
                active = {other.name for other in self.opened.radios.values() if not other.parked}
                self.others |= active - {radio.name}
            return result

        return wrapped

    @property
    def transmitted(self) -> list[tuple[str, float]]:
        return [(radio, gain_db) for call, radio, gain_db in self.calls if call == "transmit"]


@pytest.fixture
def spy(monkeypatch: pytest.MonkeyPatch) -> Spy:
    return Spy(monkeypatch)


def test_silence_comes_first_then_one_transmitter_at_a_time_never_above_the_labs_gain(spy: Spy) -> None:
    seen = []
    with open_lab(small_lab(clients=2), 1) as opened:
        spy.opened = opened
        calibrate(opened, NOW, QUICK, on_step=lambda *step: seen.append(step))
        assert all(radio.parked for radio in opened.radios.values())
    calls = [call for call, _, _ in spy.calls if call != "configure"]
    assert calls[0] == "receive"
    senders = [radio for radio, _ in spy.transmitted]
    # 4 soundings, 3 scales and 3 gains of each.
    assert senders == ["client-1"] * 10 + ["client-2"] * 10
    assert spy.others == set()
    gains = [gain_db for radio, gain_db in spy.transmitted if radio == "client-1"]
    assert gains == [-1.0] * 8 + [-1.25, -1.5]
    assert [done for done, _, _ in seen] == list(range(8))
    assert {total for _, total, _ in seen} == {7}
    assert seen[1][2] == "client-1: 4 soundings"


@pytest.mark.parametrize(
    ("medium", "reason"),
    [
        ({"noise_var_complex": 0.0}, "all zero"),
        ({"noise_var_complex": 1e-12, "adc_bits": 12, "dc_offset_dbfs": -20.0}, "one value throughout"),
        ({"noise_var_complex": 1.0, "adc_bits": 12}, "saturated"),
    ],
)
def test_silence_that_cannot_be_measured_is_refused_before_anything_is_sent(
    medium: dict[str, Any], reason: str, spy: Spy
) -> None:
    with pytest.raises(CaptureError, match=reason):
        measure(small_lab(medium))
    assert spy.transmitted == []


def test_nan_is_refused_before_anything_is_sent(spy: Spy, monkeypatch: pytest.MonkeyPatch) -> None:
    listen = LoopbackRadio._listen

    def broken(radio: LoopbackRadio, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        samples, clipped = listen(radio, count, start_sample)
        samples[1000] = complex("nan")
        return samples, clipped

    monkeypatch.setattr(LoopbackRadio, "_listen", broken)
    with pytest.raises(CaptureError, match="NaN"):
        measure(small_lab())
    assert spy.transmitted == []


def test_a_receiver_driven_into_its_limits_names_who_was_sending() -> None:
    lab = small_lab({"gain_db": 6.0, "adc_bits": 12, "radio": {"client-1": {"gain_db": -12.0}}}, clients=2)
    with pytest.raises(CaptureError, match=r"while 'client-2' was sounding.*saturated.*lower rx_gain_db"):
        measure(lab)


def test_a_transmitter_that_is_not_heard_is_named_and_everybody_is_parked() -> None:
    lab = small_lab({"radio": {"client-2": {"gain_db": -150.0}}}, clients=2)
    with open_lab(lab, 1) as opened:
        with pytest.raises(MeasurementError, match="no sounding of 'client-2'"):
            calibrate(opened, NOW, QUICK)
        assert all(radio.parked for radio in opened.radios.values())


def test_a_radio_that_fails_half_way_leaves_everybody_parked() -> None:
    with open_lab(small_lab(clients=2), 1) as opened:

        def fail_later(done: int, total: int, what: str) -> None:
            if what.startswith("client-2: digital"):
                assert isinstance(opened.ps, LoopbackRadio)
                opened.ps.fail_next("receive", RxOverflowError("lost"))

        with pytest.raises(RxOverflowError):
            calibrate(opened, NOW, QUICK, on_step=fail_later)
        assert all(radio.parked for radio in opened.radios.values())


def test_compression_is_beyond_tolerance_and_the_attenuator_is_blamed_only_where_it_is_wrong() -> None:
    plan = dataclasses.replace(QUICK, symbols=16, scales_db=(0.0, -3.0, -6.0, -9.0, -12.0))
    record = measure(small_lab({"pa_saturation": 1.2}), plan).record
    scale = record.linearity[linearity_key("client-1", SCALE)]
    assert scale.verdict is Verdict.BEYOND
    assert scale.largest_at_db == 0.0
    assert scale.slope_db_per_db < 1 - 10 * scale.slope_std
    # What the amplifier leaves of the frame itself, in its own direction; the lab's gain of -1 dB comes before it.
    sent = sounding_samples(plan.frame)
    left = []
    for scale_db in plan.scales_db:
        amplitude = db_to_amplitude_ratio(scale_db - 1.0)
        amplified = soft_limit(amplitude * sent, 1.2, 2.0)
        left.append(20 * math.log10(abs(np.vdot(sent, amplified)) / np.vdot(sent, sent).real / amplitude))
    assert np.allclose(scale.deviation_db, np.array(left) - np.mean(left), atol=0.02)
    straight = measure(small_lab(), plan).record
    assert straight.linearity[linearity_key("client-1", SCALE)].verdict is Verdict.WITHIN


def test_a_wrong_step_of_the_attenuator_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step that attenuates 0.5 dB too little and reads back as if it did not."""
    told: dict[str, RadioSettings] = {}
    write = LoopbackRadio._write

    def stuck(radio: LoopbackRadio, settings: RadioSettings) -> None:
        write(radio, settings)
        told[radio.name] = radio._medium.settings(radio.name)
        if told[radio.name].tx_gain_db == -1.5:
            radio._medium.tune(radio.name, dataclasses.replace(told[radio.name], tx_gain_db=-1.0))

    monkeypatch.setattr(LoopbackRadio, "_write", stuck)
    monkeypatch.setattr(LoopbackRadio, "_read_back", lambda radio: told[radio.name])
    record = measure(small_lab(), dataclasses.replace(QUICK, gain_steps=4)).record
    steps = record.linearity[linearity_key("client-1", ATTENUATOR)]
    assert steps.verdict is Verdict.BEYOND
    assert steps.largest_at_db == pytest.approx(-0.5)
    assert steps.largest_step_error_db == pytest.approx(0.5, abs=0.05)
    assert record.linearity[linearity_key("client-1", SCALE)].verdict is Verdict.WITHIN


def test_what_cannot_be_measured_has_a_reason() -> None:
    weak = measure(small_lab({"gain_db": -51.0}))
    assert weak.record.linearity == {}
    assert "dB above the noise" in weak.unmeasured[linearity_key("client-1", SCALE)]
    low = measure(small_lab({"gain_db": 76.0}, {"tx_gain_db": -89.75}))
    assert "lowest gain" in low.unmeasured[linearity_key("client-1", ATTENUATOR)]
    assert linearity_key("client-1", SCALE) in low.record.linearity


def test_a_view_shows_the_noise_and_nothing_else() -> None:
    view = shipped("loopback-free-clock")[0].views["client-2"]
    assert view.points.shape == (32, 192)
    nearest = SENT_POINTS[np.argmin(np.abs(view.points[..., None] - SENT_POINTS), axis=-1)]
    assert np.array_equal(nearest[:, 0], SENT_POINTS[np.arange(32) % 4])
    errors = (view.points - nearest).reshape(-1)
    # 12,288 values: their standard deviation scatters by 0.6 %; the 192 gains were fitted to them.
    assert np.std(errors.view(np.float32)) == pytest.approx(view.point_std_real * math.sqrt(31 / 32), rel=0.03)
    assert np.std(view.phases_rad) == pytest.approx(view.phase_std_rad, rel=0.5)


def test_phase_noise_shows_in_the_view_and_in_the_uncertainties() -> None:
    calm = measure(small_lab()).record.links["client-1"]
    rough_lab = small_lab({"phase_noise_rad_per_sqrt_sample": 2e-3})
    rough = measure(rough_lab)
    link = rough.record.links["client-1"]
    assert link.cfo_hz_std > 10 * calm.cfo_hz_std
    assert abs(link.cfo_hz) < 5 * link.cfo_hz_std
    view = rough.views["client-1"]
    assert np.std(view.phases_rad) > 3 * view.phase_std_rad


def test_two_paths_of_equal_strength_are_no_jitter() -> None:
    """Noise decides which of them is the strongest, and no clock moves."""
    lab = small_lab({"taps": [[0, 0.0], [7, 0.0]], "delay_samples": 2.0})
    record = measure(lab, dataclasses.replace(QUICK, soundings=8)).record
    link, timing = record.links["client-1"], record.timing["client-1"]
    assert timing.jitter_samples < 0.01
    # Echoes in the other's sidelobes move each peak a little.
    assert min(abs(link.delay_samples - 2.0), abs(link.delay_samples - 9.0)) < 0.1
    # Which of the two it is, is uncertain, and that is said.
    assert link.delay_samples_std > 1.0


def test_repeated_soundings_raise_uncertainties_but_never_lower_them() -> None:
    link = measure(small_lab()).record.links["client-1"]
    commanded = np.arange(4) * 10_000
    delays = np.array([1.0, 1.1, 0.9, 1.0])
    timing = measure_timing(commanded, commanded + delays, "client-1")

    def at(gain: float, cfo_hz: float, delay: float) -> LinkMeasurement:
        gains = tuple(gain * value for value in link.gain_per_subcarrier)
        return dataclasses.replace(
            link, gain=gain * link.gain, gain_per_subcarrier=gains, cfo_hz=cfo_hz, delay_samples=delay
        )

    still = dataclasses.replace(timing, jitter_samples=0.0, jitter_ci_samples=(0.0, 0.0))
    assert repeatable([link] * 4, np.full(4, link.delay_samples), still) == link
    soundings = [at(1.0, 0.0, 1.0), at(1.1, 90.0, 1.1), at(0.9, -90.0, 0.9), at(1.0, 0.0, 1.0)]
    moved = repeatable(soundings, delays, timing)
    assert (moved.gain, moved.cfo_hz) == (link.gain, 0.0)
    # Sample standard deviation of (0, x, -x, 0): x sqrt(2/3).
    assert moved.gain_std == pytest.approx(0.1 * math.sqrt(2 / 3) * abs(link.gain))
    assert moved.cfo_hz_std == pytest.approx(90 * math.sqrt(2 / 3))
    assert moved.delay_samples_std == timing.jitter_samples
    # |H| is 13 dB down on all subcarriers.
    assert moved.gain_per_subcarrier_std == pytest.approx(0.1 * math.sqrt(2 / 3) * db_to_amplitude_ratio(-13), rel=0.02)


def test_a_record_fits_the_lab_it_was_taken_in_and_no_other(spy: Spy) -> None:
    record = measure(small_lab()).record
    spy.calls.clear()
    later = NOW + timedelta(hours=1)

    def check(lab: Lab, now: datetime = later, numerology: Numerology | None = None) -> None:
        with open_lab(lab, 2) as opened:
            check_lab(record, opened, now, numerology)

    check(small_lab())
    with pytest.raises(StaleRecordError, match="expired"):
        check(small_lab(), NOW + timedelta(hours=12))
    with pytest.raises(StaleRecordError, match="after now"):
        check(small_lab(), NOW - timedelta(seconds=1))
    with pytest.raises(MismatchedRecordError, match=r"numerology\.fft_size was 256 and is now 512"):
        check(small_lab(), numerology=Numerology(fft_size=512))
    for changed, reason in (
        ({"rx_gain_db": 3.0}, "rx_gain_db was 0 and is now 3"),
        ({"tx_gain_db": -2.0}, "client-1.tx_gain_db was -1 and is now -2"),
        ({"center_hz": 2.451e9}, "rx_center_hz"),
        ({"sample_rate_hz": 4e6}, "sample_rate_hz was 5000000 and is now 4000000"),
        ({"name": "other"}, r"'ps of small \(loopback\)' and is now 'ps of other \(loopback\)'"),
    ):
        with pytest.raises(MismatchedRecordError, match=reason):
            check(small_lab({}, changed))
    with pytest.raises(MismatchedRecordError, match="transmitter 'client-2' was not there"):
        check(small_lab(clients=2))
    assert spy.transmitted == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"silence_samples": 4095}, "4095 samples is too short: expected at least 4096"),
        ({"soundings": 3}, "soundings is 3"),
        ({"symbols": 1}, "symbols is 1"),
        ({"scales_db": (0.0, -3.0)}, "scales_db"),
        ({"scales_db": (0.0, -3.0, 1.0)}, "scales_db"),
        ({"scales_db": (0.0, -3.0, float("nan"))}, "scales_db"),
        ({"gain_step_db": -0.25}, "gain_step_db"),
        ({"search_samples": 20_000}, "search_samples"),
    ],
)
def test_plans_that_measure_nothing_cannot_exist(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(MeasurementError, match=reason):
        Plan(**changes)


def test_a_silence_beyond_the_time_out_is_refused() -> None:
    with pytest.raises(HardwareError, match="time-out"):
        measure(small_lab(), dataclasses.replace(QUICK, silence_samples=10**10))
