"""Local SGD: the hand-written trainer against autograd and against float64 NumPy written from the formulas here."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from fl.errors import ModelError, PrivacyError
from fl.learning import autograd, mlp
from fl.learning.batches import batch_slices, epoch_orders
from fl.learning.local import ClientData, LocalSettings, train_client
from fl.learning.mode import LocalMode
from fl.learning.model import MLP, build_mlp, flatten

pytestmark = pytest.mark.usefixtures("one_thread")

Vector = NDArray[np.float32]


@dataclass(frozen=True)
class Case:
    samples: int
    features: int
    hidden: int
    classes: int
    batch_size: int
    epochs: int
    lr: float = 0.05
    momentum: float = 0.5
    mu: float = 0.1
    seed: int = 1

    @property
    def model(self) -> MLP:
        return build_mlp(self.features, self.hidden, self.classes, self.seed)

    @property
    def data(self) -> tuple[torch.Tensor, torch.Tensor]:
        rng = np.random.default_rng(self.seed)
        x = rng.random((self.samples, self.features), dtype=np.float32)
        return torch.from_numpy(x), torch.from_numpy(rng.integers(self.classes, size=self.samples))

    def update(self, trainer: Callable[..., Vector]) -> Vector:
        model = self.model
        orders = epoch_orders(self.samples, self.epochs, np.random.default_rng(self.seed))
        return trainer(
            model,
            flatten(model),
            *self.data,
            orders,
            batch_size=self.batch_size,
            lr=self.lr,
            momentum=self.momentum,
            mu=self.mu,
        )

    def oracle(self) -> NDArray[np.float64]:
        return self.oracle_and_kink()[0]

    def oracle_and_kink(self) -> tuple[NDArray[np.float64], float]:
        """Momentum SGD on mean cross-entropy plus mu/2 ||w - w0||^2 in float64: v <- m v + g, w <- w - lr v.

        Also the smallest |z| on the way: where it is within rounding of the kink of ReLU, trainers may rightly differ.
        """
        kink = np.inf
        x, y = (part.numpy() for part in self.data)
        x = x.astype(np.float64)
        start = [p.detach().numpy().astype(np.float64) for p in self.model.parameters()]
        now, velocity = [p.copy() for p in start], [np.zeros_like(p) for p in start]
        for order in epoch_orders(self.samples, self.epochs, np.random.default_rng(self.seed)):
            for first in range(0, self.samples, self.batch_size):
                index = order[first : first + self.batch_size]
                w1, b1, w2, b2 = now
                z = x[index] @ w1.T + b1
                kink = min(kink, float(np.abs(z).min()))
                active = np.maximum(z, 0.0)
                logits = active @ w2.T + b2
                chances = np.exp(logits - logits.max(axis=1, keepdims=True))
                error = chances / chances.sum(axis=1, keepdims=True)
                error[np.arange(len(index)), y[index]] -= 1.0
                error /= len(index)
                back = (error @ w2) * (z > 0)
                gradients = [back.T @ x[index], back.sum(0), error.T @ active, error.sum(0)]
                for part, gradient in enumerate(gradients):
                    pull = self.mu * (now[part] - start[part])
                    velocity[part] = self.momentum * velocity[part] + gradient + pull
                    now[part] = now[part] - self.lr * velocity[part]
        return np.concatenate([(a - b).ravel() for a, b in zip(now, start, strict=True)]), kink


def assert_same(ours: Vector, reference: NDArray[Any], tolerance: float = 2e-4) -> None:
    """Within float32 rounding, relative to the whole update: single coordinates may be near zero."""
    assert ours.dtype == np.float32
    assert ours.shape == reference.shape
    scale = max(float(np.linalg.norm(reference)), 1e-6)
    assert np.linalg.norm(ours - reference) <= tolerance * scale


CASES = {
    "papers sizes, sample space": Case(samples=200, features=784, hidden=196, classes=10, batch_size=64, epochs=3),
    "papers batches": Case(samples=165, features=784, hidden=196, classes=10, batch_size=16, epochs=2),
    "papers sizes, weight space": Case(samples=80, features=39, hidden=196, classes=10, batch_size=16, epochs=2),
    "weight space": Case(samples=200, features=20, hidden=12, classes=5, batch_size=64, epochs=4),
    "just below twice the features": Case(samples=39, features=20, hidden=12, classes=5, batch_size=7, epochs=4),
    "exactly twice the features": Case(samples=40, features=20, hidden=12, classes=5, batch_size=7, epochs=4),
    "one sample": Case(samples=1, features=20, hidden=12, classes=5, batch_size=64, epochs=5),
    "one sample, weight space": Case(samples=2, features=1, hidden=3, classes=2, batch_size=1, epochs=5),
    "fewer samples than a batch": Case(samples=5, features=20, hidden=12, classes=5, batch_size=64, epochs=5),
    "a last batch of one": Case(samples=33, features=20, hidden=12, classes=5, batch_size=8, epochs=4),
    "batch of one": Case(samples=9, features=20, hidden=12, classes=5, batch_size=1, epochs=2),
    "plain SGD": Case(samples=50, features=30, hidden=12, classes=5, batch_size=16, epochs=4, momentum=0.0, mu=0.0),
    "no proximal term": Case(samples=50, features=30, hidden=12, classes=5, batch_size=16, epochs=4, mu=0.0),
    "no momentum": Case(samples=50, features=30, hidden=12, classes=5, batch_size=16, epochs=4, momentum=0.0),
    "strong pull back": Case(samples=50, features=30, hidden=12, classes=5, batch_size=16, epochs=4, mu=5.0),
    "twenty epochs": Case(samples=60, features=64, hidden=32, classes=10, batch_size=16, epochs=20),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hand_written_gradients_equal_autograd_and_the_oracle(case: Case) -> None:
    ours, plain, oracle = case.update(mlp.sgd_update), case.update(autograd.sgd_update), case.oracle()
    assert_same(plain, oracle)
    assert_same(ours, oracle)
    assert_same(ours, plain)


def test_both_spaces_are_exercised_by_the_cases() -> None:
    chosen = {mlp.prefers_sample_space(case.samples, case.features) for case in CASES.values()}
    assert chosen == {True, False}


@pytest.mark.parametrize("space", [True, False], ids=["sample space", "weight space"])
@pytest.mark.parametrize("name", ["papers sizes, sample space", "weight space", "one sample", "a last batch of one"])
def test_the_space_is_a_matter_of_speed_only(name: str, space: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mlp, "prefers_sample_space", lambda samples, features: space)
    assert_same(CASES[name].update(mlp.sgd_update), CASES[name].oracle())


def test_the_comparison_catches_a_wrong_momentum_a_wrong_mu_and_a_wrong_bias() -> None:
    case = CASES["weight space"]
    oracle = case.oracle()
    for wrong in (
        Case(**{**vars(case), "momentum": 0.49}),
        Case(**{**vars(case), "mu": 0.0}),
        Case(**{**vars(case), "lr": 0.0501}),
    ):
        with pytest.raises(AssertionError):
            assert_same(wrong.update(mlp.sgd_update), oracle)
    without_bias = case.update(mlp.sgd_update)
    without_bias[case.features * case.hidden] = 0.0
    with pytest.raises(AssertionError):
        assert_same(without_bias, oracle)


@settings(max_examples=60, deadline=None)
@given(
    samples=st.integers(1, 70),
    features=st.integers(1, 24),
    hidden=st.integers(1, 12),
    classes=st.integers(2, 6),
    batch_size=st.integers(1, 40),
    epochs=st.integers(1, 3),
    momentum=st.sampled_from([0.0, 0.5, 0.9]),
    mu=st.sampled_from([0.0, 0.1, 1.0]),
    seed=st.integers(0, 2**31),
)
def test_any_sizes(**fields: int | float) -> None:
    case = Case(**fields)  # type: ignore[arg-type]
    oracle, kink = case.oracle_and_kink()
    assume(kink > 3e-6)
    assert_same(case.update(mlp.sgd_update), oracle)


def test_trainers_change_neither_the_model_nor_the_data_nor_the_start() -> None:
    case = CASES["a last batch of one"]
    for trainer in (mlp.sgd_update, autograd.sgd_update):
        model, (x, y) = case.model, case.data
        start = flatten(model)
        kept = start.copy(), x.clone(), y.clone()
        trainer(
            model,
            start,
            x,
            y,
            epoch_orders(case.samples, 2, np.random.default_rng(1)),
            batch_size=8,
            lr=0.1,
            momentum=0.5,
            mu=0.1,
        )
        np.testing.assert_array_equal(start, kept[0])
        np.testing.assert_array_equal(flatten(model), kept[0])
        assert torch.equal(x, kept[1])
        assert torch.equal(y, kept[2])


def test_batches_cover_every_sample_once_per_epoch() -> None:
    for samples in (1, 7, 8, 9, 64):
        covered = np.concatenate([np.arange(samples)[part] for part in batch_slices(samples, 8)])
        np.testing.assert_array_equal(covered, np.arange(samples))
    orders = list(epoch_orders(9, 3, np.random.default_rng(1)))
    assert [sorted(order) for order in orders] == [list(range(9))] * 3
    assert not np.array_equal(orders[0], orders[1])


SETTINGS = LocalSettings(mode=LocalMode.SGD, epochs=2, batch_size=8, lr=0.5, momentum=0.5, mu=0.1)


def train(model: nn.Module, settings: LocalSettings, clip_norm: float = 1.0, samples: int = 20) -> Vector:
    case = Case(samples=samples, features=6, hidden=4, classes=3, batch_size=8, epochs=2)
    data = ClientData(*case.data)
    start = flatten(model)
    bounded = train_client(model, start, data, settings, clip_norm, np.random.default_rng(1), origin="client 3")
    assert bounded.clip_norm == clip_norm
    return bounded.values


def test_a_client_clips_its_whole_update() -> None:
    free, clipped = train(build_mlp(6, 4, 3, 1), SETTINGS, 1e6), train(build_mlp(6, 4, 3, 1), SETTINGS, 1e-3)
    assert np.linalg.norm(free) > 0.01
    assert np.linalg.norm(clipped.astype(np.float64)) <= 1e-3
    np.testing.assert_allclose(clipped / np.linalg.norm(clipped), free / np.linalg.norm(free), atol=1e-6)


class _DoublingMLP(MLP):
    """The MLP's parameters with another forward: must not go through the MLP's hand-written gradients."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2.0 * super().forward(x)


@pytest.mark.parametrize("mode", list(LocalMode))
def test_a_subclass_of_the_mlp_is_trained_by_its_own_forward(mode: LocalMode) -> None:
    torch.manual_seed(1)
    model = _DoublingMLP(6, 4, 3)
    plain = build_mlp(6, 4, 3, 1)
    plain.load_state_dict(model.state_dict())

    class Wrapped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = plain

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2.0 * self.inner(x)

    local = LocalSettings(**{**vars(SETTINGS), "mode": mode})
    np.testing.assert_allclose(train(model, local, 1e6), train(Wrapped(), local, 1e6), rtol=1e-5, atol=1e-7)
    assert not np.allclose(train(model, local, 1e6), train(plain, local, 1e6), rtol=1e-2)


@pytest.mark.parametrize("mode", list(LocalMode))
@pytest.mark.parametrize("samples", [11, 20], ids=["sample space", "weight space"])
def test_nan_in_the_data_raises_and_names_the_client(mode: LocalMode, samples: int) -> None:
    case = Case(samples=samples, features=6, hidden=4, classes=3, batch_size=8, epochs=2)
    x, y = case.data
    x[3, 2] = float("nan")
    model = case.model
    settings_ = LocalSettings(**{**vars(SETTINGS), "mode": mode})
    with pytest.raises(PrivacyError, match="client 3"):
        train_client(
            model, flatten(model), ClientData(x, y), settings_, 1.0, np.random.default_rng(1), origin="client 3"
        )


@pytest.mark.parametrize("place", [0, 24, 28, 40], ids=["weight", "bias", "second weight", "second bias"])
def test_nan_in_the_model_raises(place: int) -> None:
    case = Case(samples=11, features=6, hidden=4, classes=3, batch_size=8, epochs=2)
    start = flatten(case.model)
    start[place] = float("nan")
    with pytest.raises(PrivacyError, match="NaN"):
        train_client(
            case.model, start, ClientData(*case.data), SETTINGS, 1.0, np.random.default_rng(1), origin="client 3"
        )


@pytest.mark.parametrize("labels", [[0, 1, 3], [0, -1, 2], [0, 1]], ids=["too large", "negative", "too few"])
def test_labels_that_do_not_fit_are_refused(labels: list[int]) -> None:
    """Compiled code checks no bounds: it would write beside its arrays."""
    model = build_mlp(6, 4, 3, 1)
    with pytest.raises(ModelError, match=r"labels .* 3 samples: expected one of 0\.\.2"):
        mlp.sgd_update(
            model,
            flatten(model),
            torch.rand(3, 6),
            torch.tensor(labels),
            epoch_orders(3, 1, np.random.default_rng(1)),
            batch_size=2,
            lr=0.1,
            momentum=0.5,
            mu=0.1,
        )


def test_a_learning_rate_that_explodes_raises() -> None:
    with pytest.raises(PrivacyError, match=r"NaN or infinite.*local\.lr"):
        train(build_mlp(6, 4, 3, 1), LocalSettings(**{**vars(SETTINGS), "lr": 1e9, "epochs": 20}))
