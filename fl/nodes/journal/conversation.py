"""All that was said in one attempt at an uplink, in order: enough to hold the conversation again without transmitters.

Transmitters' answers are kept whole. Of the server's, what it measured: its samples are in a recording, and it is asked
again. Arrays in messages to transmitters are kept as digests, because the server's answers have them already.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from calibration.pooling.noise_pool import NoisePool
from fl.nodes.journal.codec import Arrays, encode, encode_measured
from fl.nodes.messages import CountOffset, Message
from fl.nodes.stage import Beginning

BEGIN, POSTPONED, ASKED = "begin", "postponed", "asked"


@dataclass
class Conversation:
    """A watcher (`fl.nodes.journal.watch`). server: name of the server's node. events: JSON-ready.

    memory: what the server knows of the noise from before. known_offsets: of transmitters' counters, by name, as they
    were told last. A conversation begins with both. count: conversations so far, this one included.
    """

    server: str
    memory: Callable[[], NoisePool | None]
    events: list[dict[str, Any]] = field(default_factory=list)
    known_offsets: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def ended(self) -> None:
        """What was noted stays until another attempt has begun."""

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """A new conversation; the one before is forgotten."""
        self.count += 1
        self.events = [
            {
                "kind": BEGIN,
                "count": self.count,
                "uplink": uplink,
                "attempt": attempt,
                "start_sample": beginning.start_sample,
                "offsets": dict(beginning.offsets),
                "known_offsets": dict(self.known_offsets),
                "memory": encode(self.memory()),
            }
        ]

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """See `Watcher.postponed`."""
        self.events.append({"kind": POSTPONED, "planned_sample": planned_sample, "given_sample": given_sample})

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """See `Watcher.answered`."""
        if isinstance(message, CountOffset):
            self.known_offsets[node] = message.offset_samples
        said = encode_measured(answer) if node == self.server else encode(answer)
        self.events.append({**self._asked(node, message), "answer": said})

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """See `Watcher.failed`."""
        self.events.append({**self._asked(node, message), "error": encode_error(error)})

    def _asked(self, node: str, message: Message[Any]) -> dict[str, Any]:
        return {"kind": ASKED, "node": node, "message": encode(message, Arrays.DIGEST)}


def encode_error(error: BaseException) -> dict[str, str]:
    """JSON-ready."""
    return {"type": type(error).__name__, "text": str(error)}
