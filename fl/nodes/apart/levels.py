"""How loud each client was when it sounded last: in a file, so that whoever takes a run up knows it too."""

import json
import math
from collections.abc import Mapping
from pathlib import Path

from fl.errors import RunFolderError
from hardware.foundation.documents import read_json
from hardware.foundation.durable import write_atomically

NAME = "levels.json"
"""In a run's folder."""


class Levels:
    """By client's name, in dB. path: of the file, None where nothing is kept. It may have no folder yet."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._levels_db = _read(path) if path is not None and path.exists() else {}

    def before_db(self, name: str) -> float:
        """Infinite where it has not sounded yet."""
        return self._levels_db.get(name, math.inf)

    def keep(self, levels_db: Mapping[str, float]) -> None:
        """These are the last ones from now on; on disk when this returns. Who was not heard keeps its own."""
        self._levels_db |= {name: level for name, level in levels_db.items() if math.isfinite(level)}
        if self._path is not None:
            write_atomically(self._path, json.dumps(self._levels_db, indent=1).encode() + b"\n")


def _read(path: Path) -> dict[str, float]:
    try:
        content = read_json(path)
        if not isinstance(content, dict):
            raise ValueError("it is no table of names and numbers")
        levels = {str(name): float(level) for name, level in content.items()}
        if not all(math.isfinite(level) for level in levels.values()):
            raise ValueError("a level is no number")
        return levels
    except (OSError, ValueError, TypeError) as error:
        raise RunFolderError(
            f"{path} is damaged: {error}; restore it, or remove it: the next soundings are then compared with none"
        ) from error
