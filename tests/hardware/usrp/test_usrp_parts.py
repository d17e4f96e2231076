"""The parts of the USRP backend that need neither a box nor UHD: gains, converters, ticks, lab files."""

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from queue import Empty, Queue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from fl.cli.main import main
from hardware.lab.clock import ClockMode
from hardware.lab.file import find_lab, parse_lab
from hardware.lab.opened import open_lab, open_radio
from hardware.radio.errors import (
    CapabilityError,
    HardwareError,
    LabFileError,
    MixedLabError,
    RadioTimeoutError,
    TxLostPacketError,
)
from hardware.radio.tx_gains import LOWEST_TX_GAIN_DB, TxGainRange
from hardware.usrp import device
from hardware.usrp.bursts import BurstStream
from hardware.usrp.converters import FULL_SCALE, clips_at_half_scale, dac_bits, to_samples, to_words, tx_step
from hardware.usrp.settings import Source, UsrpBox, usrp_of
from hardware.usrp.ticks import Ticks, ticks_of
from hardware.usrp.timing import require_common_sources

SBX = TxGainRange(0.0, 31.5, 0.5)
B200 = TxGainRange(0.0, 89.75, 0.25)


@pytest.mark.parametrize("board", [SBX, B200], ids=["sbx", "b200"])
@given(st.floats(LOWEST_TX_GAIN_DB, 0.0))
def test_a_lab_gain_is_the_device_gain_and_the_samples_scale_together(board: TxGainRange, lab_db: float) -> None:
    gain = board.split(lab_db)
    assert board.low_db <= gain.device_db <= board.high_db
    assert gain.digital_db <= 0.0
    # 0 dB is the device's largest.
    assert gain.device_db - board.high_db + gain.digital_db == pytest.approx(lab_db, abs=1e-5)
    assert gain.read_back(gain.device_db) == lab_db
    if lab_db >= board.low_db - board.high_db:
        assert gain.digital_db > -board.step_db


def test_the_lowest_gain_is_the_device_s_lowest() -> None:
    assert SBX.parked.device_db == 0.0
    assert SBX.parked.read_back(0.5) == LOWEST_TX_GAIN_DB + 0.5


@pytest.mark.parametrize("bits", [12, 14, 16])
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 1.0))
def test_words_are_the_nearest_levels_and_multiples_of_the_step_are_exact(bits: int, seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    step = tx_step(scale, bits)
    samples = ((rng.uniform(-1, 1, 64) + 1j * rng.uniform(-1, 1, 64)) * 0.7).astype(np.complex64)
    words = to_words(samples, scale, bits).view(np.int16)
    assert not np.any(words % (1 << 16 - bits))
    wanted = samples.view(np.float32).astype(np.float64) * scale * FULL_SCALE
    # Half a level, and float32.
    assert np.abs(words - wanted).max() <= (1 << 16 - bits) * 0.5 + 0.01
    levels = rng.integers(-1000, 1000, 64)
    exact = to_words((levels * step).astype(np.complex64), scale, bits).view(np.int16)[::2]
    assert np.array_equal(exact, levels * (1 << 16 - bits))


def test_full_scale_does_not_wrap() -> None:
    for bits in (12, 16):
        words = to_words(np.array([1.0, -1.0, 1j, -1j], np.complex64), 1.0, bits).view(np.int16)
        assert words.tolist() == [x * (FULL_SCALE >> 16 - bits << 16 - bits) for x in (1, 0, -1, 0, 0, 1, 0, -1)]


def test_received_words_come_back_as_samples_and_the_limit_is_counted() -> None:
    pairs = np.array([[100, -200], [32767, 0], [0, -32768], [-32766, 32766]], np.int16)
    samples, clipped = to_samples(pairs.reshape(-1).view(np.int32))
    assert clipped == 2
    np.testing.assert_allclose(samples.view(np.float32) * FULL_SCALE, pairs.reshape(-1), atol=1e-2)
    assert samples.dtype == np.complex64


def test_converters_are_known_by_the_board() -> None:
    assert [dac_bits(name) for name in ("N210r4", "B210", "E320", "n310", "X310")] == [16, 12, 12, 14, 16]


def test_interpolations_that_clip_at_half_scale() -> None:
    """As found by trying: clipping, and not clipping."""
    clipping = [13, 17, 21, 26, 27, 33, 34, 41, 42, *range(51, 55), *range(65, 69), *range(81, 86), *range(102, 109)]
    safe = [10, 20, 25, 40, 50, 100]
    assert all(clips_at_half_scale(interpolation) for interpolation in clipping)
    assert not any(clips_at_half_scale(interpolation) for interpolation in safe)


def test_samples_have_whole_ticks_or_are_refused() -> None:
    assert ticks_of("x", 100e6, 4e6).per_sample == 25
    with pytest.raises(CapabilityError, match="whole fractions"):
        ticks_of("x", 100e6, 3e6)


def test_a_lab_moves_between_backends_with_its_gains() -> None:
    lab, other = find_lab("pluto-virtual", "usrp"), find_lab("pluto-virtual")
    assert [radio.settings for radio in lab.radios] == [radio.settings for radio in other.radios]
    assert find_lab("usrp", "pluto").limits == find_lab("usrp").limits


def test_what_differs_from_box_to_box() -> None:
    section = usrp_of(find_lab("usrp"))
    assert section.box("ps") == UsrpBox(antenna="RX2")
    assert section.box("jammer") == UsrpBox(antenna="TX/RX")
    assert section.box("jammer").clock_source is Source.EXTERNAL


def test_a_section_for_a_radio_that_is_not_there_is_refused() -> None:
    tables = find_lab("usrp").to_tables()
    tables["usrp"]["radio"] = {"jamer": {"antenna": "RX2"}}
    with pytest.raises(LabFileError, match="did you mean 'jammer'"):
        parse_lab(tables)


def test_boxes_that_each_count_by_themselves_are_refused() -> None:
    alone, joined = UsrpBox(clock_source=Source.INTERNAL, time_source=Source.INTERNAL), UsrpBox()
    require_common_sources({"a": alone, "b": joined, "c": joined}, ClockMode.SHARED, "lab")
    with pytest.raises(LabFileError, match=r"a, b have usrp\.time_source = 'internal'"):
        require_common_sources({"a": alone, "b": alone}, ClockMode.SHARED, "lab")
    timed = UsrpBox(clock_source=Source.INTERNAL)
    with pytest.raises(LabFileError, match=r"clock_source.*free-running"):
        require_common_sources({"a": timed, "b": timed}, ClockMode.SHARED, "lab")
    require_common_sources({"a": timed, "b": timed}, ClockMode.FREE_RUNNING, "lab")


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("KeyError: No devices found for ----->", 3),
        ("RuntimeError: link dead: timeout waiting for control packet ACK", 3),
        ("RuntimeError: firmware is too old", 1),
    ],
)
def test_a_box_that_does_not_answer_in_time_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, said: str, asked: int
) -> None:
    """libuhd waits for a second at most. What a second question does not change is asked once."""
    failures: list[str] = []

    def make(arguments: str) -> Any:
        failures.append(arguments)
        if len(failures) <= most:
            raise RuntimeError(said)
        return SimpleNamespace(get_num_mboards=lambda: 1)

    monkeypatch.setattr(device, "library", lambda: SimpleNamespace(usrp=SimpleNamespace(MultiUSRP=make)))
    most = 100
    with pytest.raises(HardwareError, match=r"box (at addr=x (cannot be op|has ceas)|cannot be reached at addr=x)"):
        device.UsrpDevice("box", "addr=x")
    assert failures == ["addr=x"] * asked
    failures.clear()
    most = asked - 1
    assert device.UsrpDevice("box", "addr=x").usable


def test_messages_that_cannot_be_heard_are_an_error_that_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """A burst of which nobody can hear whether it went out is not taken for one that did."""

    class Streamer:
        def recv_async_msg(self, *_: object) -> bool:
            raise RuntimeError("the link layer gave up")

    usrp = SimpleNamespace(get_num_mboards=lambda: 1, get_tx_stream=lambda _: Streamer())
    uhd = SimpleNamespace(
        usrp=SimpleNamespace(MultiUSRP=lambda _: usrp, StreamArgs=lambda *_: SimpleNamespace()),
        types=SimpleNamespace(TXAsyncMetadata=object),
    )
    monkeypatch.setattr(device, "library", lambda: uhd)
    box = device.UsrpDevice("box", "addr=x")
    stream = BurstStream(box, ticks_of("box", 100e6, 4e6), 1.0, lockstep=False)
    for thread in stream._threads:
        if thread.name == "box messages":
            thread.join()
    with pytest.raises(HardwareError, match="box refused listening to its messages: the link layer gave up"):
        stream.settle(0)
    assert not box.usable
    stream.stop()


class Said:
    """A streamer without a box. fates: what the box says about each burst, nothing for one of which nothing comes.

    A message has been heard before `send` returns, as it may be where packets are lost on the way to a real one.
    """

    def __init__(self, fates: Iterable[str], ticks: Ticks) -> None:
        self.fates, self.ticks, self.tick = iter(fates), ticks, 0
        self.messages: Queue[tuple[str, int]] = Queue()

    def send(self, words: NDArray[np.int32], metadata: Any, timeout_s: float) -> int:
        fate = next(self.fates)
        if fate:
            end = metadata.time_spec + len(words) * self.ticks.per_sample
            self.messages.put((fate, end if fate == "burst_ack" else 0))
            while self.messages.unfinished_tasks:
                time.sleep(0.001)
        return len(words)

    def recv_async_msg(self, metadata: Any, timeout_s: float) -> bool:
        if self.tick:
            self.messages.task_done()
        try:
            metadata.event_code, self.tick = self.messages.get(timeout=0.01)
        except Empty:
            self.tick = 0
            return False
        self.tick = max(self.tick, 1)
        metadata.has_time_spec = True
        metadata.time_spec = SimpleNamespace(to_ticks=lambda _: self.tick)
        return True


@pytest.fixture
def stream_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., BurstStream]]:
    """A transmit stream whose bursts have these fates."""
    made: list[BurstStream] = []

    def make(*fates: str) -> BurstStream:
        ticks = ticks_of("box", 100e6, 4e6)
        monkeypatch.setattr(Ticks, "time_of", lambda ticks, sample: sample * ticks.per_sample)
        usrp = SimpleNamespace(get_num_mboards=lambda: 1, get_tx_stream=lambda _: Said(fates, ticks))
        uhd = SimpleNamespace(
            usrp=SimpleNamespace(MultiUSRP=lambda _: usrp, StreamArgs=lambda *_: SimpleNamespace()),
            types=SimpleNamespace(TXAsyncMetadata=SimpleNamespace, TXMetadata=SimpleNamespace),
        )
        monkeypatch.setattr(device, "library", lambda: uhd)
        made.append(BurstStream(device.UsrpDevice("box", "addr=x"), ticks, 0.2, lockstep=False))
        return made[-1]

    yield make
    for stream in made:
        stream.stop()


BURST = np.ones(1000, np.int32)


def test_bursts_that_went_out_whole_are_confirmed(stream_of: Callable[..., BurstStream]) -> None:
    stream = stream_of("burst_ack", "burst_ack")
    for start in (10_000, 11_000):
        stream.place(BURST, start)
    stream.settle(12_000)


def test_a_burst_of_which_packets_are_lost_while_it_is_handed_over_is_damaged(
    stream_of: Callable[..., BurstStream],
) -> None:
    """The box complains before libuhd has come back from handing the burst over; the next one is whole."""
    stream = stream_of("seq_error", "burst_ack")
    stream.place(BURST, 10_000)
    with pytest.raises(TxLostPacketError, match="the burst at sample 10000"):
        stream.settle(11_000)
    stream.place(BURST, 20_000)
    stream.settle(21_000)


def test_a_burst_is_not_confirmed_by_what_is_said_of_the_next(stream_of: Callable[..., BurstStream]) -> None:
    stream = stream_of("", "burst_ack")
    for start in (10_000, 20_000):
        stream.place(BURST, start)
    with pytest.raises(RadioTimeoutError, match="the burst at sample 10000"):
        stream.settle(21_000)


def test_boxes_without_an_address_or_with_the_same_are_refused() -> None:
    tables = find_lab("usrp").to_tables()
    tables["radio"][1]["address"] = tables["radio"][0]["address"]
    with pytest.raises(LabFileError, match="two radios have the address"), open_lab(parse_lab(tables), 1):
        pass
    tables["radio"][1]["address"] = ""
    with pytest.raises(LabFileError, match="'client-1' has no address"), open_lab(parse_lab(tables), 1):
        pass


@pytest.mark.parametrize(
    ("lab", "address", "kind"), [("usrp", "ip:192.168.2.1", "Pluto"), ("pluto", "addr=192.168.10.2", "USRP")]
)
def test_a_lab_of_mixed_radios_is_refused(lab: str, address: str, kind: str) -> None:
    """A USRP as the server of Plutos, or the other way round: those that count have no timestamps to go by."""
    tables = find_lab(lab).to_tables()
    tables["radio"][1]["address"] = address
    with pytest.raises(MixedLabError, match=rf"at {address} is a {kind}.*one kind"), open_lab(parse_lab(tables), 1):
        pass


COMMANDS = {
    "run": ["run", "usrp-virtual", "--set", "partition.clients=2", "--out", "{out}", "--set", "radio.lab={lab}"],
    "run elsewhere": ["run", "loopback", "--backend", "loopback", "--out", "{out}", "--set", "radio.lab={lab}"],
    "emulate": ["emulate", "{lab}"],
    "emulate as": ["emulate", "{lab}", "--as", "usrp"],
    "calibrate": ["calibrate", "{lab}", "--out", "{out}"],
    "validate": ["validate", "{lab}"],
    "nodes": ["lab", "up", "{lab}", "--run", "usrp-virtual", "--out", "{out}"],
}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_refuses_a_lab_of_mixed_radios(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tables = find_lab("usrp").to_tables()
    tables["radio"][1]["address"] = "ip:192.168.2.1"
    file, out = tmp_path / "lab.toml", tmp_path / "out"
    file.write_text(tomli_w.dumps(tables))
    assert main([word.format(lab=file, out=out) for word in COMMANDS[command]]) == 2
    problem = capsys.readouterr().err
    assert "'client-1' at ip:192.168.2.1 is a Pluto, and 'ps' at addr=192.168.10.2 is a USRP" in problem
    assert problem.count("\n") == 1
    assert not out.exists()


@pytest.mark.parametrize("backend", ["usrp", "usrp-virtual"])
def test_a_radio_of_another_kind_than_the_backend_s_is_refused_by_its_own_process_too(backend: str) -> None:
    lab = find_lab("pluto", backend)
    with pytest.raises(MixedLabError, match=r"'ps' at ip:192\.168\.2\.1 is a Pluto.*USRP"), open_radio(lab, "ps"):
        pass


def test_a_radio_with_a_backend_of_its_own_is_refused() -> None:
    tables = find_lab("usrp-virtual").to_tables()
    tables["radio"][1]["backend"] = "pluto-virtual"
    with pytest.raises(MixedLabError, match=r"backend of its own \(pluto-virtual\).*two labs"):
        parse_lab(tables)


def test_uhd_is_no_backend_and_what_to_write_is_said() -> None:
    tables = find_lab("usrp").to_tables()
    tables["lab"]["backend"] = "uhd"
    with pytest.raises(LabFileError, match=r'"gnuradio" with device = "uhd".* or backend = "usrp"'):
        parse_lab(tables)
