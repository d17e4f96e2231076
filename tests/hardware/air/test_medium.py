"""The laws of the simulated air. Oracles are formulas of the physics, named at each test."""

import itertools
import math
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from hardware.air.front_end import FrontEnd
from hardware.air.link import GivenFading, Link, RayleighFading, StaticFading, power_profile
from hardware.air.medium import Medium
from hardware.air.noise import Randomness, ThermalNoise
from hardware.lab.clock import ClockMode
from hardware.radio.errors import HardwareError, LateError, RxOverflowError
from hardware.radio.settings import RadioSettings
from phy.errors import AirdpError
from tests.hardware.radio_contract import waveform

RATE_HZ = 5e6
CENTER_HZ = 2.45e9
SETTINGS = RadioSettings(RATE_HZ, CENTER_HZ, CENTER_HZ, RATE_HZ, 0.0, 0.0)
Samples = NDArray[np.complex64]

HARSH = FrontEnd(
    clock_ppm=0.7,
    phase_noise_rad_per_sqrt_sample=1e-3,
    iq_image_db=-35.0,
    dc_offset_dbfs=-30.0,
    pa_saturation=1.2,
    dac_bits=12,
    adc_bits=12,
    noise_var_complex=1e-4,
)


def air(
    *senders: str,
    seed: int = 1,
    link: Link | None = None,
    sender: FrontEnd | None = None,
    receiver: FrontEnd | None = None,
    clock_mode: ClockMode = ClockMode.SHARED,
) -> Medium:
    """Senders and one receiver 'rx', all tuned."""
    medium = Medium(RATE_HZ, seed, clock_mode=clock_mode, link_of=lambda sender, receiver: link or Link())
    for name in senders:
        medium.add_radio(name, sender, receives=False)
        medium.tune(name, SETTINGS)
    medium.add_radio("rx", receiver)
    medium.tune("rx", SETTINGS)
    return medium


def harsh_air(seed: int = 1) -> Medium:
    link = Link(RayleighFading(power_profile([(0, 0.0), (3, -6.0), (7, -10.0)])), delay_samples=4.3)
    front_end = replace(HARSH, clock_ppm=-0.4)
    return air("a", "b", seed=seed, link=link, sender=HARSH, receiver=front_end, clock_mode=ClockMode.FREE_RUNNING)


def tone(count: int, cycles_per_sample: float, start: int = 0, amplitude: float = 0.5) -> Samples:
    phase = 2j * np.pi * cycles_per_sample * (start + np.arange(count))
    return np.asarray(amplitude * np.exp(phase), np.complex64)


def frequency(samples: Samples, guess: float) -> float:
    """Cycles per sample of a clean tone near `guess`, from the slope of its unwrapped phase."""
    index = np.arange(samples.size)
    phase = np.unwrap(np.angle(samples * np.exp(-2j * np.pi * guess * index)))
    return guess + float(np.polyfit(index, phase, 1)[0]) / (2 * np.pi)


def error(got: Samples, expected: Samples | NDArray[np.complex128]) -> float:
    """Relative l2 error."""
    return float(np.linalg.norm(got - expected) / np.linalg.norm(expected))


class TestSuperposition:
    @settings(max_examples=25, deadline=None)
    @given(
        lengths=st.tuples(st.integers(1, 20_000), st.integers(1, 20_000)),
        starts=st.tuples(st.integers(0, 20_000), st.integers(0, 20_000)),
        delay=st.sampled_from([0.0, 7.0, 3.25]),
        seed=st.integers(0, 2**32),
    )
    def test_the_capture_of_a_sum_is_the_sum_of_captures(
        self, lengths: tuple[int, int], starts: tuple[int, int], delay: float, seed: int
    ) -> None:
        """y(a + b) - y(a) - y(b) + y(nothing) = 0 on a linear air, noise included because it is the same noise."""
        bursts = {"a": (waveform(lengths[0], 1), starts[0]), "b": (waveform(lengths[1], 2), starts[1])}

        def capture(*who: str) -> Samples:
            link = Link(RayleighFading((0.7, 0.0, 0.3)), delay)
            medium = air("a", "b", seed=seed, link=link, receiver=FrontEnd(noise_var_complex=0.01))
            for name in who:
                medium.send(name, *bursts[name])
            return medium.listen("rx", 41_000, 0)[0]

        rest = capture("a", "b") - capture("a") - capture("b") + capture()
        assert np.abs(rest).max() < 1e-5

    def test_the_order_of_transmissions_does_not_matter(self) -> None:
        captures = []
        for order in ("ab", "ba"):
            medium = air("a", "b", link=Link(RayleighFading()), receiver=FrontEnd(noise_var_complex=0.01))
            for name in order:
                medium.send(name, waveform(5000, ord(name)), 10)
            captures.append(medium.listen("rx", 6000, 0)[0])
        assert np.allclose(captures[0], captures[1], atol=1e-6)

    def test_a_nonlinear_amplifier_breaks_it_only_within_one_radio(self) -> None:
        """The check can fail: what one amplifier compresses is not the sum of its parts, two amplifiers' output is."""
        one, two = waveform(3000, 1) / 2, waveform(3000, 2) / 2

        def capture(**sent: Samples) -> Samples:
            medium = air("a", "b", sender=FrontEnd(pa_saturation=0.5))
            for name, samples in sent.items():
                medium.send(name, samples, 0)
            return medium.listen("rx", 3000, 0)[0]

        assert error(capture(a=one, b=two), capture(a=one) + capture(b=two)) < 1e-6
        assert error(capture(a=one + two), capture(a=one) + capture(a=two)) > 0.05


class TestDeterminism:
    @settings(max_examples=20, deadline=None)
    @given(
        cuts=st.lists(st.integers(1, 59_999), max_size=8, unique=True),
        start=st.integers(0, 40_000),
        seed=st.integers(0),
    )
    def test_cutting_captures_changes_nothing(self, cuts: list[int], start: int, seed: int) -> None:
        """With every impairment on."""

        def capture(edges: list[int]) -> Samples:
            medium = harsh_air(seed)
            medium.send("a", waveform(30_000, 1), start + 1000)
            medium.send("b", waveform(30_000, 2), start + 1000)
            pieces = [medium.listen("rx", end - begin, start + begin)[0] for begin, end in itertools.pairwise(edges)]
            return np.concatenate(pieces)

        whole, pieces = capture([0, 60_000]), capture([0, *sorted(cuts), 60_000])
        # The last bit of a product depends on a vector's alignment, and may then round to the neighbouring ADC level.
        differs = np.abs(whole - pieces)
        assert differs.max() <= 1.5 / 2047
        assert np.count_nonzero(differs > 1e-6) <= 3

    def test_unread_samples_in_between_change_nothing(self) -> None:
        whole = harsh_air().listen("rx", 50_000, 0)[0]
        skipping = harsh_air()
        skipping.listen("rx", 10, 5)
        assert np.array_equal(skipping.listen("rx", 1000, 40_000)[0], whole[40_000:41_000])

    def test_the_seed_decides_everything(self) -> None:
        def capture(seed: int) -> Samples:
            medium = harsh_air(seed)
            medium.send("a", waveform(5000), 100)
            return medium.listen("rx", 6000, 0)[0]

        assert np.array_equal(capture(5), capture(5))
        assert not np.allclose(capture(5), capture(6), atol=1e-2)

    def test_noise_does_not_depend_on_who_else_is_there(self) -> None:
        quiet = FrontEnd(noise_var_complex=1.0)
        alone = air(receiver=quiet).listen("rx", 5000, 0)[0]
        crowd = air("a", "b", "c", receiver=quiet)
        crowd.add_radio("other", quiet)
        crowd.tune("other", SETTINGS)
        other = crowd.listen("other", 5000, 0)[0]
        assert np.array_equal(crowd.listen("rx", 5000, 0)[0], alone)
        assert abs(np.vdot(other, alone)) / 5000 < 5 / math.sqrt(5000)

    def test_a_negative_seed_is_refused(self) -> None:
        with pytest.raises(HardwareError, match="seed"):
            Medium(RATE_HZ, -1)


class TestGain:
    @pytest.mark.parametrize("tx_gain_db", [0.0, -0.25, -6.0, -40.0])
    @pytest.mark.parametrize("rx_gain_db", [0.0, 20.0])
    def test_gains_in_db_are_right_to_a_thousandth(self, tx_gain_db: float, rx_gain_db: float) -> None:
        """Amplitude 10^(dB/20) of sender, link and receiver together."""
        medium = air("a", link=Link(StaticFading((0.3 - 0.4j,))))
        medium.tune("a", replace(SETTINGS, tx_gain_db=tx_gain_db))
        medium.tune("rx", replace(SETTINGS, rx_gain_db=rx_gain_db))
        burst = waveform(20_000)
        medium.send("a", burst, 0)
        got = medium.listen("rx", 20_000, 0)[0]
        gain = np.vdot(burst, got) / np.vdot(burst, burst)
        assert gain == pytest.approx((0.3 - 0.4j) * 10 ** ((tx_gain_db + rx_gain_db) / 20), rel=1e-3)

    def test_receive_gain_amplifies_the_noise_too(self) -> None:
        variances = []
        for rx_gain_db in (0.0, 20.0):
            medium = air(receiver=FrontEnd(noise_var_complex=0.01))
            medium.tune("rx", replace(SETTINGS, rx_gain_db=rx_gain_db))
            variances.append(np.var(medium.listen("rx", 10_000, 0)[0]))
        assert variances[1] / variances[0] == pytest.approx(100.0, rel=1e-3)


class TestDelayAndTaps:
    @pytest.mark.parametrize("delay", [0.0, 1.0, 19.0, 0.5, 12.34])
    @pytest.mark.parametrize("cycles_per_sample", [-0.3, 0.01, 0.2])
    def test_a_tone_is_late_by_the_delay(self, delay: float, cycles_per_sample: float) -> None:
        """y[n] = exp(j 2 pi f (n - D)) away from the burst's edges."""
        medium = air("a", link=Link(delay_samples=delay))
        medium.send("a", tone(3000, cycles_per_sample, 100), 100)
        got = medium.listen("rx", 2000, 500)[0]
        expected = tone(2000, cycles_per_sample, 500) * np.exp(-2j * np.pi * cycles_per_sample * delay)
        assert error(got, expected) < 1e-3

    def test_multipath_is_a_convolution(self) -> None:
        taps = (0.5, 0.0, 0.3j, 0.0, -0.2)
        medium = air("a", link=Link(StaticFading(taps), delay_samples=2))
        burst = waveform(20_000)
        medium.send("a", burst, 50)
        got = medium.listen("rx", 20_100, 0)[0]
        expected = np.zeros(20_100, complex)
        expected[52 : 52 + 20_004] = np.convolve(burst, taps)
        assert np.allclose(got, expected, atol=1e-6)

    def test_multipath_and_carrier_offset_together(self) -> None:
        """The receiver's mixer rotates what the paths have already added up: e^{j 2 pi f n} (h * x)[n]."""
        taps = (0.5, 0.0, 0.3j)
        cfo = 0.01
        medium = air("a", link=Link(StaticFading(taps)))
        medium.tune("a", replace(SETTINGS, tx_center_hz=CENTER_HZ + cfo * RATE_HZ))
        burst = waveform(5000)
        medium.send("a", burst, 300)
        got = medium.listen("rx", 5002, 300)[0]
        expected = np.convolve(burst, taps) * np.exp(2j * np.pi * cfo * (300 + np.arange(5002)))
        assert error(got, expected) < 1e-5

    def test_power_profile(self) -> None:
        powers = power_profile([(0, 0.0), (2, -3.0)], gain_db=-10.0)
        assert len(powers) == 3
        assert sum(powers) == pytest.approx(0.1)
        assert powers[1] == 0
        assert powers[2] / powers[0] == pytest.approx(10**-0.3)

    @pytest.mark.parametrize("profile", [[], [(-1, 0.0)], [(0, 0.0), (0, -3.0)], [(10**9, 0.0)], [(0, math.nan)]])
    def test_impossible_profiles(self, profile: list[tuple[int, float]]) -> None:
        with pytest.raises(HardwareError, match="taps"):
            power_profile(profile)

    def test_impossible_links(self) -> None:
        for wrong in (-1.0, math.nan, math.inf):
            with pytest.raises(HardwareError, match="delay_samples"):
                Link(delay_samples=wrong)
        with pytest.raises(HardwareError, match="taps"):
            StaticFading(())
        with pytest.raises(HardwareError, match="powers"):
            RayleighFading((1.0, -0.1))


class TestFading:
    def test_rayleigh_power_is_exponential_with_the_taps_mean(self) -> None:
        """|h|^2 of CN(0, p) ~ Exp with mean p; a mean of 1.15 p is rejected. Taps are independent."""
        medium = air("a", link=Link(RayleighFading((0.8, 0.2))))
        gains = np.empty((2000, 2), complex)
        for block in range(2000):
            medium.new_block(block)
            gains[block] = medium.taps("a", "rx")
        for tap, mean in ((0, 0.8), (1, 0.2)):
            power = np.abs(gains[:, tap]) ** 2
            assert stats.kstest(power, "expon", args=(0, mean)).pvalue > 1e-3
            assert stats.kstest(power, "expon", args=(0, 1.15 * mean)).pvalue < 1e-3
            assert stats.kstest(np.angle(gains[:, tap]), "uniform", args=(-np.pi, 2 * np.pi)).pvalue > 1e-3
        assert abs(np.vdot(gains[:, 0], gains[:, 1])) / (2000 * 0.4) < 5 / math.sqrt(2000)

    def test_blocks_and_links_are_independent_and_can_be_revisited(self) -> None:
        medium = air("a", "b", link=Link(RayleighFading((0.5, 0.5))))
        medium.new_block(3)
        third = medium.taps("a", "rx")
        assert not np.allclose(third, medium.taps("b", "rx"))
        medium.new_block(4)
        assert not np.allclose(third, medium.taps("a", "rx"))
        medium.new_block(3)
        assert np.array_equal(third, medium.taps("a", "rx"))
        assert medium.block == 3
        with pytest.raises(HardwareError, match="block"):
            medium.new_block(-1)

    def test_a_new_block_is_what_bursts_go_through(self) -> None:
        medium = air("a", link=Link(RayleighFading()))
        for block in range(3):
            medium.new_block(block)
            start = medium.now("rx")
            medium.send("a", tone(100, 0.0), start)
            assert np.allclose(medium.listen("rx", 100, start)[0], 0.5 * medium.taps("a", "rx")[0], rtol=1e-5)

    def test_gains_as_a_function_of_the_block(self) -> None:
        medium = air("a")
        medium.set_link("a", "rx", Link(GivenFading(lambda block: block * 1j)))
        medium.new_block(7)
        assert medium.taps("a", "rx").tolist() == [7j]


class TestCarriersAndClocks:
    def test_crystals_make_the_carrier_offset(self) -> None:
        """f = fc (ppm_tx - ppm_rx) 1e-6: 1.5 ppm of 2.45 GHz is 3675 Hz."""
        medium = air(
            "a",
            sender=FrontEnd(clock_ppm=1.0),
            receiver=FrontEnd(clock_ppm=-0.5),
            clock_mode=ClockMode.FREE_RUNNING,
        )
        assert medium.cfo_hz("a", "rx") == pytest.approx(3675.0, rel=1e-6)
        medium.send("a", tone(20_000, 0.1), 0)
        got = medium.listen("rx", 19_000, 500)[0]
        # The sampling clocks differ as well: the tone itself is 1.5 ppm faster in the receiver's samples.
        expected = 0.1 * (1 + 1.5e-6) + 3675.0 / RATE_HZ
        assert frequency(got, 0.1) == pytest.approx(expected, abs=2e-9)
        assert frequency(got, 0.1) != pytest.approx(expected - 0.1 * 1.5e-6, abs=2e-9)

    def test_a_shared_clock_has_no_offset(self) -> None:
        medium = air("a", sender=FrontEnd(clock_ppm=50.0), receiver=FrontEnd(clock_ppm=-50.0))
        assert medium.cfo_hz("a", "rx") == 0.0
        burst = waveform(1000)
        medium.send("a", burst, 10**9)
        assert np.array_equal(medium.listen("rx", 1000, 10**9)[0], burst)

    def test_bursts_stay_coherent(self) -> None:
        """Two bursts far apart show one uninterrupted carrier: the phase between them is 2 pi f times the time."""
        cfo_hz = 123.456
        medium = air("a")
        medium.tune("a", replace(SETTINGS, tx_center_hz=CENTER_HZ + cfo_hz))
        phases = []
        for start in (1000, 2_000_000):
            medium.send("a", tone(1000, 0.0), start)
            phases.append(np.angle(medium.listen("rx", 1, start)[0][0]))
        turned = 2 * np.pi * cfo_hz * (2_000_000 - 1000) / RATE_HZ
        assert np.exp(1j * (phases[1] - phases[0])) == pytest.approx(np.exp(1j * turned), abs=1e-3)

    def test_an_error_that_both_crystals_share_is_invisible(self) -> None:
        """f t = f0 (1 + e) n / (fs (1 + e)): carrier and time are both off, and their product is not."""
        phases = []
        for ppm in (0.0, 100.0):
            crystal = FrontEnd(clock_ppm=ppm)
            medium = air("a", sender=crystal, receiver=crystal, clock_mode=ClockMode.FREE_RUNNING)
            medium.tune("a", replace(SETTINGS, tx_center_hz=CENTER_HZ + 1234.5))
            medium.send("a", tone(10, 0.0), 20_000_000)
            phases.append(np.angle(medium.listen("rx", 1, 20_000_000)[0][0]))
        assert phases[1] == pytest.approx(phases[0], abs=1e-3)

    def test_counters_of_free_running_radios_drift_apart(self) -> None:
        """A clock that is 2 ppm fast is 20 samples ahead after 10 million; both were zero at one instant."""
        medium = air("a", sender=FrontEnd(clock_ppm=2.0), clock_mode=ClockMode.FREE_RUNNING)
        # The carrier's offset would hide the burst from the correlation below.
        medium.tune("a", replace(SETTINGS, tx_center_hz=CENTER_HZ / (1 + 2e-6)))
        burst = waveform(2000)
        medium.send("a", burst, 10_000_000)
        got = medium.listen("rx", 2100, 10_000_000 - 50)[0]
        lag = int(np.abs(np.correlate(got, burst, "valid")).argmax())
        assert lag == 50 - 20
        assert medium.now("a") == pytest.approx(medium.now("rx") + 20, abs=1)

    def test_half_a_bandwidth_is_as_far_as_one_hears(self) -> None:
        for offset_hz, heard in ((0.49 * RATE_HZ, True), (0.51 * RATE_HZ, False), (-0.51 * RATE_HZ, False)):
            medium = air("a")
            medium.tune("a", replace(SETTINGS, tx_center_hz=CENTER_HZ + offset_hz))
            medium.send("a", tone(100, 0.0), 0)
            assert bool(np.any(medium.listen("rx", 100, 0)[0])) is heard

    def test_phase_noise_is_a_random_walk_of_both_oscillators(self) -> None:
        """Var(theta[n + k] - theta[n]) = k std^2 for each oscillator, so twice that for a link."""
        std = 0.01
        front_end = FrontEnd(phase_noise_rad_per_sqrt_sample=std)
        medium = air("a", sender=front_end, receiver=front_end)
        count, step = 400_000, 100
        medium.send("a", tone(count, 0.0), 0)
        phase = np.unwrap(np.angle(medium.listen("rx", count, 0)[0][::step]))
        steps = np.diff(phase)
        degrees = steps.size
        ratio = float(np.sum(steps**2)) / (2 * step * std**2)
        low, high = stats.chi2.ppf([5e-4, 1 - 5e-4], degrees)
        assert low < ratio < high
        assert not low < ratio * 1.15 < high

    def test_phase_noise_goes_on_between_bursts(self) -> None:
        """Sounding and payload differ by the walk in between: it must not start anew with each burst."""
        whole = air("a", sender=FrontEnd(phase_noise_rad_per_sqrt_sample=0.01))
        whole.send("a", tone(50_000, 0.0), 0)
        parts = air("a", sender=FrontEnd(phase_noise_rad_per_sqrt_sample=0.01))
        parts.send("a", tone(100, 0.0), 0)
        parts.send("a", tone(100, 0.0), 49_000)
        expected = whole.listen("rx", 50_000, 0)[0]
        assert np.allclose(parts.listen("rx", 100, 0)[0], expected[:100], atol=1e-6)
        assert np.allclose(parts.listen("rx", 100, 49_000)[0], expected[49_000:49_100], atol=1e-6)


class TestNoise:
    def test_variance_is_accepted_where_right_and_rejected_3_percent_off(self) -> None:
        """2 sum|z|^2 / E|z|^2 ~ chi^2(2N) for circular Gaussian noise."""
        noise_var_complex, count = 0.02, 200_000
        samples = air(receiver=FrontEnd(noise_var_complex=noise_var_complex)).listen("rx", count, 12_345)[0]
        energy = 2 * float(np.sum(np.abs(samples.astype(np.complex128)) ** 2))
        low, high = stats.chi2.ppf([5e-4, 1 - 5e-4], 2 * count)
        assert low < energy / noise_var_complex < high
        assert not low < energy / (noise_var_complex * 1.03) < high
        assert not low < energy / (noise_var_complex * 0.97) < high

    def test_noise_is_circular_white_and_gaussian(self) -> None:
        count = 100_000
        samples = air(receiver=FrontEnd(noise_var_complex=2.0)).listen("rx", count, 0)[0].astype(np.complex128)
        bound = 5 / math.sqrt(count)
        assert abs(np.mean(samples)) < bound * math.sqrt(2)
        assert abs(np.mean(samples**2)) / 2 < bound
        for lag in (1, 2, 100, 16384):
            assert abs(np.vdot(samples[lag:], samples[:-lag])) / (2 * count) < bound
        for part in (samples.real, samples.imag):
            assert stats.kstest(part, "norm").pvalue > 1e-3

    def test_without_noise_silence_is_zero(self) -> None:
        assert not np.any(air("a").listen("rx", 1000, 0)[0])


class TestFrontEnd:
    def test_mirror_image_is_as_far_down_as_configured(self) -> None:
        """A tone at f leaves 10^(dB/20) of itself at -f."""
        for sender, receiver in ((FrontEnd(iq_image_db=-35.0), None), (None, FrontEnd(iq_image_db=-35.0))):
            medium = air("a", sender=sender, receiver=receiver)
            medium.send("a", tone(4000, 0.125), 0)
            spectrum = np.abs(np.fft.fft(medium.listen("rx", 4000, 0)[0]))
            assert 20 * np.log10(spectrum[-500] / spectrum[500]) == pytest.approx(-35.0, abs=0.05)

    def test_carrier_leakage(self) -> None:
        """10^(-30/20) of full scale, after the receiver's gain; from the sender only while it sends."""
        medium = air("a", receiver=FrontEnd(dc_offset_dbfs=-30.0))
        medium.tune("rx", replace(SETTINGS, rx_gain_db=20.0))
        assert np.allclose(np.abs(medium.listen("rx", 10, 0)[0]), 10**-1.5, rtol=1e-5)
        medium = air("a", sender=FrontEnd(dc_offset_dbfs=-30.0))
        medium.tune("a", replace(SETTINGS, tx_gain_db=-20.0))
        medium.send("a", np.zeros(10, np.complex64), 10)
        got = medium.listen("rx", 30, 0)[0]
        assert np.allclose(np.abs(got[10:20]), 10**-2.5, rtol=1e-5)
        assert not np.any(got[:10])
        assert not np.any(got[20:])

    def test_the_amplifier_comes_after_the_gain(self) -> None:
        """Rapp with p = 2: |y| = |x| / (1 + |x/A|^4)^(1/4)."""
        medium = air("a", sender=FrontEnd(pa_saturation=0.4))
        for tx_gain_db in (0.0, -20.0):
            medium.tune("a", replace(SETTINGS, tx_gain_db=tx_gain_db))
            start = medium.now("rx")
            medium.send("a", tone(10, 0.0, amplitude=0.8), start)
            driven = 0.8 * 10 ** (tx_gain_db / 20)
            expected = driven / (1 + (driven / 0.4) ** 4) ** 0.25
            assert np.allclose(np.abs(medium.listen("rx", 10, start)[0]), expected, rtol=1e-5)

    @pytest.mark.parametrize("where", ["dac_bits", "adc_bits"])
    def test_converters_have_levels(self, where: str) -> None:
        front_end = FrontEnd(**{where: 4})
        medium = air("a", sender=front_end, receiver=front_end)
        medium.send("a", waveform(1000), 0)
        levels = medium.listen("rx", 1000, 0)[0].real * 7
        assert np.allclose(levels, np.rint(levels), atol=1e-5)
        assert np.unique(np.rint(levels)).size > 5

    def test_the_receivers_converter_clips_and_counts_samples(self) -> None:
        medium = air("a", receiver=FrontEnd(adc_bits=12))
        medium.tune("rx", replace(SETTINGS, rx_gain_db=6.0))
        burst = np.full(100, 0.1, np.complex64)
        burst[:3] = [0.7 + 0.7j, 0.9, -0.9j]
        medium.send("a", burst, 0)
        got, clipped = medium.listen("rx", 100, 0)
        assert clipped == 3
        assert np.abs(got.real).max() == 1.0

    @pytest.mark.parametrize(
        "wrong",
        [
            {"clock_ppm": 5000.0},
            {"clock_ppm": math.nan},
            {"phase_noise_rad_per_sqrt_sample": -1.0},
            {"noise_var_complex": math.nan},
            {"noise_var_complex": -1.0},
            {"iq_image_db": 3.0},
            {"dc_offset_dbfs": 0.5},
            {"pa_saturation": -1.0},
            {"pa_saturation": 1.0, "pa_smoothness": 0.0},
            {"dac_bits": 1},
            {"adc_bits": 99},
        ],
    )
    def test_impossible_circuits(self, wrong: dict[str, float]) -> None:
        with pytest.raises(AirdpError, match="expected"):
            FrontEnd(**wrong)  # type: ignore[arg-type]


class TestTime:
    def test_what_was_heard_cannot_be_changed(self) -> None:
        medium = air("a")
        medium.listen("rx", 100, 50)
        with pytest.raises(LateError, match="from sample 150 on"):
            medium.send("a", waveform(10), 149)
        with pytest.raises(LateError, match="150 are gone"):
            medium.listen("rx", 10, 149)
        medium.send("a", waveform(10), 150)
        with pytest.raises(LateError, match="from sample 160 on"):
            medium.send("a", waveform(10), 155)

    def test_two_receivers_hear_the_same_window_one_after_the_other(self) -> None:
        medium = air("a")
        medium.add_radio("second")
        medium.tune("second", SETTINGS)
        burst = waveform(1000)
        medium.send("a", burst, 0)
        for name in ("rx", "second"):
            assert np.array_equal(medium.listen(name, 1000, 0)[0], burst)

    def test_a_receiver_that_nobody_reads_loses_its_oldest_samples(self) -> None:
        medium = Medium(RATE_HZ, 1, history_samples=1000)
        for name in ("a", "rx", "idle"):
            medium.add_radio(name)
            medium.tune(name, SETTINGS)
        medium.send("a", waveform(3000), 0)
        medium.listen("rx", 3000, 0)
        with pytest.raises(RxOverflowError, match="lost samples 0 to 2000"):
            medium.listen("idle", 100, 1999)
        assert np.any(medium.listen("idle", 100, 2000)[0])

    def test_a_delayed_tail_survives_the_end_of_a_capture(self) -> None:
        medium = air("a", link=Link(delay_samples=20))
        burst = waveform(100)
        medium.send("a", burst, 0)
        got = np.concatenate([medium.listen("rx", 60, 0)[0], medium.listen("rx", 60, 60)[0]])
        assert np.array_equal(got[20:], burst)

    def test_the_clock_never_goes_back(self) -> None:
        medium = air("a")
        medium.advance("rx", 500)
        medium.advance("rx", 100)
        assert medium.now("a") == 500

    def test_names_and_settings_are_checked(self) -> None:
        medium = air("a")
        with pytest.raises(HardwareError, match="no radio 'nobody'"):
            medium.send("nobody", waveform(10), 0)
        with pytest.raises(HardwareError, match="two radios 'a'"):
            medium.add_radio("a")
        with pytest.raises(HardwareError, match="does not receive"):
            medium.listen("a", 10, 0)
        with pytest.raises(HardwareError, match="runs at 5e"):
            medium.tune("a", replace(SETTINGS, sample_rate_hz=1e6))
        medium.add_radio("untuned")
        with pytest.raises(HardwareError, match="configure it first"):
            medium.send("untuned", waveform(10), 0)
        for wrong in (0.0, math.nan):
            with pytest.raises(HardwareError, match="sample_rate_hz"):
                Medium(wrong, 1)
        with pytest.raises(HardwareError, match="history_samples"):
            Medium(RATE_HZ, 1, history_samples=0)


def test_memory_does_not_grow_with_the_number_of_links() -> None:
    """One burst of 100,000 samples is 0.8 MB; forty of them that were kept would be 32 MB more."""

    def peak(radios: int) -> int:
        names = [f"client-{number}" for number in range(radios)]
        medium = air(*names, link=Link(RayleighFading()), receiver=FrontEnd(noise_var_complex=0.01))
        burst = waveform(100_000)
        tracemalloc.start()
        for name in names:
            medium.send(name, burst, 0)
        medium.listen("rx", 100_000, 0)
        top = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return top

    few, many = peak(10), peak(50)
    assert many < 1.1 * few


def test_memory_does_not_grow_with_time() -> None:
    medium = air("a", receiver=FrontEnd(noise_var_complex=0.01))
    burst = waveform(50_000)
    tracemalloc.start()
    held = []
    for _ in range(10):
        start = medium.now("rx") + 1000
        medium.send("a", burst, start)
        medium.listen("rx", 50_000, start)
        held.append(tracemalloc.get_traced_memory()[0])
    tracemalloc.stop()
    assert held[-1] < held[1] + 200_000


def test_noise_is_addressed_and_not_consumed() -> None:
    noise = np.zeros(40_000, np.complex64)
    ThermalNoise(Randomness(3), "rx", 1.0).add(noise, 1000)
    piece = np.zeros(100, np.complex64)
    ThermalNoise(Randomness(3), "rx", 1.0).add(piece, 30_000)
    assert np.array_equal(noise[29_000:29_100], piece)
