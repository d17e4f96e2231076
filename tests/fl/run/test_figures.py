"""The pictures of a run: whole files that show something, whatever the run was like."""

import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.figure import Figure

from fl.privacy.ledger import read_ledger
from fl.run import figures, run
from fl.run.folder import RunFolder

Tiny = Callable[..., dict[str, Any]]
NAMES = ["learning.png", "power.png", "privacy.png"]
pytestmark = pytest.mark.usefixtures("one_thread", "no_waiting")


def assert_picture(path: Path) -> None:
    """A PNG whose chunks are whole, of a size to look at, and not one colour."""
    content = path.read_bytes()
    assert content.startswith(b"\x89PNG\r\n\x1a\n")
    place, kinds, pixels = 8, [], b""
    width = height = 0
    while place < len(content):
        (length,) = struct.unpack(">I", content[place : place + 4])
        kind, body = content[place + 4 : place + 8], content[place + 8 : place + 8 + length]
        (checksum,) = struct.unpack(">I", content[place + 8 + length : place + 12 + length])
        assert zlib.crc32(kind + body) == checksum
        if kind == b"IHDR":
            width, height = struct.unpack(">II", body[:8])
        if kind == b"IDAT":
            pixels += body
        kinds.append(kind)
        place += 12 + length
    assert kinds[0] == b"IHDR"
    assert kinds[-1] == b"IEND"
    assert width > 500
    assert height > 300
    assert len(set(zlib.decompress(pixels)[::97])) > 10
    assert len(content) > 10_000


@pytest.mark.parametrize(
    "sections",
    [
        {"jammer": {"role": "rotating"}, "power": {"channel_epsilon": 50.0}, "privacy": {"budget_epsilon": 6.0}},
        {"uplink": {"uplinks": 1}},
        {"uplink": {"kind": "ideal", "uplinks": 2}},
        {"privacy": {"label": "client", "delta": 0.9}, "uplink": {"uplinks": 2}},
    ],
    ids=["normal", "one uplink", "ideal", "epsilon 0"],
)
def test_pictures_of_runs(tmp_path: Path, tiny: Tiny, sections: dict[str, Any]) -> None:
    result = run(tiny(**sections), tmp_path / "run")
    folder = result.out / "figures"
    assert {path.name for path in folder.iterdir()} >= set(NAMES)
    for name in NAMES:
        assert_picture(folder / name)


def test_a_run_that_sent_nothing_has_no_pictures(tmp_path: Path, tiny: Tiny) -> None:
    result = run(tiny(privacy={"budget_epsilon": 1e-3}), tmp_path / "run")
    assert result.uplinks == 0
    assert not (result.out / "figures").exists()


@pytest.fixture
def folder(tmp_path: Path, tiny: Tiny, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    with monkeypatch.context() as patch:
        patch.setattr(figures, "draw_run", lambda folder: None)
        return RunFolder(run(tiny(uplink={"uplinks": 3}), tmp_path / "run").out)


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> dict[str, Figure]:
    """Figures are kept instead of written."""
    kept: dict[str, Figure] = {}
    monkeypatch.setattr(figures, "save_figure", lambda figure, path: kept.update({path.stem: figure}))
    return kept


def lines_of(figure: Figure) -> dict[str, np.ndarray]:
    return {
        f"{number}: {line.get_label()}": np.asarray(line.get_ydata())
        for number, panel in enumerate(figure.axes)
        for line in panel.lines
    }


def test_what_they_show_is_what_the_folder_holds(folder: RunFolder, drawn: dict[str, Figure]) -> None:
    figures.draw_run(folder)
    rows = folder.metrics()
    shown = lines_of(drawn["learning"])
    np.testing.assert_allclose(next(iter(shown.values())), [100 * row["accuracy"] for row in rows])
    np.testing.assert_allclose(shown["1: training data"], [row["loss"] for row in rows])
    np.testing.assert_allclose(shown["1: test data"], [row["test_loss"] for row in rows])
    privacy = lines_of(drawn["privacy"])
    np.testing.assert_allclose(privacy["0: paper-claim, paper"], [row["epsilon"] for row in rows], rtol=1e-9)
    assert "0: client, exact" in privacy
    assert "0: record, exact: infinite" in privacy
    power = lines_of(drawn["power"])
    np.testing.assert_allclose(power["0: noise"], [row["noise_norm"] for row in rows])


def test_no_epsilon_without_what_it_means(folder: RunFolder, drawn: dict[str, Figure]) -> None:
    figures.draw_run(folder)
    title = drawn["privacy"].axes[0].get_title()
    for part in ("1e-05", "zero-out", "simulated"):
        assert part in title


def test_what_was_wanted_and_spent_stands_beside_what_was_learned(folder: RunFolder, drawn: dict[str, Figure]) -> None:
    figures.draw_run(folder)
    wanted, rows = folder.config().privacy.epsilon, folder.metrics()
    target = next(line for line in drawn["privacy"].axes[0].lines if "target" in str(line.get_label()))
    assert list(np.asarray(target.get_ydata())) == [wanted, wanted]
    assert f"{wanted:g} (paper-claim, paper)" in str(target.get_label())
    top = drawn["learning"].axes[-1]
    assert "epsilon spent (paper-claim, paper)" in top.get_xlabel()
    assert [label.get_text() for label in top.get_xticklabels()] == [f"{row['epsilon']:.3g}" for row in rows]
    assert list(top.get_xticks()) == [1, 2, 3]


@pytest.mark.parametrize(("uplinks", "marked"), [(1, [1]), (6, [1, 2, 3, 4, 5, 6]), (30, [5, 10, 15, 20, 25, 30])])
def test_what_was_spent_is_marked_at_equal_distances(uplinks: int, marked: list[int], folder: RunFolder) -> None:
    rows = [{"uplink": number + 1, "epsilon": 1.0 + number} for number in range(uplinks)]
    panel = Figure().add_subplot()
    figures._spent_above(panel, rows, folder.config())
    assert list(panel.figure.axes[-1].get_xticks()) == marked


def test_back_off_and_the_jammers_amplitude_have_axes_of_their_own(folder: RunFolder, drawn: dict[str, Figure]) -> None:
    figures.draw_run(folder)
    labels = [panel.get_ylabel() for panel in drawn["power"].axes]
    assert len(labels) == len(set(labels)) == 3
    assert [len(panel.lines) for panel in drawn["power"].axes] == [3, 1, 1]


def test_infinite_epsilon_is_said_in_words(tmp_path: Path, tiny: Tiny, drawn: dict[str, Figure]) -> None:
    run(tiny(uplink={"kind": "ideal", "uplinks": 2}), tmp_path / "run")
    panel = drawn["privacy"].axes[0]
    assert [text.get_text() for text in panel.texts] == ["epsilon is infinite"]
    assert any(": infinite" in str(line.get_label()) for line in panel.lines)
    top = drawn["learning"].axes[-1]
    assert [label.get_text() for label in top.get_xticklabels()] == ["infinite", "infinite"]


def test_epsilon_that_becomes_infinite_is_drawn_until_then() -> None:
    figure = Figure()
    panel = figure.add_subplot()
    figures._curve(panel, [1.0, 2.0, np.inf], "-", "blue", "record, exact")
    assert str(panel.lines[0].get_label()) == "record, exact: infinite from transmission 3 on"
    np.testing.assert_array_equal(np.asarray(panel.lines[0].get_ydata()), [1.0, 2.0, np.nan])


def test_transmissions_that_were_charged_twice_are_in_the_picture(folder: RunFolder, drawn: dict[str, Figure]) -> None:
    """Privacy is drawn from the ledger, so a repeated uplink shows, and the curve ends where the ledger ends."""
    from fl.privacy.ledger import Ledger

    ledger = Ledger.open(folder.ledger_path)
    ledger.authorise(next(iter(ledger.mechanisms.values())))
    figures.draw_run(folder)
    curve = lines_of(drawn["privacy"])["0: paper-claim, paper"]
    assert len(curve) == read_ledger(folder.ledger_path).authorised == 4
    assert np.all(np.diff(curve) > 0)


def test_metrics_with_infinite_values_are_drawn(folder: RunFolder) -> None:
    rows = folder.metrics()
    rows[1].update({"loss": "inf", "test_loss": "inf", "backoff_max": "inf", "noise_norm": "inf"})
    folder.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    figures.draw_run(folder)
    for name in NAMES:
        assert_picture(folder.figures_path / name)


def test_drawing_again_replaces(folder: RunFolder) -> None:
    folder.figures_path.mkdir()
    (folder.figures_path / "learning.png").write_bytes(b"half a picture")
    (folder.figures_path / ".power.png.tmp").write_bytes(b"left by a kill")
    figures.draw_run(folder)
    assert sorted(path.name for path in folder.figures_path.iterdir()) == NAMES
    for name in NAMES:
        assert_picture(folder.figures_path / name)
