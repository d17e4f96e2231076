"""A data set in memory, checked when it is made, and the split into training and test samples."""

import hashlib
import math
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning.data.apportion import apportion

FloatArray = NDArray[np.float32]
IntArray = NDArray[np.int64]
Targets = IntArray | FloatArray
"""int64 labels (n,), or float32 (n, outputs)."""


class Target(StrEnum):
    """What a model is to say of a sample: one of several labels, several times yes or no, or numbers."""

    LABEL = "label"
    BITS = "bits"
    NUMBERS = "numbers"

    @property
    def score(self) -> str:
        """What its `accuracy` is: the share of right labels or bits, or R^2 = 1 - residual / total sum of squares."""
        return "R²" if self is Target.NUMBERS else "accuracy"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Training and test samples of one problem.

    train_x (n_train, D) and test_x (n_test, D) are float32 and finite, D = prod(sample_shape). train_y and test_y are
    int64 labels (n,) in 0 .. classes-1, or float32 targets (n, classes), finite: `classes` is what a model puts out for
    a sample. ``owners`` (n_train,) is the natural client of each training sample, 0, 1, ..., where the data has one,
    else None. Anything else raises `DataError`, so a bad data set cannot exist.
    """

    name: str
    train_x: FloatArray
    train_y: Targets
    test_x: FloatArray
    test_y: Targets
    classes: int
    sample_shape: tuple[int, ...]
    owners: IntArray | None = None

    def __post_init__(self) -> None:
        least = 2 if self.train_y.ndim == 1 else 1
        if self.classes < least:
            raise DataError(
                f"{self.name}: classes is {self.classes}, expected at least {least}; give the number of labels"
            )
        self._check_samples("train", self.train_x, self.train_y)
        self._check_samples("test", self.test_x, self.test_y)
        if self.owners is None:
            return
        if self.owners.dtype != np.int64 or self.owners.shape != (len(self.train_y),):
            raise DataError(
                f"{self.name}: owners is {self.owners.dtype} {self.owners.shape}, expected int64 "
                f"({len(self.train_y)},); give one client index per training sample"
            )
        if int(self.owners.min()) < 0:
            raise DataError(f"{self.name}: owners holds {int(self.owners.min())}; number the clients from 0")

    @property
    def features(self) -> int:
        """D, the number of values in one flattened sample."""
        return math.prod(self.sample_shape)

    @property
    def target(self) -> Target:
        """What its targets are; float targets that are all 0 or 1 are bits."""
        if self.train_y.ndim == 1:
            return Target.LABEL
        return Target.BITS if np.isin(self.train_y, (0.0, 1.0)).all() else Target.NUMBERS

    def fingerprint(self) -> str:
        """SHA-256 (hex) over every array with its shape, and the class count; the same on every machine."""
        digest = hashlib.sha256(f"{self.classes} {self.sample_shape}".encode())
        arrays: list[NDArray[Any] | None] = [self.train_x, self.train_y, self.test_x, self.test_y, self.owners]
        for array in arrays:
            if array is None:
                digest.update(b"none")
                continue
            portable = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
            digest.update(f"{portable.dtype.str} {portable.shape}".encode())
            digest.update(portable.data)
        return digest.hexdigest()

    def _check_samples(self, part: str, x: FloatArray, y: Targets) -> None:
        where = f"{self.name}: {part}"
        if x.dtype != np.float32 or x.ndim != 2 or x.shape[1] != self.features:
            raise DataError(
                f"{where}_x is {x.dtype} {x.shape}, expected float32 (n, {self.features}) for samples of shape "
                f"{self.sample_shape}; flatten each sample into a row"
            )
        labels = y.dtype == np.int64 and y.ndim == 1
        if not labels and (y.dtype != np.float32 or y.shape[1:] != (self.classes,)):
            raise DataError(
                f"{where}_y is {y.dtype} {y.shape}, expected int64 (n,), one label per sample, or float32 "
                f"(n, {self.classes})"
            )
        if y.ndim != self.train_y.ndim:
            raise DataError(f"{self.name}: train_y is {self.train_y.shape}, test_y {y.shape}; expected one kind")
        if len(x) != len(y):
            raise DataError(f"{where} has {len(x)} samples but {len(y)} labels; give one label per sample")
        if len(x) == 0:
            raise DataError(f"{where} set is empty, expected at least one sample; lower the share of the other set")
        if not np.isfinite(x).all():
            raise DataError(f"{where}_x holds NaN or infinity, expected finite values; repair or drop those samples")
        if not labels:
            if not np.isfinite(y).all():
                raise DataError(
                    f"{where}_y holds NaN or infinity, expected finite values; repair or drop those samples"
                )
            return
        low, high = int(y.min()), int(y.max())
        if low < 0 or high >= self.classes:
            raise DataError(f"{where}_y has labels {low} .. {high}, expected 0 .. {self.classes - 1}; renumber them")


def held_out_count(samples: int, test_fraction: float) -> int:
    """How many of ``samples`` are for testing: the nearest whole number, but at least one on either side."""
    if not 0.0 < test_fraction < 1.0:
        raise DataError(f"test_fraction is {test_fraction}, expected a number between 0 and 1 (both excluded)")
    if samples < 2:
        raise DataError(f"cannot split {samples} sample(s) into training and test; at least 2 are needed")
    return min(max(round(samples * test_fraction), 1), samples - 1)


def stratified_choice(y: IntArray, count: int, rng: np.random.Generator) -> IntArray:
    """Sorted indices of exactly ``count`` of the labels ``y`` (n,), drawn without replacement.

    Each class c keeps its share: it gives within one sample of count n_c / n (largest remainder).
    """
    if not 1 <= count <= len(y):
        raise DataError(f"{count} samples asked for, but there are {len(y)}; ask for 1 .. {len(y)}")
    labels, class_counts = np.unique(y, return_counts=True)
    shares = apportion(class_counts.astype(np.float64), count)
    chosen = [
        rng.choice(np.flatnonzero(y == label), size=int(share), replace=False)
        for label, share in zip(labels, shares, strict=True)
    ]
    return np.sort(np.concatenate(chosen)).astype(np.int64)


def split_train_test(
    x: NDArray[Any], y: IntArray, train_samples: int | None, test_fraction: float, rng: np.random.Generator
) -> tuple[NDArray[Any], IntArray, NDArray[Any], IntArray]:
    """Split one pool x (n, ...), y (n,) into (train_x, train_y, test_x, test_y): disjoint, together the whole pool.

    Stratified by class. Exactly ``train_samples`` are for training and the rest for testing; with None the test set is
    ``test_fraction`` of the pool (which is otherwise not looked at). Both sets get at least one sample.
    """
    if len(x) != len(y):
        raise DataError(f"{len(x)} samples but {len(y)} labels; give one label per sample")
    if train_samples is None:
        train_samples = len(y) - held_out_count(len(y), test_fraction)
    if not 1 <= train_samples < len(y):
        raise DataError(
            f"train_samples is {train_samples}, but of {len(y)} samples 1 .. {len(y) - 1} can be for training, "
            "because one or more must be left for testing; lower it, or leave it out to use test_fraction"
        )
    in_train = np.zeros(len(y), dtype=np.bool_)
    in_train[stratified_choice(y, train_samples, rng)] = True
    return x[in_train], y[in_train], x[~in_train], y[~in_train]
