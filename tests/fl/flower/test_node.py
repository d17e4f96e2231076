"""The air node: who may hand in what, and how often; that sums come out; that it ends with whoever started it."""

import itertools
import os
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl import read_ledger
from fl.errors import ConfigError, PrivacyError
from fl.flower.air import Air, open_air
from fl.flower.mailbox import Mailbox
from fl.flower.place import CLIENTS, SERVER, SOCKET, checked_place, make_place, read_token
from fl.flower.wire import WireError, receive, request, send
from hardware.foundation.child_processes import child_environment
from phy.errors import AirdpError

D, SIZES = 40, [30, 20, 10]
LATER = itertools.count(10)
"""Numbers of rounds that have not been."""
IDEAL: dict[str, Any] = {"uplink": {"kind": "ideal", "uplinks": 8}, "partition": {"clients": 3}}


@pytest.fixture(scope="module")
def air(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Air]:
    folder = tmp_path_factory.mktemp("air")
    with open_air(IDEAL, folder / "node", out=folder / "out") as opened:
        yield opened


def update(client: int) -> np.ndarray:
    return np.random.default_rng(client).standard_normal(D).astype(np.float32)


def hand_in(air: Air, number: int, client: Any, *, examples: Any = None, values: np.ndarray | None = None) -> None:
    said = {"do": "hand in", "token": read_token(air.place, CLIENTS), "round": number, "client": client}
    given = update(client) if values is None else values
    request(air.place, {**said, "examples": SIZES[client] if examples is None else examples}, given)


def test_the_weighted_mean_of_the_clipped_updates_comes_out(air: Air) -> None:
    air.begin(1, D)
    for client in (2, 0, 1):
        hand_in(air, 1, client)
    received = air.exchange(1)
    clipped = [u / max(1.0, float(np.linalg.norm(u))) for u in map(update, range(3))]
    expected = sum(u * (n / 60) for u, n in zip(clipped, SIZES, strict=True))
    np.testing.assert_allclose(received.values, expected, atol=1e-6)
    assert received.uplink == read_ledger(air.ledger_path).authorised == 1


def test_an_update_is_taken_once_and_in_its_round_only(air: Air) -> None:
    air.begin(2, D)
    hand_in(air, 2, 0)
    with pytest.raises(PrivacyError, match="client 0 has handed in its update of round 2: a second one is not taken"):
        hand_in(air, 2, 0)
    with pytest.raises(PrivacyError, match="of round 1, and round 2 is being collected"):
        hand_in(air, 1, 1)
    with pytest.raises(PrivacyError, match=r"clients \[1, 2\] have not handed in"):
        air.exchange(2)
    for client in (1, 2):
        hand_in(air, 2, client)
    air.exchange(2)
    with pytest.raises(PrivacyError, match="no round is being collected"):
        hand_in(air, 2, 0)
    with pytest.raises(PrivacyError, match="round 2 is not being collected"):
        air.exchange(2)
    with pytest.raises(PrivacyError, match="round 2 begins after round 2"):
        air.begin(2, D)
    assert read_ledger(air.ledger_path).authorised == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"client": 3}, "client 3 of 3"),
        ({"client": "0", "values": update(0)}, "without a whole number 'client'"),
        ({"examples": 31}, "31 examples, 30 before"),
        ({"examples": True}, "without a whole number 'examples'"),
        ({"values": np.full(D, np.nan, np.float32)}, "not finite"),
        ({"values": update(0)[:-1]}, r"shape \(39,\)"),
    ],
)
def test_what_does_not_fit_is_not_taken(air: Air, changes: dict[str, Any], message: str) -> None:
    number = next(LATER)
    air.begin(number, D)
    with pytest.raises(PrivacyError, match=message):
        hand_in(air, number, **{"client": 0, "examples": 30, **changes})


def test_a_token_opens_only_what_it_is_for(air: Air) -> None:
    clients = read_token(air.place, CLIENTS)
    for asked in (
        {"do": "exchange", "round": 1, "token": clients},
        {"do": "begin", "round": 99, "coordinates": D, "token": clients},
        {"do": "hand in", "round": 99, "client": 0, "examples": 30, "token": read_token(air.place, SERVER)},
        {"do": "hand in", "round": 99, "client": 0, "examples": 30},
    ):
        # Whoever has no token is told nothing: the connection just ends.
        with pytest.raises(WireError, match="ended after 0"):
            request(air.place, asked)


def test_only_its_user_can_reach_it(air: Air) -> None:
    assert stat.S_IMODE(air.place.stat().st_mode) == 0o700
    assert all(stat.S_IMODE((air.place / name).stat().st_mode) == 0o600 for name in (CLIENTS, SERVER))


def test_somebody_else_is_refused_at_both_ends(air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel says who the peer is. Without being root nobody can be somebody else: so who is asked changes."""
    token = read_token(air.place, CLIENTS)
    real = os.getuid()
    monkeypatch.setattr("fl.flower.wire.os.getuid", lambda: real + 1)
    monkeypatch.setattr("fl.flower.wire.checked_place", lambda place: place)
    with pytest.raises(WireError, match=f"the peer is user {real}: expected {real + 1}"):
        request(air.place, {"do": "hand in", "token": token})


def test_a_folder_that_others_can_enter_gets_no_update(tmp_path: Path) -> None:
    make_place(tmp_path / "node")
    assert checked_place(tmp_path / "node")
    (tmp_path / "node").chmod(0o750)
    with pytest.raises(ConfigError, match="this user alone can enter"):
        checked_place(tmp_path / "node")
    (tmp_path / "node").chmod(0o700)
    (tmp_path / "link").symlink_to(tmp_path / "node")
    with pytest.raises(ConfigError, match="this user alone can enter"):
        checked_place(tmp_path / "link")
    with pytest.raises(ConfigError, match="there is no air node"):
        checked_place(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is there already"):
        make_place(tmp_path / "node")
    with pytest.raises(ConfigError, match="too long for a Unix socket"):
        make_place(tmp_path / ("x" * 100))


def test_bytes_that_are_no_message_do_not_stop_it(air: Air) -> None:
    rng = np.random.default_rng(1)
    for count in (0, 3, 12, 200):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as stranger:
            stranger.connect(str(air.place / SOCKET))
            stranger.sendall(rng.bytes(count))
    number = next(LATER)
    air.begin(number, D)
    hand_in(air, number, 0)


def test_more_bytes_than_an_update_has_are_not_read() -> None:
    here, there = socket.socketpair()
    with here, there:
        send(here, {"do": "hand in"}, update(0))
        with pytest.raises(WireError, match="160 bytes: expected at most 156"):
            receive(there, largest_body=156)


def test_what_a_mailbox_gave_out_is_gone() -> None:
    mailbox = Mailbox(1)
    mailbox.begin(1, D)
    mailbox.put(1, 0, 5, update(0))
    mailbox.take(1)
    assert not mailbox._updates
    with pytest.raises(PrivacyError, match="of 41 coordinates, of 40 before"):
        mailbox.begin(2, 41)


def test_it_ends_with_whoever_started_it(tmp_path: Path) -> None:
    """Also where that is killed, and could not say goodbye."""
    code = (
        "import sys, time\nfrom pathlib import Path\nfrom fl.flower.air import open_air\n"
        f"with open_air({IDEAL!r}, Path({str(tmp_path / 'node')!r}), out={str(tmp_path / 'out')!r}):\n"
        "    print('up', flush=True)\n    time.sleep(600)\n"
    )
    parent = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=child_environment())
    with parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            if probe.connect_ex(str(tmp_path / "node" / SOCKET)):
                return
        time.sleep(0.05)
    pytest.fail("the air node goes on without its parent")


def test_a_config_that_cannot_be_used_is_said_at_once(tmp_path: Path) -> None:
    with pytest.raises(AirdpError, match="uplinks"), open_air({"uplink": {"uplinks": 0}}, tmp_path / "n", out="x"):
        pass
    assert not (tmp_path / "n").exists()
