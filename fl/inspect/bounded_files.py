"""Files of a folder that somebody else may have made: regular ones, of a bounded size, without code in them.

A name may lead to a pipe that never answers, to a device without an end, or to an archive that unpacks to more than
there is memory. Nothing here waits, and nothing reads more than it was allowed to.
"""

import io
import json
import math
import os
import stat
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError

MOST_ARRAY_BYTES = 64 << 20
"""Of one array of an archive, unpacked; an uplink of a thousand transmitters has a tenth of it."""


def open_regular(path: Path) -> BinaryIO:
    """The file for reading, or `FileNotFoundError`, or `RunFolderError` where it is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise RunFolderError(f"{path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise RunFolderError(f"{path} is not a regular file: give a folder that `airdp run` has made")
    return os.fdopen(descriptor, "rb")


def read_bounded(path: Path, most_bytes: int) -> bytes:
    """The whole content; `RunFolderError` where there is more of it than `most_bytes`."""
    with open_regular(path) as file:
        content = file.read(most_bytes + 1)
    if len(content) > most_bytes:
        raise RunFolderError(f"{path} has more than {most_bytes} bytes: it is not what a run writes")
    return content


def parse_object(line: bytes) -> dict[str, Any] | None:
    """The JSON object that a line holds, or None."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
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
            raise RunFolderError(f"{self._path} has a line of more than {self._most_line} bytes: no run writes that")
        objects = [parse_object(line) for line in lines]
        found = [value for value in objects if value is not None]
        self.damaged += len(objects) - len(found)
        return found

    def _start_over(self, identity: tuple[int, int]) -> None:
        if self._identity is not None:
            self.generation += 1
        self._identity, self._offset, self._rest, self.damaged = identity, 0, b"", 0


def read_arrays(path: Path, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Arrays of an archive (.npz) by name, without those that it has not; `ValueError` and others where it is damaged.

    Sizes are compared before anything is unpacked; objects, which could hold code, are refused.
    """
    found: dict[str, NDArray[Any]] = {}
    with open_regular(path) as file, zipfile.ZipFile(file) as archive:
        members = {info.filename: info for info in archive.infolist()}
        for name in names:
            info = members.get(f"{name}.npy")
            if info is None:
                continue
            if info.file_size > MOST_ARRAY_BYTES:
                raise ValueError(f"'{name}' has {info.file_size} bytes, more than {MOST_ARRAY_BYTES}")
            found[name] = _array(name, archive.read(info))
    return found


def _array(name: str, content: bytes) -> NDArray[Any]:
    stream = io.BytesIO(content)
    version = np.lib.format.read_magic(stream)
    if version != (1, 0):
        raise ValueError(f"'{name}' is of format {version}")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    left = len(content) - stream.tell()
    if dtype.hasobject:
        raise ValueError(f"'{name}' holds Python objects (pickle), which may be code and are not read")
    if fortran or math.prod(shape) * dtype.itemsize != left:
        raise ValueError(f"'{name}' is {dtype} of shape {shape} in {left} bytes")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)
