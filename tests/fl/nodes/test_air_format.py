"""What all nodes agree on: levels from first principles, and frames that never meet."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.nodes.air_format import AirFormat
from phy.fading import circular_noise
from phy.modem import modulate
from phy.numerology import Numerology
from tests.fl.nodes.radios import NUMEROLOGY, SYMBOL


def test_the_quantile_covers_the_whole_band_at_once() -> None:
    """The error of an estimate is a response of at most 66 taps: white ones here, 4,000 draws at 8 times the bins. At
    0.9 it may be exceeded in 10 %, of which 0.5 % are a standard deviation. A q for one subcarrier, for a real
    Gaussian, or of zero is exceeded nearly always."""
    air = AirFormat(NUMEROLOGY, 100, confidence=0.9)
    q = air.error_quantile()
    taps = circular_noise(4000 * 66, 0.5, np.random.default_rng(1)).reshape(4000, 66) / np.sqrt(66)
    largest = np.abs(np.fft.fft(taps, 2048, axis=1)).max(axis=1)
    assert 0.0 < np.mean(largest > q) <= 0.1
    for wrong in (0.0, q / math.sqrt(2), math.sqrt(math.log(1 / 0.1))):
        assert np.mean(largest > wrong) > 0.5


@pytest.mark.parametrize("numerology", [NUMEROLOGY, Numerology(64, 16, 40), Numerology(512, 32, 500)])
def test_cells_at_the_energy_limit_have_the_agreed_rms(numerology: Numerology) -> None:
    """Unitary transforms: the mean of |x|^2 over the payload is payload_rms^2, whatever the subcarriers."""
    air = AirFormat(numerology, 3000, payload_rms=0.17, guard_samples=16 * numerology.fft_size)
    cells = circular_noise(air.grid.cells, 1.0, np.random.default_rng(1)).reshape(air.grid.symbols, -1)
    cells *= np.float32(math.sqrt(air.energy_limit) / np.linalg.norm(cells))
    samples = modulate(cells, air.payload_numerology)
    assert np.sqrt(np.mean(np.abs(samples) ** 2)) == pytest.approx(0.17, rel=1e-5)


@pytest.mark.parametrize("numerology", [NUMEROLOGY, Numerology(512, 32, 500)])
@pytest.mark.parametrize("payload_rms", [0.1, 0.2])
def test_jamming_at_its_limit_has_the_agreed_rms(numerology: Numerology, payload_rms: float) -> None:
    """alpha on each of I and Q: 2 alpha^2 per sample. 100,000 samples: the rms has a standard deviation of 0.16 %."""
    air = AirFormat(
        numerology, 150_000, payload_rms=payload_rms, guard_samples=16 * numerology.fft_size, quiet_samples=2**17
    )
    samples = air.jamming_limit * circular_noise(100_000, 1.0, np.random.default_rng(1))
    rms = float(np.sqrt(np.mean(np.abs(samples) ** 2)))
    assert rms == pytest.approx(payload_rms, rel=0.01)
    for wrong in (math.sqrt(2), math.sqrt(0.5), 1.03):
        assert rms != pytest.approx(wrong * payload_rms, rel=0.01)


def test_the_jammer_stays_where_gaussian_samples_do_not_clip() -> None:
    """P(|x| > 1) = exp(-1/rms^2). Clients may clip, which costs them accuracy; a jammer that clips protects less."""
    loud, normal = (AirFormat(NUMEROLOGY, 100, payload_rms=rms) for rms in (0.5, 0.2))
    assert loud.energy_limit == pytest.approx(6.25 * normal.energy_limit)
    assert loud.jamming_limit == normal.jamming_limit
    rms = loud.jamming_limit * math.sqrt(2)
    assert math.exp(-1 / rms**2) < 2e-11


@settings(max_examples=50, deadline=None, derandomize=True)
@given(transmitters=st.integers(1, 70), symbols=st.integers(2, 40), gap=st.integers(64, 600))
def test_soundings_stay_apart(transmitters: int, symbols: int, gap: int) -> None:
    """Each begins a gap after the one before has ended, none in the silence, and the phase ends after the last one."""
    air = AirFormat(NUMEROLOGY, 1000, sounding_symbols=symbols, gap_samples=gap)
    starts = [air.slot_start(slot) for slot in range(transmitters)]
    assert starts[0] >= air.quiet_samples
    assert all(later - earlier >= air.sounding.length + gap for earlier, later in itertools.pairwise(starts))
    assert air.sounding_phase_samples(transmitters) == starts[-1] + air.sounding.length + gap
    assert air.overhead_samples(transmitters) == (
        air.sounding_phase_samples(transmitters)
        + air.turnaround_samples
        + 2 * (air.guard_samples + air.payload.margin_samples)
    )


def test_the_payload_holds_all_coordinates() -> None:
    for coordinates in (1, 2, SYMBOL - 1, SYMBOL, SYMBOL + 1, 155_830):
        air = AirFormat(NUMEROLOGY, coordinates)
        assert 0 <= air.grid.symbols * SYMBOL - coordinates < SYMBOL
        payload = air.payload.payload_slice
        assert payload.stop - payload.start == air.grid.symbols * 4 * NUMEROLOGY.fft_size
        assert air.payload.length == payload.stop + air.payload.margin_samples + air.guard_samples


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sounding_symbols": 1}, "sounding_symbols is 1: expected 2 or more"),
        ({"payload_rms": 0.0}, "payload_rms is 0.0"),
        ({"payload_rms": 0.51}, "payload_rms is 0.51"),
        ({"payload_rms": math.nan}, "payload_rms is nan"),
        ({"confidence": 1.0}, "confidence is 1.0"),
        ({"confidence": 0.5}, "confidence is 0.5: expected above 0.5"),
        ({"confidence": math.nan}, "confidence is nan"),
        ({"gain_margin": 0.99}, "gain_margin is 0.99"),
        ({"gain_margin": math.inf}, "gain_margin is inf"),
        ({"gain_margin": math.nan}, "gain_margin is nan"),
        ({"noise_std_real_limit": 0.0}, "noise_std_real_limit 0.0"),
        ({"noise_std_real_limit": math.nan}, "noise_std_real_limit nan"),
        ({"early_samples": 64}, "early_samples is 64"),
        ({"early_samples": -1}, "early_samples is -1"),
        ({"quiet_samples": 4095}, "quiet_samples is 4095: too short to measure noise in, which takes 4096 samples"),
        ({"guard_samples": 2303}, "guard_samples is 2303: too short to measure noise in"),
        ({"numerology": Numerology(1024, 64, 700)}, "guard_samples is 4096: too short .* for symbols of 1024"),
    ],
)
def test_refused_formats(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AirFormat(**{"numerology": NUMEROLOGY, "coordinates": 100, **changes})
