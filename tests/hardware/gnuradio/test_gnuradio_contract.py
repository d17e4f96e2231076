"""Flowgraphs keep the contract: GNU Radio in processes of its own, over the flowgraph air."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from hardware.gnuradio.port import FlowgraphRxPort
from hardware.gnuradio.radio import GnuRadioRadio
from hardware.lab.model import Lab
from tests.gnuradio_needed import needs_gnuradio
from tests.hardware.flowgraph_labs import flowgraph_lab, lab_of, radio_of
from tests.hardware.radio_contract import Pair, RadioContract

pytestmark = needs_gnuradio


def lose_received(radio: GnuRadioRadio) -> None:
    """Let the next message begin 64 samples later than it should."""
    assert radio._rx is not None
    port = radio._rx._port
    assert isinstance(port, FlowgraphRxPort)
    assert port._next_offset is not None
    port._next_offset -= 64


def lose_sent(radio: GnuRadioRadio) -> None:
    """What a device's clock would show: streams between processes lose nothing by themselves."""
    assert radio._tx is not None
    radio._tx._lose("its count is 64 samples behind the clock")


@contextmanager
def pair_of(lab: Lab, amplitude_tolerance: float) -> Iterator[Pair]:
    with flowgraph_lab(lab) as opened:
        sender, receiver = radio_of(opened, "sender"), radio_of(opened, "receiver")
        yield Pair(
            sender,
            receiver,
            lab.ps.settings,
            max_delay_samples=20,
            amplitude_tolerance=amplitude_tolerance,
            provoke_overflow=lambda: lose_received(receiver),
            provoke_underflow=lambda: lose_sent(sender),
            ready=opened.ready,
        )


class TestGnuRadio(RadioContract):
    @pytest.fixture
    def pair(self) -> Iterator[Pair]:
        with pair_of(lab_of(delay_samples=2.4, taps=[[0, 0.0], [3, -12.0]], gain_db=-6.0), 1e-2) as made:
            yield made
