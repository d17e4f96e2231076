"""Reader for the IDX files in which EMNIST is published: unsigned bytes, plain or gzipped.

Format (LeCun, the MNIST page): two zero bytes, the type (0x08 = unsigned byte), the number of dimensions, one
big-endian 32-bit size per dimension, then the values. Hand-written, because reading in blocks needs it and it is short.
"""

import gzip
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, cast

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from hardware.foundation.documents import DocumentError, open_regular

_UNSIGNED_BYTE = 0x08
_IMAGES_PER_READ = 8192
_GET_AGAIN = "the file is damaged or is another one: download it again"


def read_labels(path: Path) -> NDArray[np.uint8]:
    """All labels (n,) of an idx1 file."""
    with _opened(path) as stream:
        (count,) = _read_header(stream, path, dimensions=1)
        values = np.frombuffer(stream.read(count + 1), dtype=np.uint8)
    if len(values) != count:
        raise DataError(f"{path} holds {len(values)} labels but its header says {count}; {_GET_AGAIN}")
    return values


def read_images(path: Path, keep: NDArray[np.bool_], shape: tuple[int, int]) -> NDArray[np.uint8]:
    """The images of an idx3 file where ``keep`` (n,) is true: (keep.sum(), rows, columns), stored orientation.

    The file must hold n images of ``shape``. It is read in blocks, so memory holds what is kept and not the whole file.
    """
    images = np.empty((int(keep.sum()), *shape), dtype=np.uint8)
    with _opened(path) as stream:
        found = _read_header(stream, path, dimensions=3)
        if found != (len(keep), *shape):
            raise DataError(f"{path} holds images of shape {found}, expected {(len(keep), *shape)}; {_GET_AGAIN}")
        filled = 0
        for start in range(0, len(keep), _IMAGES_PER_READ):
            wanted = keep[start : start + _IMAGES_PER_READ]
            block = stream.read(len(wanted) * shape[0] * shape[1])
            if len(block) != len(wanted) * shape[0] * shape[1]:
                raise DataError(f"{path} ends early, expected {len(keep)} images; {_GET_AGAIN}")
            kept = np.frombuffer(block, dtype=np.uint8).reshape(-1, *shape)[wanted]
            images[filled : filled + len(kept)] = kept
            filled += len(kept)
        if stream.read(1):
            raise DataError(f"{path} goes on after its {len(keep)} images; {_GET_AGAIN}")
    return images


@contextmanager
def _opened(path: Path) -> Iterator[IO[bytes]]:
    try:
        with open_regular(path) as file, gzip.GzipFile(fileobj=file) as unpacked:
            yield cast(IO[bytes], unpacked) if path.suffix == ".gz" else file
    except (OSError, DocumentError, EOFError, zlib.error) as error:
        raise DataError(f"{path} cannot be read as an IDX file ({error}); {_GET_AGAIN}") from error


def _read_header(stream: IO[bytes], path: Path, dimensions: int) -> tuple[int, ...]:
    magic = bytes([0, 0, _UNSIGNED_BYTE, dimensions])
    header = stream.read(4 + 4 * dimensions)
    if len(header) != 4 + 4 * dimensions or header[:4] != magic:
        raise DataError(
            f"{path} starts with {header[:4].hex() or 'nothing'}, expected the IDX header {magic.hex()} (unsigned "
            f"bytes, {dimensions} dimension(s)); {_GET_AGAIN}"
        )
    return tuple(np.frombuffer(header, dtype=">u4", offset=4).tolist())
