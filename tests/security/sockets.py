"""Sockets of a process and all that it has started, as the kernel lists them (proc(5))."""

import ipaddress
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.conftest import REPOSITORY, START

LISTENS = "0A"
ACCEPTS = 0x10000
PRIVATE = "unix, private"


def tree(root: int) -> set[int]:
    """The process and its descendants."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            parents[int(entry.name)] = int(fields[1])
    found = {root}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return found


def sockets(root: int) -> set[str]:
    """What of the tree can be reached from outside of it, in words; pairs and what goes out to loopback is left out.

    "tcp 127.0.0.1", "udp 127.2.0.1", "unix, private": in a folder that is this user's alone, "tcp to 10.0.0.1".
    """
    return {said for process in tree(root) for said in _of(process)}


def _of(process: int) -> Iterator[str]:
    home = Path(f"/proc/{process}")
    try:
        targets = [_target(descriptor) for descriptor in (home / "fd").iterdir()]
        inodes = {target[8:-1] for target in targets if target.startswith("socket:[")}
        tables = {name: (home / "net" / name).read_text().splitlines()[1:] for name in _READERS}
    except OSError:
        return
    for name, lines in tables.items():
        for line in lines:
            yield from _READERS[name](line.split(), inodes)


def _target(descriptor: Path) -> str:
    """What a descriptor stands for; nothing where it was closed meanwhile."""
    try:
        return str(descriptor.readlink())
    except OSError:
        return ""


def _internet(kind: str) -> Callable[[list[str], set[str]], Iterator[str]]:
    def read(fields: list[str], inodes: set[str]) -> Iterator[str]:
        local, remote, state, inode = fields[1], fields[2], fields[3], fields[9]
        if inode not in inodes:
            return
        far = _address(remote)
        if kind == "tcp" and state != LISTENS:
            if not far.is_loopback and int(remote.split(":")[1], 16):
                yield f"tcp to {far}"
        elif kind != "udp" or (int(local.split(":")[1], 16) and far.is_unspecified):
            yield f"{kind} {_address(local)}"

    return read


def _unix(fields: list[str], inodes: set[str]) -> Iterator[str]:
    flags, inode = int(fields[3], 16), fields[6]
    if inode not in inodes or not flags & ACCEPTS:
        return
    path = fields[7] if len(fields) > 7 else ""
    if not path.startswith("/"):
        yield f"unix {path}"
        return
    folder = Path(path).parent.stat()
    alone = folder.st_uid == os.getuid() and not stat.S_IMODE(folder.st_mode) & 0o077
    yield PRIVATE if alone else f"unix {path}"


def _other(kind: str) -> Callable[[list[str], set[str]], Iterator[str]]:
    def read(fields: list[str], inodes: set[str]) -> Iterator[str]:
        if inodes & set(fields):
            yield kind

    return read


_READERS = {
    "tcp": _internet("tcp"),
    "tcp6": _internet("tcp"),
    "udp": _internet("udp"),
    "udp6": _internet("udp"),
    "unix": _unix,
    "raw": _other("raw"),
    "packet": _other("packet"),
}


def _address(field: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    """The kernel writes words of 32 bits in the machine's order, as hexadecimal digits."""
    text = field.split(":", maxsplit=1)[0]
    words = [bytes.fromhex(text[start : start + 8]) for start in range(0, len(text), 8)]
    return ipaddress.ip_address(b"".join(word[::-1] if sys.byteorder == "little" else word for word in words))


@contextmanager
def started(arguments: Sequence[str], cwd: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """`airdp` with these arguments; told to end, and waited for, after the block."""
    with (cwd / "stdout").open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-c", START, *arguments],
            cwd=cwd,
            env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
    try:
        yield process
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def opened(arguments: Sequence[str], cwd: Path, expected: set[str], wait_s: float = 120.0) -> set[str]:
    """All that the command opens until it ends, or until a while after everything is there that is expected."""
    seen: set[str] = set()
    complete: float | None = None
    with started(arguments, cwd) as process:
        deadline = time.monotonic() + wait_s
        while process.poll() is None and time.monotonic() < deadline:
            seen |= {grouped(said, expected) for said in sockets(process.pid)}
            if expected and expected <= seen:
                complete = complete or time.monotonic()
                if time.monotonic() - complete > 1.5:
                    break
            time.sleep(0.25)
    return seen


def grouped(said: str, expected: set[str]) -> str:
    """An address within the range that is expected, as the range."""
    kind, _, address = said.partition(" ")
    for one in expected:
        of, _, network = one.partition(" ")
        if "/" in network and of == kind and ipaddress.ip_address(address) in ipaddress.ip_network(network):
            return one
    return said
