"""The uplink whose clients and jammer are processes elsewhere, behind the `Uplink` contract."""

import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.apart.honesty import Honesty
from fl.nodes.apart.levels import NAME as LEVELS
from fl.nodes.apart.levels import Levels
from fl.nodes.apart.orders import Begin, Leave, Settle, Train
from fl.nodes.apart.stage import ApartStage
from fl.nodes.apart.switchboard import Switchboard
from fl.nodes.coordinated import CoordinatedUplink, RadioRules
from fl.nodes.coordinator import Round
from fl.nodes.link import Node
from fl.nodes.messages import Answer, CountOffset, Message, SoundedChannel, Transmit
from fl.nodes.soundings.conversation import NoiseCheck, sound
from fl.privacy.ledger_rows import checked_row
from fl.privacy.mechanism import RoundMechanism
from fl.uplink.contract import Aggregate, Authorise, Contributions, NotSentError, Updates, UplinkPlan
from hardware.lab.opened import OpenLab
from hardware.radio.errors import HardwareError

_LOG = logging.getLogger("airdp")


@dataclass(frozen=True)
class ApartLink:
    """The server's own node is here, all others are reached over the switchboard.

    in_turn: in simulated air, who sends first is added first; so that runs repeat bit for bit nobody is asked to send
    before the one before has.
    """

    switchboard: Switchboard
    name: str
    server: Node
    in_turn: bool
    concurrent = True

    def ask(self, node: str, message: Message[Answer]) -> Answer:
        """See `Link.ask`."""
        if node == self.name:
            answer: Answer = self.server.answer(message)
            return answer
        return self.switchboard.ask(node, message)

    def ask_all(self, asked: Sequence[tuple[str, Message[Answer]]]) -> list[Answer]:
        """See `Link.ask_all`."""
        if self.in_turn and any(isinstance(message, Transmit) for _, message in asked):
            return [self.ask(node, message) for node, message in asked]
        return self.switchboard.ask_all(asked)


class ApartUplink(CoordinatedUplink):
    """lab: with the server's radio alone. sizes: n_i of the clients (K,), as they said when they joined."""

    channel_ages = True

    def __init__(
        self,
        lab: OpenLab,
        air: AirFormat,
        sizes: NDArray[np.int64],
        clip_norm: float,
        rules: RadioRules,
        switchboard: Switchboard,
        *,
        record_bounded: bool,
        check_noise: NoiseCheck = lambda noise: None,
    ) -> None:
        super().__init__(lab, air, sizes, clip_norm, rules)
        self.switchboard = switchboard
        link = ApartLink(switchboard, self.cast.server, self.server, in_turn=lab.time is not None)
        stage = ApartStage(lab, air, switchboard, self.cast.transmitters, rules.attempts)
        self._link, self._stage = link, stage
        self._coordinate(link, stage, record_bounded=record_bounded, check_noise=check_noise)
        self.honesty = Honesty(self.cast.clients, air, self.weights, self.clip_norm, rules.max_gain_rise_db)
        self._row = ""
        self._model: tuple[int, NDArray[np.float32]] = (0, np.zeros(0, np.float32))
        self._trained: dict[str, tuple[int, str]] = {}

    def kept_in(self, folder: Path) -> None:
        """See `CoordinatedUplink.kept_in`: how loud clients were."""
        self.honesty.levels = Levels(folder / LEVELS)

    def started(self, run: str) -> None:
        """See `Uplink.started`: all nodes are told."""
        sizes = tuple(int(size) for size in self.sizes)
        self.switchboard.begin(run, Begin(sizes, self.air.coordinates, self.air.gain_margin))

    def train(self, model: NDArray[np.float32], uplink: int) -> bool:
        """See `Uplink.train`. The model goes down when the uplink is planned."""
        self._model = (uplink, model)
        return True

    def _bring_model(self, uplink: int) -> None:
        """To all clients that have not trained with it yet; each answers when its update is ready, and keeps it."""
        number, model = self._model
        if number != uplink:
            raise PrivacyError(f"uplink {uplink} is planned, and the model is that of uplink {number}")
        sessions = {name: self.switchboard.nodes[name].session for name in self.cast.clients}
        behind = [name for name in self.cast.clients if self._trained.get(name) != (uplink, sessions[name])]
        order = Train(uplink, model)
        self.switchboard.ask_all([(name, order) for name in behind])
        self._trained.update({name: (uplink, sessions[name]) for name in behind})

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """Training, where it is still to be done; then SOUND and PLAN."""
        self.switchboard.place(uplink, attempt)
        try:
            self.switchboard.ready()
            self._bring_model(uplink)
        except HardwareError as error:
            raise NotSentError(str(error)) from error
        current = self._planned(uplink, attempt)
        self.honesty.planned(current)
        return current.plan

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """AUTHORISE, TRANSMIT, RECEIVE, ACCOUNT. Updates are where they were made; none may be given here."""
        for client, _ in updates:
            raise PrivacyError(f"the server has an update of client {client}: it belongs to the client's own process")
        current = self._once(plan)
        row = authorise()
        if row is None:
            raise PrivacyError("nodes elsewhere send on a row of the ledger, and there is none")
        self._row = checked_row(row).hash
        self.switchboard.permit(row)
        try:
            received = self.coordinator.carry(current)
        finally:
            self.switchboard.permit("")
        self.honesty.received(current, received)
        values = self.air.grid.to_coordinates(received.cells)
        return Aggregate(
            values=self.released(values),
            mechanism=self.coordinator.account(current, received),
            contributions=self._contributions(current),
            signal_norm=None,
            noise_norm=None,
        )

    def settled(self, mechanism: RoundMechanism) -> None:
        """The account of the last exchange is on disk: clients take it over into their own ledgers."""
        row, self._row = self._row, ""
        if row:
            told = Settle(row, json.dumps(mechanism.to_json()))
            try:
                self.switchboard.ask_all([(name, told) for name in self.cast.clients])
            except HardwareError as error:
                # It counts without the jammer there: more than it was, never less.
                _LOG.warning("a client has not taken over the account of an uplink: %s", error)

    def last_look(self, uplinks: int) -> None:
        """See `Uplink.last_look`: a client that was turned up for the last payload is still so when it sounds again."""
        if not self.rules.max_gain_rise_db or not uplinks:
            return
        for attempt in range(self.rules.attempts):
            try:
                self.honesty.sounded(self._sounded_once(uplinks + 1, attempt)[: len(self.cast.clients)])
                return
            except HardwareError as error:
                if attempt + 1 == self.rules.attempts:
                    raise NotSentError(f"all uplinks are done, and clients cannot be heard again: {error}") from error

    def _sounded_once(self, uplink: int, attempt: int) -> Sequence[SoundedChannel]:
        """A sounding that nothing is planned with. It belongs to no uplink, so nobody writes it down."""
        beginning = self._stage.begin(uplink, attempt)
        for name, offset in beginning.offsets.items():
            self._link.ask(name, CountOffset(offset))
        where = (self._link, self.cast.server, self.cast.transmitters, self.air, beginning.start_sample)
        return sound(*where, not_before=self._stage.not_before).states

    def leave(self) -> None:
        """Clients first, then whoever jams."""
        asked: list[list[str]] = [list(self.cast.clients), [self.cast.jammer] if self.cast.jammer else []]
        for names in asked:
            present = [name for name in names if self.switchboard.nodes[name].begun]
            try:
                self.switchboard.ask_all([(name, Leave()) for name in present])
            except HardwareError as error:
                _LOG.warning("a node has not confirmed that it is parked: %s", error)

    def _contributions(self, current: Round) -> Contributions:
        """As announced: what each client really sent depends on its data, and stays there."""
        backoffs: NDArray[Any] = np.full(len(self.sizes), np.inf)
        for client in current.plan.senders:
            backoffs[client] = current.decisions[client].backoff
        return Contributions(backoffs, np.full(len(self.sizes), np.nan), 0)
