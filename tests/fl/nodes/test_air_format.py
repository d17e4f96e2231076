"""What all nodes agree on: levels from first principles, and frames that never meet."""

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.nodes.air import AirFormat
from phy.fading import circular_noise
from phy.modem import modulate
from phy.numerology import Numerology
from tests.fl.nodes.radios import NUMEROLOGY, SYMBOL


def test_the_quantile_covers_all_subcarriers_at_once() -> None:
    """P(|e_k| > q for any of U independent e_k ~ CN(0, 1)) = 1 - (1 - exp(-q^2))^U, at most and nearly 1 - confidence.

    Simulated with 4,000 draws: at 0.9 the true value is 0.0952, its standard deviation 0.0046. A q for a real Gaussian,
    for one subcarrier, or of zero would be far off.
    """
    air = AirFormat(NUMEROLOGY, 100, confidence=0.9)
    q = air.error_quantile()
    errors = circular_noise(4000 * 192, 0.5, np.random.default_rng(1)).reshape(4000, 192)
    largest = np.abs(errors).max(axis=1)
    assert np.mean(largest > q) == pytest.approx(1 - (1 - math.exp(-(q**2))) ** 192, abs=4 * 0.0046)
    assert 0.07 < np.mean(largest > q) <= 0.1 + 3 * 0.0046
    for wrong in (0.0, q / math.sqrt(2), math.sqrt(math.log(1 / 0.1))):
        assert np.mean(largest > wrong) > 0.5
    # Too rare to simulate.
    q = AirFormat(NUMEROLOGY, 100, confidence=0.999).error_quantile()
    assert 192 * math.exp(-(q**2)) == pytest.approx(1e-3, rel=1e-9)


@pytest.mark.parametrize("numerology", [NUMEROLOGY, Numerology(64, 16, 40), Numerology(512, 32, 500)])
def test_cells_at_the_energy_limit_have_the_agreed_rms(numerology: Numerology) -> None:
    """Unitary transforms: the mean of |x|^2 over the FFT windows is payload_rms^2, whatever the subcarriers."""
    air = AirFormat(numerology, 3000, payload_rms=0.17, guard_samples=16 * numerology.fft_size)
    cells = circular_noise(air.grid.cells, 1.0, np.random.default_rng(1)).reshape(air.grid.symbols, -1)
    cells *= np.float32(math.sqrt(air.energy_limit) / np.linalg.norm(cells))
    windows = modulate(cells, numerology).reshape(-1, numerology.symbol_samples)[:, numerology.cp_samples :]
    assert np.sqrt(np.mean(np.abs(windows) ** 2)) == pytest.approx(0.17, rel=1e-5)


@pytest.mark.parametrize("numerology", [NUMEROLOGY, Numerology(512, 32, 500)])
@pytest.mark.parametrize("payload_rms", [0.1, 0.2])
def test_jamming_at_its_limit_has_the_agreed_rms(numerology: Numerology, payload_rms: float) -> None:
    """alpha on each of I and Q: 2 alpha^2 per cell. 150,000 samples: the rms has a standard deviation of 0.13 %."""
    air = AirFormat(
        numerology, 150_000, payload_rms=payload_rms, guard_samples=16 * numerology.fft_size, quiet_samples=2**17
    )
    cells = air.jamming_limit * circular_noise(air.grid.cells, 1.0, np.random.default_rng(1))
    samples = modulate(cells.reshape(air.grid.symbols, -1).astype(np.complex64), numerology)
    rms = float(np.sqrt(np.mean(np.abs(samples) ** 2)))
    assert rms == pytest.approx(payload_rms, rel=0.01)
    for wrong in (math.sqrt(2), math.sqrt(0.5), 1.03):
        assert rms != pytest.approx(wrong * payload_rms, rel=0.01)


def test_the_jammer_stays_where_gaussian_samples_do_not_clip() -> None:
    """P(|x| > 1) = exp(-1/rms^2). Clients may clip, which costs them accuracy; a jammer that clips protects less."""
    loud, normal = (AirFormat(NUMEROLOGY, 100, payload_rms=rms) for rms in (0.5, 0.2))
    assert loud.energy_limit == pytest.approx(6.25 * normal.energy_limit)
    assert loud.jamming_limit == normal.jamming_limit
    rms = loud.jamming_limit * math.sqrt(2 * 192 / 256)
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
        air.sounding_phase_samples(transmitters) + air.turnaround_samples + 2 * air.guard_samples
    )


def test_the_payload_holds_all_coordinates() -> None:
    for coordinates in (1, 2, SYMBOL - 1, SYMBOL, SYMBOL + 1, 155_830):
        air = AirFormat(NUMEROLOGY, coordinates)
        assert 0 <= air.grid.symbols * SYMBOL - coordinates < SYMBOL
        assert air.payload.length == air.grid.symbols * NUMEROLOGY.symbol_samples + 2 * air.guard_samples


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
        ({"early_samples": 64}, "early_samples is 64"),
        ({"early_samples": -1}, "early_samples is -1"),
        ({"quiet_samples": 4095}, "quiet_samples is 4095: too short to measure noise in, which takes 4096 samples"),
        ({"guard_samples": 2175}, "guard_samples is 2175: too short to measure noise in"),
        ({"numerology": Numerology(1024, 64, 700)}, "guard_samples is 4096: too short .* for symbols of 1024"),
    ],
)
def test_refused_formats(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        AirFormat(**{"numerology": NUMEROLOGY, "coordinates": 100, **changes})
