"""Faults of virtual USRPs on demand, as libuhd tells of them."""

from collections.abc import Iterator

import numpy as np
import pytest

from hardware.radio.errors import HardwareError
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.virtual.usrp2.uhd_client import RATE_HZ, TICK_RATE_HZ, Box, make_lab, open_box
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd

STEP = round(TICK_RATE_HZ / RATE_HZ)
LEAD = round(0.3 * TICK_RATE_HZ)
BURST = np.full(5000, 0.25, np.complex64)


@pytest.fixture(scope="module")
def server() -> Iterator[EmulatorProcess]:
    with emulator_process("usrp-virtual", make_lab(1), seed=1) as process:
        yield process


@pytest.fixture(scope="module")
def box(server: EmulatorProcess) -> Iterator[Box]:
    box = open_box(server.uris["ps"])
    yield box
    box.close()


@pytest.fixture
def uri(server: EmulatorProcess) -> str:
    return server.uris["ps"]


def test_a_lost_packet_leaves_a_hole_that_libuhd_sees(box: Box, uri: str) -> None:
    box.ask(20000, box.now() + LEAD)
    box.take(2000)
    ask(uri, lose_rx=2)
    box.ask(20000, box.now() + LEAD)
    assert "lost" in {box.take(20000, 0.5)[2] for _ in range(3)}
    while box.take(4096, 0.2)[2] != "timeout":
        pass


def test_a_stream_goes_on_after_an_overflow(box: Box, uri: str) -> None:
    box.ask(0, None, "start_cont")
    assert box.take(50000)[2] == "none"
    ask(uri, overflow=1)
    assert box.take(2_000_000)[2] == "overflow"
    assert box.take(50000)[2] == "none"
    box.ask(0, None, "stop_cont")
    while box.take(4096, 0.2)[2] != "timeout":
        pass


def test_a_command_can_be_late(box: Box, uri: str) -> None:
    ask(uri, late_rx=1)
    box.ask(1000, box.now() + LEAD)
    assert box.take(1000)[2] == "late"


def test_a_burst_can_be_late(box: Box, uri: str) -> None:
    ask(uri, late_tx=1)
    before = ask(uri)["bursts"]
    box.send(BURST, box.now() + LEAD)
    assert box.event()[0] == "time_error"
    state = ask(uri)
    assert (state["bursts"], state["transmitting"]) == (before, False)


def test_a_lost_packet_of_a_burst_is_out_of_sequence(box: Box, uri: str) -> None:
    box.send(BURST, box.now() + LEAD)
    assert box.event()[0] == "burst_ack"
    ask(uri, lose_tx=1)
    box.send(BURST, box.now() + LEAD)
    assert box.event()[0] == "seq_error"
    box.send(BURST, box.now() + LEAD)
    assert box.event()[0] == "burst_ack"


def test_locks_are_lost_and_found(box: Box, uri: str) -> None:
    for lost in (True, False):
        ask(uri, lo_locked=not lost, ref_locked=not lost)
        assert box.usrp.get_rx_sensor("lo_locked").to_bool() is not lost
        assert box.usrp.get_tx_sensor("lo_locked").to_bool() is not lost
        assert box.usrp.get_mboard_sensor("ref_locked").to_bool() is not lost


def test_the_pulse_can_be_missing(box: Box, uri: str) -> None:
    ask(uri, pps=0)
    box.usrp.set_time_next_pps(box.uhd.types.TimeSpec(1000.0))
    before = box.usrp.get_time_last_pps().get_real_secs()
    # More than a second, which passes at once.
    box.ask(1_100_000, None)
    box.take(1_100_000)
    assert box.usrp.get_time_last_pps().get_real_secs() == before
    assert box.usrp.get_time_now().get_real_secs() < 1000.0
    ask(uri, pps=1)
    box.ask(1_100_000, None)
    box.take(1_100_000)
    assert box.usrp.get_time_last_pps().get_real_secs() >= 1000.0


def test_a_frozen_box_answers_nothing_and_goes_on_when_it_is_thawed(box: Box, uri: str) -> None:
    ask(uri, frozen=1)
    with pytest.raises(RuntimeError, match="timed out"):
        box.usrp.get_time_now()
    ask(uri, frozen=0)
    assert box.usrp.get_time_now().get_real_secs() > 0.0


def test_a_box_that_is_switched_off_forgets_its_settings(server: EmulatorProcess) -> None:
    uri = server.uris["client-1"]
    box = open_box(uri)
    assert ask(uri)["tx_gain_db"] == 0.0
    ask(uri, vanished=1)
    with pytest.raises(RuntimeError, match="timed out"):
        box.usrp.get_time_now()
    state = ask(uri, vanished=0)
    box.close()
    assert (state["tx_gain_db"], state["transmitting"]) == (-31.5, False)


@pytest.mark.parametrize(
    ("orders", "reason"), [({"explode": 1}, "no order 'explode'"), ({"lose_rx": -1}, "lose_rx is -1")]
)
def test_the_side_channel_refuses(uri: str, orders: dict[str, int], reason: str) -> None:
    with pytest.raises(HardwareError, match=reason):
        ask(uri, **orders)


def test_nobody_answers_where_there_is_no_box() -> None:
    with pytest.raises(HardwareError, match="no virtual USRP"):
        ask("addr=127.9.9.9")


def test_time_does_not_run_away_where_nobody_reads_any_more(server: EmulatorProcess) -> None:
    """An eager box that is frozen, and one whose client went away in the middle of a stream, follow the wall clock."""
    uri = server.uris["client-1"]
    box = open_box(uri)
    box.ask(0, None, "start_cont")
    assert box.take(50000)[2] == "none"
    ask(uri, eager=1, frozen=1)
    begun = ask(uri)["ticks"]
    # A minute of virtual time would have passed at once.
    assert ask(uri)["ticks"] - begun < 60 * TICK_RATE_HZ
    ask(uri, eager=0, frozen=0)
    box.ask(0, None, "stop_cont")
    box.close()
