"""What is said to nodes in other processes besides `fl.nodes.messages`, and the envelope that everything is said in.

All of it is public: a test goes through every field.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes import messages
from fl.nodes.messages import Message
from hardware.lab.one_count import BurstSent, CountStatus, ServerCount
from phy.numerology import Numerology

_MOST = 1 << 40


@dataclass(frozen=True)
class Hello:
    """Node to server: I am here. boot: another one after every start.

    It has these fields in every version of the protocol: that of another one is refused with a reason, because it can
    be read.
    """

    protocol: int
    version: str
    name: str
    role: str
    lab_sha256: str
    boot: str


@dataclass(frozen=True)
class Welcome:
    """Server to node. session: that orders to this boot carry."""

    session: str
    boot: str


@dataclass(frozen=True)
class Unknown:
    """Server to node: it speaks of a session that is not its own here; it shall say Hello."""

    session: str


@dataclass(frozen=True)
class Refused:
    """Server to node: you are not let in, or are of no use here."""

    reason: str


@dataclass(frozen=True)
class Alive:
    """Node to server, every second while it is not busy."""

    session: str
    state: str


@dataclass(frozen=True)
class Order:
    """Server to node: one thing to do. counter: grows from order to order of a session; one is done at most once.

    permit: the row of the ledger that allows what is ordered to be sent, empty where nothing of a client's is.
    """

    run: str
    session: str
    uplink: int
    attempt: int
    counter: int
    permit: str
    message: Any


@dataclass(frozen=True)
class Again:
    """Server to node: what is the answer to the order of that number? It is small, whatever was ordered."""

    session: str
    counter: int


@dataclass(frozen=True)
class Missing:
    """Node to server: the order of that number has not come; it shall be said whole."""

    session: str
    counter: int


@dataclass(frozen=True)
class Done:
    """Node to server: the answer to the order of that number."""

    session: str
    counter: int
    answer: Any


@dataclass(frozen=True)
class Failed:
    """Node to server: the order of that number could not be carried out. kind: class of the error."""

    session: str
    counter: int
    kind: str
    text: str


@dataclass(frozen=True)
class Enrolled:
    """Node to server: it can take part. samples: n_i, and coordinates: d of its model, of a client; else 0."""

    samples: int
    coordinates: int

    def __post_init__(self) -> None:
        """Refuse what cannot be."""
        if not (0 <= self.samples < _MOST and 0 <= self.coordinates < _MOST):
            raise PrivacyError(
                f"{self.samples} samples and {self.coordinates} coordinates: expected 0 or more, and less than {_MOST}"
            )


@dataclass(frozen=True)
class Enrol(Message[Enrolled]):
    """Server to node: the run's config, as TOML."""

    config: str


@dataclass(frozen=True)
class Begin(Message[None]):
    """Server to node: the run itself. sizes: n_i of all clients, in the lab's order. coordinates: d.

    gain_margin: of the server's calibration, see `AirFormat`.
    """

    sizes: tuple[int, ...]
    coordinates: int
    gain_margin: float


@dataclass(frozen=True)
class Train(Message[None]):
    """Server to client: the global model, for this uplink. Answered when the update is ready; it stays there."""

    uplink: int
    model: NDArray[np.float32]


@dataclass(frozen=True)
class Settle(Message[None]):
    """Server to client: what an uplink was accounted for as, once that is on the server's disk.

    row: hash of the row that had allowed it. mechanism: as JSON.
    """

    row: str
    mechanism: str


@dataclass(frozen=True)
class Clock:
    """now_sample: the earliest at which the radio can send, in its own count. lead_samples: see `Radio`."""

    now_sample: int
    lead_samples: int


@dataclass(frozen=True)
class ReadClock(Message[Clock]):
    """Server to transmitter: what time is it?"""


@dataclass(frozen=True)
class LookAtCount(Message[CountStatus]):
    """Server to transmitter: do you count as I do?"""

    server: ServerCount


@dataclass(frozen=True)
class SendToBeFound(Message[BurstSent]):
    """Server to transmitter: send the alignment's burst, as early as you can."""


@dataclass(frozen=True)
class TakeCount(Message[None]):
    """Server to transmitter: my count is `offset_samples` more than yours."""

    offset_samples: int
    sent: BurstSent
    server: ServerCount
    clock_ppm: float


@dataclass(frozen=True)
class Leave(Message[None]):
    """Server to node: the run is over; park."""


FROM_NODES: tuple[type, ...] = (
    *(Hello, Alive, Missing, Done, Failed),
    *(Enrolled, Clock, CountStatus, BurstSent),
    *(messages.Sent, messages.Circuits, messages.Decision, messages.Rounding, messages.JammingDecision),
)
"""All classes that a node may say, alone or within others."""
FROM_SERVER: tuple[type, ...] = (
    *(Welcome, Unknown, Refused, Order, Again),
    *(Enrol, Begin, Train, Settle, Leave, ReadClock),
    *(LookAtCount, SendToBeFound, TakeCount, ServerCount, BurstSent),
    *(messages.CountOffset, messages.Sound, messages.DescribeCircuits, messages.Announcement, messages.JammingOrder),
    *(messages.Transmit, messages.Withdraw, messages.Check),
    *(messages.SoundedChannel, messages.FlatChannel, messages.Unexplained, messages.MirrorImage, messages.LevelChange),
    Numerology,
)
"""All classes that the server may say to a node. What it asks its own radio is none of them."""
KINDS: dict[str, type] = {kind.__name__: kind for kind in (*FROM_NODES, *FROM_SERVER)}
"""All classes that may come over a link. Arrays and plain values may too, where a field is declared so."""
