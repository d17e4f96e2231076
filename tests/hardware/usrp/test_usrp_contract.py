"""USRPs keep the contract: unmodified libuhd against virtual ones whose time stands still while nobody receives."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from hardware.virtual.usrp2.side_channel import ask
from tests.hardware.radio_contract import LEAD_SAMPLES, Pair, RadioContract, waveform
from tests.hardware.usrps import Bench, bench_of, lab_of, usrp
from tests.uhd_needed import needs_uhd

pytestmark = needs_uhd


def pair_of(bench: Bench, amplitude_tolerance: float) -> Pair:
    lab = bench.opened()
    sender, receiver = usrp(lab, "sender"), usrp(lab, "receiver")

    def overflow() -> int:
        """At a tick that the box cannot have reached: it is ahead of what was received by what its socket holds."""
        start = receiver.now() + receiver.lead_samples
        ask(bench.uris["receiver"], at=start * receiver._count.per_sample, overflow=1)
        return start

    def underflow() -> None:
        """A burst that the box was starved of in the middle: the sender says so with the next one."""
        burst = waveform(4000)
        start = max(sender.now(), receiver.now()) + receiver.lead_samples + LEAD_SAMPLES
        sender.transmit(burst, start)
        ask(bench.uris["sender"], at=(start + 500) * sender._count.per_sample, starve=1)
        receiver.receive(4000, start)
        # The box has said it by then, and a thread is about to hear it.
        stream = sender._tx
        assert stream is not None
        deadline_s = time.monotonic() + 30
        while stream.unsent(start) and time.monotonic() < deadline_s:
            time.sleep(0.001)

    return Pair(
        sender,
        receiver,
        bench.lab.ps.settings,
        max_delay_samples=40,
        amplitude_tolerance=amplitude_tolerance,
        provoke_overflow=overflow,
        provoke_underflow=underflow,
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
