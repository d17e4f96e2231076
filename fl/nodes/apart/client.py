"""A client in a process of its own: trains, clips, decides, and sends only on a row of the ledger that it checked."""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ModelError, PrivacyError
from fl.nodes.apart.orders import (
    Clock,
    Leave,
    LookAtCount,
    Order,
    ReadClock,
    SendToBeFound,
    Settle,
    TakeCount,
    Train,
)
from fl.nodes.apart.own_ledger import OwnLedger, Promise
from fl.nodes.client import ClientNode
from fl.nodes.coordinator import bounds_of
from fl.nodes.messages import Announcement, Decision, Transmit
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.sensitivity import Clipping
from fl.uplink.contract import check_update
from hardware.lab.model import Lab
from hardware.radio.contract import Radio
from hardware.radio.errors import HardwareError, TxSamplesError
from phy.errors import AirdpError

_LOG = logging.getLogger("airdp")
TrainUpdate = Callable[[NDArray[np.float32], int], BoundedUpdate]
"""(global model, number of the uplink) to this client's update."""


@dataclass
class OwnTrouble:
    """What goes wrong with data, and with what was made of them, may depend on them, and so may the words for it: these
    stay in this machine's log. *That* it went wrong is said, and only once: whoever could ask again and again, with
    another model every time, would learn as many bits. Who has said it takes no further part until it is started anew.
    """

    happened: bool = False

    def keep(self, error: Exception) -> None:
        """Into this machine's log, and nowhere else."""
        self.happened = True
        _LOG.error("%s: %s", type(error).__name__, error, exc_info=None if isinstance(error, AirdpError) else error)

    def require_none(self) -> None:
        """Raise `PrivacyError` where there was any."""
        if self.happened:
            raise PrivacyError(
                "something has gone wrong at this client before, and its own log says what: it takes no further part "
                "until it is started anew"
            )


@dataclass
class ClientSide:
    """What a client's process does with orders. clipping: of its updates, as the run is charged for them. node: made
    with `fetch` of this object. trouble: of this process."""

    lab: Lab
    train: TrainUpdate
    ledger: OwnLedger
    clipping: Clipping
    node: ClientNode | None = None
    trouble: OwnTrouble = field(default_factory=OwnTrouble)
    _update: tuple[int, BoundedUpdate] | None = None
    _decided: tuple[int, Announcement, Decision] | None = None
    _uplink: int = 0

    def fetch(self) -> BoundedUpdate:
        """The update of the uplink that is being sent."""
        if self._update is None or self._update[0] != self._uplink:
            raise PrivacyError(f"this client has no update for uplink {self._uplink}: it was not told to train")
        update, air = self._update[1], self._node.transmitter.air
        check_update(update, self.clipping, who="this client", uplink=self._uplink, coordinates=air.coordinates)
        return update

    def carry_out(self, order: Order) -> Any:
        """One order; what is said to a node is for the node."""
        node = self._node
        if isinstance(order.message, Train | Announcement | Transmit):
            self.trouble.require_none()
        match order.message:
            case Train(uplink, model):
                self._update = (uplink, self._trained(model, uplink))
                return None
            case Settle(row, mechanism):
                self.ledger.settle(row, mechanism)
                return None
            case Announcement():
                # Whatever comes of this one, nothing is sent on what was decided before.
                self._decided = None
                decision: Decision = node.answer(order.message)
                self._decided = (order.uplink, order.message, decision)
                return decision
            case Transmit():
                return self._transmit(order)
        return answer_as_transmitter(order, self.lab, node.transmitter.radio, node.answer)

    def _trained(self, model: NDArray[np.float32], uplink: int) -> BoundedUpdate:
        """The update; why there is none stays here."""
        try:
            return self.train(model, uplink)
        except Exception as error:
            self.trouble.keep(error)
            raise ModelError(f"this client could not train for uplink {uplink}; its own log says why") from error

    @property
    def _node(self) -> ClientNode:
        if self.node is None:
            raise PrivacyError("the client's node is not there yet")
        return self.node

    def _transmit(self, order: Order) -> Any:
        """The row is checked, and on this client's disk, before a sample leaves. Who jams sends nothing of its own."""
        self._uplink = order.uplink
        if self._node.jamming.ordered:
            return self._node.answer(order.message)
        decided, self._decided = self._decided, None
        if decided is None or decided[0] != order.uplink:
            raise PrivacyError(f"this client has not decided on its power in uplink {order.uplink}: it does not send")
        self.fetch()
        self.ledger.authorise(order.permit, self._promise(*decided))
        return self._sent(order)

    def _promise(self, uplink: int, announced: Announcement, decision: Decision) -> Promise:
        air = self._node.transmitter.air
        return Promise(
            uplink=uplink,
            gain_upper=self._node.arrives_with(decision),
            rounding=decision.rounding.distance,
            clip_norm=self.clipping.norm,
            record_bounded=self.clipping.per_sample,
            alpha_u=announced.alpha_u,
            noise_std_real=announced.noise_std_real,
            bounds=lambda senders, jams: math.fsum(
                failure for _, failure in bounds_of(air, senders, jams=jams, rounding=decision.rounding.delta)
            ),
        )

    def _sent(self, order: Order) -> Any:
        """Whether samples fit into the converter depends on the update, and so may all that is not the radio's."""
        try:
            return self._node.answer(order.message)
        except Exception as error:
            if isinstance(error, HardwareError) and not isinstance(error, TxSamplesError):
                raise
            self.trouble.keep(error)
            raise HardwareError(
                f"this client could not send its update of uplink {order.uplink}; its own log says why"
            ) from error


def answer_as_transmitter(order: Order, lab: Lab, radio: Radio, answer: Callable[[Any], Any]) -> Any:
    """What every node with a transmitter answers in a process of its own."""
    match order.message:
        case ReadClock():
            return Clock(radio.now(), radio.lead_samples)
        case LookAtCount() | SendToBeFound() | TakeCount():
            return _counted(order.message, lab, radio)
        case Leave():
            radio.park()
            return None
    return answer(order.message)


def _counted(message: LookAtCount | SendToBeFound | TakeCount, lab: Lab, radio: Radio) -> Any:
    one_count = lab.backend.one_count
    if one_count is None:
        raise PrivacyError(f"'{radio.name}' needs no alignment")
    match message:
        case LookAtCount(server):
            return one_count.look(lab.clock_mode, radio, server)
        case SendToBeFound():
            return one_count.send(radio)
        case TakeCount(offset, sent, server, clock_ppm):
            one_count.take(radio, offset, sent, server, clock_ppm)
    return None
