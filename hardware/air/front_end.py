"""What a simulated radio's own circuits do to samples, on the way out and on the way in."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hardware.radio.errors import HardwareError
from phy.impairments import dc_offset, iq_imbalance, quantise, soft_limit
from phy.units import db_to_amplitude_ratio


@dataclass(frozen=True)
class FrontEnd:
    """Imperfections of one radio; all are off by default. Those of a direction apply to it alone.

    clock_ppm: how much faster than nominal its crystal is; it drives the sampling clock and both carriers.
    phase_noise_rad_per_sqrt_sample: standard deviation of the oscillator's phase step per sample.
    iq_image_db, dc_offset_dbfs: mirror image and carrier leakage, in both directions.
    pa_saturation: largest amplitude that the amplifier gives, 1.0 being full scale at 0 dB; it comes after the gain.
    dac_bits, adc_bits: resolution; None is an ideal converter, which has no limit either.
    noise_var_complex: thermal noise E|z|^2 per sample at the receiver's input.
    """

    clock_ppm: float = 0.0
    phase_noise_rad_per_sqrt_sample: float = 0.0
    iq_image_db: float | None = None
    dc_offset_dbfs: float | None = None
    pa_saturation: float | None = None
    pa_smoothness: float = 2.0
    dac_bits: int | None = None
    adc_bits: int | None = None
    noise_var_complex: float = 0.0

    def __post_init__(self) -> None:
        """Refuse values without a meaning."""
        for name in ("phase_noise_rad_per_sqrt_sample", "noise_var_complex"):
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise HardwareError(f"{name} is {value}: expected a finite number >= 0")
        if not abs(self.clock_ppm) <= 1000:
            raise HardwareError(f"clock_ppm is {self.clock_ppm}: expected -1000 to 1000, crystals are within +-100")
        # The functions themselves know which of the other values are possible.
        self.send(np.zeros(1, np.complex64), 0.0)
        self.receive(np.zeros(1, np.complex64), 0.0)

    @property
    def tx_step(self) -> float | None:
        """Distance of two levels of the transmit converter, full scale being 1; None where it is ideal."""
        return None if self.dac_bits is None else 1.0 / (2.0 ** (self.dac_bits - 1) - 1.0)

    def send(self, samples: NDArray[np.complex64], tx_gain_db: float) -> tuple[NDArray[np.complex64], float]:
        """DAC, mixer, gain, amplifier. Returns (samples, scale): what leaves is their product.

        The scale is apart so that a linear radio costs nothing: whoever adds the samples up multiplies anyway.
        """
        scale = db_to_amplitude_ratio(tx_gain_db)
        samples, _ = quantise(samples, self.dac_bits)
        samples = dc_offset(iq_imbalance(samples, self.iq_image_db), self.dc_offset_dbfs)
        if self.pa_saturation is None:
            return samples, scale
        return soft_limit(samples * np.float32(scale), self.pa_saturation, self.pa_smoothness), 1.0

    def receive(self, samples: NDArray[np.complex64], rx_gain_db: float) -> tuple[NDArray[np.complex64], int]:
        """Gain, mixer, ADC. Returns (samples, how many of them were beyond the ADC's full scale)."""
        if rx_gain_db != 0.0:
            samples = samples * np.float32(db_to_amplitude_ratio(rx_gain_db))
        samples = dc_offset(iq_imbalance(samples, self.iq_image_db), self.dc_offset_dbfs)
        digital, clipped_values = quantise(samples, self.adc_bits)
        if clipped_values == 0:
            return digital, 0
        beyond = np.maximum(np.abs(samples.real), np.abs(samples.imag)) > 1.0
        return digital, int(np.count_nonzero(beyond))
