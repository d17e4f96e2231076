"""The data of one client, which only its own process has."""

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning.data.dataset import Dataset
from fl.learning.trainer import ClientData
from fl.run.assemble import make_partition
from fl.run.config import RunConfig


def client_data(config: RunConfig, dataset: Dataset, place: int, source: str) -> ClientData:
    """Of client `place`: from `source`, a .npz file (x, y) or "package.module:function" that returns both, or, where it
    is empty, its share of the run's own data set."""
    if not source:
        index = make_partition(config, dataset).clients[place]
        return ClientData(torch.from_numpy(dataset.train_x[index]), torch.from_numpy(dataset.train_y[index]))
    x, y = _imported(source) if ":" in source else _read(Path(source))
    return ClientData(*_checked(x, y, dataset, source))


def _read(path: Path) -> tuple[Any, Any]:
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return arrays["x"], arrays["y"]
    except KeyError as error:
        raise DataError(f"{path} has no array {error}: expected x and y") from error
    except (OSError, ValueError) as error:
        raise DataError(f"{path} is not an .npz file of arrays: {error}") from error


def _imported(source: str) -> tuple[Any, Any]:
    module, _, name = source.partition(":")
    try:
        x, y = getattr(importlib.import_module(module), name)()
    except (ImportError, AttributeError) as error:
        raise DataError(f"--data {source} cannot be imported: {error}") from error
    except (TypeError, ValueError) as error:
        raise DataError(f"--data {source} does not return x and y: {error}") from error
    return x, y


def _checked(x: Any, y: Any, dataset: Dataset, source: str) -> tuple[torch.Tensor, torch.Tensor]:
    values: NDArray[Any] = np.asarray(x)
    labels: NDArray[Any] = np.asarray(y)
    if values.ndim < 2 or labels.shape != values.shape[:1] or not labels.size:
        raise DataError(f"{source}: x is {values.shape} and y {labels.shape}: expected (n, …) and (n,)")
    flat = values.reshape(len(values), -1)
    scaled = flat.astype(np.float32) / np.float32(255) if values.dtype == np.uint8 else flat.astype(np.float32)
    if flat.shape[1] != dataset.features or not np.isfinite(scaled).all():
        raise DataError(f"{source}: samples of {flat.shape[1]} values: expected {dataset.features}, all finite")
    if labels.dtype.kind not in "iu" or labels.min() < 0 or labels.max() >= dataset.classes:
        raise DataError(f"{source}: labels must be whole numbers from 0 to {dataset.classes - 1}")
    return torch.from_numpy(np.ascontiguousarray(scaled)), torch.from_numpy(labels.astype(np.int64))
