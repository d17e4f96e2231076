"""What streaming needs of the simulated air: receivers that come and go, a clock moved by the caller, ordered noise."""

import numpy as np
import pytest

from hardware.air.front_end import FrontEnd
from hardware.air.link import Link
from hardware.air.medium import Medium
from hardware.air.noise import Randomness, ThermalNoise
from hardware.lab.clock import ClockMode
from hardware.radio.errors import LateError
from hardware.radio.settings import RadioSettings
from tests.hardware.virtual.iiod.raw_client import CENTER_HZ, RATE_HZ, Samples, tone

SETTINGS = RadioSettings(RATE_HZ, CENTER_HZ, CENTER_HZ, RATE_HZ, 0.0, 0.0)


def air(*receivers: str, delays: tuple[float, ...] = ()) -> Medium:
    medium = Medium(RATE_HZ, 1)
    for name in ("sender", *receivers):
        medium.add_radio(name)
        medium.tune(name, SETTINGS)
    for name, delay_samples in zip(receivers, delays, strict=False):
        medium.set_link("sender", name, Link(delay_samples=delay_samples))
    return medium


def test_a_receiver_that_stops_forgets_and_one_that_begins_hears_from_then_on() -> None:
    medium = air("rx")
    medium.send("sender", tone(100, 0.1), 0)
    medium.set_receiving("rx", receives=False)
    medium.send("sender", tone(100, 0.1), 100)
    medium.set_receiving("rx", receives=True)
    medium.send("sender", tone(100, 0.1), 200)
    heard, _ = medium.listen("rx", 300, 0)
    assert not heard[:200].any()
    assert np.allclose(heard[200:], tone(100, 0.1))


def test_saying_twice_that_a_radio_receives_loses_nothing() -> None:
    medium = air("rx")
    medium.send("sender", tone(100, 0.1), 0)
    medium.set_receiving("rx", receives=True)
    assert np.allclose(medium.listen("rx", 100, 0)[0], tone(100, 0.1))


def test_the_clock_stays_where_the_caller_wants_to_move_it() -> None:
    medium = air("rx")
    medium.listen("rx", 100, 0, move_clock=False)
    assert medium.now("sender") == 0
    with pytest.raises(LateError):
        medium.listen("rx", 100, 50, move_clock=False)
    medium.advance("rx", 100)
    assert medium.now("sender") == 100
    medium.listen("rx", 100, 100)
    assert medium.now("sender") == 200


@pytest.mark.parametrize("delays", [(0.0, 3.0), (2.5, 2.5), (1.25, 2.75)])
def test_each_receiver_hears_at_its_own_distance(delays: tuple[float, float]) -> None:
    """Oracle: an air with this receiver alone."""
    wave = tone(500, 0.07)
    both = air("near", "far", delays=delays)
    both.send("sender", wave, 20)
    for name, delay in zip(("near", "far"), delays, strict=True):
        alone = air(name, delays=(delay,))
        alone.send("sender", wave, 20)
        assert np.array_equal(both.listen(name, 600, 0)[0], alone.listen(name, 600, 0)[0])


def test_the_ratio_of_clocks_is_that_of_the_crystals() -> None:
    for mode, expected in ((ClockMode.SHARED, 1.0), (ClockMode.FREE_RUNNING, 1.00002)):
        medium = Medium(RATE_HZ, 1, clock_mode=mode)
        medium.add_radio("a", FrontEnd(clock_ppm=20.0))
        assert medium.clock_ratio("a") == pytest.approx(expected, rel=1e-12)


class TestNoise:
    @staticmethod
    def noise(source: ThermalNoise, start: int, count: int) -> Samples:
        samples = np.zeros(count, np.complex64)
        source.add(samples, start)
        return samples

    def test_it_depends_on_the_sample_alone_in_whatever_order_it_is_asked_for(self) -> None:
        whole = self.noise(ThermalNoise(Randomness(1), "rx", 0.5), 0, 50_000)
        source = ThermalNoise(Randomness(1), "rx", 0.5)
        # On and on, ahead, back, back within a block, across blocks, and the same again.
        for start, count in ((0, 100), (100, 1), (101, 999), (5000, 7), (200, 50), (16_380, 20_000), (40, 3), (40, 3)):
            assert np.array_equal(self.noise(source, start, count), whole[start : start + count])

    def test_it_has_the_variance_it_is_said_to_have(self) -> None:
        samples = self.noise(ThermalNoise(Randomness(1), "rx", 0.5), 0, 200_000)
        # Its standard error is 0.22 %.
        assert np.mean(np.abs(samples) ** 2) == pytest.approx(0.5, rel=0.01)
