"""Virtual USRPs through libuhd's Python module: bursts and captures on their ticks, and everything that goes wrong."""

import time
from collections.abc import Iterator

import numpy as np
import pytest

from hardware.virtual.process import EmulatorProcess, emulator_process
from tests.hardware.virtual.usrp2.uhd_client import RATE_HZ, TICK_RATE_HZ, Box, Samples, make_lab, open_box
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd

STEP = round(TICK_RATE_HZ / RATE_HZ)
LEAD = round(0.3 * TICK_RATE_HZ)


@pytest.fixture(scope="module")
def server() -> Iterator[EmulatorProcess]:
    with emulator_process("usrp-virtual", make_lab(2), seed=1) as process:
        yield process


@pytest.fixture(scope="module")
def boxes(server: EmulatorProcess) -> Iterator[tuple[Box, Box]]:
    """The server's and a client's, with one time."""
    pair = (open_box(server.uris["ps"]), open_box(server.uris["client-1"]))
    share_time(*pair)
    yield pair
    for box in pair:
        box.close()


def share_time(*boxes: Box) -> None:
    for box in boxes:
        box.usrp.set_time_source("external")
        box.usrp.set_clock_source("external")
    last = boxes[0].usrp.get_time_last_pps().to_ticks(TICK_RATE_HZ)
    deadline = time.monotonic() + 30
    while boxes[0].usrp.get_time_last_pps().to_ticks(TICK_RATE_HZ) == last:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    for box in boxes:
        box.usrp.set_time_next_pps(box.uhd.types.TimeSpec(0.0))
    time.sleep(1.1)
    assert len({box.usrp.get_time_last_pps().to_ticks(TICK_RATE_HZ) for box in boxes}) == 1


def tone(count: int, amplitude: float = 0.5) -> Samples:
    return (amplitude * np.exp(2j * np.pi * np.arange(count) / 25)).astype(np.complex64)


def on_the_grid(ticks: int) -> int:
    return ticks // STEP * STEP


def test_a_burst_is_heard_on_its_sample_and_acknowledged_at_its_end(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    start = on_the_grid(ps.now() + LEAD)
    assert client.send(tone(5000), start) == 5000
    ps.ask(6000, start - 100 * STEP)
    heard, first, error = ps.take(6000)
    assert (first, error) == (start - 100 * STEP, "none")
    assert not heard[0, :100].any()
    assert not heard[0, 5100:].any()
    # Of a unit link: rounding to 16 bits twice.
    np.testing.assert_allclose(heard[0, 100:5100], tone(5000), atol=2 / 32767)
    assert client.event() == ("burst_ack", start + 5000 * STEP)


def test_a_late_burst_is_told_so_once_and_radiates_nothing(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    ps.ask(20000, None)
    client.send(tone(5000), client.now() - 1000 * STEP)
    heard, _, error = ps.take(20000)
    assert client.event()[0] == "time_error"
    assert client.event(0.2)[0] == ""
    assert error == "none"
    assert not heard.any()


def test_a_late_capture_is_told_so(boxes: tuple[Box, Box]) -> None:
    ps, _ = boxes
    ps.ask(1000, ps.now() - 1000 * STEP)
    assert ps.take(1000)[2] == "late"


def test_a_chain_that_ends_too_early_is_broken(boxes: tuple[Box, Box]) -> None:
    ps, _ = boxes
    ps.ask(1000, None, "num_more")
    samples, _, error = ps.take(2000)
    assert (samples.shape[1], error) == (1000, "broken_chain")


def test_a_chain_goes_on_without_a_gap(boxes: tuple[Box, Box]) -> None:
    ps, _ = boxes
    start = on_the_grid(ps.now() + LEAD)
    ps.ask(1000, start, "num_more")
    ps.ask(1500, None, "num_done")
    samples, first, error = ps.take(2500)
    assert (samples.shape[1], first, error) == (2500, start, "none")


def test_time_waits_for_a_burst_whose_samples_are_missing(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    start = on_the_grid(ps.now() + LEAD)
    client.send(tone(5000), start, end=False)
    ps.ask(9000, start)
    time.sleep(0.3)
    client.send(tone(4000), None)
    heard, first, error = ps.take(9000)
    assert (first, error) == (start, "none")
    np.testing.assert_allclose(heard[0, :5000], tone(5000), atol=2 / 32767)
    np.testing.assert_allclose(heard[0, 5000:], tone(4000), atol=2 / 32767)
    assert client.event()[0] == "burst_ack"


def test_a_client_that_does_not_read_loses_nothing(boxes: tuple[Box, Box]) -> None:
    ps, _ = boxes
    ps.ask(0, None, "start_cont")
    time.sleep(0.5)
    samples, _, error = ps.take(1_000_000)
    ps.ask(0, None, "stop_cont")
    assert (samples.shape[1], error) == (1_000_000, "none")
    while ps.take(4096, 0.2)[2] == "none":
        pass


def test_gains_are_those_of_the_attenuators(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    powers = []
    for tx_gain_db, rx_gain_db in ((31.5, 0.0), (11.5, 0.0), (11.5, 20.0), (11.5, 34.5)):
        client.usrp.set_tx_gain(tx_gain_db)
        ps.usrp.set_rx_gain(rx_gain_db)
        start = on_the_grid(ps.now() + LEAD)
        client.send(tone(2000, 0.1), start)
        ps.ask(2000, start)
        powers.append(20 * np.log10(np.abs(ps.take(2000)[0]).mean() / 0.1))
        assert client.event()[0] == "burst_ack"
    client.usrp.set_tx_gain(31.5)
    ps.usrp.set_rx_gain(0.0)
    np.testing.assert_allclose(powers, [0.0, -20.0, 0.0, 14.5], atol=0.05)


def test_oscillator_and_mixer_share_a_frequency_as_libuhd_has_it(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    types = client.uhd.types
    # The client 20 kHz higher, by another split: its tone of rate/25 is heard that much higher.
    client.usrp.set_tx_freq(types.TuneRequest(2.45e9 + 20e3, 7e6))
    ps.usrp.set_rx_freq(types.TuneRequest(2.45e9, -5e6))
    offset_hz = client.usrp.get_tx_freq() - ps.usrp.get_rx_freq()
    start = on_the_grid(ps.now() + LEAD)
    client.send(tone(10000), start)
    ps.ask(10000, start)
    heard = ps.take(10000)[0][0]
    assert client.event()[0] == "burst_ack"
    client.usrp.set_tx_freq(types.TuneRequest(2.45e9))
    ps.usrp.set_rx_freq(types.TuneRequest(2.45e9))
    turned = heard * np.conj(tone(10000))
    found_hz = np.angle(np.mean(turned[1:] * np.conj(turned[:-1]))) / (2 * np.pi) * RATE_HZ
    assert found_hz == pytest.approx(offset_hz, abs=0.1)
    assert offset_hz == pytest.approx(20e3, abs=1.0)


def test_a_timed_command_takes_effect_at_its_tick(boxes: tuple[Box, Box]) -> None:
    ps, client = boxes
    types = client.uhd.types
    start = on_the_grid(ps.now() + LEAD)
    client.usrp.set_command_time(types.TimeSpec.from_ticks(start + 3000 * STEP, TICK_RATE_HZ))
    client.usrp.set_tx_gain(11.5)
    client.usrp.clear_command_time()
    client.send(tone(6000), start)
    ps.ask(6000, start)
    heard = np.abs(ps.take(6000)[0][0])
    assert client.event()[0] == "burst_ack"
    client.usrp.set_tx_gain(31.5)
    np.testing.assert_allclose(heard[:3000], 0.5, atol=1e-3)
    np.testing.assert_allclose(heard[3000:], 0.05, atol=1e-3)


def test_sensors_say_that_all_is_locked(boxes: tuple[Box, Box]) -> None:
    ps, _ = boxes
    assert ps.usrp.get_mboard_sensor("ref_locked").to_bool()
    assert ps.usrp.get_mboard_sensor("mimo_locked").to_bool()
    assert ps.usrp.get_rx_sensor("lo_locked").to_bool()
    assert ps.usrp.get_tx_sensor("lo_locked").to_bool()


def test_several_boxes_are_one_device(server: EmulatorProcess) -> None:
    both = open_box(server.uris["ps"], server.uris["client-1"])
    third = open_box(server.uris["client-2"])
    share_time(both, third)
    start = on_the_grid(third.now() + LEAD)
    third.send(tone(3000), start)
    both.ask(3000, start)
    heard, first, error = both.take(3000)
    both.close()
    third.close()
    assert (first, error, heard.shape) == (start, "none", (2, 3000))
    np.testing.assert_allclose(heard[0], tone(3000), atol=2 / 32767)
    np.testing.assert_allclose(heard[1], tone(3000), atol=2 / 32767)
