"""Datagrams that no client sends, at every port: the server keeps serving, and nothing grows."""

import gc
import json
import random
import socket
import struct
import time
from pathlib import Path

from hardware.lab.file import parse_lab
from hardware.lab.model import Lab
from hardware.virtual.usrp2.device import registers as reg
from hardware.virtual.usrp2.emulator import Emulator
from hardware.virtual.usrp2.port import COMMANDS, CONTROL, GPS, PORTS, TX
from hardware.virtual.usrp2.side_channel import PORT as SIDE_CHANNEL
from hardware.virtual.usrp2.side_channel import ask
from hardware.virtual.usrp2.tx_queue import LARGEST_QUEUE_BYTES
from tests.hardware.virtual.usrp2.uhd_client import make_lab

DATAGRAMS = 100_000
REGISTERS = (
    *range(reg.TIME_HIGH, reg.TIME_MIMO + 1),
    *(reg.SPI_CONTROL, reg.SPI_DATA),
    *range(reg.GPIO, reg.GPIO + reg.GPIO_DIRECTION),
    *range(reg.TX_CONTROL, reg.TX_CONTROL + reg.TX_PACKETS_PER_UPDATE + 1),
    *(base + offset for base in (*reg.RX_DSP, reg.TX_DSP) for offset in range(reg.DSP_RATE + 1)),
    *(base + offset for base in reg.RX_CONTROL for offset in range(reg.STREAM_FORMAT + 1)),
)
MOST_GROWTH_KIB = 8 << 10
"""Of the second half: by then every queue has been full once, and a datagram that left 200 bytes would show."""


def datagram(rng: random.Random, port: int) -> bytes:
    """Noise, or something that is nearly right for the port."""
    kind = rng.randrange(4)
    if kind == 0:
        return rng.randbytes(rng.choice((0, 1, 3, 4, 8, 15, 16, 35, 36, 37, 100, 1472, 9000)))
    words = [rng.choice((0, 1, 0xFFFFFFFF, rng.getrandbits(32))) for _ in range(rng.randrange(1, 12))]
    if port == CONTROL:
        return struct.pack(">III", 12, rng.choice(b"arihsluv~ "), rng.getrandbits(32)) + rng.randbytes(24)
    if port == COMMANDS:
        return command(rng)
    if port == TX:
        payload = rng.randbytes(4 * rng.randrange(300))
        header = rng.getrandbits(32) & 0x1FFF0000 | (len(payload) // 4 + rng.randrange(6))
        return struct.pack(">II", rng.getrandbits(32), header) + payload
    if port == SIDE_CHANNEL:
        return json.dumps(request(rng)).encode()
    if port == GPS:
        return rng.choice((b"*IDN?\r\n", b"", b"*IDN?", b"\r\n" * 100, b"x" * 1400))
    return struct.pack(f">{len(words)}I", *words)


def command(rng: random.Random) -> bytes:
    """To a register that means something, mostly, and a value at its edge as often as any.

    Its time is past, mostly: whoever comes after a command that waits for its time waits, too.
    """
    timed = rng.random() < 0.25
    time_ = struct.pack(">Q", rng.getrandbits(64) if rng.random() < 1e-3 else rng.choice((0, 1, 1 << 20)))
    header = struct.pack(">II", rng.getrandbits(32), 4 << 28 | timed << 20 | 3 + 2 * timed)
    register = rng.choice((*REGISTERS, rng.randrange(256)))
    word = rng.getrandbits(32) & ~0x1FF | rng.choice((0, 0x100, 0x100)) | register
    data = rng.choice((0, 1, 25, 0xFFFFFFFF, rng.getrandbits(32)))
    return header + (time_ if timed else b"") + struct.pack(">II", word, data)


def request(rng: random.Random) -> object:
    """Of the side channel; none that makes the box deaf, because then nothing else would be tried."""
    orders = ("block", "lose_rx", "lose_tx", "overflow", "break_chain", "starve", "late_rx", "late_tx", "lo_locked")
    orders += ("ref_locked", "pps", "pulse_delay", "mimo", "eager", "gps_locked", "nothing", "")
    values = (0, 1, 2, 10**9, -1, 10**30, 0.5, None, "1", [], {}, True)
    asked = {rng.choice(orders): rng.choice(values) for _ in range(rng.randrange(4))}
    return rng.choice(
        (asked, {"do": asked}, {"do": asked, "at": rng.choice((*values, rng.getrandbits(64)))}, [asked], 7)
    )


def lab_with_gps() -> Lab:
    """The server's box has a GPSDO, whose port would be deaf otherwise."""
    tables = make_lab(1).to_tables()
    return parse_lab({**tables, "usrp": {"radio": {"ps": {"time_source": "gpsdo"}}}})


def resident_kib() -> int:
    status = Path("/proc/self/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1])


def test_a_storm_of_datagrams_leaves_the_server_serving() -> None:
    rng = random.Random(1)
    with Emulator(lab_with_gps(), seed=1) as emulator, socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        host = emulator.uris["ps"].removeprefix("addr=")
        before = half = resident_kib()
        for number in range(DATAGRAMS):
            if number == DATAGRAMS // 2:
                gc.collect()
                half = resident_kib()
            port = rng.choice(PORTS)
            sock.sendto(datagram(rng, port), (host, port))
            if number % 50 == 0:
                # Not faster than they are taken: what a full socket refuses tries nothing.
                ask(f"addr={host}")
        gc.collect()
        assert answers(host)
        # Queues are bounded: what waits for its time stays within them.
        assert resident_kib() - before < 4 * LARGEST_QUEUE_BYTES // 1024
        assert resident_kib() - half < MOST_GROWTH_KIB
        assert ask(emulator.uris["client-1"])["name"] == "client-1"


def answers(host: str) -> bool:
    """Whether the box says hello to a client."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.settimeout(1.0)
        hello = struct.pack(">III", 12, ord("a"), 7).ljust(36, b"\0")
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            sock.sendto(hello, (host, CONTROL))
            try:
                answer = sock.recv(9216)
            except TimeoutError:
                continue
            return struct.unpack_from(">III", answer) == (12, ord("A"), 7)
    return False
