"""How the coordinator reaches nodes: it asks by name and gets an answer, wherever they are."""

from collections.abc import Mapping
from typing import Any, Protocol

from fl.errors import ConfigError
from fl.nodes.messages import Answer, Message


class Node(Protocol):
    """Whoever can be asked."""

    def answer(self, message: Message[Any]) -> Any:
        """The answer that the message's type promises. `HardwareError` where the node's radio failed."""
        ...


class Link(Protocol):
    """A way to nodes."""

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """Say `message` to a node and wait for its answer; what the node raises is raised here."""
        ...


class InProcessLink:
    """Nodes in this process."""

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = dict(nodes)

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        if node not in self._nodes:
            raise ConfigError(f"there is no node '{node}': there are {', '.join(self._nodes)}")
        answer: Answer = self._nodes[node].answer(message)
        return answer
