"""The one reader of numpy's files: archives of arrays (.npz) and single ones (.npy). Bounded, whoever wrote the file.

What a header announces is compared with the bytes that are there before memory is taken, an archive that unpacks to
more than it could have held is refused, and so are Python objects, which could be code.
"""

import math
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from hardware.foundation.documents import DocumentError, open_regular

MOST_BYTES = 4 << 30
# Arrays of zeros shrink by a thousand; what shrinks by more was made to.
_MOST_EXPANSION = 2000
_SUFFIX = ".npy"


def read_arrays(
    path: Path, names: Iterable[str] | None = None, *, most_bytes: int = MOST_BYTES
) -> dict[str, NDArray[Any]]:
    """These arrays of an archive, or all of them, without those that it has not. most_bytes: of each of them.

    Raises `DocumentError`, or OSError where there is no such file.
    """
    with open_regular(path) as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                _check_sizes(archive, most_bytes)
                members = {entry.filename.removesuffix(_SUFFIX): entry for entry in archive.infolist()}
                chosen = [name for name in (members if names is None else names) if name in members]
                return {name: _member(archive, name, members[name]) for name in chosen}
        except (OSError, DocumentError):
            raise
        except Exception as error:  # A damaged archive makes zipfile, zlib and numpy raise nearly anything.
            raise DocumentError(str(error) or type(error).__name__) from error


def array_names(path: Path, most: int = 10) -> list[str]:
    """Names of the first `most` arrays of an archive that can be read."""
    with open_regular(path) as stream, zipfile.ZipFile(stream) as archive:
        return [entry.filename.removesuffix(_SUFFIX) for entry in archive.infolist()[:most]]


def read_array(path: Path) -> NDArray[Any]:
    """The array of a .npy file. Raises `DocumentError`, or OSError where there is no such file."""
    with open_regular(path) as stream:
        try:
            size = stream.seek(0, 2)
            stream.seek(0)
            _check_header(path.name, stream, size)
            stream.seek(0)
            return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))
        except (OSError, DocumentError):
            raise
        except Exception as error:  # As above.
            raise DocumentError(str(error) or type(error).__name__) from error


def _check_sizes(archive: zipfile.ZipFile, most_bytes: int) -> None:
    for entry in archive.infolist():
        if entry.file_size > min(most_bytes, (1 << 20) + _MOST_EXPANSION * entry.compress_size):
            raise DocumentError(f"'{entry.filename}' would have {entry.file_size} bytes, more than is read")


def _member(archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as stream:
        _check_header(name, stream, entry.file_size)
    with archive.open(entry) as stream:
        return np.asarray(np.lib.format.read_array(stream, allow_pickle=False))


def _check_header(name: str, stream: IO[bytes], size: int) -> None:
    """Whether a file of `size` bytes holds what its header says, and nothing that could be code."""
    read = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    version = np.lib.format.read_magic(stream)
    if version not in read:
        raise DocumentError(f"'{name}' is of format {version}")
    shape, _, dtype = read[version](stream)  # type: ignore[no-untyped-call]
    if dtype.hasobject:
        raise DocumentError(f"'{name}' holds Python objects (pickle), which may be code and are not read")
    left = size - stream.tell()
    if math.prod(shape) * dtype.itemsize != left:
        raise DocumentError(f"'{name}' is {dtype} of shape {shape} in {left} bytes")
