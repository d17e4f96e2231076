"""Gradients and extreme Hessian eigenvalues against closed forms and dense matrices."""

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn
from torch.autograd.functional import hessian
from torch.func import functional_call

from fl.errors import ModelError
from fl.learning.model import MLP, build_mlp, flatten, unflatten_into
from fl.learning.theory.curvature import hessian_extremes, lanczos_extremes, loss_and_gradient
from fl.learning.trainer import ClientData

pytestmark = pytest.mark.usefixtures("one_thread")
Vector = NDArray[np.float64]


def samples(count: int, features: int, classes: int, seed: int = 1) -> ClientData:
    rng = np.random.default_rng(seed)
    return ClientData(
        torch.from_numpy(rng.standard_normal((count, features)).astype(np.float32)),
        torch.from_numpy(rng.integers(classes, size=count)),
    )


def quadratic(eigenvalues: Vector, seed: int = 1) -> tuple[Callable[[Vector], Vector], list[int]]:
    """w -> A w, the Hessian of w^T A w / 2 with these eigenvalues, and a list that grows with every product."""
    rotation, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((eigenvalues.size, eigenvalues.size)))
    calls: list[int] = []

    def product(direction: Vector) -> Vector:
        calls.append(1)
        return np.asarray(rotation @ (eigenvalues * (rotation.T @ direction)))

    return product, calls


def dense_hessian(model: nn.Module, vector: NDArray[np.float32], data: ClientData) -> Vector:
    """All of it, in double precision."""
    net = copy.deepcopy(model)
    unflatten_into(net, vector)
    net = net.double()
    names = [name for name, _ in net.named_parameters()]
    shapes = [parameter.shape for parameter in net.parameters()]

    def loss(flat: torch.Tensor) -> torch.Tensor:
        parts = torch.split(flat, [shape.numel() for shape in shapes])
        values = {name: part.view(shape) for name, part, shape in zip(names, parts, shapes, strict=True)}
        return nn.functional.cross_entropy(functional_call(net, values, (data.x.double(),)), data.y)

    matrix: Any = hessian(loss, torch.from_numpy(vector.astype(np.float64)))
    return np.asarray(matrix.numpy())


@pytest.mark.parametrize("dimension", [1, 2, 7, 16])
def test_extremes_of_a_small_quadratic_are_exact(dimension: int) -> None:
    eigenvalues = np.linspace(-3.0, 5.0, dimension) if dimension > 1 else np.array([-2.5])
    product, calls = quadratic(eigenvalues)
    low, high = lanczos_extremes(product, dimension, np.random.default_rng(2), 16)
    assert (low, high) == pytest.approx((eigenvalues.min(), eigenvalues.max()), abs=1e-9)
    assert len(calls) <= dimension


def test_extremes_of_a_large_quadratic_are_close_and_inside() -> None:
    eigenvalues = np.concatenate([[-4.0], np.linspace(-0.5, 0.5, 998), [9.0]])
    product, calls = quadratic(eigenvalues)
    low, high = lanczos_extremes(product, 1000, np.random.default_rng(3), 16)
    assert len(calls) == 16
    assert -4.0 <= low + 1e-9 < -3.99
    assert 8.99 < high - 1e-9 <= 9.0
    # Few steps find less, never more.
    short_low, short_high = lanczos_extremes(product, 1000, np.random.default_rng(3), 3)
    assert low <= short_low < 0 < short_high <= high


def test_few_different_eigenvalues_need_few_products() -> None:
    product, calls = quadratic(np.repeat([-1.0, 0.0, 2.0], [3, 40, 7]))
    assert lanczos_extremes(product, 50, np.random.default_rng(4), 16) == pytest.approx((-1.0, 2.0))
    assert len(calls) == 3


def test_zero_operator() -> None:
    assert lanczos_extremes(np.zeros_like, 9, np.random.default_rng(5), 16) == (0.0, 0.0)


def test_products_that_are_not_finite_are_refused() -> None:
    with pytest.raises(ModelError, match="not finite"):
        lanczos_extremes(lambda direction: direction * np.nan, 9, np.random.default_rng(5), 16)


def test_softmax_regression_at_zero_has_a_known_hessian() -> None:
    """(I/C - 11^T/C^2) kron E[x x^T] with a 1 appended to x for the bias: eigenvalues 0 and E[x x^T]'s over C."""
    model, data = nn.Linear(5, 4), samples(40, 5, 4)
    x = np.hstack([data.x.numpy().astype(np.float64), np.ones((40, 1))])
    low, high = hessian_extremes(model, np.zeros(24, np.float32), data, np.random.default_rng(6), 24)
    assert high == pytest.approx(np.linalg.eigvalsh(x.T @ x / 40).max() / 4, rel=1e-4)
    assert low == pytest.approx(0.0, abs=1e-5)


@pytest.mark.parametrize("seed", [1, 2])
def test_mlp_against_the_dense_hessian(seed: int) -> None:
    model, data = build_mlp(6, 5, 3, seed), samples(30, 6, 3, seed)
    # Larger weights than at the start, so that the Hessian is truly indefinite.
    vector = (3 * flatten(model)).astype(np.float32)
    expected = np.linalg.eigvalsh(dense_hessian(model, vector, data))
    low, high = hessian_extremes(model, vector, data, np.random.default_rng(seed), 40)
    assert expected[0] < -0.01
    assert (low, high) == pytest.approx((expected[0], expected[-1]), rel=1e-3)
    # As many products as a run's clients get.
    low, high = hessian_extremes(model, vector, data, np.random.default_rng(seed), 16)
    assert (low, high) == pytest.approx((expected[0], expected[-1]), rel=0.03)


def test_gradient_is_the_slope_of_the_loss() -> None:
    model, data = build_mlp(6, 5, 3, 1), samples(30, 6, 3)
    start = flatten(model)
    value, gradient = loss_and_gradient(model, start, data)
    assert value == pytest.approx(nn.functional.cross_entropy(model(data.x), data.y).item(), rel=1e-6)
    assert gradient.shape == start.shape
    net = copy.deepcopy(model).double()
    for index in (0, 17, start.size - 1):
        sides = []
        for shift in (1e-5, -1e-5):
            moved = start.astype(np.float64)
            moved[index] += shift
            nn.utils.vector_to_parameters(torch.from_numpy(moved), net.parameters())
            with torch.no_grad():
                sides.append(float(nn.functional.cross_entropy(net(data.x.double()), data.y)))
        assert gradient[index] == pytest.approx((sides[0] - sides[1]) / 2e-5, rel=1e-4)


def test_model_is_left_as_it_was() -> None:
    model, data = build_mlp(6, 5, 3, 1), samples(30, 6, 3)
    before = flatten(model)
    loss_and_gradient(model, 2 * before, data)
    hessian_extremes(model, 2 * before, data, np.random.default_rng(1), 4)
    np.testing.assert_array_equal(flatten(model), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_parameters_that_are_not_trained_count() -> None:
    """Noise reaches them too."""
    model, data = build_mlp(6, 5, 3, 1), samples(30, 6, 3)
    frozen = copy.deepcopy(model)
    frozen.first.requires_grad_(False)
    vector = flatten(model)
    np.testing.assert_array_equal(loss_and_gradient(frozen, vector, data)[1], loss_and_gradient(model, vector, data)[1])
    assert not any(parameter.requires_grad for parameter in frozen.first.parameters())


class Idle(nn.Module):
    """Has a parameter that its output does not depend on."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.idle = nn.Linear(6, 3), nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = self.used(x)
        return logits


def test_parameters_without_influence_have_no_gradient() -> None:
    model, data = Idle(), samples(30, 6, 3)
    _, gradient = loss_and_gradient(model, flatten(model), data)
    assert gradient.size == 27
    assert np.all(gradient[21:] == 0)
    low, high = hessian_extremes(model, flatten(model), data, np.random.default_rng(1), 16)
    assert low == pytest.approx(0.0, abs=1e-5)
    assert high > 0.1


class _Once(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient.clone()


class OnceOnly(MLP):
    """Its gradient cannot be differentiated."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        logits: torch.Tensor = _Once.apply(super().forward(x))  # type: ignore[no-untyped-call]
        return logits


def test_model_without_second_derivatives_is_refused() -> None:
    model, data = OnceOnly(6, 5, 3), samples(30, 6, 3)
    loss_and_gradient(model, flatten(model), data)
    with pytest.raises(ModelError, match="cannot be differentiated"):
        hessian_extremes(model, flatten(model), data, np.random.default_rng(1), 4)
