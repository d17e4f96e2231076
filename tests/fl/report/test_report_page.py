"""The page of `airdp report` as a file: whole, self-contained, safe, the same every time."""

import itertools
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest

import fl.report.writing
import fl.run.arithmetic
from fl.report import build_report, write_report
from fl.report.writing import Report
from tests.fl.report.report_material import (
    NAMES,
    SLUGS,
    make_sweep,
    results,
    table,
    tables_of,
    without_pictures,
)


class _Reader(HTMLParser):
    """Elements and what they load or link to."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.links: list[tuple[str, str]] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        names = ("href", "xlink:href", "src", "srcset", "data", "action", "poster")
        self.links += [(tag, value or "") for name, value in attrs if name in names]


@pytest.fixture(scope="module")
def both(algorithms: Path, jammer: Path) -> Report:
    """One page about two sweeps, with one axis and with two."""
    return build_report([algorithms, jammer], algorithms / "report.html", bound=False)


def images_of(page: str) -> list[ElementTree.Element]:
    return [ElementTree.fromstring(image) for image in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]  # noqa: S314


def texts_of(image: ElementTree.Element) -> list[str]:
    return ["".join(text.itertext()) for text in image.iter("{http://www.w3.org/2000/svg}text")]


def test_it_needs_nothing_else(both: Report) -> None:
    reader = _Reader(both.page)
    assert not {"script", "img", "link", "iframe", "object", "embed", "base", "form"} & set(reader.tags)
    assert "default-src 'none'" in both.page
    outside = [(tag, link) for tag, link in reader.links if not link.startswith("#")]
    # Links to its own figures, which are not loaded, and nothing else.
    assert {tag for tag, _ in outside} == {"a"}
    assert {link for _, link in outside} == set(both.files)
    assert "@import" not in both.page
    assert set(re.findall(r"url\((.)", both.page)) == {"#"}


def test_structure(both: Report) -> None:
    page = both.page
    assert page.startswith("<!doctype html>")
    assert '<html lang="en">' in page
    identities = re.findall(r'\bid="([^"]*)"', page)
    assert len(identities) == len(set(identities))
    for attribute in ("aria-labelledby", "href"):
        for target in re.findall(rf'{attribute}="#?([^"]*)"', page):
            assert target in identities or target in both.files
    used = re.findall(r"url\(#([^)]*)\)", page)
    assert used
    assert set(used) <= set(identities)
    assert page.count("<table") == page.count("<caption") == page.count('class="scroll"')
    assert page.count("<th ") == page.count('<th scope="')
    for body in re.findall(r"<tbody>(.*?)</tbody>", page, re.DOTALL):
        assert body.count("<tr>") == len(re.findall(r'<tr>\s*<th scope="row">', body))
    for body in re.findall(r'<tbody class="group">(.*?)</tbody>', page, re.DOTALL):
        assert re.match(r'\s*<tr>\s*<th scope="row(group)?"', body)
    assert "<h1>2 experiments</h1>" in page
    levels = [int(level) for level in re.findall(r"<h([1-6])", page)]
    assert levels[:3] == [1, 2, 3]
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_pictures_say_what_they_show(algorithms: Path, both: Report) -> None:
    images = images_of(both.page.split('id="jammer-test"')[0])
    assert len(images) == 4
    for image in images:
        assert image.get("role") == "img"
        assert set(NAMES) <= set(texts_of(image))
    accuracies = [result["accuracy"] for result in results(algorithms, "fedavg")]
    label = images[0].get("aria-label") or ""
    assert f"{100 * np.mean(accuracies):.4g} after 4 uplinks" in label.split("FedAvg: ")[1]
    assert [
        ("model iterations" in texts_of(image), "training loss in nats" in texts_of(image)) for image in images
    ] == [
        (False, False),
        (True, False),
        (False, True),
        (False, False),
    ]
    assert "epsilon" in (images[3].get("aria-label") or "").lower() or "ε" in " ".join(texts_of(images[3]))
    assert both.page.count("Algorithm upcycled: 2 model iterations for each uplink.") == 8


def test_lines_are_where_the_means_are(algorithms: Path, both: Report) -> None:
    """Heights of a curve's ends in the SVG, by the scale of the axis's ticks."""
    image = images_of(both.page)[2]
    places = {}
    for group in image.iter("{http://www.w3.org/2000/svg}g"):
        (mark, text) = (group.find(".//{*}use"), group.find(".//{*}text"))
        if "ytick" in group.get("id", "") and mark is not None and text is not None:
            places[float("".join(text.itertext()).replace("\u2212", "-"))] = float(mark.get("y", "nan"))
    (low, y_low), (high, y_high) = min(places.items()), max(places.items())
    paths = [path.get("d", "") for path in image.iter("{http://www.w3.org/2000/svg}path")]
    trained = [[row["loss"] for row in _metrics(path)] for path in sorted(algorithms.glob("fedavg/*/metrics.jsonl"))]
    heights = y_low + (np.mean(trained, axis=0) - low) / (high - low) * (y_high - y_low)
    curves = [
        np.array(re.findall(r"[ML] (\S+) (\S+)", path), dtype=float)[:, 1] for path in paths if path.count("L") == 3
    ]
    assert any(np.allclose(curve, heights, atol=0.01) for curve in curves)


def _metrics(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_the_first_of_two_axes_makes_the_panels(both: Report) -> None:
    figures = re.findall(r"<figure.*?</figure>", both.page.split('id="jammer-test"')[1], re.DOTALL)
    assert len(figures) == 4
    for figure in figures:
        panels = images_of(figure)
        assert [(panel.get("aria-label") or "").split(":")[0] for panel in panels] == NAMES[:2]
        assert all({"ε = 2", "ε = 1"} <= set(texts_of(panel)) for panel in panels)


def test_files_beside_the_page(both: Report, tmp_path: Path) -> None:
    page, *files = both.write(tmp_path / "deep" / "page.html")
    assert page.read_text() == both.page
    names = {
        f"report-files/{study}-{picture}.{suffix}"
        for study in ("algorithms", "jammer-test")
        for picture in ("accuracy", "accuracy-iterations", "loss", "epsilon")
        for suffix in ("png", "pdf")
    }
    assert {str(path.relative_to(tmp_path / "deep")) for path in files} == names
    assert {path.name for path in (tmp_path / "deep").iterdir()} == {"page.html", "report-files"}
    for path in files:
        content = path.read_bytes()
        assert content.startswith(b"%PDF-1" if path.suffix == ".pdf" else b"\x89PNG\r\n\x1a\n")
        assert len(content) > 5000


def test_the_same_folder_makes_the_same_bytes(algorithms: Path, both: Report) -> None:
    again = build_report([algorithms], algorithms / "report.html", bound=False)
    assert again.files == {name: both.files[name] for name in again.files}
    assert len(again.files) == 8
    images = re.findall(r"<svg.*?</svg>", again.page, re.DOTALL)
    assert images == re.findall(r"<svg.*?</svg>", both.page, re.DOTALL)[:4]


def test_writing_again_replaces(algorithms: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.report.writing, "draw_study", lambda study, key: [])
    (tmp_path / "page.html").write_text("half a page")
    assert write_report([algorithms], tmp_path / "page.html", bound=False) == tmp_path / "page.html"
    assert (tmp_path / "page.html").read_text() == without_pictures(algorithms)


def test_two_studies_of_one_name(algorithms: Path, tmp_path: Path) -> None:
    page = without_pictures(algorithms, Path(shutil.copytree(algorithms, tmp_path / "copy")))
    identities = re.findall(r'\bid="([^"]*)"', page)
    assert len(identities) == len(set(identities))
    assert {"algorithms", "algorithms-2"} <= set(identities)


def test_names_are_text(tmp_path: Path) -> None:
    points = [{"name": "<b>&amp; $x_1$</b>"}, {"name": "_under \u202e\u0007 ☃ 漢"}]
    sweep = {
        "name": "names",
        "title": "<script>alert(1)</script>",
        "description": "</style><img src=x onerror=alert(1)>\nnext line",
        "trials": 1,
        "set": {"uplink.uplinks": 1},
        "axis": [{"name": '"><i>axis</i>', "point": points}],
    }
    folder = make_sweep(tmp_path / "names", sweep)
    page = build_report([folder], folder / "report.html", bound=False).page
    assert not {"script", "img", "b", "i"} & set(_Reader(page).tags)
    for raw in ("\u202e", "\u0007", "<b>"):
        assert raw not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    texts = texts_of(images_of(page)[0])
    assert {"<b>&amp; $x_1$</b>", "_under \ufffd\ufffd ☃ 漢"} <= set(texts)
    rows = table(page, "The last model")[1:]
    assert [row[0] for row in rows] == ["<b>&amp; $x_1$</b>", "_under \ufffd\ufffd ☃ 漢"]


def test_settings(both: Report) -> None:
    head, *rows = table(both.page.split('id="jammer-test"')[1], "Where the curves differ")
    assert head == ["curve", "algorithm.name", "privacy.epsilon"]
    assert rows[0] == ["Upcycled-FL, ε = 2", '"upcycled"', "2.0"]
    assert rows[3] == ["FedProx, ε = 1", '"fedprox"', "1.0"]
    text = both.page.split('id="jammer-test-settings"')[1]
    shared_keys = text.split("<pre>")[1].split("</pre>")[0].splitlines()
    assert {"jammer.factor = 7.0", "model.hidden = 8", "jammer.role = &#34;dedicated&#34;"} <= set(shared_keys)
    assert not any(line.startswith(("channel.", "seed")) for line in shared_keys)
    # Every key of each of the four configs.
    assert text.count("noise_std_real = 1.0\n") == 4


def test_timing(both: Report) -> None:
    page = both.page.split('id="jammer-test"')[0]
    (caption,) = (caption for caption in tables_of(page) if caption.startswith("The sweep took"))
    # Three curves of trials with 2, 3 and 4 CPU seconds.
    assert caption == "The sweep took 100.0 s of wall time and 27.0 s of CPU time on 2 cores, 2 trials at a time."
    # Wall: 3, 4, 5 s; 12 uplinks. A 64-8-10 MLP: 300 samples, one epoch, 4 x 64 x 8 + 6 x 8 x 10 FLOP each, in 9 s.
    gflop = 12 * 300 * (2048 + 480) / 9 / 1e9
    *row, rate = table(page, "The sweep took")[1]
    assert row == ["Upcycled-FL", "3", "12", "4.0 s", "3.0 s", "1.0 s"]
    assert float(rate) == pytest.approx(gflop, rel=6e-3)


def test_speed_against_this_machine(algorithms: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fl.report.writing, "draw_study", lambda study, key: [])
    monkeypatch.setattr(fl.run.arithmetic, "sgemm_flops_per_second", lambda clock: 3e9)
    page = build_report([algorithms], algorithms / "report.html", bound=False, speed=True).page
    head, row = table(page, "The sweep took")[:2]
    assert head[-1] == "times sgemm’s CPU time"
    assert float(row[-1].replace(",", "")) == pytest.approx(3e9 * 9 / (12 * 300 * 2528), rel=6e-3)
    assert "ran at 3.00 GFLOP a second on a core" in page


def test_every_trial_is_listed(algorithms: Path, both: Report) -> None:
    rows = table(both.page.split('id="jammer-test"')[0], "A trial that is run again")[1:]
    assert [row[:8] for row in rows] == [
        [
            name,
            str(trial),
            str(trial),
            "finished",
            "4",
            "4",
            f"{100 * result['accuracy']:.2f}",
            result["model_sha256"][:12],
        ]
        for name, slug in zip(NAMES, SLUGS, strict=True)
        for trial, result in enumerate(results(algorithms, slug), start=1)
    ]
    assert all(row[3:6] == ["finished", "4", "4"] for row in rows)
    assert f"airdp ledger {algorithms.name}/upcycled-fl/trial-01" in both.page
    assert "Python 3.x, numpy 1.x" in both.page
