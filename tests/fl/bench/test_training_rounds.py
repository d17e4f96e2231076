"""What the benchmarks of training compare gives the same results."""

import numpy as np
import pytest
import torch
from torch import nn

from fl.bench.training.cnn_round import TRAINING, CnnRound
from fl.bench.training.record_step import RecordStep, missing_opacus
from fl.learning.autograd import AutogradTrainer
from fl.learning.model import flatten


def test_a_cnn_learns_the_same_with_channels_last_and_in_the_plain_loop() -> None:
    """Within float32: an input of a ReLU or of a maximum may round to the other side."""
    work = CnnRound.of(2, images=70)
    for ours, plain in zip(work.ours(), work.plain(), strict=True):
        assert np.linalg.norm(ours - plain) < 1e-3 * np.linalg.norm(plain)
    assert not np.allclose(work.plain()[0], work.plain()[1], rtol=1e-3)


class _Viewing(nn.Module):
    """Takes the order of images in memory for granted."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(2, 4, 3), nn.Linear(4 * 26 * 26, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.last(self.first(x).view(len(x), -1))
        return outputs


def test_a_model_that_looks_at_memory_is_trained_as_it_is() -> None:
    work, model = CnnRound.of(1, images=10), _Viewing()
    data = work.clients[0]
    images = type(data)(torch.cat([data.x, data.x.flip(3)], 1), data.y)
    before = torch.random.get_rng_state()
    update = AutogradTrainer(model).sgd_update(flatten(model), images, [np.arange(10)], TRAINING, 0.0)
    assert np.isfinite(update).all()
    assert np.linalg.norm(update) > 0
    assert torch.equal(torch.random.get_rng_state(), before)


@pytest.mark.skipif(missing_opacus() is not None, reason=str(missing_opacus()))
@pytest.mark.parametrize("ghost", [False, True])
def test_clipped_sums_are_those_of_opacus(ghost: bool) -> None:
    """But for 200 times 2^-20, by which terms are clipped closer here."""
    for work in (RecordStep.of_mlp(), RecordStep.of_cnn()) if not ghost else (RecordStep.of_mlp(),):
        ours, theirs = work.ours(), work.opacus(ghost=ghost)()
        assert np.linalg.norm(ours - theirs) < 5e-4 * np.linalg.norm(theirs)
        assert np.linalg.norm(1.01 * ours - theirs) > 5e-4 * np.linalg.norm(theirs)
