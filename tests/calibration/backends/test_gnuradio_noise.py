"""Measurements of ours on noise and channels that GNU Radio made.

GNU Radio's `noise_voltage` and `ampl` v of complex noise are its root mean square: E|z|^2 = v^2, which is v^2 / 2 per
real coordinate. It means the same by "complex variance" as `noise_var_complex` here.

`channels.channel_model` takes its noise from `analog.fastnoise_source_c`: it draws 16,384 values once, from the seed,
and from then on picks among them at random, with repetition. However long the capture, its variance is that of these
values, which is off the nominal one by 0.8 % (one standard deviation, 1 / sqrt(16384)), and their I and Q are a little
unequal for good. A capture of more than some 16,000 samples shows that, as it should. Expected values are therefore
computed from the pool itself, which `samples()` of a source with the same seed returns. `analog.noise_source_c` draws
anew for each sample and has none of this.
"""

import math

import numpy as np
import pytest
from numpy.typing import NDArray

from calibration.links import LinkMeasurement, measure_sounding
from calibration.noise import NoiseMeasurement, measure_noise
from phy.estimation import estimate_channel
from phy.frame import SoundingFrame, sounding_cells, sounding_samples
from phy.impairments import rotate
from phy.modem import demodulate
from phy.numerology import Numerology
from phy.units import noise_var_complex_from_real
from tests.gnuradio_needed import needs_gnuradio, through
from tests.phy.signals import NEVER, WRONG, chi_square_p_value

pytestmark = needs_gnuradio
NUMEROLOGY = Numerology()
NOISE_VAR_REAL = 1e-4
CONFIDENCE = 0.999
SEED = 7
POOL = 16384
FAR = 6.0
"""Standard deviations that no right value is away."""

# Its resampler looks at 8 samples, the fourth of which is now: the signal comes 3 early, and the last 8 do not come.
MODEL_EARLY_SAMPLES, MODEL_SWALLOWS = 3, 8

Complex = NDArray[np.complex64]


def voltage(noise_var_real: float) -> float:
    return math.sqrt(noise_var_complex_from_real(noise_var_real))


def model_noise(fft_blocks: int, noise_var_real: float = NOISE_VAR_REAL) -> Complex:
    """Silence through `channel_model`, of so many FFT blocks."""
    from gnuradio import channels

    silence = np.zeros(fft_blocks * NUMEROLOGY.fft_size + MODEL_SWALLOWS, np.complex64)
    return through(silence, channels.channel_model(voltage(noise_var_real), 0.0, 1.0, [1.0], SEED))


def model_pool(noise_var_real: float = NOISE_VAR_REAL) -> NDArray[np.complex128]:
    """The values that `model_noise` picks from, without their mean: that is a DC offset and no noise."""
    from gnuradio import analog

    values = np.array(analog.fastnoise_source_c(analog.GR_GAUSSIAN, voltage(noise_var_real), SEED).samples())
    return values - values.mean()


def true_noise(fft_blocks: int, noise_var_real: float = NOISE_VAR_REAL) -> Complex:
    """Noise of `noise_source_c`, of so many FFT blocks."""
    from gnuradio import analog, blocks, gr

    graph, sink = gr.top_block(), blocks.vector_sink_c()
    source = analog.noise_source_c(analog.GR_GAUSSIAN, voltage(noise_var_real), SEED)
    graph.connect(source, blocks.head(gr.sizeof_gr_complex, fft_blocks * NUMEROLOGY.fft_size), sink)
    graph.run()
    return np.array(sink.data(), np.complex64)


def measured(capture: Complex) -> NoiseMeasurement:
    return measure_noise(capture, NUMEROLOGY, CONFIDENCE)


def accepts(measurement: NoiseMeasurement, noise_var_real: float) -> bool:
    return measurement.ci[0] <= noise_var_real <= measurement.ci[1]


def test_the_variance_of_gnuradios_noise_source_is_in_the_interval() -> None:
    """A million samples: the interval is 0.4 % to each side."""
    measurement = measured(true_noise(4096))
    assert accepts(measurement, NOISE_VAR_REAL)
    assert measurement.whiteness_p > NEVER
    assert measurement.impropriety.p_value > NEVER
    for wrong in (0.95, 0.99, 1.01, 1.05):
        assert not accepts(measurement, wrong * NOISE_VAR_REAL)


def test_other_noise_of_the_noise_source_is_rejected() -> None:
    for factor in (0.95, 1.05):
        assert not accepts(measured(true_noise(1024, factor * NOISE_VAR_REAL)), NOISE_VAR_REAL)


def test_a_factor_of_two_between_real_and_complex_is_rejected() -> None:
    measurement = measured(true_noise(16))
    assert accepts(measurement, NOISE_VAR_REAL)
    assert not accepts(measurement, noise_var_complex_from_real(NOISE_VAR_REAL))
    assert not accepts(measurement, NOISE_VAR_REAL / 2.0)


def test_the_channel_model_picks_its_noise_from_a_pool() -> None:
    """What this module's text says of it; a GNU Radio that does otherwise needs other expected values below."""
    from gnuradio import analog

    pool = np.array(analog.fastnoise_source_c(analog.GR_GAUSSIAN, voltage(NOISE_VAR_REAL), SEED).samples())
    assert pool.size == POOL
    capture = model_noise(256)
    assert capture.size == 256 * NUMEROLOGY.fft_size
    assert np.isin(capture, pool.astype(np.complex64)).all()
    off = float(np.mean(np.abs(pool) ** 2)) / noise_var_complex_from_real(NOISE_VAR_REAL) - 1.0
    assert 0.0 < abs(off) < FAR / math.sqrt(POOL)


def test_the_variance_of_the_channel_models_pool_is_in_the_interval() -> None:
    measurement = measured(model_noise(1024))
    expected = float(np.mean(np.abs(model_pool()) ** 2)) / 2.0
    assert accepts(measurement, expected)
    assert measurement.whiteness_p > NEVER
    for wrong in (0.95, 1.05, 2.0):
        assert not accepts(measurement, wrong * expected)


def test_a_channel_model_with_other_noise_is_rejected() -> None:
    expected = float(np.mean(np.abs(model_pool()) ** 2)) / 2.0
    for factor in (0.95, 1.05):
        measurement = measured(model_noise(1024, factor * NOISE_VAR_REAL))
        assert not accepts(measurement, expected)
        assert accepts(measurement, factor * expected)


def test_the_unequal_i_and_q_of_the_pool_are_measured() -> None:
    """Oracle: |sum z^2| / sum |z|^2 of the pool; its estimate has a standard deviation of sqrt(1 / values)."""
    pool = model_pool()
    expected = float(np.abs(np.mean(pool**2)) / np.mean(np.abs(pool) ** 2))
    impropriety = measured(model_noise(4096)).impropriety
    margin = FAR * math.sqrt(1.0 / impropriety.values)
    assert impropriety.size == pytest.approx(expected, abs=margin)
    assert margin < expected
    assert impropriety.p_value < NEVER


TAPS = (0.8, 0.0, 0.3j, 0.0, 0.0, -0.2 + 0.1j)
CFO_HZ = 1850.0
SYMBOLS = 8
FRAME = SoundingFrame(NUMEROLOGY, SYMBOLS)
LEAD = 1000
FRAME_BEGINS = LEAD - MODEL_EARLY_SAMPLES


@pytest.fixture(scope="module")
def sounding() -> Complex:
    """A sounding frame of ours between silences, through multipath and a frequency offset, 30 dB above the noise."""
    from gnuradio import channels

    silence = np.zeros(LEAD, np.complex64)
    sent = np.concatenate([silence, sounding_samples(FRAME), silence])
    cycles_per_sample = CFO_HZ / NUMEROLOGY.sample_rate_hz
    return through(sent, channels.channel_model(0.025, cycles_per_sample, 1.0, TAPS, SEED))


def response(taps: tuple[complex, ...]) -> NDArray[np.complex128]:
    """H[k] of the taps, first one at delay 0, in the phase that the frequency offset has amid the sounding symbols."""
    delays = np.arange(len(taps))
    channel = np.exp(-2j * np.pi * np.outer(NUMEROLOGY.used_frequencies, delays)) @ np.array(taps)
    middle = FRAME_BEGINS + FRAME.sounding_slice.start + SYMBOLS * NUMEROLOGY.symbol_samples // 2
    return np.asarray(channel * np.exp(2j * np.pi * CFO_HZ / NUMEROLOGY.sample_rate_hz * middle))


OTHER_TAPS = (*TAPS[:2], 1.05 * TAPS[2], *TAPS[3:])


def test_a_sounding_through_the_channel_model_gives_its_frequency_offset_and_delay(sounding: Complex) -> None:
    """The strongest path is the first; the others pull the peak of the band-limited response by less than 0.1."""
    link = measure_sounding(sounding, FRAME, expected_start_sample=FRAME_BEGINS)
    assert abs(link.delay_samples) < 0.1
    assert link.cfo_hz_std < 2.0
    assert abs(link.cfo_hz - CFO_HZ) < FAR * link.cfo_hz_std
    # Taken off by one in a hundred, it would not be found.
    assert abs(link.cfo_hz - 1.01 * CFO_HZ) > FAR * link.cfo_hz_std


def gains_p_value(link: LinkMeasurement, taps: tuple[complex, ...]) -> float:
    """Oracle: |error|^2 over the variance of a real component is chi-square with two degrees per subcarrier."""
    errors = np.asarray(link.gain_per_subcarrier) - response(taps)
    statistic = float(np.sum(np.abs(errors) ** 2)) / link.gain_per_subcarrier_std**2
    return chi_square_p_value(statistic, 2 * errors.size)


def test_the_gains_are_the_taps_frequency_response_within_their_uncertainty(sounding: Complex) -> None:
    link = measure_sounding(sounding, FRAME, expected_start_sample=FRAME_BEGINS)
    assert gains_p_value(link, TAPS) > NEVER
    assert gains_p_value(link, OTHER_TAPS) < WRONG
    assert link.residual_noise_var_real == pytest.approx(0.025**2 / 2.0, rel=0.15)


def test_the_denoised_channel_is_within_its_uncertainty(sounding: Complex) -> None:
    """The channel has 58 dimensions after denoising, so the mean square of the errors is 1 +- 1 / sqrt(58)."""
    begin = FRAME_BEGINS + FRAME.sounding_slice.start
    samples = sounding[begin : begin + SYMBOLS * NUMEROLOGY.symbol_samples]
    cycles_per_sample = CFO_HZ / NUMEROLOGY.sample_rate_hz
    cells = demodulate(rotate(samples, -cycles_per_sample, -(samples.size // 2)), NUMEROLOGY, 32)
    estimate = estimate_channel(cells, sounding_cells(NUMEROLOGY, SYMBOLS), NUMEROLOGY)
    errors = {
        taps: float(np.mean(np.abs(estimate.channel - response(taps)) ** 2 / estimate.channel_var))
        for taps in (TAPS, OTHER_TAPS)
    }
    assert 0.3 < errors[TAPS] < 1.0 + FAR / math.sqrt(58)
    assert errors[OTHER_TAPS] > 3.0
