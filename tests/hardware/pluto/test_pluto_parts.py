"""The parts of the Pluto backend that need no radio: gain split, converters, wall clock, lab files."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hardware.lab.file import find_lab, parse_lab
from hardware.lab.opened import open_lab
from hardware.pluto.converters import RX_FULL_SCALE, TX_FULL_SCALE, to_samples, to_words, tx_step
from hardware.pluto.settings import CAPABILITIES, pluto_of
from hardware.radio.errors import HardwareError, LabFileError
from hardware.radio.gain_split import split_gain
from tests.hardware.plutos import lab_of

RANGE_DB = CAPABILITIES.tx_gain_db


@given(st.floats(*RANGE_DB))
def test_a_gain_is_split_exactly(gain_db: float) -> None:
    split = split_gain(gain_db, 0.25, RANGE_DB)
    assert split.attenuator_db + split.digital_db == pytest.approx(gain_db, abs=1e-6)
    assert split.attenuator_db * 4 == round(split.attenuator_db * 4)
    assert RANGE_DB[0] <= split.attenuator_db <= RANGE_DB[1]
    assert -0.25 < split.digital_db <= 0.0
    assert 10 ** (-0.25 / 20) < split.digital_scale <= 1.0


@pytest.mark.parametrize(
    ("gain_db", "attenuator_db", "digital_db"),
    [
        (0.0, 0.0, 0.0),
        (-10.0, -10.0, 0.0),
        (-10.1, -10.0, -0.1),
        (-10.24, -10.0, -0.24),
        (-10.25, -10.25, 0.0),
        (-89.75, -89.75, 0.0),
        (-89.7, -89.5, -0.2),
        (-3 * 0.1, -0.25, -0.05),
        # 0.1 + 0.2 is not 0.3: a step that arithmetic missed by a rounding error is still that step.
        (-(0.1 + 0.2 + 0.2), -0.5, 0.0),
    ],
)
def test_splits(gain_db: float, attenuator_db: float, digital_db: float) -> None:
    split = split_gain(gain_db, 0.25, RANGE_DB)
    assert split.attenuator_db == attenuator_db
    assert split.digital_db == pytest.approx(digital_db, abs=1e-9)


@pytest.mark.parametrize("gain_db", [0.01, -89.76, math.nan, math.inf])
def test_a_gain_outside_the_attenuator_cannot_be_split(gain_db: float) -> None:
    with pytest.raises(HardwareError, match=r"-89\.75 to 0 dB"):
        split_gain(gain_db, 0.25, RANGE_DB)


def test_words_to_send_are_rounded_to_the_nearest_that_twelve_bits_hold() -> None:
    samples = np.array([1.0, -1.0, 1j, -1j, 0.6 - 0.8j, 7.9 / 16384, 8.1 / 16384], np.complex64)
    words = to_words(samples, 1.0)
    assert words.dtype == np.int16
    assert words.tolist() == [[16384, 0], [-16384, 0], [0, 16384], [0, -16384], [9824, -13104], [0, 0], [16, 0]]
    assert TX_FULL_SCALE == 2**14


@given(st.floats(-0.25, 0.0))
def test_multiples_of_the_step_are_sent_as_they_are(digital_db: float) -> None:
    """The lower four bits are those that the chip cuts off."""
    scale = 10 ** (digital_db / 20)
    step = tx_step(scale)
    levels = np.arange(-math.floor(1 / step), math.floor(1 / step) + 1)
    samples = (levels * np.float32(step)).astype(np.complex64)
    words = to_words(samples, scale)
    assert np.array_equal(words[:, 0], 16 * levels)
    assert not words[:, 1].any()


def test_nothing_wraps() -> None:
    """1 + 1e-6 is what float32 arithmetic may add to full scale; far beyond that is stopped as well."""
    beyond = np.array([1.0 + 1e-6, -(1.0 + 1e-6), 4.0, -4.0j], np.complex64)
    assert to_words(beyond, 1.0).tolist() == [[16384, 0], [-16384, 0], [16384, 0], [0, -16384]]


@given(st.floats(-0.25, 0.0), st.floats(0.0, 1.0), st.floats(0.0, 2 * math.pi))
def test_a_digital_scale_is_within_half_a_step(digital_db: float, size: float, phase: float) -> None:
    scale = 10 ** (digital_db / 20)
    sample = np.array([size * np.exp(1j * phase)], np.complex64)
    i, q = to_words(sample, scale)[0] / (TX_FULL_SCALE * scale)
    assert abs(complex(i, q) - complex(sample[0])) <= 0.75 * tx_step(scale) + 1e-6


def test_received_words_are_samples_exactly_and_those_at_the_limit_are_counted() -> None:
    words = np.array([[0, 1], [-1, 1024], [2047, 0], [0, -2048], [-2047, 5], [2046, -2046]], np.int16)
    samples, clipped = to_samples(words)
    assert samples.dtype == np.complex64
    assert samples.tolist() == [complex(i, q) / RX_FULL_SCALE for i, q in words.tolist()]
    assert clipped == 3
    assert RX_FULL_SCALE == 2048


def test_the_section_for_plutos() -> None:
    assert pluto_of(find_lab("pluto-virtual")).buffer_samples == 8192
    assert pluto_of(find_lab("loopback")).kernel_buffers == 4
    with pytest.raises(LabFileError, match=r"unknown key 'pluto\.bufer_samples'; did you mean 'buffer_samples'"):
        lab_of(pluto={"bufer_samples": 4096})
    for wrong in ({"buffer_samples": 10}, {"kernel_buffers": 1}, {"lead_s": -1.0}):
        with pytest.raises(LabFileError, match=rf"pluto\.{next(iter(wrong))}"):
            lab_of(pluto=wrong)


def test_a_lab_without_addresses_says_how_to_find_them() -> None:
    with pytest.raises(LabFileError, match="'receiver' has no address: run `airdp radios`"), open_lab(lab_of(), 1):
        pytest.fail("it must not open")


@pytest.mark.parametrize("medium", [{"dac_bits": 12}, {"radio": {"client-1": {"dac_bits": 12}}}])
def test_a_converter_besides_that_of_an_emulated_pluto_is_refused(medium: dict[str, Any]) -> None:
    tables = find_lab("pluto-virtual").to_tables()
    tables["medium"].update(medium)
    with pytest.raises(LabFileError, match=r"medium\.dac_bits is given, and a Pluto has a converter of its own"):
        parse_lab(tables)
    tables["lab"]["backend"] = "loopback"
    parse_lab(tables)


def test_a_lab_of_plutos_that_cannot_be() -> None:
    tables = lab_of().to_tables()
    for radio in tables["radio"]:
        radio["address"] = "ip:192.0.2.1"
    with pytest.raises(LabFileError, match="two radios have the address"), open_lab(parse_lab(tables), 1):
        pytest.fail("it must not open")
    tables["radio"][1].update(address="ip:192.0.2.2", receives=True)
    with pytest.raises(LabFileError, match="'sender' has receives = true"), open_lab(parse_lab(tables), 1):
        pytest.fail("it must not open")
