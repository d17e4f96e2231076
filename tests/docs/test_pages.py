"""What the guides say is true of the tree: links lead somewhere, commands parse, files exist, the snippet runs."""

import os
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from fl.cli.main import COMMANDS, build_parser
from hardware.lab.file import find_lab
from tests.docs.markdown import GUIDES, PAGES, ROOT, TOP_PAGES, anchors, blocks, commands, inline_code, links, text_of

README = ROOT / "README.md"
NAME_IN_FILE = re.compile(r"`(\w+)` (?:\(|in |of )`([\w/]+\.py)`")
STEP = re.compile(r"^\| \d+ \| `([\w/]+\.py)` \| `(\w+)` \|", re.MULTILINE)
PATH = re.compile(r"(?:phy|flowgraphs|hardware|calibration|fl|tests|docs|\.ci)/[\w./-]*")


def relative(page: Path) -> str:
    return str(page.relative_to(ROOT))


def broken_links(page: Path) -> list[str]:
    broken = []
    for link in links(page):
        if "://" in link:
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.is_file() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def refused(command: str) -> bool:
    words = shlex.split(command.replace("…", "DOTS"))
    try:
        build_parser().parse_args(words[1:])
    except SystemExit as stop:
        return stop.code != 0
    return False


def only_named(command: str) -> bool:
    """Whether a sentence speaks of a command without its arguments."""
    words = command.split()
    return len(words) == 2 and words[1] in COMMANDS


@pytest.mark.parametrize("page", PAGES, ids=relative)
def test_commands_parse(page: Path) -> None:
    assert [command for command in commands(page) if refused(command) and not only_named(command)] == []


@pytest.mark.parametrize("command", ["airdp rum quickstart", "airdp run quickstart --ot x", "airdp account --rounds 8"])
def test_commands_that_do_not_exist_are_noticed(command: str) -> None:
    assert refused(command)


@pytest.mark.parametrize("page", TOP_PAGES, ids=relative)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    assert broken_links(page) == []


def test_broken_links_and_anchors_are_noticed(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A page\n\n[a](gone.md) [b](#a-page) [c](#another) [d](page.md#a-page)\n")
    assert broken_links(page) == ["gone.md", "#another"]


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=relative)
def test_files_that_are_named_exist(page: Path) -> None:
    named = [path for code in inline_code(page) for path in PATH.findall(code) if code.startswith(path)]
    assert [path for path in named if not (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "CHANGELOG.md"], ids=relative)
def test_names_that_are_said_to_be_in_a_file_are(page: Path) -> None:
    said = NAME_IN_FILE.findall(" ".join(text_of(page).split()))
    assert [(name, file) for name, file in said if not re.search(rf"\b{name}\b", text_of(ROOT / file))] == []
    assert said or page.name != "CONTRIBUTING.md"


def test_the_walk_of_an_update_goes_through_functions_that_exist() -> None:
    steps = STEP.findall(text_of(ROOT / "docs/architecture.md"))
    assert len(steps) > 20
    assert [(file, name) for file, name in steps if f"def {name}(" not in text_of(ROOT / file)] == []


def test_every_guide_is_in_the_navigation() -> None:
    navigation = str(yaml.safe_load(text_of(ROOT / "mkdocs.yml"))["nav"])
    assert [relative(page) for page in GUIDES if f"'{page.relative_to(ROOT / 'docs')}'" not in navigation] == []


def test_the_readme_links_to_every_guide() -> None:
    reached = {(ROOT / link.partition("#")[0]).resolve() for link in links(README)}
    stands_for_a_file = {ROOT / "docs/index.md", ROOT / "docs/contributing.md", ROOT / "docs/changelog.md"}
    assert set(GUIDES) - stands_for_a_file <= reached


def test_the_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) <= 135


@pytest.mark.parametrize("page", [README, ROOT / "docs/index.md"], ids=relative)
def test_the_python_snippet_runs(page: Path, tmp_path: Path) -> None:
    snippet = "\n".join(blocks(page, "python"))
    small = snippet.replace('"uplinks": 10', '"uplinks": 1')
    assert small != snippet
    done = subprocess.run(
        [sys.executable, "-c", small],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "zero-out" in done.stdout
    assert (tmp_path / "runs/mine/ledger.jsonl").is_file()


def test_the_lab_of_the_guide_is_one(tmp_path: Path) -> None:
    (lab,) = blocks(ROOT / "docs/labs/index.md", "toml")
    (tmp_path / "lab.toml").write_text(lab, encoding="utf-8")
    assert len(find_lab(str(tmp_path / "lab.toml")).clients) == 5


def test_one_version_everywhere() -> None:
    version = tomllib.loads(text_of(ROOT / "pyproject.toml"))["project"]["version"]
    citation = yaml.safe_load(text_of(ROOT / "CITATION.cff"))
    released = re.findall(r"^## \[(\S+)\](?: - (\S+))?$", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert citation["version"] == version
    assert (version, citation["date-released"]) in released
