"""USRPs keep the contract: unmodified libuhd against virtual ones whose time stands still while nobody receives."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.radio_contract import Pair, RadioContract
from tests.hardware.usrps import Bench, bench_of, lab_of, usrp
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd


def pair_of(bench: Bench, amplitude_tolerance: float) -> Pair:
    lab = bench.opened()
    sender, receiver = usrp(lab, "sender"), usrp(lab, "receiver")

    def send() -> None:
        """A burst, until it is over."""
        start = max(sender.now(), receiver.now()) + sender.lead_samples
        sender.transmit(np.full(5000, 0.5, np.complex64), start)
        receiver.receive(6000, start)

    def starve() -> None:
        """A packet of a burst is lost, which the box says when it sees the next one."""
        send()
        sender.check()
        ask(bench.uris["sender"], lose_tx=1)
        send()

    return Pair(
        sender,
        receiver,
        bench.lab.ps.settings,
        max_delay_samples=40,
        amplitude_tolerance=amplitude_tolerance,
        # A box is ahead of what was received by what its sockets hold: a test cannot say where a hole begins.
        provoke_overflow=None,
        provoke_underflow=starve,
        ready=lab.ready,
    )


@pytest.fixture(scope="module")
def plain() -> Iterator[Bench]:
    with bench_of(lab_of()) as bench:
        yield bench


@pytest.fixture(scope="module")
def harsh() -> Iterator[Bench]:
    medium: dict[str, Any] = {
        "delay_samples": 13.37,
        "taps": [[0, 0.0], [3, -8.0]],
        "iq_image_db": -35.0,
        "dc_offset_dbfs": -50.0,
        "adc_bits": 14,
    }
    with bench_of(lab_of(**medium)) as bench:
        yield bench


class TestUsrp(RadioContract):
    @pytest.fixture
    def pair(self, plain: Bench) -> Iterator[Pair]:
        yield pair_of(plain, 1e-3)
        plain.close_radios()
        plain.assert_silent()


class TestUsrpInHarshAir(RadioContract):
    @pytest.fixture
    def pair(self, harsh: Bench) -> Iterator[Pair]:
        yield pair_of(harsh, 5e-3)
        harsh.close_radios()
        harsh.assert_silent()
