"""What a node is told when it is started: where it belongs, and what it allows."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fl.errors import ConfigError
from fl.import_path import PATTERN
from fl.nodes.apart.keys import KeyPair, load_keys, load_public
from fl.nodes.apart.orders import Hello
from fl.nodes.apart.own_budget import Budget
from fl.nodes.apart.wire import PROTOCOL
from fl.run.apart.attendance import lab_digest
from fl.run.config import RunConfig
from fl.versions import package_version
from hardware.lab.model import Lab, LabRadio, Role


def to_nobody(line: str) -> None:
    """Say nothing. A function of a module, because settings go to other processes."""
    del line


@dataclass(frozen=True)
class NodeSettings:
    """lab: as this machine has it. name: of the radio. server: tcp://ADDRESS:PORT. keys: folder. state: folder of what
    the node keeps. data: of a client, empty for its share of the run's own. budget: a client's own. trust:
    whether code that the server's config names is imported. give_up_s: after which a server that is not heard is given
    up. said: called with a line whenever what the node is doing has changed."""

    lab: Lab
    name: str
    role: Role
    server: str
    keys: Path
    state: Path
    data: str = ""
    budget: Budget = field(default_factory=Budget)
    trust: bool = False
    give_up_s: float = 600.0
    said: Callable[[str], None] = to_nobody

    def __post_init__(self) -> None:
        """Refuse a name that is not in the lab, or that has another role."""
        if self.radio.role is not self.role:
            raise ConfigError(
                f"'{self.name}' is a {self.radio.role.value} in {self.lab.source}, not a {self.role.value}"
            )
        if not self.budget.epsilon > 0:
            raise ConfigError(f"--budget-epsilon is {self.budget.epsilon}: expected a number above 0")

    @property
    def radio(self) -> LabRadio:
        """The node's own."""
        return self.lab.radio(self.name)

    @property
    def place(self) -> int:
        """Number of a client among the lab's, from 0 on."""
        return [radio.name for radio in self.lab.clients].index(self.name)

    def key_pair(self) -> KeyPair:
        """The node's own."""
        return load_keys(self.keys, self.name)

    def server_key(self) -> bytes:
        """The server's public key, which has the name of its radio."""
        return load_public(self.keys, self.lab.ps.name)

    def hello(self) -> Hello:
        """What it says of itself."""
        return Hello(PROTOCOL, package_version("airdp") or "", self.name, self.role.value, lab_digest(self.lab), "")

    def require_trusted(self, config: RunConfig) -> None:
        """Raise `ConfigError` where the server's config would make this machine import code, or read files, that nobody
        here chose."""
        if self.trust:
            return
        code = sorted(_import_paths(config.model_dump(mode="json")))
        if code:
            raise ConfigError(
                f"the server's config names code to import ({', '.join(code)}): start the node with --trust if that "
                "may run here"
            )
        if config.data.path:
            raise ConfigError(
                f"the server's config names files of this machine (data.path = {config.data.path!r}): start the node "
                "with --trust if they may be read"
            )


def _import_paths(value: Any) -> Iterator[str]:
    if isinstance(value, str) and PATTERN.fullmatch(value):
        yield value
    elif isinstance(value, Mapping):
        for part in value.values():
            yield from _import_paths(part)
    elif isinstance(value, list | tuple):
        for part in value:
            yield from _import_paths(part)
