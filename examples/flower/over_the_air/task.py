"""What client and server share: the run's config, its data, and a training loop of plain PyTorch."""

import tomllib
from functools import cache

import torch
from flwr.app import Context
from torch.nn.functional import cross_entropy

from fl.run.config import RunConfig, parse_config, resolve_config
from fl.run.learner import Learner, make_learner


def config_of(context: Context) -> RunConfig:
    """airdp's config, as the app's own config changes it."""
    said = context.run_config
    changes = {"uplink.uplinks": said["uplinks"], "local.epochs": said["epochs"], "seed": said["seed"]}
    return resolve_config(str(said["airdp-config"]), changes)


def learner_of(config: RunConfig) -> Learner:
    """Data by client, test data and the model at its start: the same as in `airdp run` of this config."""
    return _learner(config.to_toml())


@cache
def _learner(config: str) -> Learner:
    """Once in a process: in simulation one process is several clients."""
    return make_learner(parse_config(tomllib.loads(config)))


def train(net: torch.nn.Module, x: torch.Tensor, y: torch.Tensor, config: RunConfig, mu: float, seed: int) -> None:
    """Epochs of SGD on the client's own samples, drawn back to where it started (FedProx) where mu is above 0."""
    start = [parameter.detach().clone() for parameter in net.parameters()]
    local, order = config.local, torch.Generator().manual_seed(seed)
    optimiser = torch.optim.SGD(net.parameters(), lr=local.lr, momentum=local.momentum)
    for _ in range(local.epochs):
        for batch in torch.randperm(len(y), generator=order).split(local.batch_size or len(y)):
            optimiser.zero_grad()
            loss = cross_entropy(net(x[batch]), y[batch])
            for parameter, before in zip(net.parameters(), start, strict=True):
                loss = loss + mu / 2 * (parameter - before).square().sum()
            loss.backward()
            optimiser.step()
