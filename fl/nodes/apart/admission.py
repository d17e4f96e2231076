"""Who is let in at the server's end of a link, and what is written down of those that are not."""

import logging
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fl.nodes.apart.orders import Hello
from fl.nodes.apart.wire import PROTOCOL

_LOG = logging.getLogger("airdp")


@dataclass(frozen=True)
class Expected:
    """Who may join. roles: by name. keys: name of each public key. lab_sha256: of the lab that all must mean."""

    roles: Mapping[str, str]
    keys: Mapping[bytes, str]
    lab_sha256: str


class SeldomLog:
    """Warnings that somebody else can cause at will: the first of a kind, and then ever more seldom.

    Otherwise a stranger fills the server's disk. kinds: few, and not the stranger's to choose.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._lock = threading.Lock()

    def say(self, kind: str, text: str) -> None:
        """Write `text` down where it is time to."""
        with self._lock:
            self._counts[kind] += 1
            count = self._counts[kind]
        if count & (count - 1) == 0:
            _LOG.warning("%s%s", text, f" ({count} times by now)" if count > 1 else "")


class Admission:
    """Decides by keys, and by what a node says of itself."""

    def __init__(self, expected: Expected) -> None:
        self._expected, self.log = expected, SeldomLog()

    def callback(self, domain: str, key: bytes) -> bool:
        """Whether a key is let in: called by ZeroMQ's authenticator, in its thread."""
        del domain
        known = self._expected.keys.get(key) in self._expected.roles
        if not known:
            self.log.say("key", f"a node with a key that is not listed ({_shown(key)}) was refused")
        return known

    def name_of(self, key: bytes) -> str:
        """Of the node whose public key it is; empty where it is nobody's."""
        return self._expected.keys.get(key, "")

    def refusal(self, name: str, hello: Hello) -> str | None:
        """Why the node whose key is that of `name` is not let in; None where it is."""
        reason = self._reason(name, hello)
        if reason is not None:
            self.log.say(f"hello {name}", f"'{name}' was refused: {reason}")
        return reason

    def _reason(self, name: str, hello: Hello) -> str | None:
        # Escaped: what a node says of itself must not write lines of its own into a log.
        role = self._expected.roles[name]
        if hello.protocol != PROTOCOL:
            return f"it speaks protocol {hello.protocol} (airdp {hello.version[:40]!a}), the server {PROTOCOL}"
        if hello.name != name:
            return f"its key is that of '{name}', and it calls itself {hello.name[:64]!a}"
        if hello.role != role:
            return f"it is a {hello.role[:20]!a}, and the lab's '{name}' a {role}"
        if hello.lab_sha256 != self._expected.lab_sha256:
            return "its lab file describes another lab; addresses may differ, nothing else"
        return None


def _shown(key: bytes) -> str:
    return key[:40].decode("ascii", "replace")
