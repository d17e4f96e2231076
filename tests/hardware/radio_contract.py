"""What every backend must do. A backend's test module derives from `RadioContract` and supplies the fixture `pair`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from hardware.radio.contract import Radio, RadioSettings
from hardware.radio.errors import (
    CapabilityError,
    HardwareError,
    LateError,
    LimitError,
    RadioTimeoutError,
    RxOverflowError,
    TxClippingError,
    TxSamplesError,
    TxUnderflowError,
)

LEAD_SAMPLES = 4000


@dataclass
class Pair:
    """Two fresh radios that hear each other, not yet configured.

    settings: allowed by the lab for both; at the sender's tx_gain_db the burst is well above the noise.
    max_delay_samples: within which a burst arrives. amplitude_tolerance: relative error of an amplitude measured with a
    burst of 20,000 samples. provoke_overflow, provoke_underflow: make the receiver's next `receive`, the sender's next
    `transmit` fail in that way. The first may say which sample is going to be lost; otherwise it is the one that was
    next. ready: `OpenLab.ready` of the two, to be called when both are configured and after samples were lost.
    """

    sender: Radio
    receiver: Radio
    settings: RadioSettings
    max_delay_samples: int
    amplitude_tolerance: float
    provoke_overflow: Callable[[], int | None]
    provoke_underflow: Callable[[], None]
    ready: Callable[[], object] = lambda: None

    def configure(self) -> None:
        self.sender.configure(self.settings)
        self.receiver.configure(self.settings)
        self.ready()

    def soon(self) -> int:
        lead = max(self.sender.lead_samples, self.receiver.lead_samples)
        return max(self.sender.now(), self.receiver.now()) + lead + LEAD_SAMPLES


def waveform(count: int, seed: int = 7, peak: float = 0.9) -> NDArray[np.complex64]:
    """Noise within half of the band, which every backend's filters pass."""
    rng = np.random.default_rng(seed)
    spectrum = np.zeros(count, complex)
    quarter = max(count // 4, 1)
    for side in (slice(1, quarter), slice(-quarter, None)):
        width = spectrum[side].size
        spectrum[side] = rng.standard_normal(width) + 1j * rng.standard_normal(width)
    samples = np.fft.ifft(spectrum)
    return np.asarray(samples * (peak / np.abs(samples).max()), np.complex64)


def arrival(received: NDArray[np.complex64], sent: NDArray[np.complex64]) -> tuple[int, float]:
    """Lag at which `sent` fits best in `received`, and its amplitude there."""
    size = received.size + sent.size
    spectra = np.fft.fft(received, size) * np.fft.fft(sent, size).conj()
    correlation = np.abs(np.fft.ifft(spectra))[: received.size]
    lag = int(correlation.argmax())
    return lag, float(correlation[lag] / np.vdot(sent, sent).real)


def fail_once(target: object, method: str, error: Exception) -> None:
    """Let the next call of a method raise, where nothing else can make that happen."""

    def fail(*_: object, **__: object) -> None:
        delattr(target, method)
        raise error

    setattr(target, method, fail)


def rms(samples: NDArray[np.complex64]) -> float:
    return float(np.sqrt(np.mean(np.abs(samples) ** 2)))


class RadioContract:
    """The laws."""

    def test_is_parked_and_without_settings_until_configured(self, pair: Pair) -> None:
        assert pair.sender.parked
        with pytest.raises(HardwareError, match="configure it first"):
            _ = pair.sender.settings
        with pytest.raises(HardwareError, match="parked"):
            pair.sender.transmit(waveform(100), 10**9)
        with pytest.raises(HardwareError, match="configure it first"):
            pair.receiver.receive(100, pair.receiver.now())

    def test_configure_returns_what_reads_back(self, pair: Pair) -> None:
        actual = pair.sender.configure(pair.settings)
        assert actual == pair.sender.settings
        assert pair.settings.differences(actual) == []
        assert not pair.sender.parked

    def test_limits_come_before_anything_is_written(self, pair: Pair) -> None:
        before = pair.sender.configure(pair.settings)
        limits = pair.sender.limits
        low, high = limits.band_hz
        for wrong in (
            replace(pair.settings, tx_center_hz=low),
            replace(pair.settings, tx_center_hz=high),
            replace(pair.settings, tx_gain_db=limits.max_tx_gain_db + 0.25),
        ):
            with pytest.raises(LimitError, match=pair.sender.name):
                pair.sender.configure(wrong)
            assert pair.sender.settings == before
            assert pair.sender._read_back() == before

    def test_what_the_radio_cannot_do_is_refused(self, pair: Pair) -> None:
        before = pair.receiver.configure(pair.settings)
        can = pair.receiver.capabilities
        for name, value in (
            ("sample_rate_hz", can.sample_rate_hz[0] * 0.9),
            ("sample_rate_hz", can.sample_rate_hz[1] * 1.1),
            ("rx_center_hz", can.center_hz[0] * 0.9),
            ("rx_center_hz", can.center_hz[1] * 1.1),
            ("bandwidth_hz", can.bandwidth_hz[0] * 0.9),
            ("tx_gain_db", can.tx_gain_db[0] - 1),
            ("rx_gain_db", can.rx_gain_db[0] - 1),
        ):
            with pytest.raises(CapabilityError, match=name):
                pair.receiver.configure(replace(pair.settings, **{name: value}))
        assert pair.receiver._read_back() == before

    def test_a_burst_arrives_when_it_was_sent_and_nothing_else_does(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(5000)
        start = pair.soon()
        report = pair.sender.transmit(burst, start)
        assert (report.start_sample, report.sample_count, report.clipped_samples) == (start, 5000, 0)
        capture = pair.receiver.receive(9000, start - 2000)
        assert capture.start_sample == start - 2000
        assert capture.samples.dtype == np.complex64
        assert capture.settings == pair.receiver.settings
        capture.checked(min_samples=9000)
        lag, amplitude = arrival(capture.samples, burst)
        assert 0 <= lag - 2000 <= pair.max_delay_samples
        silence = np.concatenate([capture.samples[:1900], capture.samples[7000 + 2 * pair.max_delay_samples + 100 :]])
        assert rms(silence) < 0.1 * amplitude * rms(burst)

    def test_transmit_gain_is_what_it_says(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(20_000)
        amplitudes = []
        for gain_db in (pair.settings.tx_gain_db, pair.settings.tx_gain_db - 6.0):
            pair.sender.configure(replace(pair.settings, tx_gain_db=gain_db))
            start = pair.soon()
            pair.sender.transmit(burst, start)
            received = pair.receiver.receive(20_000 + pair.max_delay_samples, start).samples
            amplitudes.append(arrival(received, burst)[1])
        assert amplitudes[0] / amplitudes[1] == pytest.approx(10 ** (6 / 20), rel=pair.amplitude_tolerance)

    def test_bursts_one_after_the_other_make_one_stream(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(6000)
        start = pair.soon()
        for cut in (slice(0, 1), slice(1, 2500), slice(2500, 6000)):
            pair.sender.transmit(burst[cut], start + cut.start)
        pieces = [pair.receiver.receive(n, start + at).samples for at, n in ((0, 3000), (3000, 1), (3001, 3500))]
        lag, amplitude = arrival(np.concatenate(pieces), burst)
        assert lag <= pair.max_delay_samples
        assert amplitude > 0

    def test_the_callers_buffer_is_free_after_transmit(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(3000)
        mutable = burst.copy()
        start = pair.soon()
        pair.sender.transmit(mutable, start)
        mutable[:] = 0
        received = pair.receiver.receive(3000 + pair.max_delay_samples, start).samples
        lag, amplitude = arrival(received, burst)
        assert lag <= pair.max_delay_samples
        assert amplitude * rms(burst) > 0.3 * rms(received)

    def test_transmit_never_changes_its_input(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(3000)
        before = burst.copy()
        pair.sender.transmit(burst, pair.soon())
        assert np.array_equal(burst, before)

    def test_starting_late_is_an_error(self, pair: Pair) -> None:
        pair.configure()
        start = pair.soon()
        pair.receiver.receive(1000, start)
        assert pair.receiver.now() >= start + 1000
        for late in (start - 1, start, start + 999):
            with pytest.raises(LateError, match="sample"):
                pair.receiver.receive(10, late)
            with pytest.raises(LateError, match="sample"):
                pair.sender.transmit(waveform(10), late)
        pair.receiver.receive(10, start + 1000)

    def test_a_radio_does_not_talk_over_itself(self, pair: Pair) -> None:
        pair.configure()
        start = pair.soon()
        pair.sender.transmit(waveform(1000), start)
        with pytest.raises(LateError):
            pair.sender.transmit(waveform(1000), start + 999)
        pair.sender.transmit(waveform(1000), start + 1000)

    def test_waiting_too_long_is_a_time_out(self, pair: Pair) -> None:
        pair.configure()
        # Time may go on between two looks at it, by the lead at most.
        too_far = int(pair.sender.timeout_s * pair.settings.sample_rate_hz) + 1000 + pair.sender.lead_samples
        with pytest.raises(RadioTimeoutError, match="time-out"):
            pair.receiver.receive(100, pair.receiver.now() + too_far)
        with pytest.raises(RadioTimeoutError, match="time-out"):
            pair.sender.transmit(waveform(100), pair.sender.now() + too_far)
        pair.receiver.receive(100, pair.soon())

    def test_what_cannot_be_sent_is_not_sent(self, pair: Pair) -> None:
        pair.configure()
        start = pair.soon()
        loud, broken, infinite = waveform(2000), waveform(2000), waveform(2000)
        loud[1234] = 0.8 + 0.7j
        broken[1234] = np.nan
        infinite[1234] = complex(0, np.inf)
        wrong: list[tuple[type[HardwareError], NDArray[np.complex64]]] = [
            (TxClippingError, loud),
            (TxSamplesError, broken),
            (TxSamplesError, infinite),
            (TxSamplesError, waveform(2000).astype(np.complex128)),
            (TxSamplesError, waveform(2000).reshape(2, 1000)),
            (TxSamplesError, np.zeros(0, np.complex64)),
        ]
        for kind, samples in wrong:
            with pytest.raises(kind):
                pair.sender.transmit(samples, start)
        with pytest.raises(TxSamplesError):
            pair.sender.transmit(broken, start, allow_clipping=True)
        quiet = rms(pair.receiver.receive(2500, start).samples)
        again = pair.soon()
        pair.sender.transmit(waveform(2000), again)
        assert rms(pair.receiver.receive(2500, again).samples) > 5 * quiet

    def test_clipping_that_is_allowed_is_counted(self, pair: Pair) -> None:
        pair.configure()
        burst = waveform(2000)
        burst[[5, 99, 1500]] = [2.0, -3.0j, 0.8 + 0.8j]
        report = pair.sender.transmit(burst, pair.soon(), allow_clipping=True)
        assert report.clipped_samples == 3

    def test_full_scale_itself_is_no_clipping(self, pair: Pair) -> None:
        pair.configure()
        turns = np.exp(2j * np.pi * np.arange(1000) / 37).astype(np.complex64)
        assert pair.sender.transmit(turns, pair.soon()).clipped_samples == 0

    def test_no_samples_is_no_capture(self, pair: Pair) -> None:
        pair.configure()
        for count in (0, -5):
            with pytest.raises(HardwareError, match="at least 1"):
                pair.receiver.receive(count, pair.soon())

    def test_parking_silences_and_configuring_wakes(self, pair: Pair) -> None:
        pair.configure()
        pair.sender.park()
        pair.sender.park()
        assert pair.sender.parked
        assert pair.sender.settings.tx_gain_db == pair.sender.capabilities.tx_gain_db[0]
        with pytest.raises(HardwareError, match="parked"):
            pair.sender.transmit(waveform(10), pair.soon())
        pair.receiver.park()
        pair.receiver.receive(100, pair.soon())
        pair.configure()
        pair.sender.transmit(waveform(10), pair.soon())

    def test_every_exit_parks_and_closes(self, pair: Pair) -> None:
        parked: list[str] = []
        for radio in (pair.sender, pair.receiver):
            silence = radio._silence

            def spy(silence: Callable[[], None] = silence, name: str = radio.name) -> None:
                parked.append(name)
                silence()

            radio._silence = spy  # type: ignore[method-assign]
        pair.configure()
        with pytest.raises(RuntimeError, match="boom"), pair.sender, pair.receiver:
            raise RuntimeError("boom")
        assert sorted(parked) == sorted([pair.sender.name, pair.receiver.name])
        assert pair.sender.parked
        assert pair.receiver.parked
        pair.sender.close()
        assert len(parked) == 2
        for call in (
            lambda: pair.sender.configure(pair.settings),
            lambda: pair.sender.transmit(waveform(10), 10**6),
            lambda: pair.receiver.receive(10, 10**6),
        ):
            with pytest.raises(HardwareError, match="closed"):
                call()

    def test_lost_samples_are_an_error_and_the_radio_goes_on(self, pair: Pair) -> None:
        pair.configure()
        start = pair.receiver.now()
        lost = pair.provoke_overflow()
        with pytest.raises(RxOverflowError):
            pair.receiver.receive(100, start if lost is None else lost)
        pair.ready()
        pair.receiver.receive(100, pair.soon())

    def test_a_starved_burst_is_an_error_and_the_radio_goes_on(self, pair: Pair) -> None:
        pair.configure()
        pair.provoke_underflow()
        with pytest.raises(TxUnderflowError):
            pair.sender.transmit(waveform(100), pair.soon())
        pair.ready()
        pair.sender.transmit(waveform(100), pair.soon())
