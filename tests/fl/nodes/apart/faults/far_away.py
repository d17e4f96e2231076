"""A network namespace for each node, and between each of them and this one a line with delay and loss.

Where the kernel has netem, `tc` would do it; most containers' kernels have not. So a line is a pair of TUN devices, and
a thread carries IP packets from one to the other, late, and loses some: TCP sees what it would see with netem.
"""

import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path

_TUNSETIFF, _TUN_WITHOUT_HEADER = 0x400454CA, 0x0001 | 0x1000
_MTU = 1400


@dataclass(frozen=True)
class Line:
    """To one node. here, there: its addresses. lost, carried: packets."""

    name: str
    namespace: str
    here: str
    there: str


def why_not() -> str:
    """Why this machine has no such namespaces; empty where it has."""
    if os.geteuid() != 0:
        return "network namespaces need root"
    if shutil.which("ip") is None:
        return "network namespaces need `ip`: apt install iproute2"
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        return "this machine has no /dev/net/tun"
    probe = f"airdp-probe-{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", probe], capture_output=True, text=True, check=False)
    subprocess.run(["ip", "netns", "del", probe], capture_output=True, check=False)
    return "" if made.returncode == 0 else f"`ip netns add` fails: {made.stderr.strip()}"


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


def _tun(name: str) -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(descriptor, _TUNSETIFF, struct.pack("16sH", name.encode(), _TUN_WITHOUT_HEADER))
    return descriptor


class Carrier:
    """Carries packets between pairs of devices. delay_s: each way. loss: probability."""

    def __init__(self, delay_s: float, loss: float, seed: int) -> None:
        self.delay_s, self.loss, self._rng = delay_s, loss, random.Random(seed)
        self.carried = self.lost = 0
        self._other: dict[int, int] = {}
        self._ending = threading.Event()

    def join(self, one: int, other: int) -> None:
        self._other[one], self._other[other] = other, one

    @contextmanager
    def carrying(self) -> Iterator[None]:
        thread = threading.Thread(target=self._carry, daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ending.set()
            thread.join(10)
            for descriptor in self._other:
                os.close(descriptor)

    def _carry(self) -> None:
        flying: list[tuple[float, int, int, bytes]] = []
        number = count()
        while not self._ending.is_set():
            wait_s = min(0.1, max(0.0, flying[0][0] - time.monotonic())) if flying else 0.1
            ready, _, _ = select.select(list(self._other), [], [], wait_s)
            for descriptor in ready:
                packet = os.read(descriptor, 65536)
                if self._rng.random() < self.loss:
                    self.lost += 1
                else:
                    due = time.monotonic() + self.delay_s
                    heapq.heappush(flying, (due, next(number), self._other[descriptor], packet))
            while flying and flying[0][0] <= time.monotonic():
                _, _, target, packet = heapq.heappop(flying)
                os.write(target, packet)
                self.carried += 1


@contextmanager
def far_away(
    names: Sequence[str], delay_s: float, loss: float, seed: int = 1
) -> Iterator[tuple[dict[str, Line], Carrier]]:
    """A line to a namespace of its own for each of `names`."""
    carrier = Carrier(delay_s, loss, seed)
    lines: dict[str, Line] = {}
    with ExitStack() as stack:
        for place, name in enumerate(names):
            tag = f"{os.getpid()}-{place}"
            line = Line(name, f"airdp-{tag}", f"10.213.{place}.1", f"10.213.{place}.2")
            _ip("netns", "add", line.namespace)
            stack.callback(_ip, "netns", "del", line.namespace)
            near, far = f"ad{tag}h", f"ad{tag}t"
            carrier.join(_tun(near), _tun(far))
            inside = ["-n", line.namespace]
            _ip("link", "set", far, "netns", line.namespace)
            for where, device, own, peer in (([], near, line.here, line.there), (inside, far, line.there, line.here)):
                _ip(*where, "addr", "add", own, "peer", peer, "dev", device)
                _ip(*where, "link", "set", device, "mtu", str(_MTU), "up")
            _ip(*inside, "link", "set", "lo", "up")
            lines[name] = line
        stack.enter_context(carrier.carrying())
        yield lines, carrier


def go_into(namespace: str) -> None:
    """This process, and all that it does from now on, is in the namespace."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    with Path(f"/var/run/netns/{namespace}").open() as file:
        if libc.setns(file.fileno(), 0x40000000):
            raise OSError(ctypes.get_errno(), f"cannot go into {namespace}")
