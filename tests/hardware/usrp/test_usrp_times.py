"""One time for boxes, and streams on its ticks: MIMO cables, tuning at one tick, boxes that come back without it."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from hardware.lab.clock import ClockMode
from hardware.radio.errors import HardwareError, LabFileError, LockLostError, LostPacketError
from hardware.usrp import timing
from hardware.usrp.boxes import Boxes
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import Source, UsrpBox
from hardware.usrp.timing import require_common_sources, tune_together
from hardware.virtual.process import emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.radio_contract import LEAD_SAMPLES, arrival, waveform
from tests.hardware.usrps import BACKEND, Bench, bench_of, configured, lab_of, ready, usrp
from tests.uhd_needed import needs_uhd

CABLE = {
    "clock_source": "internal",
    "time_source": "internal",
    "radio": {"sender": {"clock_source": "mimo", "time_source": "mimo"}},
}
"""The receiver, which is first in the lab, counts by itself, and the sender follows."""


TICKS = 188
"""Of a sample: a pulse has the tick of a sample every 47 s only."""


def test_every_cable_has_another_end() -> None:
    led = UsrpBox(clock_source=Source.MIMO, time_source=Source.MIMO)
    alone = UsrpBox(clock_source=Source.INTERNAL, time_source=Source.INTERNAL)
    require_common_sources({"a": alone, "b": led}, ClockMode.SHARED, "lab")
    for boxes in ({"a": led, "b": led}, {"a": alone, "b": led, "c": led}, {"a": led}):
        with pytest.raises(LabFileError, match=r"'mimo', and \d boxes another one.*other end"):
            require_common_sources(boxes, ClockMode.SHARED, "lab")


@needs_uhd
class TestCable:
    """Two boxes at a MIMO cable, without any pulse."""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls) -> Iterator[Bench]:
        lab = lab_of(usrp=CABLE)
        with emulator_process(BACKEND, lab, seed=1) as process:
            for uri in process.uris.values():
                ask(uri, pps=0)
            boxes = Boxes(lab, process.uris, lockstep=True)
            boxes.open()
            for uri in process.uris.values():
                ask(uri, eager=1)
            yield Bench(lab, process, boxes)
            boxes.close()

    def test_a_burst_comes_on_its_tick_and_a_cable_that_is_gone_is_found(self, bench: Bench) -> None:
        lab = configured(bench.opened())
        ready(lab)
        assert delay_of_a_burst(bench) <= 40
        ask(bench.uris["sender"], mimo=0)
        with pytest.raises(LockLostError, match=r"sender has lost its reference: is the MIMO cable connected"):
            lab.radios["sender"].check()
        ask(bench.uris["sender"], mimo=1)
        bench.close_radios()
        bench.assert_silent()

    def test_time_that_does_not_come_through_the_cable_is_found(self, bench: Bench) -> None:
        device = bench.boxes.devices["sender"]
        device.set("time_source", "external")
        device.set("time_now", device.time_at(500.0))
        with pytest.raises(LockLostError, match=r"sender is at 50\d\.\d+ s and receiver at .*MIMO cable"):
            bench.boxes.verify()
        device.set("time_source", "mimo")
        bench.boxes.verify()


@needs_uhd
class TestBoxes:
    """Two boxes with pulses, of which a second is no whole number of samples."""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls) -> Iterator[Bench]:
        with bench_of(lab_of({"sample_rate_hz": 1e8 / TICKS})) as bench:
            yield bench

    @pytest.fixture(autouse=True)
    def parked_afterwards(self, bench: Bench) -> Iterator[None]:
        yield
        bench.close_radios()
        bench.assert_silent()

    def test_samples_are_on_the_ticks_of_the_count_also_after_libuhd_has_begun_a_stream_again(
        self, bench: Bench
    ) -> None:
        """After an overflow libuhd lets a stream begin "now", which is between two samples of the count here."""
        lab = configured(bench.opened())
        ready(lab)
        before = delay_of_a_burst(bench)
        receiver = usrp(lab, "receiver")
        stream = receiver._rx
        assert stream is not None
        uhd = receiver.device.uhd
        for mode in ("stop_cont", "start_cont"):
            command = uhd.types.StreamCMD(getattr(uhd.types.StreamMode, mode))
            command.stream_now = True
            stream._streamer.issue_stream_cmd(command)
        lost = receiver.now() + receiver.lead_samples
        with pytest.raises(LostPacketError, match="began between two"):
            receiver.receive(1000, lost)
        ready(lab)
        assert delay_of_a_burst(bench) == before

    def test_all_are_tuned_at_one_tick_and_again_where_that_was_too_late(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        tune_together(bench.boxes.devices, 2.452e9, 0.3)
        assert len(tuned_at(bench)) == 1
        moments: list[float] = []
        tuning = timing._tuning

        def slow(device: UsrpDevice, tx_hz: float, rx_hz: float, moment_s: float) -> Callable[[Any], None]:
            if len(moments) == 1:
                # The second box hears of it when the moment has passed.
                time.sleep(0.3)
            moments.append(moment_s)
            return tuning(device, tx_hz, rx_hz, moment_s)

        monkeypatch.setattr(timing, "_tuning", slow)
        tune_together(bench.boxes.devices, 2.45e9, 0.2)
        assert moments[0] == moments[1] < moments[2] == moments[3]
        assert len(tuned_at(bench)) == 1

    def test_a_box_that_was_switched_off_gets_the_time_of_the_others_again(self, bench: Bench) -> None:
        ask(bench.uris["sender"], vanished=1)
        ask(bench.uris["sender"], vanished=0)
        with pytest.raises(LockLostError, match="do not have one time"):
            bench.boxes.verify()
        bench.boxes.give_up_restarted()
        assert (bench.boxes.ready("receiver"), bench.boxes.ready("sender")) == (True, False)
        bench.boxes.reopen("sender")
        bench.boxes.verify()

    def test_parking_needs_neither_reference_nor_pulse(self, bench: Bench) -> None:
        """The connection has failed, and so has everything that a box needs to be of use."""
        lab = configured(bench.opened())
        sender = usrp(lab, "sender")
        ask(bench.uris["sender"], ref_locked=0, pps=0)
        sender.device.fail("a test says so")
        sender.close()
        state = ask(bench.uris["sender"], ref_locked=1, pps=1)
        assert state["tx_gain_db"] == -31.5
        assert not bench.boxes.ready("sender")
        # Time goes on, and pulses come, when nobody has to be waited for who does not read.
        usrp(lab, "receiver").pause()
        bench.boxes.reopen("sender")
        assert bench.boxes.ready("sender")

    def test_a_subdevice_that_there_is_not_is_refused(self, bench: Bench) -> None:
        bench.boxes.boxes["sender"] = UsrpBox(subdevice="B:7")
        bench.boxes.devices["sender"].fail("to be opened again")
        with pytest.raises(HardwareError, match=r"sender refused setting its rx subdev spec"):
            bench.boxes.reopen("sender")
        bench.boxes.boxes["sender"] = UsrpBox(subdevice="A:0", antenna="RX2", tx_antenna="TX/RX")
        bench.boxes.reopen("sender")


def delay_of_a_burst(bench: Bench) -> int:
    """In samples, of radios that are configured and ready."""
    sender, receiver = (next(radio for radio in bench.radios if radio.name == name) for name in ("sender", "receiver"))
    start = max(sender.now(), receiver.now()) + receiver.lead_samples + LEAD_SAMPLES
    burst = waveform(3000)
    sender.transmit(burst, start)
    lag, amplitude = arrival(receiver.receive(3100, start).samples, burst)
    sender.check()
    assert amplitude > 0.05
    return lag


def tuned_at(bench: Bench) -> set[int]:
    """Ticks at which the boxes were tuned last, when all is done: reading a box waits for that."""
    for device in bench.boxes.devices.values():
        device.get("time_now")
    return {ask(uri)["tuned_at"] for uri in bench.uris.values()}


def test_waveforms_tell_a_late_sample() -> None:
    """What `delay_of_a_burst` rests on."""
    burst = waveform(3000)
    assert arrival(np.concatenate([np.zeros(7, np.complex64), burst]), burst)[0] == 7
