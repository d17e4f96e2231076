"""Data of the user's own: arrays from an `.npz` file, from a function, from torchvision or from Hugging Face.

All give arrays of the same names: x (n, ...) and y; optionally x_test and y_test, else a part of x is held out, and
client (n,), the natural client of each training sample, in numbers or names.

x: uint8 is scaled by 1/255 to [0, 1], other numbers are taken as they are. y: whole numbers (n,) are labels from 0,
names (n,) are labels in sorted order; floats (n,) or anything of shape (n, k) are k targets to predict, but for whole
numbers (n, 1), which could be either.
"""

import importlib
import inspect
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from fl.import_path import build, require_trust
from fl.learning.data.dataset import Dataset, FloatArray, IntArray, Targets, held_out_count, stratified_choice
from hardware.foundation.arrays import array_names, read_arrays
from hardware.foundation.documents import DocumentError

Arrays = Mapping[str, NDArray[Any]]
NAMES = ("x", "y", "x_test", "y_test", "client")
_EXPECTED = "expected arrays x (n, ...) and y, and optionally x_test, y_test and client (n,)"


def load_npz(path: Path) -> Arrays:
    """The arrays of an archive; objects (pickles) are never loaded."""
    if not path.is_file():
        raise DataError(f"data.path names {path}, which is not a file; {_EXPECTED} in an .npz")
    try:
        arrays = read_arrays(path, NAMES)
        if not {"x", "y"} <= arrays.keys():
            raise DataError(f"{path} has {', '.join(array_names(path)) or 'no arrays'}; {_EXPECTED}")
        return arrays
    except (OSError, DocumentError) as error:
        raise DataError(f"{path} cannot be read: {error}; {_EXPECTED} in an .npz, which numpy.savez writes") from error


def call_function(path: str, arguments: Mapping[str, Any]) -> Arrays | Dataset:
    """What `package.module:function` returns: a mapping of arrays, a pair of pairs (x, y), or a `Dataset`."""
    made = build("data.set", path, arguments)
    if isinstance(made, Dataset):
        return made
    if isinstance(made, Mapping):
        return {str(name): _as_array(path, str(name), array) for name, array in made.items()}
    try:
        (x, y), (x_test, y_test) = made
    except (TypeError, ValueError) as error:
        raise DataError(
            f"data.set '{path}' returned a {type(made).__name__}: expected ((x, y), (x_test, y_test)), a mapping with "
            "these names, or a fl.learning.data.dataset.Dataset"
        ) from error
    return {name: _as_array(path, name, array) for name, array in zip(NAMES, (x, y, x_test, y_test), strict=False)}


def _as_array(path: str, name: str, value: Any) -> NDArray[Any]:
    try:
        return np.asarray(value)
    except Exception as error:  # lists of unequal length, tensors that are on a GPU or have a gradient
        raise DataError(f"{name} of data.set '{path}' is no array: {error}") from error


def load_torchvision(name: str, root: str, arguments: Mapping[str, Any]) -> Arrays:
    """The set `torchvision.datasets.<name>`, from the folder `root`; nothing is downloaded unless arguments say so.

    Some of its classes read pickles, which are code, and write where `root` says: not for a stranger's config.
    """
    require_trust("data.set", f"torchvision:{name}")
    try:
        kind = getattr(_torchvision_datasets(), name, None)
    except Exception as error:  # one that was built for another torch fails as it likes
        raise DataError(
            f"data.set = 'torchvision:{name}' needs the package torchvision, in the version that belongs to the "
            f"installed torch ({type(error).__name__}: {error}): pip install torchvision, or give the data as an .npz"
        ) from error
    if not isinstance(kind, type):
        raise DataError(f"torchvision has no data set '{name}': see torchvision.datasets for what it has")
    takes = inspect.signature(kind).parameters
    given = {**({"root": root} if "root" in takes and root else {}), **arguments}
    halves: list[dict[str, Any]] = [{}]
    if "train" in takes and "train" not in given:
        halves = [{"train": True}, {"train": False}]
    elif "split" in takes and takes["split"].annotation is str and "split" not in given:
        halves = [{"split": "train"}, {"split": "test"}]
    try:
        pools = [_collected(kind(**given, **half)) for half in halves]
    except Exception as error:  # torchvision raises whatever its files make it raise
        raise DataError(
            f"torchvision:{name} with {given} cannot be loaded: {error}; set data.path to its folder (and "
            "data.arguments = { download = true } where there is internet)"
        ) from error
    return _from_zero(dict(zip(NAMES, (array for pool in pools for array in pool), strict=False)))


def _torchvision_datasets() -> Any:
    """torchvision.datasets, also of a build for GPUs beside a torch without them, as package indexes serve it.

    Its compiled operators cannot be loaded there, and it ends at the first that it wants to describe. Data sets use
    none: with their names declared, the rest of it can be imported. Whoever calls one is told that it has no kernel.
    """
    import torch

    try:
        return importlib.import_module("torchvision.datasets")
    except RuntimeError as error:
        if "operator torchvision::" not in str(error):
            raise
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            schema = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"
            torch.library.define(f"torchvision::{operator}", schema)
    return importlib.import_module("torchvision.datasets")


def load_huggingface(folder: Path, arguments: Mapping[str, Any]) -> Arrays:
    """A folder that `datasets.Dataset.save_to_disk` or `DatasetDict.save_to_disk` wrote.

    arguments: names of the columns (x, y, client) where they are not image, label and client, and of the splits (train,
    test).
    """
    require_trust("data.set", "huggingface")
    try:
        import datasets
    except Exception as error:  # its pyarrow may not go with the installed numpy
        raise DataError(
            f"data.set = 'huggingface' needs the package datasets ({type(error).__name__}: {error}): pip install "
            "datasets 'pyarrow<26' 'numpy<2', or give the data as an .npz"
        ) from error
    unknown = arguments.keys() - {"x", "y", "client", "train", "test"}
    if unknown:
        raise DataError(f"data.arguments has {', '.join(sorted(unknown))}: expected x, y, client, train, test")
    names = {"x": "image", "y": "label", "client": "client", "train": "train", "test": "test", **arguments}
    try:
        loaded = datasets.load_from_disk(str(folder))
    except Exception as error:  # it raises whatever its files make it raise
        raise DataError(f"data.path {folder} is not a folder that save_to_disk wrote: {error}") from error
    pools = {"": loaded} if isinstance(loaded, datasets.Dataset) else dict(loaded)
    train = pools.get("", pools.get(names["train"]))
    if train is None:
        raise DataError(f"{folder} has the splits {', '.join(pools)}: name one of them in data.arguments.train")
    test = pools.get(names["test"])
    found = {"x": _column(train, names["x"]), "y": _column(train, names["y"])}
    if names["client"] in train.column_names:
        found["client"] = _column(train, names["client"])
    if test is not None:
        found |= {"x_test": _column(test, names["x"]), "y_test": _column(test, names["y"])}
    return _from_zero(found)


def _from_zero(arrays: dict[str, NDArray[Any]]) -> Arrays:
    """Labels of a published set that are counted from 1, as those of EMNIST's letters, are counted from 0."""
    held = [name for name in ("y", "y_test") if name in arrays and arrays[name].size]
    if not held or any(arrays[name].ndim != 1 or arrays[name].dtype.kind not in "iu" for name in held):
        return arrays
    first = max(0, min(int(arrays[name].min()) for name in held))
    return {**arrays, **{name: arrays[name] - first for name in held}}


def _column(part: Any, name: str) -> NDArray[Any]:
    if name not in part.column_names:
        raise DataError(f"no column '{name}' among {', '.join(part.column_names)}: name it in data.arguments")
    try:
        return _stacked(part[name])
    except ValueError as error:
        raise DataError(f"the entries of column '{name}' have different shapes: {error}; bring them to one") from error


def _collected(pool: Iterable[tuple[Any, Any]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """x and y of a torch data set, sample by sample: the one thing that all of them can do."""
    samples = [pool[index] for index in range(len(pool))]  # type: ignore[index, arg-type]
    return _stacked(x for x, _ in samples), _stacked(y for _, y in samples)


def _stacked(values: Iterable[Any]) -> NDArray[Any]:
    """Images, tensors, lists or numbers as one array; raises ValueError where shapes differ."""
    return np.stack([np.asarray(value) for value in values])


def dataset_of(
    name: str, arrays: Arrays, train_samples: int | None, test_fraction: float, rng: np.random.Generator
) -> Dataset:
    """Check and convert the arrays; hold out a test set where there is none, from every class or every client."""
    missing = {"x", "y"} - arrays.keys()
    if missing or ("x_test" in arrays) != ("y_test" in arrays):
        raise DataError(f"{name} has {', '.join(arrays) or 'no arrays'}; {_EXPECTED}")
    x, y, names = _samples(name, arrays["x"]), arrays["y"], _label_names(arrays)
    targets = _targets(name, y, names)
    if len(targets) != len(x):
        raise DataError(f"{name} has {len(x)} samples but {len(targets)} targets; give one per sample")
    owners = _owners(name, arrays.get("client"), len(x))
    if "x_test" in arrays:
        test_x, test_y = _samples(name, arrays["x_test"]), _targets(name, arrays["y_test"], names)
        train = _chosen(_strata(targets, owners), train_samples, rng)
    else:
        train = _split(_strata(targets, owners), train_samples, test_fraction, rng)
        test_x, test_y = x[~train], targets[~train]
    if owners is not None:
        owners = _all_kept(name, owners, train)
    if test_x.shape[1:] != x.shape[1:]:
        raise DataError(f"{name}: test samples have shape {test_x.shape[1:]}, training samples {x.shape[1:]}")
    classes = _classes(name, targets, test_y)
    shape = x.shape[1:] or (1,)
    return Dataset(
        name, _flat(x[train]), targets[train], _flat(test_x), test_y, max(classes, len(names)), shape, owners
    )


def _samples(name: str, x: NDArray[Any]) -> FloatArray:
    if x.ndim < 1 or x.dtype.kind not in "fiub" or x.size == 0:
        raise DataError(f"{name}: x is {x.dtype} {x.shape}, expected numbers of shape (n, ...)")
    with np.errstate(over="ignore"):  # what becomes infinite is refused with all that is
        scaled: FloatArray = x.astype(np.float32)
    return scaled / np.float32(255) if x.dtype == np.uint8 else scaled


def _flat(x: FloatArray) -> FloatArray:
    return np.ascontiguousarray(x.reshape(len(x), -1))


def _label_names(arrays: Arrays) -> list[str]:
    """Names of the labels in sorted order, over training and test; empty where labels are not names."""
    if arrays["y"].dtype.kind != "U":
        return []
    return sorted({str(label) for key in ("y", "y_test") if key in arrays for label in arrays[key].ravel()})


def _targets(name: str, y: NDArray[Any], names: list[str]) -> Targets:
    if y.dtype.kind == "U" and y.ndim == 1:
        return np.searchsorted(np.array(names), y).astype(np.int64)
    if y.dtype.kind in "iu" and y.ndim == 1:
        return y.astype(np.int64)
    if y.dtype.kind in "iu" and y.shape[1:] == (1,):
        raise DataError(
            f"{name}: y is {y.dtype} {y.shape}, which may be labels or one target: expected labels (n,), y.ravel(), or "
            "floats (n, 1)"
        )
    if y.dtype.kind in "fiub" and y.ndim in (1, 2):
        with np.errstate(over="ignore"):
            targets: FloatArray = y.astype(np.float32).reshape(len(y), -1)
        return targets
    text = "; y.astype(str) makes names of bytes" if y.dtype.kind == "S" else ""
    raise DataError(
        f"{name}: y is {y.dtype} {y.shape}, expected labels (n,), in whole numbers or names, or numbers (n, k){text}"
    )


def _classes(name: str, targets: Targets, test_y: Targets) -> int:
    """Outputs that a model needs: one for each label from 0 to the largest, or for each target."""
    if targets.ndim != 1 or not len(test_y):
        return int(targets.max()) + 1 if targets.ndim == 1 else targets.shape[1]
    smallest, largest = min(int(targets.min()), int(test_y.min())), max(int(targets.max()), int(test_y.max()))
    samples = len(targets)
    if smallest == largest == 0:
        raise DataError(f"{name}: all labels are 0, expected at least two classes; floats are numbers to predict")
    if largest >= samples:
        raise DataError(
            f"{name}: a label is {largest}, among {samples} samples: expected whole numbers from 0 on, one for each "
            "class; renumber them, or give names"
        )
    if smallest > 0:
        raise DataError(
            f"{name}: labels are {smallest} .. {largest}, expected whole numbers from 0 on; subtract {smallest}, or "
            "give names"
        )
    if not np.isin(test_y, targets).any():
        raise DataError(f"{name}: no label of the test samples is one of the training samples'; number both alike")
    return largest + 1


def _owners(name: str, client: NDArray[Any] | None, samples: int) -> IntArray | None:
    if client is None:
        return None
    if client.shape != (samples,) or client.dtype.kind not in "iuU":
        raise DataError(f"{name}: client is {client.dtype} {client.shape}, expected {samples} whole numbers or names")
    numbers: IntArray = np.unique(client, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return numbers


def _strata(targets: Targets, owners: IntArray | None) -> IntArray:
    """What the split keeps the proportions of: clients where there are any, else labels, else nothing."""
    if owners is not None:
        return owners
    return targets.astype(np.int64) if targets.ndim == 1 else np.zeros(len(targets), np.int64)


def _split(strata: IntArray, train_samples: int | None, test_fraction: float, rng: np.random.Generator) -> Any:
    kept = len(strata) - held_out_count(len(strata), test_fraction) if train_samples is None else train_samples
    if not 1 <= kept < len(strata):
        raise DataError(
            f"data.train_samples is {kept}, but of {len(strata)} samples 1 .. {len(strata) - 1} can be for training"
        )
    return _chosen(strata, kept, rng)


def _chosen(strata: IntArray, count: int | None, rng: np.random.Generator) -> Any:
    """Mask (n,) of the samples to train on."""
    mask = np.ones(len(strata), np.bool_)
    if count is not None:
        mask[:] = False
        mask[stratified_choice(strata, count, rng)] = True
    return mask


def _all_kept(name: str, owners: IntArray, train: Any) -> IntArray:
    lost = np.setdiff1d(owners, owners[train])
    if lost.size:
        raise DataError(
            f"{name}: {lost.size} of {int(owners.max()) + 1} clients have too few samples to train and to test; give "
            "x_test and y_test, or drop those clients"
        )
    kept: IntArray = owners[train]
    return kept
