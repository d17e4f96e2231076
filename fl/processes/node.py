"""A client or a jammer beside its radio: joins a run, obeys, and falls silent when the server is gone."""

import json
import logging
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import asdict, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, DataError
from fl.learning.local import LocalTraining
from fl.learning.settings import LocalMode
from fl.learning.trainer import ClientData
from fl.learning.workforce import Workforce
from fl.nodes.air_format import AirFormat
from fl.nodes.apart.client import ClientSide, OwnTrouble, answer_as_transmitter
from fl.nodes.apart.orders import Begin, Enrol, Enrolled, Order
from fl.nodes.apart.own_ledger import OwnLedger
from fl.nodes.apart.post import Doing, Handlers, Post
from fl.nodes.client import ClientNode
from fl.nodes.coordinator import VIEW
from fl.nodes.jammer import JammerNode, Jamming
from fl.nodes.radio_uplink import dither_source, noise_source, places_of
from fl.nodes.transmitter import Transmitter, Workspace
from fl.privacy.clipping import BoundedUpdate
from fl.privacy.sensitivity import Clipping
from fl.processes.own_data import client_data
from fl.processes.settings import NodeSettings
from fl.processes.status import STATUS
from fl.random_streams import Stream, generator
from fl.run.apart.attendance import require_one_by_one
from fl.run.assemble import air_format
from fl.run.charging import ledger_header
from fl.run.config import RunConfig, parse_config
from fl.run.folder import RunFolder, locked
from fl.run.learner import Learner, make_learner
from hardware.foundation.documents import DocumentError, parse_toml
from hardware.lab.model import Role
from hardware.lab.opened import OpenLab, open_radio
from hardware.radio.errors import HardwareError

_LOG = logging.getLogger("airdp")
_RUN = re.compile(r"[0-9a-f]{64}")
_SAID = {
    "waiting": "waiting for the server at {}",
    "joined": "joined the server at {}; waiting for the other nodes",
    "ready": "takes part in a run of the server at {}",
}
"""For people, by state."""


class NodeProgram:
    """What both kinds of nodes do. The radio is opened when a run begins, and parked whenever nobody gives orders."""

    def __init__(self, settings: NodeSettings, stack: ExitStack) -> None:
        self.settings, self._stack = settings, stack
        self._enrolment: tuple[Enrol, Enrolled] | None = None
        self._config: RunConfig | None = None
        self._lab: OpenLab | None = None
        self._carry_out: Callable[[Order], Any] | None = None
        self._state = ""

    def handlers(self) -> Handlers:
        """For the link."""
        return Handlers(self.enrol, self.begin, self.carry_out, self.lost, self.told)

    def told(self, doing: Doing) -> None:
        """Leave word for `airdp lab up`, which may look at any moment, and say what has changed."""
        if doing.state != self._state:
            self._state = doing.state
            self.settings.said(_SAID[doing.state].format(self.settings.server))
        scratch = self.settings.state / f".{STATUS}"
        scratch.write_text(json.dumps({**asdict(doing), "at": time.time()}))
        scratch.replace(self.settings.state / STATUS)

    @property
    def config(self) -> RunConfig:
        """Of the run that it is enrolled for."""
        if self._config is None:
            raise ConfigError("this node is not enrolled for any run")
        return self._config

    def enrol(self, order: Enrol) -> Enrolled:
        """Take over the server's config, where it may be. One that it has already, after a cut, costs nothing."""
        # What it was told of a run was about the config before; without a new beginning it takes no part in any.
        self._carry_out = None
        if self._enrolment is not None and self._enrolment[0] == order:
            return self._enrolment[1]
        try:
            config = parse_config(parse_toml(order.config), "the server's config")
        except DocumentError as error:
            raise ConfigError(f"the server's config cannot be read: {error}") from error
        self.settings.require_trusted(config)
        self._config = self._enrolment = None
        enrolled = self._enrolled(config)
        self._config, self._enrolment = config, (order, enrolled)
        return enrolled

    def _enrolled(self, config: RunConfig) -> Enrolled:
        del config
        return Enrolled(0, 0)

    def begin(self, run: str, order: Begin) -> None:
        """Open the radio and make the node. run: hash of the first row of the server's ledger."""
        self._carry_out = None
        if not _RUN.fullmatch(run):
            # A client's ledger is in a folder of that name.
            raise ConfigError(f"a run is called {run[:80]!a}: expected the hash of a row")
        if len(order.sizes) != len(self.settings.lab.clients):
            raise ConfigError(f"the run has {len(order.sizes)} clients, the lab {len(self.settings.lab.clients)}")
        air = air_format(self.config, self.settings.lab, order.coordinates)
        transmitter = self._transmitter(replace(air, gain_margin=order.gain_margin))
        self._carry_out = self._node(run, order, transmitter)

    def _transmitter(self, air: AirFormat) -> Transmitter:
        lab, name = self.settings.lab, self.settings.name
        if self._lab is None:
            self._lab = self._stack.enter_context(open_radio(lab, name))
        radio = self._lab.radios[name]
        if radio.parked:
            radio.configure(self.settings.radio.settings)
        words = dither_source(lab, places_of(lab)[name], partial(generator, self.config.seed))
        return Transmitter(radio, air, Workspace.of(air), words_for=words)

    def _jamming(self, transmitter: Transmitter) -> Jamming:
        return Jamming(transmitter, noise_source(self.settings.lab, partial(generator, self.config.seed)))

    def _node(self, run: str, order: Begin, transmitter: Transmitter) -> Callable[[Order], Any]:
        del run, order
        node = JammerNode(transmitter, self._jamming(transmitter))
        return lambda order: answer_as_transmitter(order, self.settings.lab, transmitter.radio, node.answer)

    def carry_out(self, order: Order) -> Any:
        """One order."""
        if self._carry_out is None:
            raise ConfigError("this node has not begun any run")
        return self._carry_out(order)

    def lost(self) -> None:
        """Nobody gives orders: withdraw what has not left, and park. What jams is parked last, by the others' going."""
        self._carry_out = None
        if self._lab is None:
            return
        radio = self._lab.radios[self.settings.name]
        try:
            if self.settings.role is Role.CLIENT:
                radio.withdraw()
            radio.park()
        except HardwareError as error:
            _LOG.error("%s may not be parked, switch it off: %s", self.settings.name, error)


class ClientProgram(NodeProgram):
    """A client, with its own data, training and ledger."""

    _data: ClientData
    _local: LocalTraining
    _ledger: OwnLedger | None = None

    def __init__(self, settings: NodeSettings, stack: ExitStack) -> None:
        super().__init__(settings, stack)
        self._trouble = OwnTrouble()

    def _enrolled(self, config: RunConfig) -> Enrolled:
        self._trouble.require_none()
        learner = make_learner(config)
        self._data = self._own_data(config, learner)
        self._local = learner.local
        return Enrolled(len(self._data.y), learner.start.size)

    def _own_data(self, config: RunConfig, learner: Learner) -> ClientData:
        """The data; what is wrong with them stays here."""
        try:
            return client_data(config, learner, self.settings.place, self.settings.data)
        except Exception as error:
            self._trouble.keep(error)
            raise DataError(f"the data of '{self.settings.name}' cannot be used; its own log says why") from error

    def _node(self, run: str, order: Begin, transmitter: Transmitter) -> Callable[[Order], Any]:
        config, place = self.config, self.settings.place
        sizes = np.array(order.sizes, np.int64)
        if sizes[place] != len(self._data.y):
            raise ConfigError(f"the run counts {sizes[place]} samples of this client, which has {len(self._data.y)}")
        if self._ledger is not None:
            self._ledger.close()
            self._ledger = None
        self._ledger = OwnLedger(
            self.settings.state / run[:16],
            ledger_header(config, sizes, VIEW),
            place,
            self.settings.budget,
            config.privacy.accountant,
        )
        side = ClientSide(
            lab=self.settings.lab,
            train=self._train,
            ledger=self._ledger,
            clipping=_clipping(config, int(sizes[place])),
            trouble=self._trouble,
        )
        side.node = ClientNode(
            transmitter,
            float(sizes[place] / sizes.sum()),
            config.privacy.clip_norm,
            side.fetch,
            config.power.backoff,
            self._jamming(transmitter),
        )
        return side.carry_out

    def _train(self, model: NDArray[np.float32], uplink: int) -> BoundedUpdate:
        place = self.settings.place
        rng = generator(self.config.seed, Stream.LOCAL, uplink, place)
        # What a message holds cannot be written to, and PyTorch wants arrays that can.
        return self._local.update(model.copy(), self._data, rng, origin=f"client {place}'s update for uplink {uplink}")


def _clipping(config: RunConfig, samples: int) -> Clipping:
    """How the update of a client with so many samples must be bounded in a run."""
    norm = config.privacy.clip_norm
    return Clipping.each_of(samples, norm) if config.local.mode is LocalMode.RECORD else Clipping.whole(norm)


def run_node(settings: NodeSettings) -> None:
    """Take part in one run, from joining to its end."""
    require_one_by_one(settings.lab)
    keys, server_key = settings.key_pair(), settings.server_key()
    settings.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with ExitStack() as stack:
        # Two processes would each allow what a row, or a budget, allows once.
        stack.enter_context(locked(RunFolder(settings.state)))
        settings.lab.address_of(settings.name)
        # One thread in linear algebra, as in a run of one process: an update then has the same bits.
        stack.enter_context(Workforce(1))
        post = stack.enter_context(Post(settings.server, keys, server_key, settings.hello()))
        kind = ClientProgram if settings.role is Role.CLIENT else NodeProgram
        post.serve(kind(settings, stack).handlers(), settings.give_up_s)
    settings.said("the run is over")
