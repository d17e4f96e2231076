"""The report in a real browser: it renders, nothing overflows from phone to desk, it prints, it asks for nothing."""

import json
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any

import matplotlib.image
import numpy as np
import pytest

from fl.report import write_report
from tests.fl.report.report_material import exact, losses, paper

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no browser: apt-get install --no-install-recommends chromium")
WIDTHS = (360, 768, 1200)
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)
# Every frame is a copy of the page at one width. Boxes outside the frame count unless their box scrolls, texts of a
# picture unless they lie within it.
MEASURE = """
const widths = WIDTHS, page = PAGE, found = {};
const done = widths.map(width => new Promise(resolve => {
  const frame = document.createElement("iframe");
  frame.style.cssText = `border: 0; width: ${width}px; height: 900px`;
  frame.onload = () => {
    const view = frame.contentDocument, out = [], lost = [];
    for (const element of view.body.querySelectorAll("*")) {
      const box = element.getBoundingClientRect();
      const free = !element.closest(".scroll, svg");
      if (free && (box.right > width + 1 || box.left < -1)) out.push(element.outerHTML.slice(0, 99));
    }
    for (const text of view.querySelectorAll("svg text")) {
      const box = text.getBoundingClientRect(), whole = text.closest("svg").getBoundingClientRect();
      const inside = box.left > whole.left - 2 && box.right < whole.right + 2 && box.bottom < whole.bottom + 2;
      if (!inside) lost.push(text.textContent);
    }
    found[width] = {
      client: view.documentElement.clientWidth, scroll: view.documentElement.scrollWidth, out, lost,
      pictures: [...view.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect().width),
      smallest: Math.min(...[...view.querySelectorAll("svg text")].map(text => text.getBoundingClientRect().height)),
      tables: Object.fromEntries([...view.querySelectorAll("table")].map(table => [table.caption.innerText,
        [...table.tBodies].flatMap(body => [...body.rows].map(row => [...row.cells].map(cell => cell.innerText)))])),
      wide: [...view.querySelectorAll(".scroll")].filter(box => box.scrollWidth > box.clientWidth + 1)
        .map(box => box.querySelector("caption").innerText),
    };
    resolve();
  };
  frame.srcdoc = page;
  document.body.append(frame);
}));
Promise.all(done).then(() => { document.body.innerHTML = ""; document.body.append(JSON.stringify(found)); });
"""


@pytest.fixture(scope="module")
def sweeps(algorithms: Path, jammer: Path) -> tuple[Path, Path]:
    return algorithms, jammer


@pytest.fixture(scope="module")
def page(sweeps: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_report(sweeps, tmp_path_factory.mktemp("browser") / "report.html")


def browse(folder: Path, *arguments: str, page: Path) -> str:
    """stdout of a browser that has opened the page."""
    done = subprocess.run(
        [str(CHROMIUM), *OPTIONS, f"--user-data-dir={folder / 'profile'}", *arguments, page.as_uri()],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    return done.stdout


@pytest.fixture(scope="module")
def measured(page: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the browser makes of the page at each width; the copy has no policy, which would keep the script out."""
    folder = tmp_path_factory.mktemp("measured")
    copy = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page.read_text())
    assert len(copy) < len(page.read_text())
    text = json.dumps(copy).replace("<", "\\u003c")
    script = MEASURE.replace("WIDTHS", json.dumps(WIDTHS)).replace("PAGE", text)
    (folder / "measure.html").write_text(
        f'<!doctype html><html><meta charset="utf-8"><body><script>{script}</script></body></html>'
    )
    dom = browse(folder, "--dump-dom", "--virtual-time-budget=20000", page=folder / "measure.html")
    (found,) = re.findall(r"<body>(\{.*\})</body>", dom, re.DOTALL)
    result: dict[str, Any] = json.loads(unescape(found))
    return result


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_overflows(measured: dict[str, Any], width: int) -> None:
    view = measured[str(width)]
    assert view["client"] == width
    assert view["scroll"] <= width
    assert view["out"] == []
    assert view["lost"] == []
    # Three pictures of one panel, three of two.
    assert len(view["pictures"]) == 12
    assert all(0.28 * width < picture <= width for picture in view["pictures"])
    assert view["smallest"] > 8


def test_tables_fit_a_desk(measured: dict[str, Any]) -> None:
    """Nobody should have to scroll for a label that an epsilon must be read with."""
    assert measured["1200"]["wide"] == []


def test_the_browser_shows_the_ledgers_epsilons(sweeps: tuple[Path, Path], measured: dict[str, Any]) -> None:
    (title,) = (title for title in measured["360"]["tables"] if title.startswith("Epsilon"))
    rows = measured["360"]["tables"][title]
    # Of two tables with one caption the object keeps the last: the jammer's.
    folder = sweeps[1] / "upcycled-fl_epsilon-2"
    ledgers = list(folder.glob("*/ledger.jsonl"))
    name, _, claim, noise, shown, free, tightest, *_, rests = rows[0]
    # No line ends within "ε = 2".
    assert (name, claim, noise) == ("Upcycled-FL, ε\u00a0=\u00a02", "2", "at the bound (factor removed)")
    spent = [losses(path, factor=7.0) for path in ledgers]
    assert float(shown.split("–")[0].split()[0]) == pytest.approx(min(paper(s, 1e-5) for s in spent), rel=6e-4)
    assert float(tightest.split("–")[0]) == pytest.approx(min(exact(s, 1e-5) for s in spent), rel=6e-4)
    assert free.split() == ["2.000", "+0.0", "%", "✓"]
    assert rests.split("\n") == ["paper-claim", "zero-out", "σ simulated"]
    sent = [paper(losses(path), 1e-5) for path in ledgers]
    assert rows[1][2] == "as sent"
    assert float(rows[1][3].split("–")[0]) == pytest.approx(min(sent), rel=6e-4)


def test_the_page_as_it_is_renders(page: Path, tmp_path: Path) -> None:
    """The real file, policy and all: style and pictures are there."""
    picture = tmp_path / "page.png"
    browse(tmp_path, "--window-size=1200,3000", f"--screenshot={picture}", page=page)
    pixels = matplotlib.image.imread(picture)[..., :3]
    assert pixels.shape[:2] == (3000, 1200)
    inked = float(np.mean(pixels.min(axis=-1) < 0.9))
    assert 0.02 < inked < 0.4
    for colour in ("#0072B2", "#D55E00", "#009E73"):
        wanted = np.array([int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)])
        assert np.count_nonzero(np.abs(pixels - wanted).max(axis=-1) < 0.02) > 50


@pytest.fixture(scope="module")
def printed(page: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("printed")
    browse(folder, "--no-pdf-header-footer", f"--print-to-pdf={folder / 'page.pdf'}", page=page)
    return folder / "page.pdf"


def test_it_prints_on_a4(printed: Path) -> None:
    content = printed.read_bytes()
    assert content.startswith(b"%PDF-")
    # Two studies of 2 to 8 pages, the second on a new one.
    assert 4 <= len(re.findall(rb"/Type /Page\b(?!s)", content)) <= 16
    boxes = re.findall(rb"/MediaBox \[0 0 ([\d.]+) ([\d.]+)\]", content)
    # Upright, in points.
    assert {(round(float(width)), round(float(height))) for width, height in boxes} == {(595, 842)}


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="no pdftotext: apt-get install poppler-utils")
def test_what_is_folded_on_screen_is_printed(printed: Path) -> None:
    read = subprocess.run(["pdftotext", "-layout", printed, "-"], capture_output=True, text=True, check=True)
    text = " ".join(read.stdout.split())
    assert "A trial that is run again with the same versions" in text
    assert text.count("finished") == 9 + 8
    assert "It is not a guarantee for these runs" in text
    # Whole configs would fill pages: they are in the folders.
    assert "Whole config:" not in text
    assert "The whole config of each curve is in the page on screen" in text
