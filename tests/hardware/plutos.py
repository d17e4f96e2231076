"""Emulated Plutos for tests, in this process or in one of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import tomli_w

from hardware.lab.file import find_lab
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab
from hardware.pluto.context import PlutoContext
from hardware.pluto.radio import PlutoRadio
from hardware.pluto.settings import CAPABILITIES, pluto_of
from hardware.virtual.iiod.emulator import Emulator
from tests.conftest import REPOSITORY
from tests.hardware.pair_lab import pair_lab

BLOCK = 4096
TIMEOUT_S = 2.0


def lab_of(lab: dict[str, Any] | None = None, pluto: dict[str, Any] | None = None, **medium: Any) -> Lab:
    return pair_lab(
        {"backend": "pluto", "timeout_s": TIMEOUT_S, **(lab or {})},
        {"adc_bits": 12, **medium},
        pluto={"buffer_samples": BLOCK, "kernel_buffers": 2, **(pluto or {})},
    )


def radio_at(lab: Lab, name: str, uri: str) -> PlutoRadio:
    receives = next(radio.receives for radio in lab.radios if radio.name == name)
    return PlutoRadio(name, uri, lab.limits, lab.timeout_s, receives=receives, settings=pluto_of(lab))


@contextmanager
def plutos(lab: Lab, *, seed: int = 1, paced: bool = False) -> Iterator[OpenLab]:
    """The radios of `lab`, not configured, on an emulator in this process."""
    with Emulator(lab, seed=seed, paced=paced) as emulator:
        radios = {radio.name: radio_at(lab, radio.name, emulator.uris[radio.name]) for radio in lab.radios}
        try:
            yield OpenLab(lab, radios, None)
        finally:
            # Receivers first: then nothing holds up simulated time, and the senders' streams can end.
            for radio in sorted(radios.values(), key=lambda radio: radio.transmits):
                radio.close()


def pluto(lab: OpenLab, name: str) -> PlutoRadio:
    radio = lab.radios[name]
    assert isinstance(radio, PlutoRadio)
    return radio


def configured(lab: OpenLab) -> OpenLab:
    for radio in lab.lab.radios:
        lab.radios[radio.name].configure(radio.settings)
    return lab


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.002)


def lose_received(radio: PlutoRadio) -> None:
    """Let a receiver in lockstep lose a buffer, and read on until it has noticed, as it does by itself in real time."""
    before = radio.epoch
    radio.context.write_debug("airdp_drop_rx_buffers", "1")
    stream = radio._rx
    assert stream is not None
    with stream._changed:
        stream._wanted_until = stream._count + 8 * stream.block
        stream._changed.notify_all()
    wait_for(lambda: radio.epoch != before)


def lose_sent(radio: PlutoRadio, receiver: PlutoRadio) -> None:
    """Let a transmitter in lockstep lose a buffer: time has to go on for it."""
    before = radio.epoch
    radio.context.write_debug("airdp_drop_tx_buffers", "1")
    receiver.receive(8 * BLOCK, receiver.now())
    wait_for(lambda: radio.epoch != before)


@dataclass
class Bench:
    """Three clients, a jammer and a server, emulated by a process of their own, and a lab file that reaches them as if
    they were real."""

    folder: Path
    timeout_s: float = TIMEOUT_S
    process: "subprocess.Popen[str] | None" = None
    uris: dict[str, str] = field(default_factory=dict)

    @property
    def lab_file(self) -> Path:
        return self.folder / "bench.toml"

    def start(self) -> None:
        tables = find_lab("pluto-virtual").to_tables()
        tables["lab"].update(backend="pluto", timeout_s=self.timeout_s)
        tables["pluto"].update(buffer_samples=BLOCK)
        served = self.folder / "served.toml"
        served.write_text(tomli_w.dumps(tables))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "hardware.virtual", "pluto-virtual", str(served), "--exit-with-stdin"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            start_new_session=True,
        )
        assert self.process.stdout is not None
        self.uris = json.loads(self.process.stdout.readline())["uris"]
        for radio in tables["radio"]:
            radio["address"] = self.uris[radio["name"]]
        self.lab_file.write_text(tomli_w.dumps(tables))

    def signal(self, number: int) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def stop(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.communicate()
            self.process = None

    def assert_silent(self) -> None:
        """As another client of the radios sees it."""
        for name, uri in self.uris.items():
            context = PlutoContext(name, uri, 5.0)
            try:
                gain_db = float(context.read("voltage0", "hardwaregain", output=True).split()[0])
                assert gain_db == CAPABILITIES.tx_gain_db[0], name
                assert float(context.phy.debug_attrs["airdp_tx_power"].value) == 0.0, name
            finally:
                context.destroy()
