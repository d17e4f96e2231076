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

from fl.errors import ModelError
from fl.learning import mlp
from fl.learning.autograd import AutogradTrainer
from fl.learning.batches import batch_slices, epoch_orders
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, Vector, build_mlp, flatten
from fl.learning.settings import LocalSettings
from fl.learning.trainer import ClientData, Trainer

pytestmark = pytest.mark.usefixtures("one_thread")


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
    def data(self) -> ClientData:
        rng = np.random.default_rng(self.seed)
        x = rng.random((self.samples, self.features), dtype=np.float32)
        return ClientData(torch.from_numpy(x), torch.from_numpy(rng.integers(self.classes, size=self.samples)))

    @property
    def settings(self) -> LocalSettings:
        return LocalSettings(epochs=self.epochs, batch_size=self.batch_size, lr=self.lr, momentum=self.momentum)

    def update(self, kind: Callable[[MLP], Trainer]) -> Vector:
        orders = epoch_orders(self.samples, self.epochs, np.random.default_rng(self.seed))
        return kind(self.model).sgd_update(flatten(self.model), self.data, orders, self.settings, self.mu)

    def oracle(self) -> NDArray[np.float64]:
        return self.oracle_and_kink()[0]

    def oracle_and_kink(self) -> tuple[NDArray[np.float64], float]:
        """Momentum SGD on mean cross-entropy plus mu/2 ||w - w0||^2 in float64: v <- m v + g, w <- w - lr v.

        Also the smallest |z| on the way: where it is within rounding of the kink of ReLU, trainers may rightly differ.
        """
        kink = np.inf
        x, y = self.data.x.numpy(), self.data.y.numpy()
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
    "one epoch": Case(samples=200, features=784, hidden=196, classes=10, batch_size=64, epochs=1),
    "one epoch, a last batch of one": Case(samples=33, features=20, hidden=12, classes=5, batch_size=8, epochs=1),
    "one epoch, one batch": Case(samples=17, features=20, hidden=12, classes=5, batch_size=64, epochs=1),
    "one epoch, weight space": Case(samples=45, features=20, hidden=12, classes=5, batch_size=16, epochs=1),
    "twenty epochs": Case(samples=60, features=64, hidden=32, classes=10, batch_size=16, epochs=20),
}


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_hand_written_gradients_equal_autograd_and_the_oracle(case: Case) -> None:
    ours, plain, oracle = case.update(MLPTrainer), case.update(AutogradTrainer), case.oracle()
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
    assert_same(CASES[name].update(MLPTrainer), CASES[name].oracle())


def test_the_comparison_catches_a_wrong_momentum_a_wrong_mu_and_a_wrong_bias() -> None:
    case = CASES["weight space"]
    oracle = case.oracle()
    for wrong in (
        Case(**{**vars(case), "momentum": 0.49}),
        Case(**{**vars(case), "mu": 0.0}),
        Case(**{**vars(case), "lr": 0.0501}),
    ):
        with pytest.raises(AssertionError):
            assert_same(wrong.update(MLPTrainer), oracle)
    without_bias = case.update(MLPTrainer)
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
    assert_same(case.update(MLPTrainer), oracle)


def test_trainers_change_neither_the_model_nor_the_data_nor_the_start() -> None:
    case = CASES["a last batch of one"]
    for kind in (MLPTrainer, AutogradTrainer):
        model, data = case.model, case.data
        start = flatten(model)
        kept = start.copy(), data.x.clone(), data.y.clone()
        orders = epoch_orders(case.samples, 2, np.random.default_rng(1))
        kind(model).sgd_update(start, data, orders, case.settings, case.mu)
        np.testing.assert_array_equal(start, kept[0])
        np.testing.assert_array_equal(flatten(model), kept[0])
        assert torch.equal(data.x, kept[1])
        assert torch.equal(data.y, kept[2])


def test_batches_cover_every_sample_once_per_epoch() -> None:
    for samples in (1, 7, 8, 9, 64):
        covered = np.concatenate([np.arange(samples)[part] for part in batch_slices(samples, 8)])
        np.testing.assert_array_equal(covered, np.arange(samples))
    orders = list(epoch_orders(9, 3, np.random.default_rng(1)))
    assert [sorted(order) for order in orders] == [list(range(9))] * 3
    assert not np.array_equal(orders[0], orders[1])


@pytest.mark.parametrize("labels", [[0, 1, 3], [0, -1, 2], [0, 1]], ids=["too large", "negative", "too few"])
def test_labels_that_do_not_fit_are_refused(labels: list[int]) -> None:
    """Compiled code checks no bounds: it would write beside its arrays."""
    model = build_mlp(6, 4, 3, 1)
    with pytest.raises(ModelError, match=r"labels .* 3 samples: expected one of 0\.\.2"):
        MLPTrainer(model).sgd_update(
            flatten(model),
            ClientData(torch.rand(3, 6), torch.tensor(labels)),
            epoch_orders(3, 1, np.random.default_rng(1)),
            LocalSettings(batch_size=2),
            0.1,
        )
