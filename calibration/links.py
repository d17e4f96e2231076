"""One transmitter's way to the receiver, from its sounding: complex gain, delay, carrier frequency offset.

Model of the demodulated sounding, S symbols of K subcarriers with known pilots P and signed subcarrier numbers k:

    Y[s,k] = H[k] P[s,k] exp(j w (s - (S-1)/2)) + Z[s,k],    H[k] ~ g exp(-j 2 pi k tau / N)

w is the phase that a frequency offset adds per symbol. Gains refer to the middle of the sounding, where their errors
and that of w are uncorrelated. They are plain least squares: a calibration does not presuppose how long the channel
is, as the denoising of `phy.estimation` does. Every value comes with its standard uncertainty, from the noise that the
model leaves unexplained.
"""

import math

import numpy as np
from numpy.typing import NDArray

from calibration.errors import MeasurementError
from calibration.schema import Complex, measurement
from calibration.statistics import check_probability
from phy.estimation import delay_estimate, residual_cfo
from phy.frame import SoundingFrame, sounding_cells
from phy.impairments import rotate
from phy.modem import demodulate
from phy.numerology import Numerology
from phy.sync import detect
from phy.units import noise_var_real_from_complex, power_ratio_to_db

_LOWEST_SNR_DB = -10.0
# Below the rounding of samples: keeps a simulation without any noise from dividing by zero.
_LEAST_POWER = 1e-30


@measurement
class LinkMeasurement:
    """What a sounding says about one link. `_std` are standard uncertainties; of gains, per real component.

    gain: amplitude and phase of the flat part, over all subcarriers with the delay's slope taken out; |gain| and the
    phase in radians have the uncertainties gain_std and gain_std/|gain|. gain_per_subcarrier: (used,) with the slope in
    it, as a precoder needs it; all have the same uncertainty. delay_samples: positive is late; of the strongest path
    where there are several. residual_noise_var_real: what the model leaves unexplained; above the receiver's noise
    where there is phase noise, clipping or interference. It is no measure of privacy.
    """

    transmitter: str
    gain: Complex
    gain_std: float
    gain_per_subcarrier: tuple[Complex, ...]
    gain_per_subcarrier_std: float
    delay_samples: float
    delay_samples_std: float
    cfo_hz: float
    cfo_hz_std: float
    snr_db: float
    symbols: int
    residual_noise_var_real: float

    def __post_init__(self) -> None:
        """Refuse uncertainties and sizes that cannot be."""
        if not self.gain_per_subcarrier:
            raise MeasurementError(f"link '{self.transmitter}' has no gains: expected one for each subcarrier")
        for name in ("gain_std", "gain_per_subcarrier_std", "delay_samples_std", "cfo_hz_std"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise MeasurementError(f"link '{self.transmitter}': {name} = {value}: expected a finite number >= 0")


def measure_link(
    cells: NDArray[np.complex64],
    pilots: NDArray[np.complex64],
    numerology: Numerology,
    transmitter: str = "",
    coarse_delay_samples: float = 0.0,
    coarse_cfo_hz: float = 0.0,
) -> LinkMeasurement:
    """Measure one link on its demodulated sounding: cells (S, K), pilots (S, K) of one modulus, S >= 2.

    coarse_delay_samples, coarse_cfo_hz: what was corrected before demodulation; they are added to what is found, which
    must lie within half an FFT length and within half a turn per symbol. Raises `MeasurementError` for shapes that do
    not fit, values that are not finite and a sounding below the noise.
    """
    _check(cells, pilots, numerology)
    symbols, subcarriers = cells.shape
    frequency = residual_cfo(cells, pilots, numerology)
    cfo = float(frequency.cfo_cycles_per_sample)
    derotated = cells * _derotation(cfo, symbols, numerology)
    energy = float(np.sum(np.abs(pilots.astype(np.complex128)) ** 2)) / subcarriers
    gains = np.sum(derotated * pilots.conj(), axis=0, dtype=np.complex128) / energy
    unexplained = float(np.sum(np.abs(derotated - pilots * gains) ** 2))
    noise_var_complex = max(unexplained / (symbols * subcarriers - subcarriers - 0.5), _LEAST_POWER)
    # The squares of the gains hold their own noise, which is taken off.
    signal = float(np.mean(np.abs(gains) ** 2)) - noise_var_complex / energy
    snr_db = power_ratio_to_db(signal * energy / symbols / noise_var_complex)
    if snr_db < _LOWEST_SNR_DB:
        raise MeasurementError(
            f"the sounding of '{transmitter}' is {snr_db:.1f} dB above the noise: expected {_LOWEST_SNR_DB:.0f} dB or "
            "more; is it transmitting, in its own slot, with enough gain?"
        )
    delay = delay_estimate(gains.astype(np.complex64), numerology, noise_var_complex / energy)
    slope = np.exp(2j * np.pi * numerology.used_frequencies * float(delay.delay_samples))
    gain_std = math.sqrt(noise_var_real_from_complex(noise_var_complex) / energy)
    return LinkMeasurement(
        transmitter=transmitter,
        gain=complex(np.mean(gains * slope)),
        gain_std=gain_std / math.sqrt(subcarriers),
        gain_per_subcarrier=tuple(gains.tolist()),
        gain_per_subcarrier_std=gain_std,
        delay_samples=coarse_delay_samples + float(delay.delay_samples),
        # The gains' own noise makes them look stronger than they are.
        delay_samples_std=float(delay.std_samples) * math.sqrt(1.0 + noise_var_complex / (signal * energy)),
        cfo_hz=coarse_cfo_hz + cfo * numerology.sample_rate_hz,
        cfo_hz_std=float(frequency.std_cycles_per_sample) * numerology.sample_rate_hz,
        snr_db=snr_db,
        symbols=symbols,
        residual_noise_var_real=noise_var_real_from_complex(noise_var_complex),
    )


def measure_sounding(
    samples: NDArray[np.complex64], frame: SoundingFrame, transmitter: str = "", expected_start_sample: float = 0.0
) -> LinkMeasurement:
    """Find a sounding frame in the capture of its slot, samples (n,), and measure the link on it.

    expected_start_sample: index in `samples` at which the frame would begin without delay. Gains refer to the middle of
    the sounding symbols. Raises `MeasurementError` where there is no frame, or not all of it.
    """
    numerology = frame.numerology
    found = detect(samples, numerology)
    if found is None:
        raise MeasurementError(
            f"no sounding of '{transmitter}' in {samples.size} samples: is it transmitting, in its own slot, with "
            "enough gain?"
        )
    begin, end = (found.start_sample + edge for edge in (frame.sounding_slice.start, frame.sounding_slice.stop))
    if end > samples.size:
        raise MeasurementError(
            f"the sounding of '{transmitter}' begins at sample {found.start_sample} and ends at {end}, after the "
            f"capture's {samples.size} samples: capture for longer"
        )
    # Windows begin inside the prefix, clear of the next symbol; the rotation is none in the middle of all windows.
    window_start = numerology.cp_samples // 2
    middle = frame.symbols * numerology.symbol_samples // 2
    steady = rotate(samples[begin:end], -found.cfo_cycles_per_sample, -middle)
    return measure_link(
        demodulate(steady, numerology, window_start),
        sounding_cells(numerology, frame.symbols),
        numerology,
        transmitter,
        coarse_delay_samples=found.start_sample - expected_start_sample,
        coarse_cfo_hz=found.cfo_cycles_per_sample * numerology.sample_rate_hz,
    )


def gain_upper_bound(link: LinkMeasurement, confidence: float = 0.95) -> NDArray[np.float64]:
    """Amplitudes (used,) that |H[k]| does not exceed on any subcarrier, with probability `confidence` or more.

    |H| <= |H_hat| + |e| with e circular Gaussian, P(|e| > r) = exp(-r^2 / (2 std^2)); Bonferroni over the subcarriers.
    This is what a sensitivity may be computed from: it errs to the large side.
    """
    check_probability("confidence", confidence)
    amplitudes = np.abs(np.asarray(link.gain_per_subcarrier))
    radius = math.sqrt(2.0 * math.log(amplitudes.size / (1.0 - confidence)))
    return np.asarray(amplitudes + radius * link.gain_per_subcarrier_std)


def residual_phase(
    cells: NDArray[np.complex64],
    pilots: NDArray[np.complex64],
    numerology: Numerology,
    link: LinkMeasurement,
    coarse_cfo_hz: float = 0.0,
) -> NDArray[np.float64]:
    """Common phase in radians (S,) that each symbol still has after the link's gains and frequency offset."""
    _check(cells, pilots, numerology)
    cfo = (link.cfo_hz - coarse_cfo_hz) / numerology.sample_rate_hz
    derotated = cells * _derotation(cfo, len(cells), numerology)
    expected = pilots * np.asarray(link.gain_per_subcarrier)
    return np.asarray(np.angle(np.sum(derotated * expected.conj(), axis=1)))


def _derotation(cfo_cycles_per_sample: float, symbols: int, numerology: Numerology) -> NDArray[np.complex128]:
    """Phasors (S, 1) that undo a frequency offset, 1 in the middle of the sounding."""
    samples = (np.arange(symbols) - (symbols - 1) / 2.0) * numerology.symbol_samples
    return np.asarray(np.exp(-2j * np.pi * cfo_cycles_per_sample * samples)[:, None])


def _check(cells: NDArray[np.complex64], pilots: NDArray[np.complex64], numerology: Numerology) -> None:
    if cells.ndim != 2 or cells.shape[1] != numerology.data_subcarriers or cells.shape[0] < 2:
        raise MeasurementError(
            f"sounding cells have the shape {cells.shape}: expected (S, {numerology.data_subcarriers}) with S >= 2"
        )
    if pilots.shape != cells.shape:
        raise MeasurementError(f"pilots have the shape {pilots.shape}: expected that of the cells, {cells.shape}")
    if not (np.all(np.isfinite(cells)) and np.all(np.isfinite(pilots))):
        raise MeasurementError("a sounding cell or a pilot is NaN or infinite: the capture cannot be used")
    moduli = np.abs(pilots)
    if not (moduli.min() > 0 and np.allclose(moduli, moduli.mean(), rtol=1e-3)):
        raise MeasurementError("pilots differ in modulus or are zero: expected those of phy.frame.sounding_cells")
