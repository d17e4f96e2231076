"""Who joins a run whose clients and jammer are processes elsewhere."""

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.nodes.apart.admission import Expected
from fl.nodes.apart.keys import load_keys, public_keys
from fl.nodes.apart.switchboard import NodeState, Switchboard, TimeLimits
from fl.nodes.coordinated import cast_of
from fl.run.config import RunConfig
from fl.run.inputs import resolved_lab
from hardware.lab.model import Lab

Said = Callable[[Sequence[NodeState]], None]


@dataclass(frozen=True)
class NodesElsewhere:
    """How nodes are reached. listen: tcp://ADDRESS:PORT of this machine. keys: folder. wait_s: for all to join.

    answer_s: for an answer to what takes no time, at least three of the lab's own time-outs. train_s: for an update.
    lab: the run's, where its radios have other addresses than its file says, because they are served for the occasion.
    """

    listen: str
    keys: Path
    wait_s: float = 60.0
    train_s: float = 3600.0
    answer_s: float = 10.0
    said: Said = lambda nodes: None
    listening: Callable[[str], None] = lambda endpoint: None
    lab: Lab | None = None


@dataclass(frozen=True)
class Attendance:
    """Nodes that have joined. sizes: n_i of the clients (K,), in the lab's order. coordinates: d of their model."""

    switchboard: Switchboard
    lab: Lab
    sizes: NDArray[np.int64]
    coordinates: int


def require_one_by_one(lab: Lab) -> None:
    """Refuse a lab whose radios can only be opened by one process, before anybody waits for anybody."""
    if lab.backend.connect_one is None:
        raise ConfigError(
            f"radios of the backend '{lab.backend.name}' cannot belong to several processes: "
            "choose another with --backend"
        )


def lab_digest(lab: Lab) -> str:
    """sha256 of what all machines must mean by a lab: everything but the radios' addresses."""
    tables = lab.to_tables()
    tables["radio"] = [{key: value for key, value in radio.items() if key != "address"} for radio in tables["radio"]]
    return hashlib.sha256(json.dumps(tables, sort_keys=True).encode()).hexdigest()


@contextmanager
def attending(config: RunConfig, elsewhere: NodesElsewhere) -> Iterator[Attendance]:
    """Listen, wait for all nodes of the run's lab, and tell them its config."""
    lab = resolved_lab(config)
    if lab is None:
        raise ConfigError("nodes elsewhere need radios: set uplink.kind = 'radio', or give --backend")
    lab = elsewhere.lab or lab
    if config.radio.record_sent or config.audit.canaries:
        raise ConfigError("radio.record_sent and audit.canaries need all nodes in one process: leave --listen out")
    require_one_by_one(lab)
    lab.address_of(lab.ps.name)
    cast = cast_of(lab, config.jammer.role)
    roles = {radio.name: radio.role.value for radio in lab.radios if radio.name in cast.transmitters}
    expected = Expected(roles, public_keys(elsewhere.keys), lab_digest(lab))
    limits = TimeLimits(answer_s=max(elsewhere.answer_s, 3 * lab.timeout_s), train_s=elsewhere.train_s)
    with Switchboard(elsewhere.listen, load_keys(elsewhere.keys, lab.ps.name), expected, limits) as switchboard:
        elsewhere.listening(switchboard.endpoint)
        switchboard.gather(elsewhere.wait_s, elsewhere.said)
        enrolled = switchboard.enrol(config.to_toml())
        sizes = np.array([enrolled[name].samples for name in cast.clients], np.int64)
        coordinates = {enrolled[name].coordinates for name in cast.clients}
        if len(coordinates) != 1:
            raise ConfigError(f"clients have models of {sorted(coordinates)} coordinates: expected the same of all")
        yield Attendance(switchboard, lab, sizes, coordinates.pop())
