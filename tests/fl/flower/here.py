"""A federation within this process: Flower's real messages and apps, without its servers; an air node in a thread."""

import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from flwr.app import Context, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

from fl.flower.air import Air
from fl.flower.node import AirNode, serve
from fl.flower.place import make_place
from fl.run.config import resolve_config

# Flower's processes are told which run they are of; messages carry it.
TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1


@contextmanager
def air_here(config: Any, folder: Path) -> Iterator[Air]:
    """As `open_air`, without the seconds that a process takes to start. out: folder / "out"."""
    resolved, place = resolve_config(config), folder / "node"
    make_place(place)
    ending, end = os.pipe()
    with ExitStack() as stack:
        node = AirNode(resolved, folder / "out", resume=False, stack=stack)
        thread = threading.Thread(target=serve, args=(node, place, ending))
        thread.start()
        try:
            while not (place / "socket").exists():
                thread.join(0.01)
            yield Air(resolved, place, folder / "out")
        finally:
            os.close(end)
            thread.join()
            os.close(ending)


def context(client: int, place: Path) -> Context:
    node = {"partition-id": client, "airdp-node": str(place)}
    return Context(run_id=1, node_id=client + 1, node_config=node, state=RecordDict(), run_config={})


class GridHere(Grid):
    """Calls the ClientApp for each message. replies: all that ever came back."""

    def __init__(self, app: ClientApp, contexts: list[Context]) -> None:
        self.app, self.contexts = app, {held.node_id: held for held in contexts}
        self.replies: list[Message] = []

    def get_node_ids(self) -> Iterable[int]:
        return list(self.contexts)

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        answered = [self.app(message, self.contexts[message.metadata.dst_node_id]) for message in messages]
        self.replies += answered
        return answered

    # What Flower's Grid has besides, and a strategy does not use: whoever asks for it is told.
    def set_run(self, run: Any) -> None:
        raise NotImplementedError

    @property
    def run(self) -> Any:
        raise NotImplementedError

    def create_message(self, *_: Any, **__: Any) -> Message:
        raise NotImplementedError

    def get_nodes(self) -> Iterable[Any]:
        raise NotImplementedError

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError
