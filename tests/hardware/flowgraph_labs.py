"""Labs of flowgraphs for tests."""

import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from hardware.gnuradio.backend import BACKEND
from hardware.gnuradio.processes import FlowgraphProcesses
from hardware.gnuradio.radio import GnuRadioRadio
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab
from tests.hardware.pair_lab import pair_lab

TIMEOUT_S = 3.0


def lab_of(lab: dict[str, Any] | None = None, gnuradio: dict[str, Any] | None = None, **medium: Any) -> Lab:
    return pair_lab(
        {"backend": "gnuradio", "timeout_s": TIMEOUT_S, **(lab or {})},
        medium,
        gnuradio={"buffer_samples": 4096, **(gnuradio or {})},
    )


@contextmanager
def flowgraph_lab(lab: Lab, seed: int = 1) -> Iterator[OpenLab]:
    """The radios of a lab, not configured."""
    with ExitStack() as stack:
        connection = BACKEND.connect(lab, seed, stack)
        yield OpenLab(lab, connection.radios, connection.air, connection.time)


def radio_of(lab: OpenLab, name: str) -> GnuRadioRadio:
    radio = lab.radios[name]
    assert isinstance(radio, GnuRadioRadio)
    return radio


def configured(lab: OpenLab) -> OpenLab:
    for radio in lab.lab.radios:
        lab.radios[radio.name].configure(radio.settings)
    return lab


def process_of(lab: OpenLab, name: str) -> "subprocess.Popen[bytes]":
    """Of a radio's flowgraph, or of "air"."""
    assert isinstance(lab.air, FlowgraphProcesses)
    process = lab.air._processes[name]._process
    assert process is not None
    return process
