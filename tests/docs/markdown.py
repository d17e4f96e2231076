"""The pages of this repository, and what stands in them: links, anchors, blocks of code, inline code."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
TOP_PAGES = (ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md")
GUIDES = tuple(sorted((ROOT / "docs").rglob("*.md")))
PAGES = (*TOP_PAGES, *GUIDES)

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_INLINE = re.compile(r"`([^`\n]+)`")
_HEADING = re.compile(r"^#+ (.*?)(?: \{ #(\S+) \})?$", re.MULTILINE)


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, language: str) -> list[str]:
    """Contents of the fenced blocks of a language."""
    return [body for kind, body in _FENCE.findall(text_of(page)) if kind == language]


def prose(page: Path) -> str:
    """The page without its fenced blocks."""
    return _FENCE.sub("", text_of(page))


def links(page: Path) -> list[str]:
    return _LINK.findall(prose(page))


def inline_code(page: Path) -> list[str]:
    return _INLINE.findall(prose(page))


def anchors(page: Path) -> set[str]:
    """What a link to a heading of the page may say after the `#`, as the usual slugs are made."""
    return {
        given or re.sub(r"[-\s]+", "-", re.sub(r"[^\w\s-]", "", heading).strip().lower())
        for heading, given in _HEADING.findall(prose(page))
    }


def commands(page: Path) -> Iterator[str]:
    """Every `airdp …` line of the page's shell blocks and inline code, without its comment."""
    shell = [line for block in blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]
    for line in [*shell, *inline_code(page)]:
        command = line.partition(" #")[0].strip()
        if command.startswith("airdp "):
            yield command
