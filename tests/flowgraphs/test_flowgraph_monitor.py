"""The monitor's window, on a virtual screen: it shows what is received, and shows something else when that changes."""

import os
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import zmq
from numpy.typing import NDArray
from PIL import ImageGrab

from flowgraphs.build import build
from flowgraphs.runtime import FlowgraphProcess, gnuradio_python
from phy.modem import modulate
from phy.numerology import Numerology
from tests.flowgraphs.streams import Streams, encode
from tests.gnuradio_needed import needs_gnuradio

pytestmark = [
    needs_gnuradio,
    pytest.mark.skipif(shutil.which("Xvfb") is None, reason="Xvfb is not installed: apt-get install xvfb"),
]

RATE_HZ, WIDTH, HEIGHT = 4e6, 1700, 900
BLOCK = 8192
TIMEOUT_S = 60.0
# What a window restores when it opens is what it saved when it was closed.
SAVE_SIZE = f"""
from PyQt5 import QtCore, QtWidgets
application = QtWidgets.QApplication([])
window = QtWidgets.QWidget()
window.setGeometry(0, 0, {WIDTH}, {HEIGHT})
QtCore.QSettings("GNU Radio", "ps_monitor").setValue("geometry", window.saveGeometry())
"""
Picture = NDArray[np.uint8]
Signal = Callable[[int], NDArray[np.complex128]]


@pytest.fixture
def screen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A virtual screen, and a home for the window's settings."""
    told, tells = os.pipe()
    with subprocess.Popen(
        # Not begun anew when the last window closes: who comes at that moment would find no screen.
        ["Xvfb", "-displayfd", str(tells), "-noreset", "-screen", "0", f"{WIDTH}x{HEIGHT}x24", "-nolisten", "tcp"],
        pass_fds=[tells],
        stderr=subprocess.DEVNULL,
    ) as server:
        os.close(tells)
        with os.fdopen(told) as answer:
            display = f":{answer.readline().strip()}"
        monkeypatch.setenv("DISPLAY", display)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        tmp_path.chmod(0o700)
        subprocess.run([gnuradio_python(), "-c", SAVE_SIZE], check=True)
        yield display
        server.terminate()


@contextmanager
def published(socket: "zmq.Socket[bytes]", signal: Signal) -> Iterator[None]:
    """Publish a signal, given by where in it to begin, for as long as this lasts."""
    over = threading.Event()

    def send() -> None:
        place = 0
        while not over.wait(0.005):
            socket.send(encode(signal(place), place))
            place += BLOCK

    thread = threading.Thread(target=send)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def tone(frequency_hz: float) -> Signal:
    """With noise, whose line in the spectrum has the width of the plot."""

    def signal(place: int) -> NDArray[np.complex128]:
        noise = np.random.default_rng(place).standard_normal((BLOCK, 2)) @ [1e-3, 1e-3j]
        return noise + 0.5 * np.exp(2j * np.pi * frequency_hz / RATE_HZ * (place + np.arange(BLOCK)))

    return signal


def ofdm(place: int) -> NDArray[np.complex128]:
    numerology = Numerology(sample_rate_hz=RATE_HZ)
    rng = np.random.default_rng(place)
    cells = rng.standard_normal((26, numerology.data_subcarriers, 2)).astype(np.float32)
    return 0.1 * modulate(cells.view(np.complex64)[..., 0], numerology)[:BLOCK].astype(np.complex128)


def spectrum_line(picture: Picture) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Columns and rows of the line in the upper left of the four plots."""
    plot = picture[: HEIGHT // 2, : WIDTH // 2].astype(int)
    rows, columns = np.nonzero((plot[..., 2] > 200) & (plot[..., 0] < 60) & (plot[..., 1] < 60))
    return columns, rows


def eventually(graph: FlowgraphProcess, display: str, shows: Callable[[Picture], bool]) -> Picture:
    """The first picture that shows it."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        picture = np.asarray(ImageGrab.grab(xdisplay=display).convert("RGB"))
        if shows(picture):
            return picture
        graph.require_alive()
        assert time.monotonic() < deadline, "the window does not show it"
        assert not graph.wait(0.2)


def shows_tone(where: tuple[float, float]) -> Callable[[Picture], bool]:
    """Is the highest point of the spectrum within these parts of the line's width, and far above the rest?"""

    def shows(picture: Picture) -> bool:
        columns, rows = spectrum_line(picture)
        if len(columns) < 200:
            return False
        peak = columns[np.argmin(rows)]
        at = (peak - columns.min()) / (columns.max() - columns.min())
        return bool(where[0] < at < where[1] and np.median(rows) - rows.min() > 60)

    return shows


def shows_band(picture: Picture) -> bool:
    """Is the spectrum high and even over the subcarriers, and low at the edges? 192 of 256 are used."""
    columns, rows = spectrum_line(picture)
    if len(columns) < 200:
        return False
    at = (columns - columns.min()) / (columns.max() - columns.min())
    inside, outside = rows[(at > 0.2) & (at < 0.8)], rows[(at < 0.05) | (at > 0.95)]
    return bool(np.median(outside) - np.median(inside) > 30 and np.median(inside) - inside.min() < 60)


def test_the_window_shows_what_is_received_and_changes_with_it(screen: str, streams: Streams) -> None:
    publisher = streams.publisher("monitor")
    values = {"samples_in": streams.address("monitor"), "sample_rate_hz": RATE_HZ}
    with FlowgraphProcess(build("ps_monitor"), values) as graph:
        with published(publisher, tone(-1e6)):
            low = eventually(graph, screen, shows_tone((0.22, 0.28)))
        with published(publisher, tone(1e6)):
            high = eventually(graph, screen, shows_tone((0.72, 0.78)))
        with published(publisher, ofdm):
            band = eventually(graph, screen, shows_band)
        # What is looked for is not found in just any picture.
        assert not shows_tone((0.22, 0.28))(high)
        assert not shows_band(low)
        assert not shows_tone((0.0, 1.0))(band)
        assert not shows_band(np.zeros_like(band))
        for half in np.split(band, 2, axis=0):
            for quarter in np.split(half, 2, axis=1):
                assert len(np.unique(quarter.reshape(-1, 3), axis=0)) > 10
    # SIGTERM is how a window is closed from outside.
    assert graph.exit_code == 0


def fills(width: int, height: int) -> Callable[[Picture], bool]:
    """Is a window of this size in the corner of the screen, and nothing beside it?"""

    def shows(picture: Picture) -> bool:
        seen = np.argwhere(picture.any(axis=2))
        return bool(seen.size) and tuple(seen.max(axis=0) + 1) == (height, width)

    return shows


def test_the_window_opens_as_large_as_the_guide_shows_it(screen: str, tmp_path: Path, streams: Streams) -> None:
    """Where no size is remembered. As small as Qt makes it, it would be 634 x 430 with scroll bars."""
    (tmp_path / "GNU Radio" / "ps_monitor.conf").unlink()
    publisher = streams.publisher("monitor")
    # The rate of `airdp run gnuradio`, whose frequencies have many digits.
    values = {"samples_in": streams.address("monitor"), "sample_rate_hz": RATE_HZ, "center_hz": 2.45e9}
    with FlowgraphProcess(build("ps_monitor"), values) as graph:
        picture = eventually(graph, screen, fills(1280, 800))
        assert not fills(634, 430)(picture)
        with published(publisher, ofdm):
            shown = eventually(graph, screen, lambda picture: shows_band(picture[:800, :1280]))
    # Beside the time signal, where a scroll bar would be.
    assert len(np.unique(shown[400:700, 1262].reshape(-1, 3), axis=0)) == 1
    assert (shown[400:700, 1262] == shown[5, 5]).all()
