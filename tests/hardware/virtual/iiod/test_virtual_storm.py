"""Clients that misbehave: whatever they send, other clients do not notice, and nothing is left of them."""

import contextlib
import errno
import gc
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hardware.virtual.iiod import connection
from hardware.virtual.iiod.connection import LONGEST_LINE
from hardware.virtual.iiod.emulator import MOST_CONNECTIONS
from tests.hardware.virtual.iiod.raw_client import PHY, RX, TX, Bench, RawClient, address, bench, make_lab, tone

QUOTA_BLOCK = 1_000_000


@pytest.fixture(scope="module")
def running() -> Iterator[Bench]:
    with bench(make_lab(1, rate_hz=4e6)) as emulator:
        yield emulator


def soon(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def threads() -> int:
    return sum(thread.name.startswith("virtual-pluto-ps") for thread in threading.enumerate())


def resident_mib() -> float:
    gc.collect()
    return float(Path("/proc/self/status").read_text().split("VmRSS:")[1].split()[0]) / 1024


def works(running: Bench) -> None:
    """A sender and a receiver find each other, and large buffers can be had: nobody else holds any."""
    with RawClient(running.emulator.uris["client-1"]) as sender, RawClient(running.emulator.uris["ps"]) as receiver:
        sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
        receiver.set(f"{PHY} INPUT voltage0 gain_control_mode", "manual")
        receiver.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
        sender.open_tx(1000)
        receiver.open_rx(1000)
        sender.write_samples(tone(1000, 0.1))
        assert np.abs(receiver.read_samples(1000) - tone(1000, 0.1)).max() < 1 / 2048
        receiver.done(f"CLOSE {RX}")
        receiver.open_rx(QUOTA_BLOCK)


def abuse(uri: str, data: bytes, manner: str) -> None:
    """Send and leave at once, or say that this was all and read to the end, or wait for more in vain."""
    with socket.create_connection(address(uri), 20) as sock:
        try:
            sock.sendall(data)
            if manner == "leave":
                return
            if manner == "finish":
                sock.shutdown(socket.SHUT_WR)
            sock.settimeout(0.2 if manner == "finish" else 0.02)
            while sock.recv(1 << 16):
                pass
        except (TimeoutError, ConnectionError):
            return


DEVICES = st.sampled_from([PHY, RX, TX, "xadc", "iio:device3", "iio:device2", "nothing", "../..", "%n%n"])
NUMBERS = st.one_of(
    st.sampled_from(["0", "1", "-1", "4", "400", "4294967295", "18446744073709551616", "0x10", "1e9", "", "nan"]),
    st.integers(0, 100_000).map(str),
)
MASKS = st.sampled_from(["00000003", "00000001", "00000000", "ffffffff", "3", "0000000300000003", "zzzzzzzz"])
WORDS = st.one_of(
    DEVICES,
    NUMBERS,
    MASKS,
    st.sampled_from(["INPUT", "OUTPUT", "DEBUG", "BUFFER", "voltage0", "altvoltage0", "sampling_frequency", "CYCLIC"]),
    st.sampled_from(["direct_reg_access", "airdp_drop_rx_buffers", "BUFFERS_COUNT", "ensm_mode", "loopback"]),
)
COMMANDS = st.sampled_from(
    ("VERSION", "PRINT", "ZPRINT", "TIMEOUT", "READ", "WRITE", "OPEN", "CLOSE", "SET", "READBUF", "WRITEBUF", "EXIT")
)
LIKELY = st.one_of(
    st.builds("OPEN {} {} {}".format, st.sampled_from([RX, TX]), NUMBERS, MASKS),
    st.builds("OPEN {} {} 00000003".format, st.sampled_from([RX, TX]), st.integers(1, 2000)),
    st.builds("READBUF {} {}".format, st.sampled_from([RX, TX]), NUMBERS),
    st.builds("WRITEBUF {} {}".format, st.sampled_from([RX, TX]), NUMBERS),
    st.builds("WRITE {} {} {}".format, DEVICES, WORDS, NUMBERS),
    st.builds("SET {} BUFFERS_COUNT {}".format, DEVICES, NUMBERS),
)
LINES = st.one_of(
    LIKELY.map(str.encode),
    st.tuples(COMMANDS, st.lists(WORDS, max_size=5)).map(lambda parts: " ".join([parts[0], *parts[1]]).encode()),
    st.binary(max_size=60),
)
# Nothing that a later client would have to undo is in it; sampling_frequency and loopback are put right below.
CONVERSATIONS = st.lists(
    st.tuples(LINES, st.sampled_from([b"\r\n", b"\n", b"\0\n", b""])).map(b"".join), max_size=12
).map(b"".join)


def test_a_storm_of_nonsense_leaves_a_radio_that_works(running: Bench) -> None:
    works(running)
    before, begun_mib = threads(), resident_mib()
    said: list[tuple[str, bytes, str]] = []
    uri = running.emulator.uris["ps"]

    @settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(CONVERSATIONS, st.binary(max_size=2000), st.sampled_from(["leave", "finish", "wait"]))
    def storm(conversation: bytes, rest: bytes, manner: str) -> None:
        said.append((uri, conversation + rest, manner))
        abuse(*said[-1])

    storm()
    # Once more, all at the same time.
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda words: abuse(*words), said))
    assert sum(len(data) for _, data, _ in said) > 10_000
    soon(lambda: threads() <= before)
    status = running.emulator.status()[0]
    assert (status.rx_buffers, status.tx_buffers) == (0, 0)
    with RawClient(running.emulator.uris["ps"]) as client:
        client.set(f"{PHY} DEBUG loopback", 0)
        client.set(f"{PHY} ensm_mode", "fdd")
        client.set(f"{PHY} DEBUG airdp_drop_rx_buffers", 0)
        client.done(f"SET {RX} BUFFERS_COUNT 4")
    works(running)
    assert resident_mib() - begun_mib < 100


@pytest.mark.parametrize("byte", [b"A", b"\0", b" ", b"\xff"])
def test_a_line_without_an_end_ends_the_connection(running: Bench, byte: bytes) -> None:
    # The server may hang up before it has read all of it.
    with RawClient(running.emulator.uris["ps"]) as client, contextlib.suppress(ConnectionError):
        client.send(byte * (100 * LONGEST_LINE))
        assert client.line() == b""
    works(running)


def test_a_long_line_with_an_end_ends_the_connection(running: Bench) -> None:
    with RawClient(running.emulator.uris["ps"]) as client:
        client.send(b"READ " + b"x" * LONGEST_LINE + b"\r\nVERSION\r\n")
        with contextlib.suppress(ConnectionError):
            assert client.line() == b""


def test_there_is_a_limit_to_connections_and_those_that_have_one_go_on(running: Bench) -> None:
    soon(lambda: threads() == 0)
    clients = [RawClient(running.emulator.uris["ps"]) for _ in range(100)]
    served = 0
    for client in clients:
        try:
            client.send(b"VERSION\r\n")
            served += client.line().startswith(b"0.24")
        except ConnectionError:
            continue
    assert served == MOST_CONNECTIONS
    assert threads() == MOST_CONNECTIONS
    for client in clients:
        client.close()
    soon(lambda: threads() == 0)
    works(running)


def test_all_queues_together_have_a_limit(running: Bench) -> None:
    # Four blocks and the one that is being taken.
    largest = (64 << 20) // 20
    with contextlib.ExitStack() as stack:
        # Nothing is to be received: an open transmit buffer without samples, which is small, stops the clock.
        stack.enter_context(RawClient(running.emulator.uris["client-1"])).open_tx(1)
        clients = [stack.enter_context(RawClient(running.emulator.uris["ps"])) for _ in range(12)]
        assert clients[0].command(f"OPEN {RX} {largest + 1} 00000003") == -errno.ENOMEM
        answers = [client.command(f"OPEN {RX} {largest} 00000003") for client in clients]
        assert answers == [0] * 7 + [-errno.ENOMEM] * 5
        clients[0].done(f"CLOSE {RX}")
        clients[-1].open_rx(largest)
    soon(lambda: running.emulator.status()[0].rx_buffers == 0)
    works(running)


class TestStalling:
    @pytest.fixture
    def impatient(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
        monkeypatch.setattr(connection, "STALL_S", 0.2)
        with bench(make_lab(1)) as emulator:
            yield emulator

    @pytest.mark.parametrize(
        "beginning",
        [
            b"VERS",
            f"WRITE {PHY} ensm_mode 3\r\nf".encode(),
            f"OPEN {TX} 9 00000003\r\nWRITEBUF {TX} 36\r\n123".encode(),
        ],
    )
    def test_a_client_that_stops_in_the_middle_is_sent_away(self, impatient: Bench, beginning: bytes) -> None:
        with RawClient(impatient.emulator.uris["ps"]) as client:
            client.send(beginning)
            while client.line():
                pass
        soon(lambda: impatient.emulator.status()[0].connections == 0)
        works(impatient)

    def test_a_client_that_does_not_take_its_answer_is_sent_away(self, impatient: Bench) -> None:
        with socket.create_connection(address(impatient.emulator.uris["ps"]), 20) as sock:
            sock.sendall(f"OPEN {RX} 1000000 00000003\r\nREADBUF {RX} 400000000\r\n".encode())
            soon(lambda: impatient.emulator.status()[0].rx_buffers == 1)
            soon(lambda: impatient.emulator.status()[0].connections == 0)
        works(impatient)

    def test_an_idle_client_may_stay(self, impatient: Bench) -> None:
        with RawClient(impatient.emulator.uris["ps"]) as client:
            time.sleep(0.5)
            assert client.command("TIMEOUT 1000") == 0


def test_an_emulator_that_is_closed_leaves_no_threads_and_no_addresses() -> None:
    before = threading.active_count()
    with bench(make_lab(3)) as running:
        uris = dict(running.emulator.uris)
        client = running.receiver(100)
        running.sender(100)
        client.send(f"READBUF {RX} 4000\r\n".encode())
    soon(lambda: threading.active_count() <= before)
    for uri in uris.values():
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(address(uri), 5)
