"""The loopback keeps the contract, ideal or not, and does what only a simulated radio can."""

from dataclasses import replace

import numpy as np
import pytest

from hardware.air.front_end import FrontEnd
from hardware.air.link import Link, StaticFading
from hardware.air.medium import Medium
from hardware.lab.clock import ClockMode
from hardware.loopback.radio import LoopbackRadio
from hardware.radio.errors import LateError, SettingsMismatchError, TxUnderflowError
from hardware.radio.settings import Limits, RadioSettings
from tests.hardware.radio_contract import Pair, RadioContract, waveform

RATE_HZ = 5e6
CENTER_HZ = 2.45e9
LIMITS = Limits(band_hz=(2.4e9, 2.5e9), max_tx_gain_db=-0.25, max_rx_gain_db=30.0)
SETTINGS = RadioSettings(RATE_HZ, CENTER_HZ, CENTER_HZ, RATE_HZ, -0.25, 0.0)
HISTORY = 100_000


def make_pair(medium: Medium, sender: FrontEnd, receiver: FrontEnd, max_delay_samples: int, tolerance: float) -> Pair:
    medium.add_radio("sender", sender)
    medium.add_radio("receiver", receiver)
    transmitting = LoopbackRadio("sender", medium, LIMITS, timeout_s=0.5)
    receiving = LoopbackRadio("receiver", medium, LIMITS, timeout_s=0.5)
    return Pair(
        transmitting,
        receiving,
        SETTINGS,
        max_delay_samples,
        tolerance,
        provoke_overflow=lambda: medium.advance("receiver", medium.now("receiver") + HISTORY + 10),
        provoke_underflow=lambda: transmitting.fail_next("transmit", TxUnderflowError("starved")),
    )


class TestIdealLoopback(RadioContract):
    @pytest.fixture
    def pair(self) -> Pair:
        medium = Medium(RATE_HZ, 1, history_samples=HISTORY)
        return make_pair(medium, FrontEnd(), FrontEnd(noise_var_complex=1e-6), 0, 1e-3)


class TestHarshLoopback(RadioContract):
    @pytest.fixture
    def pair(self) -> Pair:
        link = Link(StaticFading((0.5j, 0, 0, 0.2)), delay_samples=13.37)
        medium = Medium(RATE_HZ, 1, link_of=lambda sender, receiver: link, history_samples=HISTORY)
        front_end = FrontEnd(
            phase_noise_rad_per_sqrt_sample=1e-4, iq_image_db=-35, dc_offset_dbfs=-50, dac_bits=12, adc_bits=12
        )
        return make_pair(medium, front_end, replace(front_end, noise_var_complex=1e-6), 20, 5e-3)


class TestFreeRunningLoopback(RadioContract):
    @pytest.fixture
    def pair(self) -> Pair:
        medium = Medium(RATE_HZ, 1, clock_mode=ClockMode.FREE_RUNNING, history_samples=HISTORY)
        # 0.002 ppm of 2.45 GHz is 5 Hz, hardly a rotation within a burst; the counters drift all the same.
        return make_pair(medium, FrontEnd(clock_ppm=1.001), FrontEnd(clock_ppm=1.003, noise_var_complex=1e-6), 1, 1e-3)


def test_gain_between_steps_is_a_mismatch() -> None:
    """RX gain has steps of 1 dB: 10.4 dB would silently become 10 dB, and a wrong gain is a wrong noise."""
    medium = Medium(RATE_HZ, 1)
    medium.add_radio("a")
    radio = LoopbackRadio("a", medium, LIMITS)
    with pytest.raises(SettingsMismatchError, match=r"rx_gain_db was set to 10\.4 and reads back as 10"):
        radio.configure(replace(SETTINGS, rx_gain_db=10.4))
    assert radio.parked
    assert radio.configure(replace(SETTINGS, tx_gain_db=-10.1)).tx_gain_db == -10.0


def test_limits_keep_everything_out_of_the_air() -> None:
    """After a refused configuration the radio stays parked, and nothing it tries reaches the receiver."""
    medium = Medium(RATE_HZ, 1)
    medium.add_radio("a")
    medium.add_radio("b")
    a, b = LoopbackRadio("a", medium, LIMITS), LoopbackRadio("b", medium, LIMITS)
    b.configure(SETTINGS)
    with pytest.raises(Exception, match="max_tx_gain_db"):
        a.configure(replace(SETTINGS, tx_gain_db=0.0))
    with pytest.raises(Exception, match="parked"):
        a.transmit(waveform(1000), 0)
    assert not np.any(b.receive(1000, 0).samples)


def test_injected_faults_come_once_and_in_order() -> None:
    medium = Medium(RATE_HZ, 1)
    medium.add_radio("a")
    radio = LoopbackRadio("a", medium, LIMITS)
    radio.configure(SETTINGS)
    radio.fail_next("receive", LateError("first"))
    radio.fail_next("receive", LateError("second"))
    radio.transmit(waveform(10), 0)
    for message in ("first", "second"):
        with pytest.raises(LateError, match=message):
            radio.receive(10, 0)
    radio.receive(10, 0)


@pytest.mark.parametrize(("bits", "step"), [(None, None), (12, 1 / 2047), (14, 1 / 8191)])
def test_a_radio_knows_its_converter_and_its_image(bits: int | None, step: float | None) -> None:
    medium = Medium(1e6, 1)
    medium.add_radio("a", FrontEnd(dac_bits=bits, iq_image_db=-35.0))
    radio = LoopbackRadio("a", medium, Limits((2.4e9, 2.5e9), 0.0))
    assert radio.tx_step == step
    assert radio.tx_image_db == -35.0
