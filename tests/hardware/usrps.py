"""Virtual USRPs for tests: a process that serves them, and the driver's radios on them."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab
from hardware.usrp.boxes import Boxes
from hardware.usrp.connect import reach_again
from hardware.usrp.radio import UsrpRadio
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.pair_lab import pair_lab

TIMEOUT_S = 2.0
BACKEND = "usrp-virtual"
LOWEST_DB = -31.5
"""Gain of a parked SBX, below its largest."""


def lab_of(lab: dict[str, Any] | None = None, usrp: dict[str, Any] | None = None, **medium: Any) -> Lab:
    return pair_lab({"backend": BACKEND, "timeout_s": TIMEOUT_S, **(lab or {})}, medium, usrp=usrp or {})


@dataclass
class Bench:
    """The boxes of a lab, open, and a process that serves them. Radios are made anew for each test."""

    lab: Lab
    process: EmulatorProcess
    boxes: Boxes
    radios: list[UsrpRadio] = field(default_factory=list)

    @property
    def uris(self) -> Mapping[str, str]:
        return self.process.uris

    def opened(self) -> OpenLab:
        """Fresh radios, not configured."""
        made = {
            radio.name: UsrpRadio(
                radio.name, self.boxes, self.lab.limits, self.lab.timeout_s, receives=radio.receives, lockstep=True
            )
            for radio in self.lab.radios
        }
        self.radios += made.values()
        return OpenLab(self.lab, made)

    def close_radios(self) -> None:
        while self.radios:
            self.radios.pop().close()

    def assert_silent(self) -> None:
        """As the boxes themselves say it."""
        assert_silent(self.uris)


@contextmanager
def bench_of(lab: Lab, *, seed: int = 1) -> Iterator[Bench]:
    with ExitStack() as stack:
        process = stack.enter_context(emulator_process(BACKEND, lab, seed=seed))
        boxes = Boxes(lab, process.uris, lockstep=True)
        boxes.open()
        stack.callback(boxes.close)
        for uri in process.uris.values():
            ask(uri, eager=1)
        yield Bench(lab, process, boxes)


def assert_silent(uris: Mapping[str, str]) -> None:
    """Every box is at its lowest gain, neither sends nor receives, and its switch is idle."""
    for name, uri in uris.items():
        state = ask(uri)
        assert (state["tx_gain_db"], state["transmitting"], state["receiving"]) == (LOWEST_DB, False, False), name
        assert state["tx_power"] == 0.0, name


def usrp(lab: OpenLab, name: str) -> UsrpRadio:
    radio = lab.radios[name]
    assert isinstance(radio, UsrpRadio)
    return radio


def configured(lab: OpenLab) -> OpenLab:
    for radio in lab.lab.radios:
        lab.radios[radio.name].configure(radio.settings)
    return lab


def ready(lab: OpenLab) -> None:
    reach_again(lab.lab, lab.radios)
