"""All attributes in one message, by libiio's own client: `iio_*_attr_read_all` and `iio_*_attr_write_all`."""

import ctypes
import ctypes.util
import errno
import struct
from collections.abc import Iterator

import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, RX, Bench, RawClient, bench

LIBRARY = ctypes.util.find_library("iio")
_READ = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)
_WRITE = ctypes.CFUNCTYPE(
    ctypes.c_ssize_t, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p
)


@pytest.fixture
def running() -> Iterator[Bench]:
    with bench() as emulator:
        yield emulator


class Libiio:
    """The C library; pylibiio does not have these calls."""

    def __init__(self, uri: str) -> None:
        self.c = ctypes.CDLL(LIBRARY)
        for name in ("iio_create_context_from_uri", "iio_context_find_device", "iio_device_find_channel"):
            getattr(self.c, name).restype = ctypes.c_void_p
        self.context = ctypes.c_void_p(self.c.iio_create_context_from_uri(uri.encode()))
        self.phy = ctypes.c_void_p(self.c.iio_context_find_device(self.context, PHY.encode()))
        self.rx = ctypes.c_void_p(self.c.iio_device_find_channel(self.phy, b"voltage0", False))

    def close(self) -> None:
        self.c.iio_context_destroy(self.context)

    def read_all(self, function: str, what: ctypes.c_void_p) -> dict[str, str]:
        found: dict[str, str] = {}

        def take(_: int, name: bytes, value: int, length: int, __: int) -> int:
            found[name.decode()] = ctypes.string_at(value, length).rstrip(b"\0").decode()
            return 0

        assert getattr(self.c, function)(what, _READ(take), None) == 0
        return found

    def write_all(self, function: str, what: ctypes.c_void_p, values: dict[str, str]) -> int:
        def give(_: int, name: bytes, buffer: int, __: int, ___: int) -> int:
            value = values.get(name.decode(), "").encode()
            ctypes.memmove(buffer, value + b"\0", len(value) + 1)
            return len(value) + 1 if value else 0

        return int(getattr(self.c, function)(what, _WRITE(give), None))


@pytest.mark.skipif(LIBRARY is None, reason="libiio is missing: apt-get install --no-install-recommends libiio0")
def test_libiio_reads_and_writes_all_at_once(running: Bench) -> None:
    client, libiio = running.connect("ps"), Libiio(running.emulator.uris["ps"])
    try:
        device = libiio.read_all("iio_device_attr_read_all", libiio.phy)
        channel = libiio.read_all("iio_channel_attr_read_all", libiio.rx)
        debug = libiio.read_all("iio_device_debug_attr_read_all", libiio.phy)
        # What cannot be read is left out.
        assert "multichip_sync" not in device
        assert device == {name: client.read(f"{PHY} {name}") for name in device}
        assert channel == {name: client.read(f"{PHY} INPUT voltage0 {name}") for name in channel}
        assert debug["airdp_time"] == client.debug("airdp_time")
        assert len(device) > 10
        assert len(channel) == 15
        wanted = {"rf_bandwidth": "3000000", "gain_control_mode": "manual", "hardwaregain": "12"}
        assert libiio.write_all("iio_channel_attr_write_all", libiio.rx, wanted) == 0
        assert client.read(f"{PHY} INPUT voltage0 rf_bandwidth") == "3000000"
        assert client.read(f"{PHY} INPUT voltage0 hardwaregain") == "12.000000 dB"
        assert libiio.write_all("iio_channel_attr_write_all", libiio.rx, {"sampling_frequency": "1"}) == -errno.EINVAL
    finally:
        libiio.close()


def _written(client: RawClient, path: str, message: bytes) -> int:
    client.send(f"WRITE {path} {len(message)}\r\n".encode() + message)
    return client.number()


@pytest.mark.parametrize("message", [b"", b"\0\0", struct.pack(">i", 4), struct.pack(">i", 1 << 30), b"\0" * 8])
def test_a_message_that_does_not_hold_what_it_says_changes_nothing(running: Bench, message: bytes) -> None:
    client = running.connect("ps")
    before = client.read(f"{PHY} INPUT voltage0 rf_bandwidth")
    assert _written(client, f"{PHY} INPUT voltage0", message) == -errno.EINVAL
    assert client.read(f"{PHY} INPUT voltage0 rf_bandwidth") == before


def test_a_device_without_attributes_has_an_empty_message(running: Bench) -> None:
    client = running.connect("ps")
    assert client.command(f"READ {RX}") == 0
    assert client.take(1) == b"\n"
