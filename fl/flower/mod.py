"""The client mod: takes the trained model out of a reply, and hands the update to the air node instead.

    app = ClientApp(mods=[over_the_air])

The app trains as any ClientApp of Flower's does: it returns the trained arrays and `num-examples`. What goes back to
the server is a new message that has the number of examples and nothing else. Metrics depend on data, and no epsilon
covers them; so does the text of an exception. Both stay with the client.
"""

import logging
from collections.abc import Callable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Error, Message, MessageType, MetricRecord, RecordDict

from fl.errors import ConfigError, ModelError, PrivacyError
from fl.flower.place import CLIENTS, default_place, read_token
from fl.flower.vectors import Vector, to_vector
from fl.flower.wire import request

_LOG = logging.getLogger("airdp")
ROUND, EXAMPLES, CLIENT = "server-round", "num-examples", "partition-id"
PLACE = "airdp-node"
FAILED = 2
"""Flower's code for a ClientApp that raised."""
_HAND_IN_S = 60.0

CallNext = Callable[[Message, Context], Message]


def over_the_air(message: Message, context: Context, call_next: CallNext) -> Message:
    """See the module. What a client is asked other than to train must be answered without arrays or metrics."""
    training = message.metadata.message_type.partition(".")[0] == MessageType.TRAIN
    try:
        reply = call_next(message, context)
        examples = _hand_in(message, reply, context) if training and not reply.has_error() else 0
    except Exception:
        _LOG.exception("the ClientApp failed; the server is told only that it did")
        return _failure(message)
    if reply.has_error():
        return _failure(message)
    if not training:
        return _without_data(reply)
    return Message(RecordDict({"metrics": MetricRecord({EXAMPLES: examples})}), reply_to=message)


def place_of(context: Context) -> Path:
    """Where this client's air node is: as the node or the run is configured, else where this run's is by default."""
    named = context.node_config.get(PLACE) or context.run_config.get(PLACE)
    return Path(str(named)).expanduser() if named else default_place(context.run_id)


def _failure(message: Message) -> Message:
    """Without a reason: what goes wrong in training may depend on data."""
    return Message(Error(FAILED, "the ClientApp failed; see the client's own log"), reply_to=message)


def _without_data(reply: Message) -> Message:
    held = [name for name, record in reply.content.items() if len(record)]
    if held:
        raise PrivacyError(
            f"the answer to a '{reply.metadata.message_type}' message has {', '.join(held)}: what a client says "
            "about its data is covered by no epsilon; evaluate at the server (evaluate_fn), on data of its own"
        )
    return reply


def _hand_in(message: Message, reply: Message, context: Context) -> int:
    """Give w_i - w to the air node; returns n_i."""
    client, place = context.node_config.get(CLIENT), place_of(context)
    if type(client) is not int:
        raise ConfigError(f"the node's config has no whole number {CLIENT}: start the SuperNode with --node-config")
    examples = _examples(reply)
    request(
        place,
        {
            "do": "hand in",
            "token": read_token(place, CLIENTS),
            "round": _round(message),
            "client": client,
            "examples": examples,
        },
        _update(message, reply),
        timeout_s=_HAND_IN_S,
    )
    return examples


def _update(message: Message, reply: Message) -> Vector:
    before, after = _only(message, "message"), _only(reply, "reply")
    if [(name, array.shape) for name, array in before.items()] != [(n, array.shape) for n, array in after.items()]:
        raise ModelError("the reply has arrays of other names or shapes than the model that was sent to the client")
    return to_vector(after) - to_vector(before)


def _only(message: Message, what: str) -> ArrayRecord:
    records = list(message.content.array_records.values())
    if len(records) != 1:
        raise ModelError(f"the {what} has {len(records)} ArrayRecords: expected one, the model")
    return records[0]


def _examples(reply: Message) -> int:
    for record in reply.content.metric_records.values():
        number = record.get(EXAMPLES)
        if isinstance(number, int | float) and number >= 1 and int(number) == number:
            return int(number)
    raise ConfigError(
        f"the reply has no {EXAMPLES}, the client's number of examples: it weighs the update, and is public"
    )


def _round(message: Message) -> int:
    configs: list[ConfigRecord] = list(message.content.config_records.values())
    for config in configs:
        number = config.get(ROUND)
        if isinstance(number, int):
            return number
    raise ConfigError(f"the message has no {ROUND}: the ServerApp must use fl.flower.strategy.OverTheAir")
