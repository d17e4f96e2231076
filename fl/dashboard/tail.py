"""Lines of a file that grows while a run writes it."""

import os
from pathlib import Path
from typing import Any

from hardware.foundation.documents import DocumentError, open_regular, parse_json


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line holds, or None."""
    try:
        value = parse_json(line)
    except DocumentError:
        return None
    return value if isinstance(value, dict) else None


class Tail:
    """Lines of a file that grows, read as they come; each is a JSON object.

    generation: grows when the file was replaced, and its lines start over. damaged: lines that are no objects.
    """

    def __init__(self, path: Path, *, most_bytes_at_once: int = 4 << 20, most_line_bytes: int = 8 << 20) -> None:
        self._path, self._most_at_once, self._most_line = path, most_bytes_at_once, most_line_bytes
        self._identity: tuple[int, int] | None = None
        self._offset, self._rest = 0, b""
        self.generation, self.damaged = 0, 0

    def read(self) -> list[dict[str, Any]]:
        """Objects that are new, a bounded number of bytes at a time; none where there is no file."""
        try:
            with open_regular(self._path) as file:
                status = os.fstat(file.fileno())
                if (status.st_dev, status.st_ino) != self._identity or status.st_size < self._offset:
                    self._start_over((status.st_dev, status.st_ino))
                file.seek(self._offset)
                content = file.read(self._most_at_once)
        except FileNotFoundError:
            return []
        self._offset += len(content)
        *lines, self._rest = (self._rest + content).split(b"\n")
        if len(self._rest) > self._most_line:
            raise DocumentError(f"it has a line of more than {self._most_line} bytes: no run writes that")
        objects = [parse_object(line) for line in lines]
        found = [value for value in objects if value is not None]
        self.damaged += len(objects) - len(found)
        return found

    def _start_over(self, identity: tuple[int, int]) -> None:
        if self._identity is not None:
            self.generation += 1
        self._identity, self._offset, self._rest, self.damaged = identity, 0, b"", 0
