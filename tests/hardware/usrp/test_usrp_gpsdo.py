"""Boxes whose reference and pulse come from receivers of their own for GPS, and boxes that have none."""

import subprocess
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from hardware.radio.contract import Radio
from hardware.radio.errors import LabFileError, LockLostError
from hardware.usrp.boxes import Boxes
from hardware.virtual.process import emulator_process
from hardware.virtual.usrp2.device.gpsdo import Gpsdo
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.usrps import BACKEND, Bench, bench_of, configured, lab_of, ready
from tests.uhd_needed import EXAMPLES, needs_uhd

GPS = {"clock_source": "gpsdo", "time_source": "gpsdo"}


def test_sentences_are_those_of_nmea() -> None:
    gpsdo = Gpsdo(datetime(2025, 1, 31, 23, 59, 58, 7, tzinfo=UTC))
    place, date = gpsdo.sentences(3)
    # Checked with the exclusive or of what is between $ and *, by hand for the first.
    assert place == b"$GPGGA,000001.00,0000.0000,N,00000.0000,E,1,08,1.0,10.0,M,0.0,M,,*65\r\n"
    assert date.startswith(b"$GPRMC,000001.00,A,")
    assert b",010225,," in date
    gpsdo.locked = False
    assert all(mark in line for mark, line in zip((b",0,00,", b",V,"), gpsdo.sentences(0), strict=True))


def test_it_says_who_it_is_when_it_is_asked_in_pieces_too() -> None:
    gpsdo = Gpsdo()
    assert gpsdo.answer(b"GPS:GPGGA 1\r\n*ID") == []
    (said,) = gpsdo.answer(b"N?\r\n")
    assert said.startswith(b"LC_XO")
    assert gpsdo.answer(b"x" * 10_000) == []
    assert gpsdo.answer(b"") == []


def keep_checking(radio: Radio, seconds: float) -> None:
    deadline_s = time.monotonic() + seconds
    while time.monotonic() < deadline_s:
        radio.check()


@needs_uhd
class TestGpsdo:
    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls) -> Iterator[Bench]:
        with bench_of(lab_of(usrp=GPS)) as bench:
            yield bench

    def test_boxes_have_one_time_from_it_and_are_parked_when_satellites_are_lost(self, bench: Bench) -> None:
        lab = configured(bench.opened())
        ready(lab)
        assert str(bench.boxes.devices["sender"].get("time_source")) == "gpsdo"
        ask(bench.uris["sender"], gps_locked=0)
        # libuhd believes what it has heard for two seconds and a half.
        with pytest.raises(LockLostError, match=r"sender has lost its reference: does its GPSDO see satellites"):
            keep_checking(lab.radios["sender"], 30.0)
        bench.close_radios()
        bench.assert_silent()
        ask(bench.uris["sender"], gps_locked=1)


@needs_uhd
def test_the_vendors_program_sets_time_by_satellites() -> None:
    with emulator_process(BACKEND, lab_of(usrp=GPS), seed=1) as served:
        command = [str(EXAMPLES / "sync_to_gps"), "--args", served.uris["receiver"]]
        done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    assert "SUCCESS: USRP time synchronized to GPS time" in done.stdout, done.stdout + done.stderr


@needs_uhd
def test_a_box_without_one_is_refused() -> None:
    with emulator_process(BACKEND, lab_of(), seed=1) as served:
        boxes = Boxes(lab_of(usrp=GPS), served.uris, lockstep=True)
        with pytest.raises(LabFileError, match=r"receiver has no clock source 'gpsdo': expected internal, external"):
            boxes.open()
