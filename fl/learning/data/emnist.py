"""EMNIST lowercase letters a-j: 28x28 handwriting, 10 classes.

Cohen, Afshar, Tapson and van Schaik, "EMNIST: an extension of MNIST to handwritten letters", 2017 (arXiv:1702.05373).
Read from the official byclass IDX files or from an ``.npz`` with such images.
"""

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning.data.dataset import Dataset, FloatArray, IntArray, split_train_test, stratified_choice
from fl.learning.data.fetch import EMNIST_FILES, emnist_cache_folder, find_idx, has_emnist
from fl.learning.data.idx import read_images, read_labels
from hardware.foundation.arrays import read_arrays
from hardware.foundation.documents import DocumentError

DATA_VARIABLE = "AIRDP_DATA"

_CLASSES = 10
_SIDE = 28
# The byclass labels are 0-9, then A-Z (10 .. 35), then a-z (36 .. 61).
_LABEL_OF_A = 36

_Pool = tuple[NDArray[np.uint8], IntArray]
_NPZ_SHAPE = "expected an .npz with x uint8 (N, 28, 28) and y integer (N,), labels 0 .. 9"
_FOLDER_SHAPE = "expected one .npz file, or the official emnist-byclass-{train,test}-...-ubyte[.gz] files"


def load_emnist(
    path: Path | None, train_samples: int | None, test_fraction: float, rng: np.random.Generator
) -> Dataset:
    """Load a-j as labels 0 .. 9, images (n, 784) upright, scaled by 1/255 to [0, 1].

    ``path`` is looked up by `resolve_emnist`. With the official training and test files the sets stay what they are,
    and ``train_samples`` draws a stratified part of the training set. Where there is one pool (an ``.npz``, or the
    test files alone) it is divided by `split_train_test`.
    """
    source = resolve_emnist(path)
    train, test = _read_folder(source) if source.is_dir() else (None, _read_npz(source))
    if train is None:
        train_x, train_y, test_x, test_y = split_train_test(*test, train_samples, test_fraction, rng)
    else:
        (train_x, train_y), (test_x, test_y) = train, test
        if train_samples is not None:
            chosen = stratified_choice(train_y, train_samples, rng)
            train_x, train_y = train_x[chosen], train_y[chosen]
    return Dataset("emnist", _scaled(train_x), train_y, _scaled(test_x), test_y, _CLASSES, (_SIDE, _SIDE))


def resolve_emnist(path: Path | None) -> Path:
    """The file or folder to read: ``path``, else $AIRDP_DATA, else the cache folder if the download is in it."""
    variable = os.environ.get(DATA_VARIABLE)
    if path is not None:
        source, named_by = path.expanduser(), "data.path"
    elif variable:
        source, named_by = Path(variable).expanduser(), DATA_VARIABLE
    else:
        source, named_by = emnist_cache_folder(), ""
    if not named_by and not has_emnist(source):
        raise DataError(
            f"no EMNIST data: data.path and {DATA_VARIABLE} are not set, and {source} does not hold the four official "
            "byclass files. Where there is internet, `airdp data emnist` downloads them (562 MB); otherwise set "
            f"data.path or {DATA_VARIABLE} to an .npz file or to a folder with the official files"
        )
    if not source.exists():
        raise DataError(f"{named_by} names {source}, which does not exist; name an .npz file or a folder")
    return source


def _scaled(images: NDArray[np.uint8]) -> FloatArray:
    return images.reshape(len(images), -1).astype(np.float32) / np.float32(255)


def _read_folder(folder: Path) -> tuple[_Pool | None, _Pool]:
    """The training pool (None where there is but one pool) and the test pool."""
    archives = sorted(folder.glob("*.npz"))
    has_idx = any(find_idx(folder, name) for name in EMNIST_FILES)
    if len(archives) == 1 and not has_idx:
        return None, _read_npz(archives[0])
    if archives:
        found = ", ".join(path.name for path in archives) + (" and IDX files" if has_idx else "")
        raise DataError(f"{folder} holds {found}, which is ambiguous; {_FOLDER_SHAPE}; name the one file to use")
    if not has_idx:
        raise DataError(f"{folder} holds no EMNIST data; {_FOLDER_SHAPE}; check data.path or {DATA_VARIABLE}")
    train_images, train_labels, test_images, test_labels = EMNIST_FILES
    has_train = any(find_idx(folder, name) for name in (train_images, train_labels))
    train = _read_idx_pair(folder, train_images, train_labels) if has_train else None
    return train, _read_idx_pair(folder, test_images, test_labels)


def _read_idx_pair(folder: Path, images_name: str, labels_name: str) -> _Pool:
    """Images (n, 28, 28), upright, and labels (n,) of a-j from one official pair of files."""
    images_path, labels_path = find_idx(folder, images_name), find_idx(folder, labels_name)
    if images_path is None or labels_path is None:
        missing = images_name if images_path is None else labels_name
        raise DataError(f"{folder} lacks {missing}[.gz], expected beside the other files; download EMNIST again")
    labels = read_labels(labels_path)
    keep = (labels >= _LABEL_OF_A) & (labels < _LABEL_OF_A + _CLASSES)
    if not keep.any():
        raise DataError(f"{labels_path} has no labels 36 .. 45 (a-j), expected byclass labels; use the byclass files")
    images = read_images(images_path, keep, (_SIDE, _SIDE))
    # The official files store each image by columns.
    return images.transpose(0, 2, 1), labels[keep].astype(np.int64) - _LABEL_OF_A


def _read_npz(path: Path) -> _Pool:
    """Images (n, 28, 28) and labels (n,); where there is a ``source`` array, only of its zeros (byclass test)."""
    try:
        arrays = read_arrays(path, ("x", "y", "source"))
    except (OSError, DocumentError) as error:
        raise DataError(f"{path} cannot be read: {error}; {_NPZ_SHAPE}") from error
    missing = {"x", "y"} - arrays.keys()
    if missing:
        raise DataError(f"{path} has no array {' and no array '.join(sorted(missing))}; {_NPZ_SHAPE}")
    x, y = arrays["x"], arrays["y"]
    source = arrays.get("source", np.zeros(y.shape, dtype=np.uint8))
    if x.dtype != np.uint8 or x.ndim != 3 or x.shape[1:] != (_SIDE, _SIDE):
        raise DataError(f"{path}: x is {x.dtype} {x.shape}; {_NPZ_SHAPE}")
    for name, array in (("y", y), ("source", source)):
        if array.dtype.kind not in "iu" or array.shape != (len(x),):
            raise DataError(f"{path}: {name} is {array.dtype} {array.shape}, not {len(x)} integers; {_NPZ_SHAPE}")
    rows = source == 0
    if not rows.any():
        raise DataError(f"{path} has no images with source 0; {_NPZ_SHAPE}, and source 0 for the rows to use")
    if int(y[rows].min()) < 0 or int(y[rows].max()) >= _CLASSES:
        raise DataError(f"{path}: y has labels {y[rows].min()} .. {y[rows].max()}; {_NPZ_SHAPE}")
    return x[rows], y[rows].astype(np.int64)
