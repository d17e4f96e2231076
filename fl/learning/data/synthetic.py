"""The synthetic data of FedProx: one logistic model per client, or one for all.

Li, Sahu, Zaheer, Sanjabi, Talwalkar and Smith, "Federated Optimization in Heterogeneous Networks", MLSys 2020,
section 5.1 and appendix C.1, with the sizes and scales of the generator that they published.
"""

import math

import numpy as np
from numpy.typing import NDArray

from fl.errors import DataError
from fl.learning.data.dataset import Dataset, held_out_count

_COVARIANCE_DECAY = 1.2
_SIZE_LOG_MEAN = 4.0
_SIZE_LOG_STD = 2.0
_SMALLEST_CLIENT = 50


def make_synthetic(
    clients: int,
    rng: np.random.Generator,
    *,
    iid: bool,
    alpha: float,
    beta: float,
    test_fraction: float,
    features: int = 60,
    classes: int = 10,
    max_client_samples: int | None = None,
) -> Dataset:
    """Draw a data set of ``clients`` natural clients; ``owners`` says whose each training sample is.

    Client k draws x ~ N(v_k, Sigma), Sigma diagonal with Sigma_jj = j^-1.2 (j = 1 .. features), and labels it
    y = argmax softmax(W_k x + b_k).

    - ``iid``: v_k = 0, and one W, b ~ N(0, 1) is shared by all; alpha and beta are not used.
    - else, every entry independent: W_k ~ N(u_k, 1), b_k ~ N(u_k, 1), u_k ~ N(0, alpha^2);
      v_k ~ N(B_k, 1), B_k ~ N(0, beta^2).

    alpha and beta are **standard deviations**, as in the published generator; the paper's text writes N(0, alpha),
    which can be read as a variance. The two agree at 0 and 1, not at 0.5. As u_k moves all logits of a sample alike,
    alpha leaves the labels as they are: what differs between clients is W_k, b_k and v_k.

    A client has 50 + floor(LogNormal(4, 2)) samples, at most ``max_client_samples`` where that is given: the tail is
    heavy. ``test_fraction`` of each client's samples go to the common test set, at least one and not all.
    """
    _check(clients, alpha, beta, features, classes, max_client_samples)
    sizes = _client_sizes(clients, max_client_samples, rng)
    std = np.arange(1, features + 1, dtype=np.float64) ** (-_COVARIANCE_DECAY / 2)
    shared = _draw_model(0.0, features, classes, rng) if iid else None
    train: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    test: list[tuple[NDArray[np.float32], NDArray[np.int64]]] = []
    for size in sizes.tolist():
        if shared is None:
            weights, bias = _draw_model(rng.normal(0.0, alpha), features, classes, rng)
            mean = rng.normal(rng.normal(0.0, beta), 1.0, features)
        else:
            weights, bias = shared
            mean = np.zeros(features)
        x = (mean + std * rng.standard_normal((size, features))).astype(np.float32)
        # Softmax keeps the order of its inputs, so the largest logit is the label.
        y = np.argmax(x.astype(np.float64) @ weights + bias, axis=1).astype(np.int64)
        kept = size - held_out_count(size, test_fraction)
        train.append((x[:kept], y[:kept]))
        test.append((x[kept:], y[kept:]))
    return Dataset(
        name="synthetic(iid)" if iid else f"synthetic({alpha:g},{beta:g})",
        train_x=np.concatenate([x for x, _ in train]),
        train_y=np.concatenate([y for _, y in train]),
        test_x=np.concatenate([x for x, _ in test]),
        test_y=np.concatenate([y for _, y in test]),
        classes=classes,
        sample_shape=(features,),
        owners=np.repeat(np.arange(clients, dtype=np.int64), [len(y) for _, y in train]),
    )


def _client_sizes(clients: int, largest: int | None, rng: np.random.Generator) -> NDArray[np.int64]:
    sizes: NDArray[np.int64] = (
        np.floor(rng.lognormal(_SIZE_LOG_MEAN, _SIZE_LOG_STD, clients)).astype(np.int64) + _SMALLEST_CLIENT
    )
    return sizes if largest is None else np.minimum(sizes, largest)


def _draw_model(
    mean: float, features: int, classes: int, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Weights (features, classes) and bias (classes,), all entries N(mean, 1)."""
    return rng.normal(mean, 1.0, (features, classes)), rng.normal(mean, 1.0, classes)


def _check(
    clients: int, alpha: float, beta: float, features: int, classes: int, max_client_samples: int | None
) -> None:
    for name, value, least in (("clients", clients, 1), ("features", features, 1), ("classes", classes, 2)):
        if value < least:
            raise DataError(f"synthetic: {name} is {value}, expected at least {least}; raise it")
    for name, std in (("alpha", alpha), ("beta", beta)):
        if not (math.isfinite(std) and std >= 0):
            raise DataError(f"synthetic: {name} is {std}, expected a finite standard deviation of 0 or more")
    if max_client_samples is not None and max_client_samples < 2:
        raise DataError(
            f"synthetic: max_client_samples is {max_client_samples}, expected at least 2 (to train and to test); "
            "raise it, or leave it out for no cap"
        )
