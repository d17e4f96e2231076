"""The server: noise bounded from below, channels with the errors they are said to have, and no sounding by mistake."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from calibration.noise import BoundSource
from fl.nodes.air import AirFormat
from fl.nodes.messages import Sound
from fl.nodes.server import ServerNode, Soundings
from hardware.errors import CaptureError
from hardware.lab import find_lab
from hardware.samples import Capture
from phy.fading import circular_noise
from phy.frame import sounding_samples
from tests.fl.nodes.radios import NUMEROLOGY, SETTINGS, lab_of, opened, power_of, true_channel

AIR = AirFormat(NUMEROLOGY, 384, quiet_samples=8192, sounding_symbols=4)
NOISE_VAR_REAL = 5e-6
Noise = Callable[[int], NDArray[np.complex64]]


class Heard:
    """A receiver that hears soundings through flat channels of this gain, `late` samples late, and this noise."""

    def __init__(
        self,
        noise: Noise,
        air: AirFormat = AIR,
        *,
        gain: float = 1.0,
        late: int = 0,
        missing: int | None = None,
        lost: int = 0,
    ) -> None:
        self.name, self.noise, self.air = "ps", noise, air
        self.gain, self.late, self.missing, self.lost = np.float32(gain), late, missing, lost
        self.orders: list[int] = []

    def receive(self, count: int, start_sample: int) -> Capture:
        samples = self.noise(count - self.lost)
        frame = sounding_samples(self.air.sounding) * self.gain
        for order in self.orders:
            place = order - start_sample
            if 0 <= place <= count - frame.size:
                samples[place : place + frame.size] += frame
        return Capture(samples, start_sample, SETTINGS, 0)

    def send(self, slot: int, order: Sound) -> None:
        if slot != self.missing:
            self.orders.append(order.start_sample + self.late)


def white(seed: int) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda count: circular_noise(count, NOISE_VAR_REAL, rng)


def coloured(seed: int) -> Noise:
    """Through the filter [1, 0.5]: 9.5 dB between the centre and half the sampling rate."""
    rng = np.random.default_rng(seed)
    return lambda count: signal.lfilter([1, 0.5], [1], circular_noise(count + 1, NOISE_VAR_REAL, rng))[1:].astype(
        np.complex64
    )


def coloured_var_real() -> NDArray[np.float64]:
    """At each used subcarrier; the FFT of a block of 256 sees 255/256 of the correlation at lag one."""
    cosine = np.cos(2 * np.pi * NUMEROLOGY.used_frequencies)
    return np.asarray(NOISE_VAR_REAL * (1.25 + 2 * 0.5 * (255 / 256) * cosine))


def sounded(radio: Heard, names: tuple[str, ...] = ("a", "b"), shared_clock: bool = True) -> Soundings:
    receiver: Any = radio
    return ServerNode(receiver, radio.air, shared_clock, names).sound(10_000, radio.send)


@pytest.mark.parametrize("confidence", [0.6, 0.9])
def test_sigma_is_a_lower_bound_as_often_as_it_says(confidence: float) -> None:
    """200 silences of white noise: below the truth with the stated probability. Oracle: the binomial distribution, at
    1e-4 below the stated fraction; and not always, or the bound would be worthless."""
    air = replace(AIR, confidence=confidence)
    below = sum(sounded(Heard(white(seed), air), ("a",)).sigma.noise_var_real <= NOISE_VAR_REAL for seed in range(200))
    assert below >= stats.binom.ppf(1e-4, 200, confidence)
    assert below <= stats.binom.ppf(1 - 1e-4, 200, 1 - (1 - confidence) * 0.6)


def test_sigma_is_close_to_the_noise() -> None:
    """A bound far below would be safe and useless: within 3 % in standard deviation for 65,536 samples."""
    air = replace(AIR, quiet_samples=65536)
    ratios = [sounded(Heard(white(seed), air), ("a",)).sigma.noise_var_real / NOISE_VAR_REAL for seed in range(5)]
    assert all(0.94 < ratio < 1 for ratio in ratios)


def test_coloured_noise_protects_as_its_quietest_subcarrier_does() -> None:
    """Twenty captures: the bound is below the quietest subcarrier's true variance, which is far below the mean's. Used
    subcarriers only: the null bins beyond the band's edge are quieter still, and nothing lies on them."""
    truth = coloured_var_real()
    assert truth.min() < 0.45 * truth.mean()
    for seed in range(20):
        heard = sounded(Heard(coloured(seed), replace(AIR, quiet_samples=65536)), ("a",))
        assert heard.sigma.source is BoundSource.QUIETEST
        assert 0.55 * truth.min() < heard.sigma.noise_var_real <= truth.min()
        assert heard.noise.noise_var_real > 2 * heard.sigma.noise_var_real
        assert heard.sigma.bin in NUMEROLOGY.used_bins


@pytest.mark.parametrize("lab", ["flat", "selective", "free"])
def test_channel_errors_have_the_variance_that_is_said(lab: str) -> None:
    """|H^ - H|^2 / channel_var is exponential with mean 1 where noise is all there is. Errors of one sounding are
    correlated over subcarriers, so one subcarrier of each is tested; and the mean over all, whose effective number of
    independent values is the rank 58 of 192. Rejected where the variance is off by a factor of two."""
    medium: dict[str, Any] = {
        "flat": {"fading": "rayleigh"},
        "selective": {"fading": "rayleigh", "taps": [[0, 0.0], [3, -6.0], [7, -10.0]], "max_delay_samples": 20.0},
        "free": {"fading": "rayleigh", "max_clock_ppm": 1.0},
    }[lab]
    made = lab_of("free-running" if lab == "free" else "shared", noise_var_complex=1e-3, **medium)
    power = power_of(alpha_u=0.01, max_phase_error_rad=9.0)
    ratios = []
    for seed in range(1, 5):
        with opened(made, 384, seed=seed, power=power, quiet_samples=8192) as up:
            for number in range(1, 6):
                up.plan(number)
                assert up._round is not None
                for client, state in enumerate(up._round.soundings.states):
                    error = state.channel - true_channel(up.lab, f"client-{client + 1}")
                    if lab == "free":
                        # The phase between two oscillators at the reference is not the link's: the best one is taken,
                        # and costs one of the 2 x 58 degrees of freedom.
                        truth = true_channel(up.lab, f"client-{client + 1}")
                        delay = np.unwrap(np.angle(state.channel / truth))
                        fit = np.polyfit(NUMEROLOGY.used_frequencies, delay, 1, w=np.abs(truth))
                        error = state.channel - truth * np.exp(1j * np.polyval(fit, NUMEROLOGY.used_frequencies))
                    ratios.append(np.abs(error) ** 2 / state.channel_var)
    values = np.array(ratios)
    assert values.shape == (100, 192)
    assert values.mean() == pytest.approx(1, abs=0.06)
    if lab != "free":
        one = values[:, 96]
        assert stats.kstest(one, "expon").pvalue > 1e-3
        for wrong in (2.0, 0.5):
            assert stats.kstest(one * wrong, "expon").pvalue < 1e-3


def test_a_missing_sounding_is_named() -> None:
    """Nothing but noise in one slot, or a transmitter too weak to be told from it."""
    for shared_clock in (True, False):
        with pytest.raises(CaptureError, match=r"sounding of 'b' was not found: is it on"):
            sounded(Heard(white(1), missing=1), ("a", "b", "c"), shared_clock)
        with pytest.raises(CaptureError, match=r"sounding of 'a' was not found: is it on"):
            sounded(Heard(white(1), gain=1e-4), shared_clock=shared_clock)


@pytest.mark.parametrize("late", [-60, 60, 100, 127])
def test_a_sounding_outside_of_the_prefix_is_refused(late: int) -> None:
    """A shared clock puts slots where they should be. One that is elsewhere would be taken for another channel: the
    same from symbol to symbol and wrong, in its gain too."""
    radio = Heard(white(1), late=late)
    with pytest.raises(CaptureError, match=r"sounding of 'a' is not that of a channel within the prefix"):
        sounded(radio)


@pytest.mark.parametrize("late", [0, 20, 55])
def test_delays_within_the_prefix_are_part_of_the_channel(late: int) -> None:
    radio = Heard(white(1), late=late)
    for state in sounded(radio).states:
        expected = np.exp(-2j * np.pi * NUMEROLOGY.used_frequencies * late)
        np.testing.assert_allclose(state.channel, expected, atol=0.02)


@pytest.mark.parametrize("late", [-128, -50, 0, 50, 128])
def test_free_counters_are_found_within_half_a_gap(late: int) -> None:
    radio = Heard(white(1), late=late)
    heard = sounded(radio, shared_clock=False)
    assert [state.offset_samples for state in heard.states] == [late, late]
    for slot, state in enumerate(heard.states):
        np.testing.assert_allclose(np.abs(state.channel), 1, atol=0.02)
        middle = AIR.sounding.sounding_slice.start + AIR.sounding_symbols * NUMEROLOGY.symbol_samples // 2
        assert state.reference_sample == 10_000 + AIR.slot_start(slot) + late + middle


@pytest.mark.parametrize("late", [-400, -256, -180, 180, 256, 400])
def test_free_counters_beyond_that_are_refused(late: int) -> None:
    """A preamble of two halves, cut in the middle, must not be taken for a whole one that starts elsewhere."""
    radio = Heard(white(1), late=late)
    with pytest.raises(CaptureError, match="sounding of 'a'"):
        sounded(radio, shared_clock=False)


def test_an_amplifier_that_saturates_is_refused() -> None:
    """Soundings at full scale would show less gain than the quieter payload has, and the bound would be broken."""
    power = power_of(alpha_u=0.01, attempts=1)
    with (
        opened(lab_of(pa_saturation=1.0), 384, power=power, quiet_samples=8192) as up,
        pytest.raises(CaptureError, match="its amplifier saturates"),
    ):
        up.plan(1)
    with opened(lab_of(pa_saturation=5.0), 384, power=power, quiet_samples=8192) as up:
        assert up.plan(1).postponed == 0


def test_shipped_labs_are_never_refused_by_mistake() -> None:
    """Multipath, I/Q images, DC, quantisation and drifting clocks are part of what a sounding may show."""
    for name in ("loopback", "loopback-harsh", "loopback-free-clock"):
        for seed in (1, 2, 3):
            power = power_of(alpha_u=0.01, attempts=1)
            with opened(find_lab(name), 384, seed=seed, power=power, quiet_samples=8192) as up:
                for number in range(1, 9):
                    assert up.plan(number).postponed == 0


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        (lambda samples: samples * 0, "all zero"),
        (lambda samples: np.where(np.arange(samples.size) == 5000, np.nan, samples), "NaN"),
        (lambda samples: np.sign(samples.real) + 0j, "saturated"),
        (lambda samples: samples * np.where(np.arange(samples.size) < 4096, 1, 3), "stationary|relied on"),
    ],
    ids=["dead", "NaN", "saturated", "bursty"],
)
def test_silences_that_show_no_noise_are_refused(
    broken: Callable[[NDArray[np.complex64]], NDArray[Any]], message: str
) -> None:
    source = white(1)
    radio = Heard(lambda count: broken(source(count)).astype(np.complex64))
    with pytest.raises(CaptureError, match=message):
        sounded(radio)


def test_a_capture_that_is_too_short_is_refused() -> None:
    with pytest.raises(CaptureError, match="8191 samples: expected at least 8192"):
        sounded(Heard(white(1), lost=1))


def test_timeline_shows_silence_and_soundings() -> None:
    """Mean |x|^2 of blocks: noise before the first slot, soundings at their level from there on."""
    heard = sounded(Heard(white(1)))
    quiet, first = AIR.quiet_samples // 64, AIR.slot_start(0) // 64
    assert np.nanmean(heard.power[:quiet]) == pytest.approx(2 * NOISE_VAR_REAL, rel=0.1)
    level = float(np.mean(np.abs(sounding_samples(AIR.sounding)) ** 2))
    assert np.nanmean(heard.power[first + 2 : first + 20]) == pytest.approx(level, rel=0.1)
    assert math.isfinite(level)
