"""Labs of flowgraphs: bad lab files, what the air does without, exits, and gr-iio behind the same contract."""

import logging
import os
import resource
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flowgraphs.build
from flowgraphs.errors import FlowgraphError
from hardware.gnuradio.processes import FlowgraphProcesses
from hardware.lab.file import on_backend, parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab, open_lab
from hardware.radio.errors import CaptureError, HardwareError, LabFileError
from hardware.virtual.iiod.emulator import Emulator
from hardware.virtual.process import emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.conftest import REPOSITORY
from tests.gnuradio_needed import needs_gnuradio
from tests.hardware.flowgraph_labs import configured, flowgraph_lab, lab_of, process_of, radio_of
from tests.hardware.plutos import lab_of as pluto_lab_of
from tests.hardware.plutos import wait_for
from tests.hardware.radio_contract import arrival, waveform
from tests.hardware.usrps import assert_silent
from tests.hardware.usrps import lab_of as usrp_lab_of
from tests.uhd_needed import needs_uhd


def refused(lab: Lab) -> str:
    with pytest.raises(LabFileError) as caught, open_lab(lab, 1):
        pass
    return str(caught.value)


def test_clocks_that_differ_are_refused() -> None:
    assert "the flowgraph air has one clock" in refused(lab_of({"clock": "free-running"}))


def device_lab(device: str, tx_gain_db: float, **gnuradio: Any) -> Lab:
    tables = lab_of().to_tables()
    tables["gnuradio"].update(device=device, **gnuradio)
    tables["limits"]["max_tx_gain_db"] = tx_gain_db
    for radio in tables["radio"]:
        radio["tx_gain_db"] = tx_gain_db
    return parse_lab(tables)


@pytest.mark.parametrize(("device", "kind"), [("pluto", "Pluto"), ("uhd", "USRP")])
def test_a_device_needs_an_address(device: str, kind: str) -> None:
    said = refused(device_lab(device, -10.0))
    assert "'receiver' has no address" in said
    assert f"for each {kind}" in said


@pytest.mark.parametrize(
    ("device", "tx_gain_db", "scale"),
    [
        ("zeromq", 40.0, "0 dB is full power"),
        ("pluto", 40.0, "0 dB is full power"),
        ("uhd", 40.0, "0 dB is the largest gain"),
    ],
)
def test_gains_are_those_of_the_device(device: str, tx_gain_db: float, scale: str) -> None:
    with pytest.raises(LabFileError, match=rf"tx_gain_db is {tx_gain_db:g}: this radio does .* dB \({scale}|{scale}"):
        device_lab(device, tx_gain_db)


def test_too_few_open_files_are_told_before_anything_waits_for_them() -> None:
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = FlowgraphProcesses(lab_of(), 1)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (40, usual[1]))
        with pytest.raises(HardwareError, match=r"may open 40 files here.*ulimit -n"):
            processes.start()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)
        processes.__exit__(None, None, None)


def test_what_only_one_run_can_have() -> None:
    """A device is such a thing, and so is the address of a monitor; flowgraphs over ZeroMQ alone are not."""
    assert device_lab("pluto", -10.0).traits.exclusive == "real radios"
    assert not device_lab("pluto", -10.0).traits.simulated_air
    assert device_lab("zeromq", -10.0).traits.exclusive is None
    assert device_lab("zeromq", -10.0).traits.simulated_air
    monitored = device_lab("zeromq", -10.0, monitor="tcp://127.0.0.1:5702").traits.exclusive
    assert monitored == "the address tcp://127.0.0.1:5702 (gnuradio.monitor)"


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(LabFileError, match=r"gnuradio\.device.*'plutto'.*did you mean 'pluto'"):
        lab_of(gnuradio={"device": "plutto"})


def test_without_gnu_radio_the_command_that_helps_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flowgraphs.build.shutil, "which", lambda *_args, **_keywords: None)
    with pytest.raises(HardwareError, match="apt-get install --no-install-recommends gnuradio"), open_lab(lab_of(), 1):
        pass


@needs_gnuradio
def test_what_the_air_does_without_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING), flowgraph_lab(lab_of(adc_bits=12, iq_image_db=-40.0)):
        pass
    assert "the flowgraph air does without adc_bits, iq_image_db" in caplog.text


def amplitude(lab: OpenLab) -> float:
    burst = waveform(8000)
    start = lab.start_sample(1000)
    lab.radios["sender"].transmit(burst, start)
    return arrival(lab.ps.receive(8100, start).samples, burst)[1]


@needs_gnuradio
def test_fading_blocks_have_the_gains_of_the_loopback() -> None:
    """And a block that comes again is the same again, also when all flowgraphs are new."""
    lab = lab_of(fading="rayleigh", gain_db=-6.0)
    seen: dict[int, list[float]] = {1: [], 2: []}
    with flowgraph_lab(lab) as opened:
        configured(opened)
        for block in (1, 2, 1):
            opened.new_block(block)
            opened.ready()
            seen[block].append(amplitude(opened))
        process_of(opened, "air").kill()
        process_of(opened, "air").wait()
        opened.new_block(2)
        opened.ready()
        seen[2].append(amplitude(opened))
    assert seen[1][0] == pytest.approx(seen[1][1], rel=1e-3)
    assert seen[2][0] == pytest.approx(seen[2][1], rel=1e-3)
    with open_lab(on_backend(lab, "loopback"), 1) as loopback:
        for block, values in seen.items():
            loopback.new_block(block)
            assert amplitude(loopback) == pytest.approx(values[0], rel=5e-3)
    assert seen[1][0] != pytest.approx(seen[2][0], rel=0.05)


@needs_gnuradio
def test_carriers_that_differ_turn_the_signal_and_other_bands_are_not_heard() -> None:
    lab = lab_of()
    with flowgraph_lab(lab) as opened:
        configured(opened)
        opened.ready()
        sender = opened.radios["sender"]
        received = []
        for offset_hz in (0.0, 200.0, 10e6):
            sender.configure(replace(lab.ps.settings, tx_center_hz=2.45e9 + offset_hz))
            if offset_hz < 1e6:
                opened.ready()
            else:
                with pytest.raises(CaptureError, match="'sender' was not heard by 'receiver' while aligning"):
                    opened.ready()
                continue
            start = opened.start_sample(1000)
            sender.transmit(np.full(8000, 0.5, np.complex64), start)
            received.append(opened.ps.receive(8100, start).samples[1000:7000])
    offsets_hz = [np.angle(np.vdot(samples[:3000], samples[3000:])) / (2 * np.pi) * 4e6 / 3000 for samples in received]
    assert offsets_hz == pytest.approx([0.0, 200.0], abs=1.0)
    assert np.abs(received[1]).mean() == pytest.approx(np.abs(received[0]).mean(), rel=1e-3)


@needs_gnuradio
def test_full_scale_is_where_the_receiver_clips() -> None:
    with flowgraph_lab(lab_of(gain_db=6.0)) as opened:
        configured(opened)
        opened.ready()
        start = opened.start_sample(1000)
        opened.radios["sender"].transmit(np.full(2000, 0.9, np.complex64), start)
        capture = opened.ps.receive(4000, start - 1000)
    assert 1900 <= capture.clipped_samples <= 2010
    assert np.abs(capture.samples.view(np.float32)).max() == 1.0


@needs_gnuradio
def test_a_flowgraph_that_changes_its_gain_by_itself_is_noticed() -> None:
    """What is read back is what the flowgraph has, not what was written."""
    with flowgraph_lab(lab_of()) as opened:
        configured(opened)
        radio = radio_of(opened, "sender")
        radio._processes.control("sender").set("tx_gain_db", -20.0)
        assert radio._read_back().tx_gain_db == -20.0


PROGRAM = """
import sys
from tests.hardware.flowgraph_labs import flowgraph_lab, configured, lab_of, process_of
with flowgraph_lab(lab_of()) as lab:
    configured(lab)
    lab.ready()
    print(*(process_of(lab, name).pid for name in ("sender", "receiver", "air")), flush=True)
    while True:
        lab.ps.receive(10_000, lab.ps.now())
"""


def gone(pids: list[int]) -> bool:
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


@needs_gnuradio
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_flowgraphs_end_with_who_started_them(number: signal.Signals) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    ) as program:
        assert program.stdout is not None
        pids = [int(word) for word in program.stdout.readline().split()]
        assert len(pids) == 3
        program.send_signal(number)
        code = program.wait(30)
    assert code in (-number, 128 + number)
    deadline = time.monotonic() + 20
    while not gone(pids):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@needs_gnuradio
def test_plutos_through_gr_iio() -> None:
    """Emulated ones, in real time: lost samples are found, and what follows is aligned anew, as in a lab."""
    tables: dict[str, Any] = pluto_lab_of({"sample_rate_hz": 1e6}).to_tables()
    with Emulator(parse_lab(tables), seed=1, paced=True) as emulator:
        tables["lab"].update(backend="gnuradio", timeout_s=5.0)
        tables["gnuradio"] = {"device": "pluto", "buffer_samples": 16384}
        for radio in tables["radio"]:
            radio["address"] = emulator.uris[radio["name"]]
        with open_lab(parse_lab(tables), 1) as lab:
            burst = waveform(20_000)
            for attempt in range(5):
                try:
                    lab.ready()
                    start = lab.start_sample(1000)
                    lab.radios["sender"].transmit(burst, start)
                    received = lab.ps.receive(20_100, start).samples
                    for radio in lab.radios.values():
                        radio.check()
                    break
                except HardwareError:
                    if attempt == 4:
                        raise
            lag, measured = arrival(received, burst)
    assert abs(lag - 16) <= 1
    # As with the Pluto backend: full scale is 6 dB below what the converter takes.
    assert measured == pytest.approx(10 ** (-0.25 / 20), rel=0.02)


@pytest.mark.parametrize(
    ("device", "said", "starts"),
    [
        ("uhd", "ps_rx ended: RuntimeError: link dead: timeout waiting for control packet ACK", 3),
        ("uhd", "ps_rx ended: LookupError: KeyError: No devices found", 3),
        ("uhd", "ps_rx ended: RuntimeError: firmware is too old", 1),
        ("pluto", "ps_rx ended: timeout", 1),
    ],
)
def test_a_usrp_that_does_not_answer_at_once_is_asked_again(
    monkeypatch: pytest.MonkeyPatch, device: str, said: str, starts: int
) -> None:
    """libuhd waits for a second at most. What asking again does not change is asked once."""
    processes, tried = FlowgraphProcesses(device_lab(device, -10.0), 1), []

    def launch(*_: object, **__: object) -> None:
        tried.append(processes.generation)
        if len(tried) <= most:
            raise FlowgraphError(said)

    monkeypatch.setattr(processes, "_launch", launch)
    most = 100
    with pytest.raises(HardwareError, match=said.partition(":")[0]):
        processes.start()
    assert len(tried) == starts
    tried.clear()
    most = starts - 1
    processes.start()
    processes.__exit__(None, None, None)


@needs_gnuradio
@needs_uhd
def test_usrps_through_gr_uhd() -> None:
    """Emulated ones, in lockstep: a burst comes where and as strong as it should, and nothing goes on afterwards."""
    tables: dict[str, Any] = usrp_lab_of({"sample_rate_hz": 1e6}).to_tables()
    with emulator_process("usrp-virtual", parse_lab(tables), seed=1) as served:
        tables["lab"].update(backend="gnuradio", timeout_s=10.0)
        tables["gnuradio"] = {
            "device": "uhd",
            "usrp_clock": "external",
            "real_time": False,
            "lead_s": 1.0,
            "history_s": 20.0,
        }
        for radio in tables["radio"]:
            radio["address"] = served.uris[radio["name"]]
        with open_lab(parse_lab(tables), 1) as lab:
            lab.ready()
            burst = waveform(20_000)
            start = lab.start_sample(1000)
            lab.radios["sender"].transmit(burst, start)
            lag, measured = arrival(lab.ps.receive(20_100, start).samples, burst)
            for radio in lab.radios.values():
                radio.check()
            # The box's own gain is the largest, and the rest a scale on the samples.
            assert ask(served.uris["sender"])["tx_gain_db"] == 0.0
        # Zeros that gr-uhd has queued run out by themselves, at the lowest gain.
        wait_for(lambda: not ask(served.uris["sender"])["transmitting"])
        assert_silent(served.uris)
    assert abs(lag - 16) <= 1
    # Twelve bits of the converter, and the link's noise of 1e-6 against a mean of 0.1.
    assert measured == pytest.approx(10 ** (-0.25 / 20), rel=1e-3)
