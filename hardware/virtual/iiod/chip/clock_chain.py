"""Rates along both paths of an AD9361, from the PLL to the samples, as the kernel's driver chooses them.

The converters run at a multiple of the rate after the FIR filters, halved or divided by three from stage to stage
(`ad9361_calculate_rf_clock_chain`). The governor decides which multiple is tried first.
"""

from dataclasses import dataclass

HIGHEST_OSR = "highest_osr"
# Multiple of the converter, then the three divisors: R2, R1 and RF, or T2, T1 and TF.
_ROWS = ((12, 3, 2, 2), (8, 2, 2, 2), (6, 3, 1, 2), (4, 2, 2, 1), (3, 3, 1, 1), (2, 2, 1, 1), (1, 1, 1, 1))
_DIVISORS = {row[0]: row[1:] for row in _ROWS}
# 25 MHz, but for the part of a hertz by which the driver rounds the lowest rate that it offers: 520833 with filters.
_ADC_HZ = (24_999_984, 640_000_000)
_HIGHEST_DAC_HZ = 320_000_000
_HIGHEST_PLL_HZ, _LARGEST_PLL_DIVISOR = 1_430_000_000, 64


@dataclass(frozen=True)
class ClockChain:
    """rx: rates of the ADC, R2, R1, RF and the samples; tx: of the DAC, T2, T1, TF and the samples."""

    pll_hz: int
    rx: tuple[int, ...]
    tx: tuple[int, ...]

    def said(self) -> tuple[str, str]:
        """As `rx_path_rates` and `tx_path_rates` have it."""
        names = ("ADC", "R2", "R1", "RF", "RXSAMP"), ("DAC", "T2", "T1", "TF", "TXSAMP")
        paths = [
            " ".join(
                f"{name}:{rate_hz}" for name, rate_hz in zip(("BBPLL", *named), (self.pll_hz, *rates), strict=True)
            )
            for named, rates in zip(names, (self.rx, self.tx), strict=True)
        ]
        return paths[0], paths[1]


BOOTED = ClockChain(
    983_040_000,
    (245_760_000, 122_880_000, 61_440_000, 30_720_000, 30_720_000),
    (122_880_000, 122_880_000, 61_440_000, 30_720_000, 30_720_000),
)
"""As the device tree has it (`adi,rx-path-clock-frequencies`, `adi,tx-path-…`), until a rate is set."""


def clock_chain(rate_hz: int, rx_factor: int, tx_factor: int, governor: str) -> ClockChain | None:
    """Of a sample rate, with FIR filters that decimate and interpolate by these factors; None where there is none."""
    at_filters_hz = rate_hz * rx_factor
    highest = governor == HIGHEST_OSR or at_filters_hz * _ROWS[1][0] < _ADC_HZ[0]
    for multiple, *divisors in _ROWS[0 if highest else 1 :]:
        adc_hz = at_filters_hz * multiple
        dac_hz = adc_hz if adc_hz <= _HIGHEST_DAC_HZ else adc_hz // 2
        of_dac, rest = divmod(dac_hz, rate_hz * tx_factor)
        if _ADC_HZ[0] <= adc_hz <= _ADC_HZ[1] and not rest and of_dac in _DIVISORS:
            return ClockChain(
                _pll_hz(adc_hz), (*_divided(adc_hz, divisors), rate_hz), (*_divided(dac_hz, _DIVISORS[of_dac]), rate_hz)
            )
    return None


def _pll_hz(adc_hz: int) -> int:
    divisor = _LARGEST_PLL_DIVISOR
    while adc_hz * divisor > _HIGHEST_PLL_HZ:
        divisor //= 2
    return adc_hz * divisor


def _divided(rate_hz: int, divisors: tuple[int, ...] | list[int]) -> list[int]:
    rates = [rate_hz]
    for divisor in divisors:
        rates.append(rates[-1] // divisor)
    return rates
