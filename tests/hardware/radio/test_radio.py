"""Values of the contract, and the parts of it that only a misbehaving radio can show."""

import math
from dataclasses import fields, replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hardware.radio.contract import Radio
from hardware.radio.errors import (
    CapabilityError,
    CaptureError,
    HardwareError,
    LimitError,
    SettingsMismatchError,
    TxClippingError,
    TxSamplesError,
)
from hardware.radio.samples import Capture, TransmitReport, sendable
from hardware.radio.settings import Capabilities, Limits, RadioSettings
from phy.errors import AirdpError

SETTINGS = RadioSettings(5e6, 2.45e9, 2.45e9, 4e6, -10.0, 20.0)
LIMITS = Limits((2.44e9, 2.46e9), max_tx_gain_db=-5.0, max_rx_gain_db=40.0)
CAPABILITIES = Capabilities((1e6, 20e6), (1e9, 6e9), (2e5, 20e6), (-80.0, 0.0), (0.0, 70.0), 0.25, 1.0)


class StubRadio(Radio):
    """Reads back `lies` instead of what was written; fails to write with `broken`."""

    def __init__(self, lies: dict[str, float] | None = None, broken: Exception | None = None) -> None:
        super().__init__("stub", CAPABILITIES, LIMITS)
        self.lies = lies or {}
        self.broken = broken
        self.calls: list[str] = []
        self.written: RadioSettings | None = None

    def now(self) -> int:
        return 0

    def _write(self, settings: RadioSettings) -> None:
        self.calls.append("write")
        if self.broken:
            raise self.broken
        self.written = settings

    def _read_back(self) -> RadioSettings:
        if self.written is None:
            raise HardwareError("nothing was written")
        return replace(self.written, **self.lies)

    def _send(self, samples: NDArray[np.complex64], start_sample: int) -> None:
        self.calls.append("send")

    def _listen(self, count: int, start_sample: int) -> tuple[NDArray[np.complex64], int]:
        return np.zeros(count, np.complex64), 0

    def _silence(self) -> None:
        self.calls.append("silence")

    def _release(self) -> None:
        self.calls.append("release")


class TestConfigure:
    @pytest.mark.parametrize(
        ("name", "lie"),
        [
            ("tx_gain_db", -10.2),
            ("rx_gain_db", 21.0),
            ("rx_gain_db", 71.0),
            ("tx_center_hz", 2.45e9 + 3000),
            ("rx_center_hz", 2.45e9 - 3000),
            ("sample_rate_hz", 5e6 + 6),
            ("bandwidth_hz", 2e6),
        ],
    )
    def test_a_radio_that_did_not_do_it_is_parked(self, name: str, lie: float) -> None:
        radio = StubRadio({name: lie})
        with pytest.raises(SettingsMismatchError, match=f"stub: {name} was set to"):
            radio.configure(SETTINGS)
        assert radio.parked
        assert radio.calls == ["write", "silence"]

    def test_small_differences_are_the_radios_steps(self) -> None:
        lies = {"tx_gain_db": -10.1, "tx_center_hz": 2.45e9 + 2, "sample_rate_hz": 5e6 - 1}
        actual = StubRadio(lies).configure(SETTINGS)
        assert actual == replace(SETTINGS, **lies)

    def test_a_failure_while_writing_parks(self) -> None:
        radio = StubRadio(broken=OSError("cable"))
        with pytest.raises(OSError, match="cable"):
            radio.configure(SETTINGS)
        assert radio.parked
        assert radio.calls == ["write", "silence"]

    def test_refused_settings_are_never_written(self) -> None:
        radio = StubRadio()
        for wrong, kind in (
            (replace(SETTINGS, tx_center_hz=2.4415e9), LimitError),
            (replace(SETTINGS, tx_gain_db=-4.75), LimitError),
            (replace(SETTINGS, rx_gain_db=41.0), LimitError),
            (replace(SETTINGS, sample_rate_hz=30e6), CapabilityError),
            (replace(SETTINGS, rx_center_hz=7e9), CapabilityError),
        ):
            with pytest.raises(kind, match="stub"):
                radio.configure(wrong)
        assert radio.calls == []

    def test_release_happens_even_if_parking_fails(self) -> None:
        radio = StubRadio()
        radio.configure(SETTINGS)

        def fail() -> None:
            raise OSError("gone")

        radio._silence = fail  # type: ignore[method-assign]
        with pytest.raises(OSError, match="gone"):
            radio.close()
        assert "release" in radio.calls
        radio.close()
        assert radio.calls.count("release") == 1

    def test_time_out_must_be_a_time(self) -> None:
        for wrong in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(HardwareError, match="timeout_s"):
                Radio.__init__(StubRadio(), "x", CAPABILITIES, LIMITS, wrong)


class TestValues:
    @pytest.mark.parametrize("name", [field.name for field in fields(RadioSettings)])
    @pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
    def test_settings_are_numbers(self, name: str, value: float) -> None:
        with pytest.raises(HardwareError, match=name):
            replace(SETTINGS, **{name: value})

    def test_frequencies_are_positive(self) -> None:
        with pytest.raises(HardwareError, match="sample_rate_hz is 0"):
            replace(SETTINGS, sample_rate_hz=0.0)

    def test_limits_limit(self) -> None:
        for band in ((2.0, 1.0), (math.nan, 1.0), (1.0, math.inf), (0.0, 1.0)):
            with pytest.raises(HardwareError, match="band_hz"):
                Limits(band, 0.0)
        with pytest.raises(HardwareError, match="max_tx_gain_db"):
            Limits((1.0, 2.0), math.nan)
        with pytest.raises(HardwareError, match="max_rx_gain_db"):
            Limits((1.0, 2.0), 0.0, math.inf)

    def test_the_whole_occupied_band_must_be_allowed(self) -> None:
        """4 MHz wide at 2.442 GHz just touches 2.44 GHz; 1 Hz lower goes beyond."""
        LIMITS.check(replace(SETTINGS, tx_center_hz=2.442e9), "x")
        with pytest.raises(LimitError, match="x would occupy 2439999999 to"):
            LIMITS.check(replace(SETTINGS, tx_center_hz=2.442e9 - 1), "x")

    def test_capabilities_are_ranges(self) -> None:
        with pytest.raises(HardwareError, match="center_hz"):
            replace(CAPABILITIES, center_hz=(2.0, 1.0))
        with pytest.raises(HardwareError, match="tx_gain_step_db"):
            replace(CAPABILITIES, tx_gain_step_db=0.0)

    def test_all_errors_are_reported_in_one_line(self) -> None:
        assert issubclass(HardwareError, AirdpError)


class TestCapture:
    def capture(self, samples: NDArray[np.complex64], clipped: int = 0) -> Capture:
        return Capture(samples, 500, SETTINGS, clipped)

    def test_a_good_one_passes(self) -> None:
        capture = self.capture(np.full(1000, 0.1, np.complex64), clipped=1)
        assert capture.checked(min_samples=1000) is capture
        assert capture.end_sample == 1500

    def test_too_short(self) -> None:
        with pytest.raises(CaptureError, match="at sample 500 has 999 samples: expected at least 1000"):
            self.capture(np.ones(999, np.complex64)).checked(min_samples=1000)
        with pytest.raises(CaptureError, match="has 0 samples"):
            self.capture(np.zeros(0, np.complex64)).checked()

    @pytest.mark.parametrize("value", [complex(math.nan, 0), complex(0, math.inf), complex(-math.inf, math.nan)])
    def test_not_numbers(self, value: complex) -> None:
        samples = np.ones(1000, np.complex64)
        samples[777] = value
        with pytest.raises(CaptureError, match="1 NaN or infinite"):
            self.capture(samples).checked()

    def test_all_zero(self) -> None:
        with pytest.raises(CaptureError, match="all zero"):
            self.capture(np.zeros(1000, np.complex64)).checked()
        faint = np.zeros(1000, np.complex64)
        faint[3] = 1e-30
        self.capture(faint).checked()

    def test_saturated(self) -> None:
        samples = np.ones(1000, np.complex64)
        with pytest.raises(CaptureError, match="saturated: 2 of 1000"):
            self.capture(samples, clipped=2).checked()
        self.capture(samples, clipped=2).checked(max_clipped_fraction=0.01)

    def test_is_a_vector_of_complex64(self) -> None:
        for wrong in (np.ones((2, 2), np.complex64), np.ones(4, np.complex128), np.ones(4, np.float32)):
            with pytest.raises(CaptureError, match="complex64"):
                self.capture(wrong)  # type: ignore[arg-type]
        for clipped in (-1, 5):
            with pytest.raises(CaptureError, match="clipped"):
                self.capture(np.ones(4, np.complex64), clipped)


class TestSendable:
    @given(st.lists(st.complex_numbers(max_magnitude=3.0), min_size=1, max_size=50))
    def test_clips_to_full_scale_and_counts(self, values: list[complex]) -> None:
        samples = np.array(values, np.complex64)
        beyond = int(np.count_nonzero(np.abs(samples) > 1.000001))
        sent, clipped = sendable(samples, allow_clipping=True)
        assert clipped == beyond
        assert np.abs(sent).max() <= 1.000001
        inside = np.abs(samples) <= 1.0
        assert np.array_equal(sent[inside], samples[inside])
        assert np.allclose(sent * np.abs(samples), samples * np.abs(sent), atol=1e-5)
        if beyond:
            with pytest.raises(TxClippingError, match=f"{beyond} of {samples.size}"):
                sendable(samples, allow_clipping=False)
        else:
            assert sendable(samples, allow_clipping=False)[0] is samples

    def test_parts_within_one_do_not_make_a_sample_within_one(self) -> None:
        with pytest.raises(TxClippingError, match=r"largest is 1\.273"):
            sendable(np.array([0.9 - 0.9j], np.complex64), allow_clipping=False)

    @pytest.mark.parametrize("value", [complex(math.nan, 0.1), complex(0.1, -math.inf), complex(math.inf, math.nan)])
    @pytest.mark.parametrize("place", [0, 500, 999])
    def test_not_numbers(self, value: complex, place: int) -> None:
        samples = np.full(1000, 0.1, np.complex64)
        samples[place] = value
        for allow in (False, True):
            with pytest.raises(TxSamplesError, match="1 samples to send are NaN or infinite"):
                sendable(samples, allow)

    def test_strided_samples_are_sent_in_order(self) -> None:
        samples = (np.arange(10) / 20).astype(np.complex64)[::-2]
        sent, _ = sendable(samples, allow_clipping=False)
        assert np.array_equal(sent, samples)

    def test_report_knows_its_end(self) -> None:
        assert TransmitReport(10, 5, 0).end_sample == 15
