"""The mode that earns record-level privacy: both ways to compute it, and the bound on what one sample changes."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from torch import nn

from fl.errors import ModelError, PrivacyError
from fl.learning import per_sample
from fl.learning.local import LocalTraining, trainer_for
from fl.learning.model import build_mlp, flatten
from fl.learning.settings import LocalMode, LocalSettings
from fl.learning.trainer import ClientData
from fl.learning.workforce import in_order
from fl.privacy.sensitivity import Clipping

pytestmark = pytest.mark.usefixtures("one_thread")
FEATURES, HIDDEN, CLASSES = 12, 7, 4


def samples(count: int, seed: int = 1, scale: float = 1.0) -> ClientData:
    rng = np.random.default_rng(seed)
    x = (scale * rng.standard_normal((count, FEATURES))).astype(np.float32)
    return ClientData(torch.from_numpy(x), torch.from_numpy(rng.integers(CLASSES, size=count)))


def step(data: ClientData, clip_norm: float, lr: float = 0.5, model: nn.Module | None = None) -> NDArray[np.float64]:
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2) if model is None else model
    trainer = trainer_for(net)
    return trainer.mean_clipped_step(flatten(net), data, lr=lr, clip_norm=clip_norm, origin="client 0's update").astype(
        np.float64
    )


def oracle(data: ClientData, clip_norm: float, lr: float = 0.5) -> NDArray[np.float64]:
    """1/n sum_j clip(-lr grad_j, tau) by one backward pass per sample in float64."""
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2).double()
    terms = []
    for x, y in zip(data.x, data.y, strict=True):
        net.zero_grad()
        nn.functional.cross_entropy(net(x.double()[None]), y[None]).backward()
        term = -lr * np.concatenate([p.grad.numpy().ravel() for p in net.parameters()])  # type: ignore[union-attr]
        terms.append(term * min(1.0, clip_norm / np.linalg.norm(term)))
    return np.mean(terms, axis=0)


@pytest.mark.parametrize("clip_norm", [1e-3, 0.5, 1e3], ids=["all clipped", "some clipped", "none clipped"])
@pytest.mark.parametrize("count", [1, 2, 37])
def test_both_paths_equal_one_backward_pass_per_sample(count: int, clip_norm: float) -> None:
    data = samples(count)
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    expected = oracle(data, clip_norm)
    for path in (per_sample.mlp_step, per_sample.autograd_step):
        made = path(net, flatten(net), data, lr=0.5, clip_norm=clip_norm, origin="x")
        np.testing.assert_allclose(made, expected, rtol=2e-4, atol=1e-6 * clip_norm)


def test_chunks_of_samples_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    data = samples(37)
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    whole = per_sample.autograd_step(net, flatten(net), data, lr=0.5, clip_norm=0.3, origin="x")
    monkeypatch.setattr(per_sample, "_CHUNK_FLOATS", 5 * flatten(net).size)
    parts = per_sample.autograd_step(net, flatten(net), data, lr=0.5, clip_norm=0.3, origin="x")
    np.testing.assert_allclose(parts, whole, rtol=1e-5, atol=1e-8)


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 1e3, 1e6]),
    clip_norm=st.sampled_from([1e-6, 1e-2, 1.0, 1e3]),
    lr=st.sampled_from([1e-3, 0.5, 1e3]),
)
def test_each_term_is_within_the_bound(seed: int, scale: float, clip_norm: float, lr: float) -> None:
    # With one sample, the mean is its term.
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    for path in (per_sample.mlp_step, per_sample.autograd_step):
        term = path(net, flatten(net), samples(1, seed, scale), lr=lr, clip_norm=clip_norm, origin="x")
        assert np.linalg.norm(term.astype(np.float64)) <= clip_norm


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(1, 12),
    which=st.integers(0, 11),
    seed=st.integers(0, 2**31),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
    clip_norm=st.sampled_from([1e-3, 0.5, 10.0]),
)
def test_one_sample_moves_the_update_by_at_most_the_bound(
    count: int, which: int, seed: int, scale: float, clip_norm: float
) -> None:
    """The law on which `record` rests: tau/n_i where a sample's term becomes zero, twice that where it is another's.

    Sizes are public and stay, so a removed sample leaves a zero in the mean.
    """
    which %= count
    data = samples(count, seed, scale)
    x, y = data.x, data.y
    before = step(data, clip_norm)
    keep = torch.arange(count) != which
    without = (
        step(ClientData(x[keep], y[keep]), clip_norm) * (count - 1) / count if count > 1 else np.zeros_like(before)
    )
    other_x, other_y = x.clone(), y.clone()
    other_x[which], other_y[which] = -50 * x[which] + 1, (y[which] + 1) % CLASSES
    replaced = step(ClientData(other_x, other_y), clip_norm)
    # Sums of n float32 terms round by about n units of 2^-24.
    rounding = 1 + 1e-6 * count
    assert np.linalg.norm(before - without) <= clip_norm / count * rounding
    assert np.linalg.norm(before - replaced) <= 2 * clip_norm / count * rounding


def test_the_law_is_tight_and_sgd_breaks_it() -> None:
    """Not a check that cannot fail: clipped terms reach the bound, and SGD with update clipping goes beyond it."""
    data = samples(10, scale=10.0)
    x, y = data.x, data.y
    clip_norm = 1e-3
    without = step(ClientData(x[1:], y[1:]), clip_norm) * 9 / 10
    moved = np.linalg.norm(step(data, clip_norm) - without)
    assert moved == pytest.approx(clip_norm / 10, rel=2e-5)

    model = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    sgd = LocalSettings(mode=LocalMode.SGD, epochs=5, batch_size=4, lr=0.5, momentum=0.5)
    training = LocalTraining(trainer_for(model), sgd, mu=0.0, clip_norm=clip_norm)

    def update(data: ClientData) -> NDArray[np.float64]:
        bounded = training.update(flatten(model), data, np.random.default_rng(1), origin="x")
        assert bounded.clipping == Clipping.whole(clip_norm)
        return bounded.values.astype(np.float64)

    other_x = x.clone()
    other_x[0] = -50 * x[0]
    assert np.linalg.norm(update(data) - update(ClientData(other_x, y))) > 2 * clip_norm / 10


def test_a_record_update_knows_its_terms() -> None:
    model = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    local = LocalSettings(mode=LocalMode.RECORD, epochs=20, batch_size=4, lr=0.5, momentum=0.5)
    training = LocalTraining(trainer_for(model), local, mu=0.3, clip_norm=0.5)
    data = samples(8)
    bounded = training.update(flatten(model), data, np.random.default_rng(1), origin="x")
    assert bounded.clipping == Clipping.each_of(8, 0.5)
    # Epochs, batches, momentum and the proximal weight have no part in it.
    np.testing.assert_allclose(bounded.values, oracle(data, 0.5), rtol=2e-4, atol=1e-7)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_bad_samples_raise_in_both_paths(bad: float) -> None:
    data = samples(5)
    data.x[2, 3] = bad
    net = build_mlp(FEATURES, HIDDEN, CLASSES, seed=2)
    for path in (per_sample.mlp_step, per_sample.autograd_step):
        with pytest.raises(PrivacyError, match="gradients of client 0"):
            path(net, flatten(net), data, lr=0.5, clip_norm=1.0, origin="client 0")


class _Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) if float(x.sum()) > 0 else -self.layer(x)


def test_a_model_without_per_sample_gradients_is_refused() -> None:
    with pytest.raises(ModelError, match="no per-sample gradients"):
        step(samples(3), 1.0, model=_Branching())


class _Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(FEATURES, 32), nn.Tanh(), nn.Linear(32, 32), nn.Tanh())
        self.outer = nn.Linear(32, CLASSES)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.outer(self.inner(x))


def test_threads_do_not_meet_in_a_users_module() -> None:
    """`functional_call` swaps a module's parameters while it runs: with one module for all threads, gradients mix."""
    torch.manual_seed(1)
    net = _Net()
    start, trainer = flatten(net), trainer_for(net)
    clients = [samples(30, seed) for seed in range(60)]

    def work(client: int) -> NDArray[np.float32]:
        return trainer.mean_clipped_step(start, clients[client], lr=1.0, clip_norm=0.1, origin="x")

    alone = list(in_order(work, range(60), 1))
    together = list(in_order(work, range(60), 3))
    assert [a.tobytes() for a in alone] == [b.tobytes() for b in together]
    assert all(isinstance(parameter, nn.Parameter) for parameter in net.parameters())
    np.testing.assert_array_equal(flatten(net), start)
