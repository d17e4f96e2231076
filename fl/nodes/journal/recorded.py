"""A conversation held again: transmitters answer as they did, the server is asked anew, differences are noted.

The server's radio plays back what it received. Nothing reaches a transmitter.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn

from fl.errors import RunFolderError
from fl.nodes.journal.codec import Arrays, Difference, decode, differences, encode, encode_measured
from fl.nodes.journal.conversation import ASKED, BEGIN, POSTPONED, encode_error
from fl.nodes.link import Node
from fl.nodes.messages import Answer, Message
from fl.nodes.stage import Beginning
from hardware.radio.errors import HardwareError
from hardware.recording.replay import NotRecordedError
from phy.errors import AirdpError


class OtherCourseError(Exception):
    """The conversation takes another course than the one that was written down."""


class EndOfConversationError(Exception):
    """The attempt was broken off here."""


@dataclass
class RecordedConversation:
    """events: of a `Conversation`. server: the node that is asked anew, and its name. found: differences so far.

    broken_off: whether the attempt may have ended in the middle of a conversation.
    """

    events: Sequence[dict[str, Any]]
    server_name: str
    server: Node
    broken_off: bool
    found: list[Difference] = field(default_factory=list)
    _place: int = 0
    concurrent = False

    @property
    def over(self) -> bool:
        """Whether all that was written down was said."""
        return self._place == len(self.events)

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        name = f"{type(message).__name__} to '{node}'"
        event = self._next(ASKED, name)
        said = encode(message, Arrays.DIGEST)
        if (event["node"], event["message"].get("is")) != (node, said["is"]):
            self._other_course(f"{event['message'].get('is')} to '{event['node']}'", name)
        self.found += differences(event["message"], said, name)
        if node == self.server_name:
            return self._ask_server(event, message)
        if "error" in event:
            raise raised(event["error"])
        answer: Answer = decode(event["answer"])
        return answer

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """See `Link.ask_all`."""
        return [self.ask(node, message) for node, message in asked]

    def _ask_server(self, event: dict[str, Any], message: Message[Answer]) -> Answer:
        name = f"{type(message).__name__} at '{self.server_name}'"
        error = event.get("error")
        try:
            answer: Answer = self.server.answer(message)
        except NotRecordedError as missing:
            # The radio failed then, so there is nothing to receive now.
            if error is None:
                self._other_course("samples", str(missing))
            raise raised(error) from missing
        except AirdpError as now:
            self.found += differences(error or "an answer", encode_error(now), name)
            raise
        if error is None:
            self.found += differences(event["answer"], encode_measured(answer), name)
        else:
            self.found.append(Difference(name, f"it failed ({error['text']}), and does not now"))
        return answer

    def begin(self, uplink: int, attempt: int) -> Beginning:
        """See `Stage.begin`."""
        event = self._next(BEGIN, f"uplink {uplink}")
        if (event["uplink"], event["attempt"]) != (uplink, attempt):
            raise RunFolderError(f"a journal is of uplink {event['uplink']}, and is replayed as {uplink}")
        return Beginning(event["start_sample"], event["offsets"])

    def not_before(self, planned_sample: int) -> int:
        """See `Stage.not_before`."""
        event = self._next(POSTPONED, "a start")
        self.found += differences(event["planned_sample"], planned_sample, "planned start")
        return int(event["given_sample"])

    def _next(self, kind: str, what: str) -> dict[str, Any]:
        if self.over and self.broken_off:
            raise EndOfConversationError(what)
        if self.over:
            self._other_course("nothing more", what)
        event = self.events[self._place]
        if event["kind"] != kind:
            self._other_course(event["kind"], what)
        self._place += 1
        return event

    def _other_course(self, recorded: str, replayed: str) -> NoReturn:
        self.found.append(Difference("course", f"{recorded} was recorded, {replayed} comes out"))
        raise OtherCourseError(f"{recorded} was recorded, {replayed} comes out")


def raised(error: dict[str, str]) -> AirdpError:
    """What a node raised, as its own class where that is one of airdp's."""
    kind = next((kind for kind in _all_errors(AirdpError) if kind.__name__ == error["type"]), HardwareError)
    try:
        return kind(error["text"])
    except TypeError:
        return HardwareError(error["text"])


def _all_errors(kind: type[AirdpError]) -> Iterator[type[AirdpError]]:
    yield kind
    for below in kind.__subclasses__():
        yield from _all_errors(below)
