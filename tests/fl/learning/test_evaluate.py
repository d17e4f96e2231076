"""Accuracy and loss of a model, against numbers worked out by hand and by PyTorch in one piece."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from fl.errors import ModelError
from fl.learning import evaluate as module
from fl.learning.evaluate import evaluate
from fl.learning.model import build_mlp, flatten


def test_by_hand() -> None:
    # One weight matrix, no hidden layer: logits (x, 0), so p(class 0) = 1/(1 + e^-x).
    model = nn.Linear(1, 2, bias=False)
    x = torch.tensor([[math.log(3.0)], [-math.log(3.0)], [math.log(3.0)]])
    y = torch.tensor([0, 1, 1])
    scores = evaluate(model, np.array([1.0, 0.0], np.float32), x, y)
    assert scores.accuracy == pytest.approx(2 / 3)
    assert scores.loss == pytest.approx((2 * math.log(4 / 3) + math.log(4)) / 3, rel=1e-6)


def test_chunks_make_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    model = build_mlp(6, 4, 3, seed=1)
    rng = np.random.default_rng(1)
    x, y = torch.from_numpy(rng.random((25, 6), dtype=np.float32)), torch.from_numpy(rng.integers(3, size=25))
    whole = evaluate(model, flatten(model), x, y)
    monkeypatch.setattr(module, "_CHUNK_SAMPLES", 4)
    parts = evaluate(model, flatten(model), x, y)
    assert parts.loss == pytest.approx(whole.loss, rel=1e-6)
    assert parts.accuracy == whole.accuracy
    with torch.no_grad():
        assert whole.loss == pytest.approx(float(nn.functional.cross_entropy(model(x), y)), rel=1e-6)


def test_the_vector_counts_not_what_the_model_held() -> None:
    model = build_mlp(6, 4, 3, seed=1)
    x, y = torch.ones(3, 6), torch.tensor([0, 1, 2])
    scores = evaluate(model, np.zeros(flatten(model).size, np.float32), x, y)
    assert scores.loss == pytest.approx(math.log(3), rel=1e-6)
    assert scores.accuracy == pytest.approx(1 / 3)


def test_a_vector_of_another_size_is_refused() -> None:
    with pytest.raises(ModelError):
        evaluate(build_mlp(6, 4, 3, seed=1), np.zeros(44, np.float32), torch.ones(1, 6), torch.tensor([0]))
