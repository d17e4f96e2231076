"""GNU Radio's own Pluto blocks on our emulated Plutos: they take them for hardware, and a tone gets through."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import zmq
from numpy.typing import NDArray

from hardware.pluto.context import PlutoContext
from tests.flowgraphs.streams import Feed, Running, Streams
from tests.gnuradio_needed import needs_gnuradio
from tests.hardware.plutos import Bench

pytestmark = needs_gnuradio

RATE_HZ, TONE_HZ, BINS = 4e6, 123e3, 16384
RADIO = {"sample_rate_hz": RATE_HZ, "center_hz": 2.45e9, "bandwidth_hz": 4e6}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path)
    made.start()
    yield made
    made.stop()


class Tone:
    """Sent on and on: a radio takes what it is given for as long as it runs."""

    def __init__(self, feed: Feed) -> None:
        self._feed, self._stop = feed, threading.Event()
        self._thread = threading.Thread(target=self._send)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _send(self) -> None:
        while not self._stop.is_set():
            if self._feed.socket.poll(50, zmq.POLLOUT):
                place = self._feed.sent + np.arange(8192)
                self._feed.send(0.5 * np.exp(2j * np.pi * TONE_HZ / RATE_HZ * place))


def strongest(samples: NDArray[np.complex64]) -> tuple[float, float]:
    """The frequency of the strongest line, and its amplitude."""
    spectrum = np.fft.fft(samples * np.hanning(BINS)) / (BINS / 2)
    peak = int(np.argmax(np.abs(spectrum)))
    return float(np.fft.fftfreq(BINS, 1 / RATE_HZ)[peak]), float(np.abs(spectrum[peak]))


def test_a_tone_that_a_client_sends_arrives_at_the_server(bench: Bench, streams: Streams) -> None:
    with (
        Running(
            "client_tx",
            choices={"device": "pluto"},
            **RADIO,
            tx_gain_db=0.0,
            pluto_uri=bench.uris["client-1"],
            samples_in=streams.address("tone"),
        ) as client,
        Running(
            "ps_rx",
            choices={"device": "pluto"},
            **RADIO,
            rx_gain_db=0.0,
            pluto_uri=bench.uris["ps"],
            samples_out=streams.address("received"),
            monitor_out=streams.address("monitor"),
        ),
    ):
        feed, tap = streams.feed("tone"), streams.tap("received")
        with Tone(feed):
            tap.take(8 * BINS)
            tone_hz, loud = strongest(tap.take(BINS))
            assert abs(tone_hz - TONE_HZ) <= RATE_HZ / BINS
            assert loud > 0.01

            # The gain is the radio's own, not a factor.
            client.set(tx_gain_db=-20.0)
            tap.take(64 * BINS)
            tone_hz, soft = strongest(tap.take(BINS))
            assert abs(tone_hz - TONE_HZ) <= RATE_HZ / BINS
            assert soft / loud == pytest.approx(0.1, rel=0.1)
            context = PlutoContext("client-1", bench.uris["client-1"], 5.0)
            try:
                assert float(context.read("voltage0", "hardwaregain", output=True).split()[0]) == -20.0
            finally:
                context.destroy()
    # A graph that has ended sends nothing.
    context = PlutoContext("client-1", bench.uris["client-1"], 5.0)
    try:
        assert float(context.phy.debug_attrs["airdp_tx_power"].value) == 0.0
    finally:
        context.destroy()
