"""The air node: a process that has the radios and the ledger, takes in updates, and gives out their sums.

    python -m fl.flower.node PLACE OUT [resume]      says "ready", serves until its standard input ends

Who started it holds the other end of that input, so that it ends, and parks its radios, however they end. Radios are
opened for the first sum: the clients' sizes, by which they weigh, are known then.
"""

import logging
import select
import socket
import sys
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from fl.errors import PrivacyError
from fl.flower.mailbox import Mailbox
from fl.flower.place import CLIENTS, SERVER, SOCKET, read_token
from fl.flower.wire import Values, WireError, receive, require_same_user, require_token, send
from fl.loop.own_uplink import OwnUplink, open_uplink
from fl.privacy.statement import json_number
from fl.run.config import RunConfig, resolve_config
from phy.errors import AirdpError

_LOG = logging.getLogger("airdp")
_PATIENCE_S = 30.0
"""For one request to come in whole: who stops in the middle must not keep others waiting."""

Answer = tuple[dict[str, Any], Values | None]


class AirNode:
    """What a node does with requests; how they reach it is `serve`'s."""

    def __init__(self, config: RunConfig, out: Path, *, resume: bool, stack: ExitStack) -> None:
        self.config, self._out, self._resume, self._stack = config, out, resume, stack
        self.mailbox = Mailbox(config.partition.clients)
        self._air: OwnUplink | None = None

    @property
    def server_requests(self) -> Mapping[str, Callable[[dict[str, Any]], Answer]]:
        """By name: what whoever has the server's token may ask for."""
        return {"begin": self.begin, "exchange": self.exchange}

    def hand_in(self, content: dict[str, Any], values: Values) -> Answer:
        """A client's update of the round."""
        number, client, examples = (_integer(content, name) for name in ("round", "client", "examples"))
        self.mailbox.put(number, client, examples, values)
        return {}, None

    def begin(self, content: dict[str, Any]) -> Answer:
        """A round: from now on its updates are taken."""
        self.mailbox.begin(_integer(content, "round"), _integer(content, "coordinates"))
        return {}, None

    def exchange(self, content: dict[str, Any]) -> Answer:
        """The round's updates go over the air; the answer is what the server's radio received, and what it cost."""
        sizes, updates = self.mailbox.take(_integer(content, "round"))
        air = self._opened(sizes)
        aggregate = air.send(updates)
        claimed = air.privacy[0]
        said = {
            "uplink": aggregate.mechanism.uplink,
            "sigma": aggregate.mechanism.sigma,
            "remaining": air.remaining,
            "epsilon": json_number(air.epsilon),
            "label": claimed.label.value,
            "conditions": claimed.conditions,
        }
        return said, aggregate.values

    def _opened(self, sizes: list[int]) -> OwnUplink:
        if self._air is None:
            self._air = self._stack.enter_context(
                open_uplink(
                    self.config,
                    sizes=sizes,
                    coordinates=self.mailbox.coordinates,
                    out=self._out,
                    resume=self._resume,
                )
            )
        return self._air


def _integer(content: dict[str, Any], name: str) -> int:
    value = content.get(name)
    if type(value) is not int:
        raise PrivacyError(f"a request without a whole number '{name}': {value!r}")
    return value


def serve(node: AirNode, place: Path, until: int) -> None:
    """Answer requests at `place` until the descriptor `until` ends."""
    tokens = {name: read_token(place, name) for name in (CLIENTS, SERVER)}
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listening:
        listening.bind(str(place / SOCKET))
        listening.listen(128)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            ready, _, _ = select.select([listening.fileno(), until], [], [])
            if until in ready:
                return
            connection, _ = listening.accept()
            with connection:
                connection.settimeout(_PATIENCE_S)
                _answer(node, connection, tokens)


def _answer(node: AirNode, connection: socket.socket, tokens: Mapping[str, str]) -> None:
    """One request. What is wrong with it is told to who made it, and logged; the node goes on."""
    try:
        require_same_user(connection)
        content, values = receive(connection, largest_body=4 * max(node.mailbox.coordinates, 1))
        said, given = _done(node, content, values, tokens)
        send(connection, said, *(() if given is None else (given,)))
    except (WireError, OSError) as error:
        # A stranger is told nothing.
        _LOG.warning("a request was refused: %s", error)
    except AirdpError as error:
        _LOG.warning("%s", error)
        send(connection, {"error": str(error)})


def _done(node: AirNode, content: dict[str, Any], values: Values, tokens: Mapping[str, str]) -> Answer:
    wanted = content.get("do")
    if wanted == "hand in":
        require_token(content, tokens[CLIENTS])
        return node.hand_in(content, values)
    require_token(content, tokens[SERVER])
    do = node.server_requests.get(str(wanted))
    if do is None:
        raise PrivacyError(f"a request to {wanted!r}: expected 'hand in' or one of {sorted(node.server_requests)}")
    return do(content)


def main() -> int:
    """The process."""
    from hardware.radio.termination import orderly_termination

    place, out, resume = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:] == ["resume"]
    logging.basicConfig(level=logging.WARNING, format="air node: %(message)s")
    try:
        with orderly_termination(), ExitStack() as stack:
            node = AirNode(resolve_config(place / "config.toml"), out, resume=resume, stack=stack)
            serve(node, place, sys.stdin.fileno())
    except AirdpError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
