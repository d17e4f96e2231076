"""What `airdp node client --data` may name, and what it may not."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.errors import DataError
from fl.processes.own_data import client_data
from fl.run.config import parse_config
from fl.run.learner import Learner, make_learner

CONFIG = parse_config({"data": {"train_samples": 50}, "partition": {"clients": 2}, "model": {"hidden": 4}})
RNG = np.random.default_rng(1)
X: NDArray[np.float32] = RNG.random((7, 64), np.float32)
Y: NDArray[np.int64] = np.array([0, 1, 2, 3, 9, 5, 6])


@pytest.fixture(scope="module")
def learner() -> Learner:
    return make_learner(CONFIG)


def as_pair() -> Any:
    return X, Y


def by_name() -> Any:
    return {"x": X, "y": Y}


def nothing() -> Any:
    return None


def three() -> Any:
    return X, Y, Y


@pytest.mark.parametrize("name", ["as_pair", "by_name", "file"])
def test_the_same_data_from_wherever(tmp_path: Path, learner: Learner, name: str) -> None:
    np.savez(tmp_path / "own.npz", x=X, y=Y)
    source = str(tmp_path / "own.npz") if name == "file" else f"{__name__}:{name}"
    data = client_data(CONFIG, learner, 0, source)
    assert np.array_equal(data.x.numpy(), X)
    assert np.array_equal(data.y.numpy(), Y)


def test_without_any_it_is_its_share_of_the_runs(learner: Learner) -> None:
    assert client_data(CONFIG, learner, 1, "") is learner.clients[1]


@pytest.mark.parametrize("name", ["nothing", "three"])
def test_a_function_that_gives_something_else(learner: Learner, name: str) -> None:
    with pytest.raises(DataError, match="gives no x and y"):
        client_data(CONFIG, learner, 0, f"{__name__}:{name}")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"y": Y[:3]}, "as many of both"),
        ({"x": X[:, :9]}, "expected 64"),
        ({"x": np.full_like(X, np.nan)}, "all finite"),
        ({"y": Y + 10}, "from 0 to 9"),
        ({"y": Y - 1}, "from 0 to 9"),
        ({"y": Y.astype(float)}, "whole numbers"),
        ({"y": np.stack([Y, Y], axis=1)}, "y is"),
    ],
)
def test_data_that_could_not_be_a_part_of_the_runs(
    tmp_path: Path, learner: Learner, changes: dict[str, Any], said: str
) -> None:
    np.savez(tmp_path / "own.npz", **{"x": X, "y": Y, **changes})
    with pytest.raises(DataError, match=said):
        client_data(CONFIG, learner, 0, str(tmp_path / "own.npz"))
