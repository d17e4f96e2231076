"""libad9361, unmodified, against a virtual radio: it sets rates and designs the filters for them."""

import ctypes
import ctypes.util
from collections.abc import Iterator

import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, Bench, bench

LIBIIO, LIBAD9361 = ctypes.util.find_library("iio"), ctypes.util.find_library("ad9361")

pytestmark = pytest.mark.skipif(
    LIBIIO is None or LIBAD9361 is None,
    reason="libad9361 is missing: apt-get install --no-install-recommends libad9361-0",
)


@pytest.fixture
def running() -> Iterator[Bench]:
    with bench(tuned=False) as emulator:
        yield emulator


class Radio:
    """The device that libad9361 works on."""

    def __init__(self, uri: str) -> None:
        self._iio, self.ad9361 = ctypes.CDLL(LIBIIO), ctypes.CDLL(LIBAD9361)
        for function in (self._iio.iio_create_context_from_uri, self._iio.iio_context_find_device):
            function.restype = ctypes.c_void_p
        self._context = ctypes.c_void_p(self._iio.iio_create_context_from_uri(uri.encode()))
        self.phy = ctypes.c_void_p(self._iio.iio_context_find_device(self._context, PHY.encode()))

    def close(self) -> None:
        self._iio.iio_context_destroy(self._context)


@pytest.fixture
def radio(running: Bench) -> Iterator[Radio]:
    opened = Radio(running.emulator.uris["ps"])
    yield opened
    opened.close()


@pytest.mark.parametrize("rate_hz", [600_000, 1_920_000, 2_500_000, 30_720_000, 61_440_000])
@pytest.mark.parametrize("function", ["ad9361_set_bb_rate", "ad9361_set_bb_rate_custom_filter_auto"])
def test_rates_with_the_filters_that_it_loads(running: Bench, radio: Radio, function: str, rate_hz: int) -> None:
    client = running.connect("ps")
    assert getattr(radio.ad9361, function)(radio.phy, ctypes.c_ulong(rate_hz)) == 0
    assert abs(int(client.read(f"{PHY} INPUT voltage0 sampling_frequency")) - rate_hz) <= 1
    assert client.read(f"{PHY} INPUT out voltage_filter_fir_en") == "1"
    assert "FIR Rx: 0" not in client.read(f"{PHY} filter_fir_config")


def test_the_filters_are_switched(radio: Radio) -> None:
    enabled = ctypes.c_int(-1)
    assert radio.ad9361.ad9361_set_bb_rate(radio.phy, ctypes.c_ulong(4_000_000)) == 0
    for wanted in (0, 1):
        assert radio.ad9361.ad9361_set_trx_fir_enable(radio.phy, wanted) == 0
        assert radio.ad9361.ad9361_get_trx_fir_enable(radio.phy, ctypes.byref(enabled)) == 0
        assert enabled.value == wanted
