"""What an attempt at an uplink showed of the noise: measurements, intervals, bounds and tests, for a reader."""

from dataclasses import dataclass, field
from typing import Any

from fl.nodes.journal.codec import encode_measured
from fl.nodes.journal.conversation import encode_error
from fl.nodes.messages import MeasureSilence, Message, Receive
from fl.nodes.stage import Beginning

_PARTS = {MeasureSilence: "silence", Receive: "payload"}


@dataclass
class NoiseLine:
    """A watcher (`fl.nodes.journal.watch`). line: of the attempt that began last, JSON-ready; None before the first.

    `silence` is what the server measured before the soundings, `payload` what it measured around the payload; each may
    be an error instead.
    """

    line: dict[str, Any] | None = field(default=None)

    def ended(self) -> None:
        """What was noted stays until another attempt has begun."""

    def began(self, uplink: int, attempt: int, beginning: Beginning) -> None:
        """A new line."""
        self.line = {"uplink": uplink, "attempt": attempt, "start_sample": beginning.start_sample}

    def postponed(self, planned_sample: int, given_sample: int) -> None:
        """Nothing is measured."""

    def answered(self, node: str, message: Message[Any], answer: Any) -> None:
        """See `Watcher.answered`."""
        part = _PARTS.get(type(message))
        if part is not None and self.line is not None:
            self.line[part] = encode_measured(answer)

    def failed(self, node: str, message: Message[Any], error: BaseException) -> None:
        """See `Watcher.failed`."""
        part = _PARTS.get(type(message))
        if part is not None and self.line is not None:
            self.line[part] = {"error": encode_error(error)}
