"""A user's own data, model, loss, optimiser and algorithm, from a config alone."""

import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.errors import ConfigError, DataError, ModelError, RunFolderError
from fl.privacy.sensitivity import Label
from fl.run import run
from fl.run.config import parse_config
from fl.run.folder import RunFolder

OWN_CODE = """
from dataclasses import dataclass
import numpy as np
import torch
from torch import nn
from fl.learning.server.algorithms import ServerState

def spirals(samples=200, clients=0):
    rng = np.random.default_rng(5)
    y = rng.integers(3, size=samples)
    angle = rng.uniform(0.5, 2, samples)
    x = np.stack([angle * np.cos(angle * 3 + 2.1 * y), angle * np.sin(angle * 3 + 2.1 * y)], 1).astype(np.float32)
    if clients:
        return {"x": x, "y": y, "client": np.arange(samples) % clients}
    return (x[:150], y[:150]), (x[150:], y[150:])

def nonsense():
    return 7

@dataclass(frozen=True)
class MyFedAdam:
    lr: float
    proximal_mu: float = 0.0
    steps_per_uplink: int = 1

    def step(self, state, aggregate, uplink):
        m = 0.9 * state.memory.get("m", np.zeros_like(aggregate)) + 0.1 * aggregate
        v = 0.99 * state.memory.get("v", np.zeros_like(aggregate)) + 0.01 * aggregate**2
        model = state.model + self.lr * m / (np.sqrt(v) + 1e-3)
        return ServerState(model.astype(np.float32), {"m": m, "v": v})

class Forgetful:
    proximal_mu, steps_per_uplink = 0.0, 1

    def step(self, state, aggregate, uplink):
        return state.model + aggregate

@dataclass(frozen=True)
class Dividing(MyFedAdam):
    def step(self, state, aggregate, uplink):
        with np.errstate(all="ignore"):
            return ServerState(state.model / aggregate, {})

class Short(Forgetful):
    def step(self, state, aggregate, uplink):
        return ServerState(state.model[:3])

def unreduced(outputs, targets):
    return nn.functional.cross_entropy(outputs, targets, reduction="none")

def undefined(outputs, targets):
    return outputs.sum() * float("nan")

def unlabelled(y=0, samples=40):
    return {"x": np.zeros((samples, 2), np.float32), "y": np.full(samples, y)}

def counted_from_one():
    return {"x": np.zeros((40, 2), np.float32), "y": np.arange(40) % 4 + 1}

def labels_as(kind):
    y = np.arange(40) % 4
    if kind == "ragged":
        return {"x": [[1.0, 2.0], [3.0]], "y": [0, 1]}
    y = y[:, None] if kind == "a column" else y.astype("S1" if kind == "bytes" else int)
    return {"x": np.full((40, 2), 1e300), "y": y}

def strange_test_set():
    x, y = np.zeros((40, 2), np.float32), np.arange(40) % 4
    return (x, y), (x, y + 4)

def breaking():
    raise KeyError("images")

def absolute(outputs, targets):
    return (outputs - targets).abs().mean()

def contrast(outputs, targets):
    return (outputs - outputs.mean(0)).square().mean() + (outputs - targets).square().mean()

class Mixing(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(2, 8), nn.Linear(8, 3)
        self.mix = nn.BatchNorm1d(8, track_running_stats=False)

    def forward(self, x):
        return self.second(self.mix(self.first(x)))
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with the user's file in it."""
    (tmp_path / "own_code.py").write_text(OWN_CODE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "own_code", raising=False)
    return tmp_path


def small(**sections: Any) -> dict[str, Any]:
    base: dict[str, dict[str, Any]] = {
        "partition": {"clients": 3},
        "algorithm": {"name": "fedavg"},
        "model": {"hidden": 8},
        "local": {"epochs": 2, "batch_size": 16},
        "uplink": {"kind": "ideal", "uplinks": 3},
    }
    return {name: {**base.get(name, {}), **sections.get(name, {})} for name in base.keys() | sections.keys()}


def save(path: Path, **arrays: np.ndarray) -> dict[str, Any]:
    np.savez(path, **arrays)
    return {"set": "npz", "path": str(path)}


def images(classes: int, shape: tuple[int, ...], samples: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images (samples, *shape): a pattern for each class, in noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples)
    patterns = rng.integers(0, 200, (classes, *shape))
    return np.clip(patterns[y] + rng.normal(0, 20, (samples, *shape)), 0, 255).astype(np.uint8), y


def gratings(classes: int, samples: int, seed: int = 3) -> tuple[np.ndarray, np.ndarray]:
    """uint8 images (samples, 32, 32, 3): a direction and a colour for each class, at any phase, in noise."""
    rng = np.random.default_rng(seed)
    y = rng.integers(classes, size=samples)
    row, column = np.mgrid[:32, :32]
    angle = (np.pi * y / classes)[:, None, None]
    phase = rng.uniform(0, 2 * np.pi, (samples, 1, 1))
    wave = np.sin(1.2 * (row * np.cos(angle) + column * np.sin(angle)) + phase)
    colours = rng.uniform(0, 1, (classes, 3))[y][:, None, None, :]
    pixels = 127 + 90 * wave[..., None] * colours + rng.normal(0, 20, (samples, 32, 32, 3))
    return np.clip(pixels, 0, 255).astype(np.uint8), y


def test_a_small_cnn_learns_images_shaped_as_cifar_over_the_air(tmp_path: Path) -> None:
    x, y = gratings(10, 400)
    result = run(
        small(
            data=save(tmp_path / "cifar.npz", x=x, y=y),
            model={
                "module": "fl.learning.nets:SmallCNN",
                "arguments": {"channels": 3, "classes": 10, "width": 8},
                "input": "channels-first",
            },
            local={"epochs": 6, "lr": 0.1},
            uplink={"kind": "symbol", "uplinks": 4},
            privacy={"clip_norm": 3.0},
        ),
        tmp_path / "run",
    )
    # 80 test images and chance at 1/10: five standard deviations above it are 0.27.
    assert result.accuracy > 0.35


def test_records_of_images_shaped_as_cifar_can_be_protected(tmp_path: Path) -> None:
    x, y = images(10, (32, 32, 3), 240)
    result = run(
        small(
            data=save(tmp_path / "cifar.npz", x=x, y=y),
            partition={"kind": "dirichlet", "dirichlet_alpha": 1.0},
            model={
                "module": "fl.learning.nets:SmallCNN",
                "arguments": {"channels": 3, "classes": 10, "width": 8},
                "input": "channels-first",
            },
            local={"mode": "record", "epochs": 4, "lr": 1.0},
            uplink={"kind": "symbol", "uplinks": 2},
            privacy={"clip_norm": 5.0},
        ),
        tmp_path / "run",
    )
    assert result.privacy[0].label is Label.RECORD
    rows = RunFolder(result.out).metrics()
    assert len(rows) == 2
    assert all(0 <= row["accuracy"] <= 1 for row in rows)


def test_letters_a_to_z_by_name_are_learnt(tmp_path: Path) -> None:
    x, y = images(26, (6, 6), 900)
    letters = np.array([chr(ord("a") + label) for label in y])
    result = run(
        small(
            data=save(tmp_path / "letters.npz", x=x, y=letters),
            partition={"kind": "classes", "classes_per_client": 13, "clients": 4},
            model={"hidden": 32},
            local={"epochs": 10},
            privacy={"clip_norm": 100.0},
        ),
        tmp_path / "run",
    )
    # Patterns far apart compared with the noise: chance is 1/26.
    assert result.accuracy > 0.9
    counts = RunFolder(result.out).read_json("partition.json")["class_counts"]
    assert len(counts[0]) == 26


def regression(rng: np.random.Generator, samples: int = 240) -> tuple[np.ndarray, np.ndarray]:
    x = rng.standard_normal((samples, 5)).astype(np.float32)
    return x, (x @ np.array([1.0, -2.0, 0.5, 0.0, 3.0]) + 0.1 * rng.standard_normal(samples)).astype(np.float32)


@pytest.mark.parametrize("mode", ["sgd", "record"])
@pytest.mark.parametrize("loss", ["torch.nn.functional:mse_loss", "torch.nn:HuberLoss"])
def test_a_regression_is_learnt_and_its_score_is_r_squared(tmp_path: Path, mode: str, loss: str) -> None:
    x, y = regression(np.random.default_rng(1))
    result = run(
        small(
            data=save(tmp_path / "numbers.npz", x=x, y=y),
            model={"module": "torch.nn:Linear", "arguments": {"in_features": 5, "out_features": 1}},
            local={"mode": mode, "epochs": 5, "lr": 0.05 if mode == "sgd" else 0.4, "loss": loss},
            uplink={"uplinks": 15},
            privacy={"clip_norm": 20.0},
        ),
        tmp_path / "run",
    )
    # 1 - 0.1^2 / (1 + 4 + 0.25 + 9) is what the true weights reach.
    assert 0.9 < result.accuracy <= 1.0
    assert RunFolder(result.out).read_json("partition.json")["score"] == "R²"


def test_several_labels_at_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    x = rng.standard_normal((300, 4)).astype(np.float32)
    result = run(
        small(
            data=save(tmp_path / "bits.npz", x=x, y=(x[:, :3] > 0).astype(np.uint8)),
            model={"hidden": 16},
            local={"epochs": 10, "lr": 0.5, "loss": "torch.nn.functional:binary_cross_entropy_with_logits"},
            privacy={"clip_norm": 100.0},
        ),
        tmp_path / "run",
    )
    assert result.accuracy > 0.85


def test_clients_of_the_data_are_kept_by_name(tmp_path: Path) -> None:
    x, y = images(3, (4,), 90)
    names = np.array(["anna", "ben", "carl"])[np.arange(90) % 3]
    result = run(
        small(data=save(tmp_path / "a.npz", x=x, y=y, client=names), partition={"kind": "natural"}), tmp_path / "run"
    )
    assert RunFolder(result.out).read_json("partition.json")["sizes"] == [24, 24, 24]


def test_a_test_set_of_ones_own_is_left_as_it_is(tmp_path: Path) -> None:
    x, y = images(3, (4,), 90)
    data = save(tmp_path / "a.npz", x=x, y=y, x_test=x[:7], y_test=y[:7])
    result = run(small(data=data), tmp_path / "run")
    assert RunFolder(result.out).read_json("partition.json")["samples"] == 90
    assert result.accuracy * 7 == pytest.approx(round(result.accuracy * 7))


@pytest.mark.usefixtures("here")
def test_a_function_in_the_current_folder_gives_the_data(tmp_path: Path) -> None:
    plain = run(small(data={"set": "own_code:spirals"}), tmp_path / "plain")
    assert plain.uplinks == 3
    own = {"set": "own_code:spirals", "arguments": {"clients": 5, "samples": 100}}
    natural = run(small(data=own, partition={"kind": "natural", "clients": 5}), tmp_path / "natural")
    assert sum(RunFolder(natural.out).read_json("partition.json")["sizes"]) == 80


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "name",
    [
        "own_code:MyFedAdam",
        "fl.learning.server.adaptive:FedYogi",
    ],
)
def test_a_server_with_a_memory_resumes_bit_for_bit(tmp_path: Path, name: str) -> None:
    config = small(
        algorithm={"name": name, "arguments": {"lr": 0.02}},
        uplink={"kind": "symbol", "uplinks": 4},
        local={"epochs": 1},
    )
    whole = run(config, tmp_path / "whole")

    class StopError(Exception):
        pass

    def stop(metrics: Any) -> None:
        if metrics.uplink == 2:
            raise StopError

    with pytest.raises(StopError):
        run(config, tmp_path / "cut", on_uplink=stop)
    checkpoint = RunFolder(tmp_path / "cut").load_checkpoint()
    assert checkpoint is not None
    assert checkpoint.uplink == 2
    assert checkpoint.memory
    resumed = run(config, tmp_path / "cut", resume=True)
    assert resumed.model_sha256 == whole.model_sha256
    # It is the memory that makes it so: without it the path is another one.
    with pytest.raises(StopError):
        run(config, tmp_path / "bare", on_uplink=stop)
    folder = RunFolder(tmp_path / "bare")
    held = folder.load_checkpoint()
    assert held is not None
    folder.save_checkpoint(replace(held, memory={}))
    assert run(config, tmp_path / "bare", resume=True).model_sha256 != whole.model_sha256


@pytest.mark.usefixtures("here")
def test_the_servers_step_costs_no_privacy(tmp_path: Path) -> None:
    common = {"uplink": {"kind": "symbol", "uplinks": 3}, "local": {"epochs": 1}}
    plain = run(small(**common), tmp_path / "plain")
    own = run(small(algorithm={"name": "own_code:MyFedAdam", "arguments": {"lr": 0.1}}, **common), tmp_path / "own")
    assert own.model_sha256 != plain.model_sha256
    assert [statement.epsilon for statement in own.privacy] == [statement.epsilon for statement in plain.privacy]


def test_an_optimiser_of_torchs(tmp_path: Path) -> None:
    adam = {"optimiser": "torch.optim:Adam", "optimiser_arguments": {"betas": [0.8, 0.9]}, "lr": 0.01}
    result = run(small(local=adam, uplink={"uplinks": 2}), tmp_path / "adam")
    sgd = run(small(local={"lr": 0.01}, uplink={"uplinks": 2}), tmp_path / "sgd")
    assert result.model_sha256 != sgd.model_sha256


def test_changed_code_of_ones_own_is_not_resumed(here: Path) -> None:
    config = small(algorithm={"name": "own_code:MyFedAdam", "arguments": {"lr": 0.1}}, uplink={"uplinks": 1})
    run(config, here / "run")
    (here / "own_code.py").write_text(OWN_CODE.replace("0.9 *", "0.8 *"))
    with pytest.raises(RunFolderError, match=r"another content of algorithm\.name"):
        run(config, here / "run", resume=True)


@pytest.mark.parametrize(
    ("sections", "error", "message"),
    [
        ({"data": {"set": "diggits"}}, ConfigError, "did you mean 'digits'.*import path"),
        ({"data": {"set": "npz"}}, ConfigError, "needs data.path"),
        ({"data": {"set": "npz", "path": "nowhere.npz"}}, DataError, "is not a file"),
        ({"data": {"set": "huggingface", "path": "nowhere"}}, DataError, "datasets|save_to_disk"),
        ({"data": {"set": "own_code:nonsense"}}, DataError, r"returned a int: expected \(\(x, y\)"),
        ({"data": {"set": "own_code:missing"}}, ModelError, "cannot be imported.*current folder"),
        ({"data": {"set": "own_code:spirals", "arguments": {"n": 3}}}, ModelError, "cannot be built with"),
        ({"algorithm": {"name": "own_code:Forgetful"}}, ModelError, "returned a ndarray: expected a ServerState"),
        ({"algorithm": {"name": "own_code:absolute"}}, ModelError, "cannot be built"),
        ({"algorithm": {"name": "FedYogi"}}, ConfigError, "by its import path: 'fl.learning.server.adaptive:FedYogi'"),
        ({"algorithm": {"name": "own_code:Short"}}, ModelError, r"a model of float32 \(3,\): expected float32"),
        (
            {"algorithm": {"name": "own_code:Dividing", "arguments": {"lr": 1.0}}},
            ModelError,
            "sum of zeros into a model that is not finite.*nothing was sent",
        ),
        ({"data": {"set": "own_code:breaking"}}, ModelError, "KeyError: 'images'"),
        ({"data": {"set": "own_code:unlabelled"}}, DataError, "all labels are 0, expected at least two classes"),
        (
            {"data": {"set": "own_code:unlabelled", "arguments": {"y": 40}}},
            DataError,
            "a label is 40, among 40 samples.*renumber them, or give names",
        ),
        ({"data": {"set": "own_code:counted_from_one"}}, DataError, r"labels are 1 .. 4.*subtract 1, or give names"),
        (
            {"data": {"set": "own_code:labels_as", "arguments": {"kind": "a column"}}},
            DataError,
            r"labels or one target: expected labels \(n,\), y\.ravel\(\), or floats \(n, 1\)",
        ),
        (
            {"data": {"set": "own_code:labels_as", "arguments": {"kind": "bytes"}}},
            DataError,
            r"y\.astype\(str\) makes names of bytes",
        ),
        (
            {"data": {"set": "own_code:labels_as", "arguments": {"kind": "ragged"}}},
            DataError,
            "x of data.set 'own_code:labels_as' is no array: .*inhomogeneous",
        ),
        (
            {"data": {"set": "own_code:labels_as", "arguments": {"kind": "numbers"}}},
            DataError,
            "train_x holds NaN or infinity",
        ),
        ({"data": {"set": "own_code:strange_test_set"}}, DataError, "no label of the test samples is one of the train"),
        ({"local": {"loss": "mse"}}, ConfigError, "by its import path: 'torch.nn.functional:mse_loss'"),
        ({"local": {"optimiser": "Adam"}}, ConfigError, "by its import path: 'torch.optim:Adam', its rate in local.lr"),
        ({"local": {"optimiser": "collections:OrderedDict"}}, ModelError, "'collections:OrderedDict' cannot be built"),
        ({"local": {"loss": "own_code:unreduced"}}, ModelError, r"gave \(2,\): expected one finite number"),
        ({"local": {"loss": "own_code:undefined"}}, ModelError, "gave nan on two samples: expected one finite number"),
        ({"algorithm": {"arguments": {"lr": 1.0}}}, ConfigError, "algorithm.arguments is for an own"),
        ({"local": {"loss": "torch.nn.functional:mse_loss"}}, ModelError, "does not take outputs"),
        ({"local": {"optimiser": "torch.optim:LBFGS"}}, ModelError, "cannot be trained.*closure"),
        ({"local": {"optimiser": "torch.optim:Adam", "mode": "record"}}, ConfigError, "is for local.mode = 'sgd'"),
        (
            {"data": {"set": "own_code:spirals"}, "model": {"module": "own_code:Mixing"}, "local": {"mode": "record"}},
            ModelError,
            r"BatchNorm1d.*use nn\.GroupNorm\(groups, 8\)",
        ),
        ({"model": {"hidden": 1_000_000_000}}, ModelError, "does not fit into memory.*lower model.hidden"),
        ({"model": {"input": "as-is"}}, ConfigError, "model.input is for model.module"),
    ],
)
def test_what_does_not_fit_is_refused_and_nothing_is_written(
    here: Path, sections: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        run(small(**sections), here / "run")
    assert not (here / "run").exists()


def test_a_loss_that_mixes_samples_is_refused_where_records_are_claimed(here: Path) -> None:
    x, y = regression(np.random.default_rng(1), 30)
    sections: dict[str, Any] = {
        "data": save(here / "numbers.npz", x=x, y=y),
        "model": {"module": "torch.nn:Linear", "arguments": {"in_features": 5, "out_features": 1}},
    }
    with pytest.raises(ModelError, match="looks at one sample at a time"):
        run(small(local={"loss": "own_code:contrast", "mode": "record"}, **sections), here / "run")
    assert run(small(local={"loss": "own_code:absolute", "mode": "record"}, **sections), here / "run").uplinks == 3


def test_numbers_cannot_be_divided_by_class(tmp_path: Path) -> None:
    x, y = regression(np.random.default_rng(1), 30)
    data = save(tmp_path / "numbers.npz", x=x, y=y)
    with pytest.raises(ConfigError, match="divides labels"):
        run(small(data=data, partition={"kind": "dirichlet"}), tmp_path / "run")
    with pytest.raises(ConfigError, match="mse_loss"):
        run(small(data=data), tmp_path / "run")


def test_objects_in_an_archive_are_not_loaded(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", x=np.array([{"a": 1}], dtype=object), y=np.zeros(1))
    with pytest.raises(DataError, match="holds Python objects"):
        run(small(data={"set": "npz", "path": str(tmp_path / "bad.npz")}), tmp_path / "run")


def test_an_archive_with_other_names_is_told_which_it_has(here: Path) -> None:
    np.savez(here / "capitals.npz", X=np.zeros((4, 2)), Y=np.arange(4))
    with pytest.raises(DataError, match=r"capitals\.npz has X, Y; expected arrays x"):
        run(small(data={"set": "npz", "path": "capitals.npz"}), here / "run")


def test_own_names_read_back_from_the_resolved_config() -> None:
    config = parse_config(
        small(
            data={"set": "torchvision:CIFAR10", "arguments": {"download": True}},
            algorithm={"name": "a.b:C", "arguments": {"lr": 0.1}},
            local={"loss": "a:b", "optimiser": "c:D"},
        )
    )
    assert parse_config(tomllib.loads(config.to_toml())) == config
