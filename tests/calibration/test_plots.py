import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure

from calibration.diagnostics import diagnose_silence
from calibration.errors import MeasurementError
from calibration.noise import noise_of
from calibration.plots import (
    constellation_figure,
    draw_noise,
    histogram_figure,
    psd_figure,
    residual_phase_figure,
    save_figure,
)
from calibration.silence import observe_silence
from tests.calibration.silences import DEFAULT, NOISE_VAR_REAL, coloured, tone, white

PNG = b"\x89PNG\r\n\x1a\n"


def texts(figure: Figure) -> str:
    legends = [legend for axes in figure.axes if (legend := axes.get_legend())] + figure.legends
    labels = [text.get_text() for legend in legends for text in legend.get_texts()]
    return "\n".join([text.get_text() for axes in figure.axes for text in axes.texts] + labels)


def test_noise_is_drawn_into_three_pictures(tmp_path: Path) -> None:
    silence = observe_silence(white(32, np.random.default_rng(90)), DEFAULT)
    paths = draw_noise(tmp_path / "figures", silence, noise_of(silence), diagnose_silence(silence))
    assert [path.name for path in paths] == ["noise_psd.png", "noise_histogram.png", "noise_constellation.png"]
    assert all(path.read_bytes().startswith(PNG) for path in paths)
    assert sorted(path.name for path in (tmp_path / "figures").iterdir()) == sorted(path.name for path in paths)


def test_spectrum_marks_spurs_and_what_is_accounted() -> None:
    noise = white(64, np.random.default_rng(91))
    silence = observe_silence(noise + tone(noise.size, 37.4, 2e-3) + np.complex64(0.01), DEFAULT)
    figure = psd_figure(silence, noise_of(silence))
    shown = texts(figure)
    assert "+730.5 kHz" in shown
    assert "DC offset" in shown
    assert "left out of the pooled value" in shown
    quietest = observe_silence(coloured(64, np.random.default_rng(92)), DEFAULT)
    assert "accounted (bin" in texts(psd_figure(quietest, noise_of(quietest)))


def test_histogram_can_be_linear_or_logarithmic() -> None:
    values = white(16, np.random.default_rng(93))
    assert histogram_figure(values, NOISE_VAR_REAL).axes[0].get_yscale() == "log"
    assert histogram_figure(values, NOISE_VAR_REAL, log=False).axes[0].get_yscale() == "linear"


def test_constellation_shows_what_was_sent() -> None:
    sent = np.exp(1j * np.pi / 2 * np.arange(4)).astype(np.complex64).repeat(2000)
    noise = white(32, np.random.default_rng(94))[: sent.size]
    figure = constellation_figure(sent + 50 * noise, sent, noise_std_real=0.05)
    assert "sent" in texts(figure)
    assert len(figure.axes[0].collections[0].get_offsets()) <= 4000


def test_residual_phase_names_the_worst_transmitters(tmp_path: Path) -> None:
    rng = np.random.default_rng(95)
    phases = {f"client {number}": 0.01 * number * rng.standard_normal(16) for number in range(1, 11)}
    figure = residual_phase_figure(phases, dict.fromkeys(phases, 0.01))
    assert "client 10:" in texts(figure)
    assert "client 1:" not in texts(figure)
    assert "4 others" in figure.axes[0].get_title()
    save_figure(residual_phase_figure({"client 1": phases["client 1"]}, {"client 1": 0.01}), tmp_path / "one.png")
    assert (tmp_path / "one.png").read_bytes().startswith(PNG)


def test_nothing_to_draw_is_an_error() -> None:
    empty = np.zeros(0, dtype=np.complex64)
    for draw in (
        lambda: constellation_figure(empty),
        lambda: histogram_figure(empty, 1.0),
        lambda: histogram_figure(np.ones(4, dtype=np.complex64), 0.0),
        lambda: residual_phase_figure({}),
    ):
        with pytest.raises(MeasurementError):
            draw()


def test_measuring_does_not_load_matplotlib_and_drawing_not_its_global_state() -> None:
    code = (
        "import sys, calibration.record, calibration.links\n"
        "assert 'matplotlib' not in sys.modules\n"
        "import calibration.plots\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    repository = Path(__file__).resolve().parents[2]
    subprocess.run([sys.executable, "-c", code], check=True, cwd=repository, timeout=240)
