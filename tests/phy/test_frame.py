"""Frames: where things stand, and what is sent in them."""

import numpy as np
import pytest

from phy.errors import SignalError
from phy.frame import PayloadFrame, SoundingFrame, payload_samples, sounding_cells, sounding_samples
from phy.impairments import iq_imbalance
from phy.modem import demodulate
from phy.numerology import Numerology
from phy.preamble import pilot_cells, preamble_samples
from tests.phy.signals import circular

NUMEROLOGIES = (Numerology(), Numerology(64, 16, 52), Numerology(1024, 72, 600))


@pytest.mark.parametrize("numerology", NUMEROLOGIES)
@pytest.mark.parametrize("symbols", [1, 2, 7])
def test_sounding_frame_is_preamble_and_known_cells(numerology: Numerology, symbols: int) -> None:
    frame = SoundingFrame(numerology, symbols)
    samples = sounding_samples(frame)
    assert samples.shape == (frame.length,)
    assert samples.dtype == np.complex64
    np.testing.assert_array_equal(samples[frame.preamble_slice], preamble_samples(numerology))
    cells = demodulate(samples[frame.sounding_slice], numerology)
    np.testing.assert_allclose(cells, sounding_cells(numerology, symbols), atol=1e-5)


@pytest.mark.parametrize("numerology", NUMEROLOGIES)
def test_sounding_uses_full_scale_well(numerology: Numerology) -> None:
    """Newman's phases: peaks 2.6 dB above the rms (Boyd, IEEE Trans. Circuits Syst. 33(10), 1986)."""
    frame = SoundingFrame(numerology, 3)
    samples = sounding_samples(frame)
    assert 0.9 < np.abs(samples).max() < 1.0
    for part in (frame.preamble_slice, frame.sounding_slice):
        assert -3.1 < 10 * np.log10(np.mean(np.abs(samples[part]) ** 2)) < -2.3
    moduli = np.abs(sounding_cells(numerology, 3))
    np.testing.assert_allclose(moduli, moduli[0, 0], rtol=1e-6)


def test_documented_levels_of_the_default_numerology() -> None:
    samples = sounding_samples(SoundingFrame(Numerology(), 4))
    assert np.sqrt(np.mean(np.abs(samples) ** 2)) == pytest.approx(0.74, abs=0.006)
    assert abs(pilot_cells(Numerology())[0]) == pytest.approx(0.85, abs=0.005)


def test_mirror_images_cancel_in_two_symbols_but_not_in_one() -> None:
    numerology = Numerology()
    pilots = sounding_cells(numerology, 2)
    samples = sounding_samples(SoundingFrame(numerology, 2))
    received = demodulate(iq_imbalance(samples, -25.0)[576:], numerology)
    channel = received / pilots
    assert np.abs(channel[0] - 1.0).max() == pytest.approx(10 ** (-25 / 20), rel=1e-3)
    np.testing.assert_allclose(channel.mean(axis=0), 1.0, atol=1e-5)


def test_payload_stands_between_quiet_zones() -> None:
    numerology = Numerology()
    frame = PayloadFrame(numerology, 3, 640)
    cells = circular((2, 3, 192), 1.0, np.random.default_rng(1))
    samples = payload_samples(frame, cells)
    assert samples.shape == (2, frame.length) == (2, 640 + 960 + 640)
    np.testing.assert_array_equal(samples[:, frame.leading_quiet_slice], 0.0)
    np.testing.assert_array_equal(samples[:, frame.trailing_quiet_slice], 0.0)
    assert samples[:, frame.leading_quiet_slice].shape == samples[:, frame.trailing_quiet_slice].shape == (2, 640)
    np.testing.assert_allclose(demodulate(samples[:, frame.payload_slice], numerology), cells, atol=1e-5)


def test_frames_without_quiet_are_possible_and_without_symbols_not() -> None:
    frame = PayloadFrame(Numerology(), 1, 0)
    assert frame.length == 320
    assert frame.payload_slice == slice(0, 320)
    for make in (
        lambda: SoundingFrame(Numerology(), 0),
        lambda: PayloadFrame(Numerology(), 0, 10),
        lambda: PayloadFrame(Numerology(), 1, -1),
        lambda: sounding_cells(Numerology(), 0),
        lambda: payload_samples(PayloadFrame(Numerology(), 2, 0), np.zeros((1, 192), np.complex64)),
    ):
        with pytest.raises(SignalError, match="expected"):
            make()
