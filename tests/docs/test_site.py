"""The built site: no warnings, no broken links, nothing from other hosts, every picture there."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.docs.markdown import ROOT

LOADED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="?([^"\s>]+)')


def build(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(site)],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    pytest.importorskip("mkdocstrings", reason="no mkdocstrings: pip install 'airdp[dev,docs]'")
    folder = tmp_path_factory.mktemp("site")
    built = build(ROOT / "mkdocs.yml", folder)
    assert built.returncode == 0, built.stderr
    return folder


def test_pages_load_what_is_there_and_nothing_from_elsewhere(site: Path) -> None:
    pages = [page for page in site.rglob("*.html") if page.name != "404.html"]
    assert len(pages) > 10
    pictures = set()
    for page in pages:
        for address in LOADED.findall(page.read_text(encoding="utf-8")):
            # An address with a host or a scheme is no file, whatever stands before it.
            path = page.parent / address.partition("#")[0]
            assert path.is_file(), f"{page.relative_to(site)} loads {address}"
            pictures.add(path.resolve())
    assert set((site / "images").iterdir()) <= pictures


@pytest.mark.parametrize("link", ["gone.md", "index.md#nowhere", "/privacy.md", "#nowhere"])
def test_broken_links_are_errors(tmp_path: Path, link: str) -> None:
    (tmp_path / "docs").mkdir()
    for name in ("index.md", "privacy.md"):
        (tmp_path / "docs" / name).write_text(f"# A page\n\n[there]({link})\n")
    config = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    kept = "\n".join(re.findall(r"^(?:site_name|validation|use_directory_urls):.*(?:\n +.*)*", config, re.MULTILINE))
    (tmp_path / "mkdocs.yml").write_text(f"{kept}\n")
    built = build(tmp_path / "mkdocs.yml", tmp_path / "site")
    assert built.returncode != 0
    assert "nowhere" in built.stderr or link in built.stderr
