"""The strategy: asks all clients to train, and steps with the sum that came over the air.

    with open_air("loopback", default_place(context.run_id), out="runs/flower") as air:
        OverTheAir(air).start(grid, ArrayRecord(net.state_dict()), num_rounds=10, evaluate_fn=evaluate)

What the server does with a sum is the config's [algorithm], as in a run.
"""

import logging
import time
from collections.abc import Iterable

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Strategy

from fl.errors import ConfigError, PrivacyError
from fl.flower.air import Air
from fl.flower.mod import ROUND
from fl.flower.vectors import to_arrays, to_vector
from fl.learning.server.algorithms import ServerState, advance
from fl.run.learner import make_algorithm

_LOG = logging.getLogger("flwr")
_CLIENTS_S = 600.0
"""For all clients to join."""


class OverTheAir(Strategy):
    """All K clients take part in every round: each is a part of the sum that noise is sized for.

    A round in which a client fails sends nothing, costs no privacy and leaves the model as it is.
    """

    def __init__(self, air: Air) -> None:
        self.air = air
        self.algorithm = make_algorithm(air.config)
        self._state: ServerState | None = None
        self._arrays = ArrayRecord()

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """The model to every client, with the round's number and the weight of the proximal term."""
        model = to_vector(arrays)
        if self._state is None:
            self._state = ServerState(model)
        self._arrays = arrays
        nodes = self._nodes(grid)
        self.air.begin(server_round, model.size)
        config[ROUND] = server_round
        config["proximal-mu"] = self.algorithm.proximal_mu
        content = RecordDict({"arrays": arrays, "config": config})
        return [Message(content, message_type=MessageType.TRAIN, dst_node_id=node) for node in nodes]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The next model, from the air. Replies say only who has handed in an update."""
        answered = list(replies)
        require_no_arrays(answered)
        failed = [reply for reply in answered if reply.has_error()]
        if failed or len(answered) != self.air.clients:
            _LOG.warning(
                "round %d: %d of %d clients handed in an update; nothing is sent, and the model stays as it is",
                server_round,
                len(answered) - len(failed),
                self.air.clients,
            )
            return None, None
        if self._state is None:
            raise ConfigError("aggregate_train comes after configure_train")
        received = self.air.exchange(server_round)
        self._state = advance(self.algorithm, self._state, received.values, received.uplink)
        _LOG.info("epsilon %.4g (%s), %s", received.epsilon, received.label, received.conditions)
        spent = MetricRecord({"epsilon": received.epsilon, "sigma": received.sigma, "uplink": received.uplink})
        return to_arrays(self._state.model, self._arrays), spent

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """No client is asked: what it would say about its data is covered by no epsilon."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """See `configure_evaluate`."""
        return None

    def summary(self) -> None:
        """What the log says first."""
        config = self.air.config
        _LOG.info("\t├── Updates travel over the air: uplink %s, K = %d", config.uplink.kind.value, self.air.clients)
        _LOG.info("\t├── Noise is sized for %d uplinks, epsilon %g", config.uplink.uplinks, config.privacy.epsilon)
        _LOG.info("\t└── Ledger: %s", self.air.ledger_path)

    def _nodes(self, grid: Grid) -> list[int]:
        """All K clients, once they are there."""
        deadline, wanted = time.monotonic() + _CLIENTS_S, self.air.clients
        while len(nodes := list(grid.get_node_ids())) < wanted and time.monotonic() < deadline:
            time.sleep(0.5)
        if len(nodes) != wanted:
            raise ConfigError(
                f"{len(nodes)} SuperNodes are there: expected {wanted}, one for each client (partition.clients of the "
                "air's config)"
            )
        return nodes


def require_no_arrays(replies: Iterable[Message]) -> None:
    """`PrivacyError` where a client has sent arrays in clear: then the air's noise protects nothing of them."""
    for reply in replies:
        if reply.has_content() and reply.content.array_records:
            raise PrivacyError(
                f"node {reply.metadata.src_node_id} has sent arrays to the server: its ClientApp lacks the mod "
                "fl.flower.mod.over_the_air; what they disclose is not in the ledger, so no epsilon can be claimed"
            )
