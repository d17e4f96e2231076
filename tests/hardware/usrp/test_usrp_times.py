"""One time for boxes, and streams on its ticks: MIMO cables, tuning at one tick, boxes that come back without it."""

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hardware.lab.clock import ClockMode
from hardware.lab.file import parse_lab
from hardware.radio.errors import CapabilityError, HardwareError, LabFileError, LockLostError, LostPacketError
from hardware.usrp import timing
from hardware.usrp.boxes import Boxes, _choose_connectors
from hardware.usrp.connect import reach_again
from hardware.usrp.device import UsrpDevice
from hardware.usrp.settings import Source, UsrpBox, usrp_of
from hardware.usrp.timing import choose_sources, require_common_sources, tune_together
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


TICK_RATE_HZ = 1e8
PPM = 100.0
TICKS = 188
"""Of a sample: a pulse has the tick of a sample every 47 s only."""


def test_every_cable_has_another_end() -> None:
    led = UsrpBox(clock_source=Source.MIMO, time_source=Source.MIMO)
    alone = UsrpBox(clock_source=Source.INTERNAL, time_source=Source.INTERNAL)
    require_common_sources({"a": alone, "b": led}, ClockMode.SHARED, "lab")
    for boxes in ({"a": led, "b": led}, {"a": alone, "b": led, "c": led}, {"a": led}):
        with pytest.raises(LabFileError, match=r"'mimo', and \d boxes another one.*other end"):
            require_common_sources(boxes, ClockMode.SHARED, "lab")


class Told:
    """A box as `timing` asks it: a pulse that it has counted, and what time it is, by one question after the other."""

    def __init__(self, name: str, pulse_s: float, times_s: list[float]) -> None:
        self.name, self._pulse_s, self._times_s = name, pulse_s, times_s

    def get(self, what: str) -> Any:
        seconds = self._pulse_s if what == "time_last_pps" else self._times_s[0]
        if what == "time_now" and len(self._times_s) > 1:
            self._times_s.pop(0)
        return SimpleNamespace(get_real_secs=lambda: seconds)


def one_time(leader: Told, other: Told, apart_s: float = 0.0) -> None:
    devices: Any = {leader.name: leader, other.name: other}
    timing.require_one_time(devices, dict.fromkeys(devices, UsrpBox()), apart_s)


def test_boxes_that_count_the_same_pulse_alike_must_be_at_the_same_time_too() -> None:
    """Each box that gets pulses of its own counts whole seconds: the last one has the same name in both."""
    one_time(Told("a", 7.0, [7.2, 7.21]), Told("b", 7.0, [7.205]))
    with pytest.raises(LockLostError, match=r"b is at 7\.500000 s and a at 7\.210000 s: do both get the same pulses"):
        one_time(Told("a", 7.0, [7.2, 7.21]), Told("b", 7.0, [7.5]))
    with pytest.raises(LockLostError, match=r"last pulse was at a 7\.0+ s, b 7\.000000010 s"):
        one_time(Told("a", 7.0, [7.2]), Told("b", 7.00000001, [7.2]))
    one_time(Told("a", 7.0, [7.2]), Told("b", 7.00000001, [7.2]), apart_s=1e-6)


@pytest.mark.parametrize(
    ("pulses_s", "astray"),
    [
        ([70.0, 70.0, 3.0], ["c"]),
        # Whoever was switched off began at 0: the server's box may be that one.
        ([3.0, 70.0], ["a"]),
        ([70.0, 3.0], ["b"]),
        ([3.0, 70.0, 3.0, 70.0], ["a", "c"]),
        # A pulse that nobody else has had.
        ([70.0, 70.3, 70.0], ["b"]),
        ([70.0], []),
    ],
)
def test_a_box_with_another_time_is_told_from_those_that_have_the_lab_s(
    pulses_s: list[float], astray: list[str]
) -> None:
    devices: Any = {name: Told(name, pulse_s, [pulse_s]) for name, pulse_s in zip("abcd", pulses_s, strict=False)}
    assert timing.with_another_time(devices, dict.fromkeys(devices, UsrpBox())) == astray


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

        def begin_again_and_receive() -> None:
            # One "now" in so many is the tick of a sample.
            for _ in range(8):
                for mode in ("stop_cont", "start_cont"):
                    command = uhd.types.StreamCMD(getattr(uhd.types.StreamMode, mode))
                    command.stream_now = True
                    stream._streamer.issue_stream_cmd(command)
                receiver.receive(1000, receiver.now() + receiver.lead_samples)

        with pytest.raises(LostPacketError, match="began between two"):
            begin_again_and_receive()
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

    def test_who_waits_for_more_than_the_history_gets_all_of_it(
        self, bench: Bench, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of 8192 samples, and 60,000 are asked for, after others that nobody wants."""
        short = bench.boxes.settings.model_copy(update={"history_s": 1e-3})
        monkeypatch.setattr(bench.boxes, "settings", short)
        lab = configured(bench.opened())
        ready(lab)
        receiver = usrp(lab, "receiver")
        start = receiver.now() + receiver.lead_samples + 30_000
        assert receiver.receive(60_000, start).samples.size == 60_000
        receiver.check()

    def test_pulses_that_are_not_the_same_are_found(self, bench: Bench) -> None:
        bench.boxes.verify()
        ask(bench.uris["sender"], pulse_delay=round(0.3 * TICK_RATE_HZ))
        sender = bench.boxes.devices["sender"]
        try:
            timing._tell_at_a_pulse(list(bench.boxes.devices.values()), lambda: sender.time_at(1000.0))
            with pytest.raises(LockLostError, match=r"do (both|all) get the same"):
                bench.boxes.verify()
        finally:
            ask(bench.uris["sender"], pulse_delay=0)
            timing._tell_at_a_pulse(list(bench.boxes.devices.values()), lambda: sender.time_at(2000.0))
        bench.boxes.verify()

    @pytest.mark.parametrize("interpolation", [13, 52, 430])
    def test_rates_at_which_an_n210_clips_at_half_scale_are_refused_by_name(
        self, bench: Bench, interpolation: int
    ) -> None:
        lab = configured(bench.opened())
        sender = lab.radios["sender"]
        rate_hz = TICK_RATE_HZ / interpolation
        wrong = replace(sender.settings, sample_rate_hz=rate_hz, bandwidth_hz=min(rate_hz, 40e6))
        with pytest.raises(CapabilityError, match=rf"interpolation of {interpolation} an N210R4 clips at half"):
            sender.configure(wrong)
        assert sender.parked

    def test_each_box_has_what_the_lab_file_says_of_it(self, bench: Bench) -> None:
        tables = bench.lab.to_tables()
        tables["usrp"] = {"antenna": "RX2", "radio": {"sender": {"antenna": "TX/RX", "subdevice": "A:0"}}}
        tables["usrp"]["radio"]["receiver"] = {"time_source": "mimo", "clock_source": "mimo"}
        section = usrp_of(parse_lab(tables))
        for name, device in bench.boxes.devices.items():
            _choose_connectors(device, section.box(name))
            choose_sources(device, section.box(name))
        found = {
            name: [str(device.get(what)) for what in ("rx_antenna", "clock_source", "time_source")]
            for name, device in bench.boxes.devices.items()
        }
        assert found == {"receiver": ["RX2", "mimo", "mimo"], "sender": ["TX/RX", "external", "external"]}
        for name, device in bench.boxes.devices.items():
            choose_sources(device, bench.boxes.boxes[name])
        bench.boxes.verify()


@needs_uhd
class TestCrystals:
    """Two boxes with the same pulses and crystals of their own."""

    @pytest.fixture(scope="class")
    @classmethod
    def bench(cls) -> Iterator[Bench]:
        lab = lab_of({"clock": "free-running"}, {"clock_source": "internal"}, radio={"sender": {"clock_ppm": PPM}})
        with bench_of(lab) as bench:
            yield bench

    def test_counts_are_moved_together_again_by_pulses(self, bench: Bench) -> None:
        lab = configured(bench.opened())
        ready(lab)
        receiver, sender = usrp(lab, "receiver"), usrp(lab, "sender")
        rate_hz = receiver.settings.sample_rate_hz
        # Two pulses at least.
        for _ in range(5):
            receiver.receive(round(0.5 * rate_hz), receiver.now() + receiver.lead_samples)
        drift = round(PPM * 1e-6 * rate_hz)
        assert abs(sender.pulse_sample() - receiver.pulse_sample()) >= 2 * drift - 1
        assert reach_again(bench.lab, lab.radios) == ("sender",)
        assert abs(sender.pulse_sample() - receiver.pulse_sample()) <= 1
        assert reach_again(bench.lab, lab.radios) == ()
        start = max(sender.now(), receiver.now()) + receiver.lead_samples + LEAD_SAMPLES
        sender.transmit(np.full(1000, 0.5, np.complex64), start)
        heard = np.abs(receiver.receive(4000, start - 2000).samples)
        # Of a second at most, and what the link and its filters take.
        assert -1.2 * drift <= int(np.argmax(heard > 0.1)) - 2000 <= 40
        sender.check()
        bench.close_radios()
        bench.assert_silent()


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
