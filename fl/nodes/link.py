"""How the coordinator reaches nodes: it asks by name and gets an answer, wherever they are."""

from collections.abc import Mapping, Sequence
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

    @property
    def concurrent(self) -> bool:
        """Whether `ask_all` asks at the same time."""
        ...

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """Say `message` to a node and wait for its answer; what the node raises is raised here."""
        ...

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """Say something to each of several nodes, where they are apart at the same time; their answers in that order.

        What one of them raises is raised here; others may or may not have been asked then.
        """
        ...


class InProcessLink:
    """Nodes in this process."""

    concurrent = False

    def __init__(self, nodes: Mapping[str, Node]) -> None:
        self._nodes = dict(nodes)

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        if node not in self._nodes:
            raise ConfigError(f"there is no node '{node}': there are {', '.join(self._nodes)}")
        answer: Answer = self._nodes[node].answer(message)
        return answer

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """See `Link.ask_all`. One after the other."""
        return [self.ask(node, message) for node, message in asked]
