"""The data of one client, which only its own process has."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fl.errors import DataError
from fl.import_path import PATTERN, build
from fl.learning.data.own import load_npz
from fl.learning.model import shaped
from fl.learning.trainer import ClientData
from fl.run.config import RunConfig
from fl.run.learner import Learner


def client_data(config: RunConfig, learner: Learner, place: int, source: str) -> ClientData:
    """Of client `place`: from `source`, a .npz file with x and y or "package.module:function" that returns both, as a
    pair or by name; or, where it is empty, its share of the run's own data set."""
    if not source:
        return learner.clients[place]
    is_code = PATTERN.fullmatch(source) is not None
    x, y = _arrays(build("--data", source, {}) if is_code else load_npz(Path(source).expanduser()), source)
    return _checked(x, y, config, learner, source)


def _arrays(made: Any, source: str) -> tuple[NDArray[Any], NDArray[Any]]:
    try:
        x, y = (made["x"], made["y"]) if isinstance(made, Mapping) else made
    except (KeyError, TypeError, ValueError) as error:
        raise DataError(
            f"--data {source} gives no x and y: expected arrays x (n, ...) and y (n, ...), as a pair or by these names"
        ) from error
    return np.asarray(x), np.asarray(y)


def _checked(x: NDArray[Any], y: NDArray[Any], config: RunConfig, learner: Learner, source: str) -> ClientData:
    """As the model takes it; `DataError` unless it could be a part of the run's data set."""
    dataset = learner.dataset
    if x.ndim < 2 or not len(x) or len(y) != len(x):
        raise DataError(f"--data {source}: x is {x.shape} and y {y.shape}: expected as many of both, at least one")
    flat = x.reshape(len(x), -1)
    values = flat.astype(np.float32) / np.float32(255) if x.dtype == np.uint8 else flat.astype(np.float32)
    if flat.shape[1] != dataset.features or not np.isfinite(values).all():
        raise DataError(f"--data {source}: samples of {flat.shape[1]} values: expected {dataset.features}, all finite")
    if y.shape[1:] != dataset.train_y.shape[1:]:
        raise DataError(f"--data {source}: y is {y.shape}: expected (n, *{dataset.train_y.shape[1:]})")
    if dataset.train_y.ndim == 1 and (y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= dataset.classes):
        raise DataError(f"--data {source}: labels must be whole numbers from 0 to {dataset.classes - 1}")
    samples = shaped(torch.from_numpy(np.ascontiguousarray(values)), dataset.sample_shape, config.model.input)
    return ClientData(samples, torch.from_numpy(y.astype(dataset.train_y.dtype)))
