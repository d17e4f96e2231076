"""What a client does between two uplinks: the trainer that is chosen, clipping, and what is refused."""

import numpy as np
import pytest
import torch
from torch import nn

from fl.errors import PrivacyError
from fl.learning.autograd import AutogradTrainer
from fl.learning.local import LocalTraining, trainer_for
from fl.learning.mlp import MLPTrainer
from fl.learning.model import MLP, Vector, build_mlp, flatten
from fl.learning.settings import LocalMode, LocalSettings
from fl.learning.trainer import ClientData

pytestmark = pytest.mark.usefixtures("one_thread")

SETTINGS = LocalSettings(mode=LocalMode.SGD, epochs=2, batch_size=8, lr=0.5, momentum=0.5)


def some_data(samples: int = 20) -> ClientData:
    rng = np.random.default_rng(1)
    x = rng.random((samples, 6), dtype=np.float32)
    return ClientData(torch.from_numpy(x), torch.from_numpy(rng.integers(3, size=samples)))


def train(
    model: nn.Module,
    settings: LocalSettings = SETTINGS,
    clip_norm: float = 1.0,
    *,
    data: ClientData | None = None,
    start: Vector | None = None,
) -> Vector:
    training = LocalTraining(trainer_for(model), settings, mu=0.1, clip_norm=clip_norm)
    bounded = training.update(
        flatten(model) if start is None else start,
        some_data() if data is None else data,
        np.random.default_rng(1),
        origin="client 3",
    )
    assert bounded.clip_norm == clip_norm
    return bounded.values


def test_the_trainer_is_chosen_by_the_models_type_itself() -> None:
    assert isinstance(trainer_for(build_mlp(6, 4, 3, 1)), MLPTrainer)
    assert isinstance(trainer_for(_DoublingMLP(6, 4, 3)), AutogradTrainer)
    assert isinstance(trainer_for(nn.Linear(6, 3)), AutogradTrainer)


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

    local = SETTINGS.model_copy(update={"mode": mode})
    np.testing.assert_allclose(train(model, local, 1e6), train(Wrapped(), local, 1e6), rtol=1e-5, atol=1e-7)
    assert not np.allclose(train(model, local, 1e6), train(plain, local, 1e6), rtol=1e-2)


@pytest.mark.parametrize("mode", list(LocalMode))
@pytest.mark.parametrize("samples", [11, 20], ids=["sample space", "weight space"])
def test_nan_in_the_data_raises_and_names_the_client(mode: LocalMode, samples: int) -> None:
    data = some_data(samples)
    data.x[3, 2] = float("nan")
    with pytest.raises(PrivacyError, match="client 3"):
        train(build_mlp(6, 4, 3, 1), SETTINGS.model_copy(update={"mode": mode}), data=data)


@pytest.mark.parametrize("place", [0, 24, 28, 40], ids=["weight", "bias", "second weight", "second bias"])
def test_nan_in_the_model_raises(place: int) -> None:
    model = build_mlp(6, 4, 3, 1)
    start = flatten(model)
    start[place] = float("nan")
    with pytest.raises(PrivacyError, match="NaN"):
        train(model, data=some_data(11), start=start)


def test_a_learning_rate_that_explodes_raises() -> None:
    with pytest.raises(PrivacyError, match=r"NaN or infinite.*local\.lr"):
        train(build_mlp(6, 4, 3, 1), SETTINGS.model_copy(update={"lr": 1e9, "epochs": 20}))
