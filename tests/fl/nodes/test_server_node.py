"""The server: noise bounded from below, channels with the errors they are said to have, and no sounding by mistake."""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import signal, stats

from calibration.noise import BoundSource
from fl.nodes.air_format import AirFormat
from fl.nodes.coordinator import LEAST_BEYOND, _comparable
from fl.nodes.link import InProcessLink, Node
from fl.nodes.messages import Check, Message, Sent, Sound
from fl.nodes.precoding import relative_gain_upper
from fl.nodes.server import ServerNode
from fl.nodes.soundings.conversation import Soundings, sound
from fl.uplink.contract import NotSentError
from hardware.lab.file import find_lab
from hardware.radio.errors import CaptureError
from hardware.radio.samples import Capture
from phy.fading import circular_noise
from phy.frame import sounding_samples
from phy.inversion import band_numerology
from phy.numerology import Numerology
from tests.fl.nodes.radios import BAND, NUMEROLOGY, SETTINGS, lab_of, opened, power_of, true_channel

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

    def send(self, slot: int, order: Sound) -> Sent:
        if slot != self.missing:
            self.orders.append(order.start_sample + self.late)
        return Sent(0)


@dataclass(frozen=True)
class Sounder:
    """A transmitter that the receiver will hear."""

    radio: Heard
    slot: int

    def answer(self, message: Message[Any]) -> Any:
        if isinstance(message, Check):
            return None
        assert isinstance(message, Sound)
        return self.radio.send(self.slot, message)


def white(seed: int) -> Noise:
    rng = np.random.default_rng(seed)
    return lambda count: circular_noise(count, NOISE_VAR_REAL, rng)


def coloured(seed: int) -> Noise:
    """Through the filter [1, 0.5]: 9.5 dB between the centre and half the sampling rate."""
    rng = np.random.default_rng(seed)
    return lambda count: signal.lfilter([1, 0.5], [1], circular_noise(count + 1, NOISE_VAR_REAL, rng))[1:].astype(
        np.complex64
    )


def coloured_var_real(numerology: Numerology) -> NDArray[np.float64]:
    """At each used subcarrier; the FFT of a block of 256 sees 255/256 of the correlation at lag one."""
    cosine = np.cos(2 * np.pi * numerology.used_frequencies)
    return np.asarray(NOISE_VAR_REAL * (1.25 + 2 * 0.5 * (255 / 256) * cosine))


def sounded(radio: Heard, names: tuple[str, ...] = ("a", "b"), shared_clock: bool = True) -> Soundings:
    receiver: Any = radio
    nodes: dict[str, Node] = {name: Sounder(radio, slot) for slot, name in enumerate(names)}
    link = InProcessLink({**nodes, "ps": ServerNode(receiver, radio.air, shared_clock, names)})
    return sound(link, "ps", names, radio.air, 10_000)


def test_sigma_is_below_the_noise_and_close_to_it() -> None:
    """A bound far below would be safe and useless: within 6 % in standard deviation after a first silence of 2^20."""
    air = replace(AIR, quiet_samples=65536, first_quiet_samples=2**20)
    ratios = [sounded(Heard(white(seed), air), ("a",)).sigma.noise_var_real / NOISE_VAR_REAL for seed in range(5)]
    assert all(0.87 < ratio < 1 for ratio in ratios)


@pytest.mark.parametrize("first", [0, 2**19])
def test_coloured_noise_protects_as_its_quietest_subcarrier_does(first: int) -> None:
    """Twenty captures: the bound is below the quietest subcarrier's true variance, which is far below the mean's. The
    transition bands count, because a payload's sidelobes lie there; beyond them the noise is quieter still, which the
    other bound is for."""
    band = band_numerology(NUMEROLOGY)
    truth, everywhere = coloured_var_real(band), coloured_var_real(AIR.sounding_numerology).min()
    assert truth.min() < 0.4 * truth.mean()
    assert truth.min() < 0.9 * coloured_var_real(NUMEROLOGY).min()
    air = replace(AIR, quiet_samples=65536, first_quiet_samples=first)
    for seed in range(20):
        heard = sounded(Heard(coloured(seed), air), ("a",))
        assert heard.sigma.source is BoundSource.POOL
        assert (0.82 if first else 0.55) * truth.min() < heard.sigma.noise_var_real <= truth.min()
        assert heard.noise.noise_var_real > 2 * heard.sigma.noise_var_real
        assert heard.sigma.bin in band.used_bins
        assert (0.82 if first else 0.5) * everywhere < heard.sigma_everywhere.noise_var_real <= everywhere


def test_a_payload_goes_without_a_filter_only_where_noise_is_beyond_the_band_too() -> None:
    air = replace(AIR, quiet_samples=65536, first_quiet_samples=2**19)
    heard = sounded(Heard(white(1), air), ("a",))
    assert heard.states[0].flat is not None
    assert heard.sigma_everywhere.noise_std_real > LEAST_BEYOND * heard.sigma.noise_std_real
    plain = _comparable(heard, None)
    assert plain.states[0].flat is not None
    assert plain.sigma.noise_var_real == min(heard.sigma.noise_var_real, heard.sigma_everywhere.noise_var_real)
    quieter = sounded(Heard(coloured(1), air), ("a",))
    filtered = _comparable(replace(quieter, states=heard.states), None)
    assert filtered.states[0].flat is None
    assert filtered.sigma is quieter.sigma


def test_the_channel_beyond_the_band_is_sounded_and_charged() -> None:
    state = sounded(Heard(white(2), gain=0.7), ("a",)).states[0]
    assert state.beyond is not None
    # The largest of 46, each with an error of beyond_std.
    assert 0.7 < state.beyond < 0.7 + 5 * state.beyond_std
    assert state.beyond_std == pytest.approx(math.sqrt(2 * NOISE_VAR_REAL / (4 * 0.55)), rel=0.3)
    filtered = replace(state, flat=None)
    charged = relative_gain_upper(filtered, AIR)
    assert relative_gain_upper(replace(filtered, beyond=1e6), AIR) > 1.5 * charged


def server_of(noise: Noise, *, remembers: bool = True, first: int = 2**18) -> ServerNode:
    radio: Any = Heard(noise, replace(AIR, first_quiet_samples=first))
    return ServerNode(radio, radio.air, shared_clock=True, names=("a",), remembers=remembers)


def test_silences_of_all_uplinks_are_pooled() -> None:
    """The first silence takes longer and says so; each later one adds to the pool, and the bound to the noise."""
    server = server_of(white(3))
    silences = [server.measure_silence(0)]
    # One silence of 8,192, then quarters of 2^18 until there are 2^18; the uplink's own is the last 8,192 of them.
    assert silences[0].start_sample == 4 * 2**16
    assert silences[0].power.size == AIR.quiet_samples // 64
    for number in range(1, 65):
        silences.append(server.measure_silence(10**6 * number))
        assert silences[-1].start_sample == 10**6 * number
    assert f"{2**10 + 32 + 64 * 32} blocks" in silences[-1].sigma.reason
    shape = [silence.sigma.noise_var_real / silence.noise.noise_var_real for silence in silences[1:]]
    assert np.mean(shape[-8:]) > np.mean(shape[:8]) + 0.02
    assert all(silence.sigma.noise_var_real <= NOISE_VAR_REAL for silence in silences)


def test_noise_that_has_changed_begins_a_new_pool() -> None:
    server = server_of(white(4))
    server.measure_silence(0)
    radio: Any = server.radio
    quiet = white(5)
    radio.noise = lambda count: quiet(count) * np.float32(0.7)
    heard = server.measure_silence(10**6)
    assert heard.start_sample == 10**6 + 4 * 2**16
    assert f"{2**10 + 32} blocks" in heard.sigma.reason
    assert heard.sigma.noise_var_real <= 0.49 * NOISE_VAR_REAL


def test_noise_that_keeps_changing_is_refused() -> None:
    rng = np.random.default_rng(6)
    levels = iter(range(1000))
    server = server_of(lambda count: circular_noise(count, NOISE_VAR_REAL * 1.5 ** next(levels), rng))
    with pytest.raises(CaptureError, match="keeps changing"):
        server.measure_silence(0)


def test_without_memory_an_uplink_depends_on_nothing_before_it() -> None:
    """As in simulated time: what was heard ahead and the uplink's own silence, however many came in between."""
    noise = circular_noise(2**19, NOISE_VAR_REAL, np.random.default_rng(7))

    def bound(between: int) -> float:
        server = server_of(white(8), remembers=False)
        radio: Any = server.radio
        radio.noise = lambda count: noise[:count].copy()
        server.listener.listen_ahead(0)
        for number in range(between):
            later = white(100 + number)
            radio.noise = later
            server.measure_silence(10**6 * number)
        radio.noise = lambda count: noise[-count:].copy()
        return server.measure_silence(10**9).sigma.noise_var_real

    assert bound(0) == bound(3)


@pytest.mark.parametrize("lab", ["flat", "selective", "free"])
def test_channel_errors_have_the_variance_that_is_said(lab: str) -> None:
    """|H^ - H|^2 / channel_var is exponential with mean 1 where noise is all there is. Errors of one sounding are
    correlated over subcarriers, so one subcarrier of each is tested; and the mean over all, whose effective number of
    independent values is the rank 62 of 208. Rejected where the variance is off by a factor of two."""
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
                        # and costs one of the 2 x 62 degrees of freedom.
                        truth = true_channel(up.lab, f"client-{client + 1}")
                        delay = np.unwrap(np.angle(state.channel / truth))
                        fit = np.polyfit(BAND.used_frequencies, delay, 1, w=np.abs(truth))
                        error = state.channel - truth * np.exp(1j * np.polyval(fit, BAND.used_frequencies))
                    ratios.append(np.abs(error) ** 2 / state.channel_var)
    values = np.array(ratios)
    assert values.shape == (100, 208)
    assert values.mean() == pytest.approx(1, abs=0.06)
    if lab != "free":
        one = values[:, 104]
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
        expected = np.exp(-2j * np.pi * BAND.used_frequencies * late)
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
        pytest.raises(NotSentError, match="its amplifier saturates"),
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
    level = float(np.mean(np.abs(sounding_samples(AIR.sounding)[AIR.sounding.sounding_slice]) ** 2))
    assert np.nanmean(heard.power[first + 2 : first + 20]) == pytest.approx(level, rel=0.1)
    assert math.isfinite(level)
