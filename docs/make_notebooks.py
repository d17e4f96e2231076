"""Write examples/notebooks/ from the scripts in examples/: one source, in two forms.

`# %%` begins a cell of code, `# %% [markdown]` one of text, as editors know it.
"""

import json
import re
from pathlib import Path
from typing import Any

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = ("first_run", "own_parts", "virtual_plutos", "validate_claim")
_CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def path_of(name: str) -> Path:
    """Where the notebook of a script is."""
    return EXAMPLES / "notebooks" / f"{name}.ipynb"


def notebook_of(name: str) -> str:
    """The notebook, without outputs."""
    # Before the first mark there is nothing; then come a mark's kind and what it begins, in turn.
    _, *parts = _CELL.split((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
    cells = [_cell(number, kind, text) for number, (kind, text) in enumerate(zip(parts[::2], parts[1::2], strict=True))]
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    content = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _cell(number: int, kind: str | None, text: str) -> dict[str, Any]:
    lines = text.strip("\n").splitlines(keepends=True)
    if kind:
        said = [re.sub(r"^# ?", "", line) for line in lines]
        return {"cell_type": "markdown", "id": f"cell-{number}", "metadata": {}, "source": said}
    code = {"cell_type": "code", "id": f"cell-{number}", "metadata": {}, "source": lines}
    return {**code, "execution_count": None, "outputs": []}


def main() -> None:
    """Write all of them."""
    for name in SCRIPTS:
        path_of(name).parent.mkdir(exist_ok=True)
        path_of(name).write_text(notebook_of(name), encoding="utf-8")


if __name__ == "__main__":
    main()
