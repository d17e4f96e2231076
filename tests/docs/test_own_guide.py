"""The guide to one's own data, model, algorithm and loop does what it says: its blocks are run as they stand."""

import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

from fl.run import run
from fl.run.config import parse_config
from tests.docs.markdown import ROOT, blocks

GUIDE = ROOT / "docs/own.md"
NETS = """
from torch import nn

class MyNet(nn.Sequential):
    def __init__(self, channels, classes):
        super().__init__(nn.Conv2d(channels, 4, 3, stride=2), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 3 * 3, classes))
"""
CLIENTS = """
import torch

torch.manual_seed(1)
net = torch.nn.Linear(8, 2)
x, y = torch.randn(5, 300, 8), torch.randint(2, (5, 300))

def train(client, w):
    unflatten_into(net, w)
    loss = torch.nn.functional.cross_entropy(net(x[client]), y[client])
    return -torch.cat([gradient.flatten() for gradient in torch.autograd.grad(loss, net.parameters())])
"""


def block(language: str, *words: str) -> str:
    (found,) = (body for body in blocks(GUIDE, language) if all(word in body for word in words))
    return found


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the reader is, with what import paths find there."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("my_nets", "my_server"):
        monkeypatch.delitem(sys.modules, name, raising=False)


def run_python(code: str) -> None:
    exec(compile(code, str(GUIDE), "exec"), {})  # noqa: S102 - the guide's own


def replaced(text: str, old: str, new: str) -> str:
    assert text.count(old) == 1
    return text.replace(old, new)


def test_the_loop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what a reader brings, a model and a function that trains; fewer uplinks."""
    loop = replaced(block("python", "open_uplink"), 'out="runs/mine"', 'out="runs/mine", overrides=FEW')
    (imports,) = (line for line in loop.splitlines() if line.startswith("from fl"))
    run_python(f"{imports}\n{CLIENTS}\nFEW = {{'uplink.uplinks': 2, 'radio.first_quiet_samples': 2**17}}\n{loop}")
    assert capsys.readouterr().out.count("zero-out neighbours") == 2
    assert (tmp_path / "runs" / "mine" / "ledger.jsonl").is_file()


def test_data_model_optimiser_and_algorithm_of_ones_own(tmp_path: Path) -> None:
    """All TOML of the guide in one config, over an archive as it describes one, with the guide's own FedAdam."""
    rng = np.random.default_rng(1)
    y = rng.integers(10, size=200)
    np.savez(tmp_path / "letters.npz", x=rng.integers(0, 256, (200, 8, 8, 3), dtype=np.uint8), y=y)
    (tmp_path / "my_nets.py").write_text(NETS)
    (tmp_path / "my_server.py").write_text(block("python", "class FedAdam"))
    local = replaced(block("toml", "[local]"), 'loss = "torch.nn.functional:mse_loss"', "epochs = 1")
    parts = [block("toml", f"[{name}]") for name in ("data", "model", "algorithm")]
    config = "\n".join(['name = "guide"', *parts, local, "[uplink]", "uplinks = 2"])
    assert parse_config(tomllib.loads(config)).data.set == "npz"
    (tmp_path / "guide.toml").write_text(config)
    result = run("guide.toml", "out")
    assert (result.uplinks, result.privacy[0].label) == (2, "paper-claim")


def test_from_python(capsys: pytest.CaptureFixture[str]) -> None:
    snippet = replaced(block("python", "from fl.run import run"), '"local.epochs": 5', '"local.epochs": 1')
    run_python(f"{snippet}\nprint(len(result.history['accuracy']), 'table' in result._repr_html_())")
    assert capsys.readouterr().out.split() == ["10", "True"]
