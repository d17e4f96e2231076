"""The handwritten digits that come with scikit-learn: real images with no download."""

import numpy as np

from fl.learning.data.dataset import Dataset, split_train_test


def load_digits(train_samples: int | None, test_fraction: float, rng: np.random.Generator) -> Dataset:
    """1797 digits of 8x8 pixels, 10 classes; pixel counts 0 .. 16 are scaled by 1/16 to [0, 1].

    The split is that of `split_train_test`: stratified, ``train_samples`` for training or all but ``test_fraction``.
    """
    from sklearn import datasets  # type: ignore[import-untyped, unused-ignore]

    pixels, labels = datasets.load_digits(return_X_y=True)
    x = (np.asarray(pixels) / 16.0).astype(np.float32)
    y = np.asarray(labels).astype(np.int64)
    train_x, train_y, test_x, test_y = split_train_test(x, y, train_samples, test_fraction, rng)
    return Dataset("digits", train_x, train_y, test_x, test_y, classes=10, sample_shape=(8, 8))
