"""Looking on while the coordinator talks: whoever watches sees each message and its answer, and changes neither."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from fl.nodes.coordinator import Coordinator
from fl.nodes.link import Link
from fl.nodes.messages import Answer, Message
from fl.nodes.stage import Beginning, Stage


class Watcher(Protocol):
    """Is told what happens. What it raises ends the uplink, so it raises nothing that can be put off."""

    def ended(self) -> None:
        """Another attempt is about to begin: radios may be aligned for it, which is no part of any."""
        ...

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """A sounding begins."""
        ...

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """The stage was asked when transmitters can start."""
        ...

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """A node was asked, and has answered."""
        ...

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """A node was asked, and has failed."""
        ...


@dataclass
class WatchedLink:
    """`link`, with watchers."""

    link: Link
    watchers: Sequence[Watcher]

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        try:
            answer = self.link.ask(node, message)
        except BaseException as error:
            for watcher in self.watchers:
                watcher.failed(node, message, error)
            raise
        for watcher in self.watchers:
            watcher.answered(node, message, answer)
        return answer

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """See `Link.ask_all`. Where nodes are asked in turn, watchers see each event when it happens.

        Else they see a failure as that of the first who was asked: whose it is, its words say.
        """
        if not self.concurrent:
            return [self.ask(node, message) for node, message in asked]
        try:
            answers = self.link.ask_all(asked)
        except BaseException as error:
            for watcher in self.watchers if asked else ():
                watcher.failed(*asked[0], error)
            raise
        for (node, message), answer in zip(asked, answers, strict=True):
            for watcher in self.watchers:
                watcher.answered(node, message, answer)
        return answers

    @property
    def concurrent(self) -> bool:
        """See `Link.concurrent`."""
        return self.link.concurrent


@dataclass
class WatchedStage:
    """`stage`, with watchers."""

    stage: Stage
    watchers: Sequence[Watcher]

    def begin(self, uplink: int, attempt: int) -> Beginning:
        """See `Stage.begin`."""
        for watcher in self.watchers:
            watcher.ended()
        beginning = self.stage.begin(uplink, attempt)
        for watcher in self.watchers:
            watcher.began(uplink, attempt, beginning)
        return beginning

    def not_before(self, planned_sample: int) -> int:
        """See `Stage.not_before`."""
        given = self.stage.not_before(planned_sample)
        for watcher in self.watchers:
            watcher.postponed(planned_sample, given)
        return given


def watch(coordinator: Coordinator, watchers: Sequence[Watcher]) -> None:
    """Let `watchers` see all that a coordinator says and is told."""
    coordinator.link = WatchedLink(coordinator.link, watchers)
    coordinator.stage = WatchedStage(coordinator.stage, watchers)
