"""Filters for noise: undone within the band, and never silent beyond it."""

import numpy as np
import pytest

from phy.inversion import FINE, invert_everywhere, window
from phy.numerology import Numerology

NUMEROLOGY = Numerology(256, 64, 192, 5e6)
PLACES = np.fft.fftfreq(FINE * NUMEROLOGY.fft_size)


@pytest.mark.parametrize("delay_samples", [0.0, 0.6, 1.3, 2.6, -2.6])
@pytest.mark.parametrize("edge", [1.0, 0.3])
def test_noise_is_sent_beyond_the_band_at_its_edges_level(delay_samples: float, edge: float) -> None:
    """Channels that differ in angle and size between the edges of the band, up to opposite ones: between them the
    filter keeps the smaller of both, but for its ripple. A line from one to the other would pass through nothing."""
    slope = (1.0 + edge) / 2 + (1.0 - edge) * PLACES / 0.8125
    response = slope * np.exp(-2j * np.pi * PLACES * delay_samples)
    inside = window(NUMEROLOGY) > 0
    gains = invert_everywhere(response, NUMEROLOGY).gains
    np.testing.assert_allclose((gains * np.abs(response))[inside], 1.0, atol=0.02)
    ends = 1.0 / np.abs(response[inside])
    assert gains[~inside].min() > 0.95 * ends.min()
    assert gains[~inside].max() < 1.1 * ends.max()
