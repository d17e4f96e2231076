"""Models as flat vectors, and everything that can be wrong with a user's own module."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from fl.errors import ModelError
from fl.learning.model import MLP, build_mlp, check_model, flatten, import_module, unflatten_into


@pytest.fixture
def user_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A file as a user would write it, importable by name."""
    (tmp_path / "user_nets.py").write_text(
        """
import torch
from torch import nn


class Good(nn.Module):
    def __init__(self, width=4):
        super().__init__()
        self.inner = nn.Linear(6, width)
        self.outer = nn.Linear(width, 3)

    def forward(self, x):
        return self.outer(torch.tanh(self.inner(x)))


def not_a_module():
    return 3


class Normalised(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 3), nn.BatchNorm1d(3))


class Dropping(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(6, 3), nn.Dropout(0.5))


class Lazy(nn.Sequential):
    def __init__(self):
        super().__init__(nn.LazyLinear(3))


class Failing(nn.Module):
    def __init__(self):
        raise KeyError("no such thing")
"""
    )
    (tmp_path / "broken_syntax.py").write_text("class Net(:\n")
    (tmp_path / "broken_import.py").write_text("1 / 0\n")
    monkeypatch.syspath_prepend(tmp_path)
    return "user_nets"


def test_the_papers_mlp_has_155830_parameters() -> None:
    # MODEL.md, and 784*196 + 196 + 196*10 + 10 by hand.
    assert flatten(build_mlp(784, 196, 10, seed=1)).size == 155_830 == 784 * 196 + 196 + 196 * 10 + 10


def test_weights_depend_on_the_seed_alone_and_the_global_generator_is_left_alone() -> None:
    torch.manual_seed(5)
    before = torch.random.get_rng_state()
    first = flatten(build_mlp(6, 4, 3, seed=1))
    assert torch.equal(torch.random.get_rng_state(), before)
    torch.manual_seed(6)
    np.testing.assert_array_equal(flatten(build_mlp(6, 4, 3, seed=1)), first)
    assert not np.array_equal(flatten(build_mlp(6, 4, 3, seed=2)), first)


def test_flatten_and_unflatten_are_inverse_and_flatten_copies() -> None:
    model = build_mlp(6, 4, 3, seed=1)
    vector = np.arange(43, dtype=np.float32)
    unflatten_into(model, vector)
    back = flatten(model)
    np.testing.assert_array_equal(back, vector)
    back[:] = 0
    np.testing.assert_array_equal(flatten(model), vector)
    # The order of `nn.Module.parameters()`: weight before bias, first layer before second.
    np.testing.assert_array_equal(model.first.weight.detach().numpy(), vector[:24].reshape(4, 6))
    np.testing.assert_array_equal(model.second.bias.detach().numpy(), vector[-3:])


@pytest.mark.parametrize("size", [42, 44, 0])
def test_a_vector_of_another_size_is_refused(size: int) -> None:
    with pytest.raises((ModelError, RuntimeError)):
        unflatten_into(build_mlp(6, 4, 3, seed=1), np.zeros(size, np.float32))


def test_a_users_module_is_built_with_its_arguments_from_the_seed(user_module: str) -> None:
    model = import_module(f"{user_module}:Good", {"width": 7}, seed=3)
    assert flatten(model).size == 6 * 7 + 7 + 7 * 3 + 3
    check_model(model, (6,), 3)
    np.testing.assert_array_equal(flatten(import_module(f"{user_module}:Good", {"width": 7}, seed=3)), flatten(model))
    assert not np.array_equal(flatten(import_module(f"{user_module}:Good", {"width": 7}, seed=4)), flatten(model))


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("user_nets", "expected an import path"),
        (":Good", "expected an import path"),
        ("user_nets:", "expected an import path"),
        ("no_such_module_anywhere:Net", "cannot be imported"),
        ("user_nets:Missing", "cannot be imported"),
        ("broken_syntax:Net", "cannot be imported"),
        ("broken_import:Net", "cannot be imported"),
        ("..relative:Net", "expected an import path"),
        ("user_nets:Failing", "cannot be built"),
        ("user_nets:not_a_module", "is a function: expected a class that derives from torch.nn"),
        ("user_nets:Normalised", r"has BatchNorm1d.*nn\.GroupNorm"),
        ("user_nets:Dropping", "has dropout"),
        ("user_nets:Lazy", "has lazy layers"),
    ],
)
def test_what_cannot_be_a_model_is_refused_with_its_path(user_module: str, path: str, message: str) -> None:
    assert user_module
    with pytest.raises(ModelError, match=message) as caught:
        import_module(path, {}, seed=1)
    assert path in str(caught.value)


def test_arguments_that_do_not_fit_are_named(user_module: str) -> None:
    with pytest.raises(ModelError, match=r"cannot be built with .*'depth': 3"):
        import_module(f"{user_module}:Good", {"depth": 3}, seed=1)


class _Raises(nn.Module):
    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)
        self.error = error

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise self.error


class _Tuple(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        return self.layer(x), 1


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Identity(), "float32 parameters"),
        (nn.Linear(6, 3).double(), "float32 parameters"),
        (nn.Linear(6, 3).requires_grad_(False), "can be trained"),
        (nn.Linear(5, 3), "does not take samples"),
        (nn.Linear(6, 4), r"expected \(2, 3\)"),
        (nn.Sequential(nn.Linear(6, 3), nn.Flatten(0)), r"shape \(6,\)"),
        (_Raises(IndexError("x")), "does not take samples"),
        (_Raises(AttributeError("x")), "does not take samples"),
        (_Tuple(), "does not take samples"),
    ],
)
def test_models_that_do_not_fit_the_data_are_refused(model: nn.Module, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        check_model(model, (6,), 3)


def test_the_mlp_fits_its_own_sizes() -> None:
    check_model(MLP(6, 4, 3), (6,), 3)
