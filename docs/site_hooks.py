"""What MkDocs does with CONTRIBUTING.md and CHANGELOG.md, which stand beside docs/ and are shown in it too."""

import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
_SHOWN = {"contributing.md": "CONTRIBUTING.md", "changelog.md": "CHANGELOG.md"}
_LINK = re.compile(r"\[([^\]]+)\]\(([^):#]+)(#[^)]*)?\)")


def on_page_markdown(markdown: str, *, page: Any, **_: Any) -> str:
    """The text of the file that a page stands for, with links that lead from where the page is."""
    name = _SHOWN.get(page.file.src_uri)
    return markdown if name is None else _LINK.sub(_from_docs, (ROOT / name).read_text(encoding="utf-8"))


def _from_docs(link: re.Match[str]) -> str:
    text, target, anchor = link[1], link[2], link[3] or ""
    if target.startswith("docs/"):
        return f"[{text}]({target.removeprefix('docs/')}{anchor})"
    shown = {name: page for page, name in _SHOWN.items()}.get(target)
    # What is not among the pages is named, not linked.
    return f"[{text}]({shown}{anchor})" if shown else text
