"""What SoapySDR's module for the Pluto asks of libiio, asked of a virtual one through libiio itself.

The module is in no package of Debian 12. These are its calls in their order, from what its source does
(PlutoSDR_Settings.cpp, PlutoSDR_Streaming.cpp): settings as whole numbers, rates below 521 kS/s through the filters of
the FPGA, receive buffers of 2^17 samples that are cancelled before they are destroyed, transmit buffers of 4096.
"""

import shutil
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.hardware.virtual.iiod.raw_client import PHY, RX, TX, Bench, bench, make_lab, tone

pytestmark = pytest.mark.skipif(
    shutil.which("iio_info") is None,
    reason="libiio is missing: apt-get install --no-install-recommends libiio-utils libiio0",
)
LO_HZ, RATE_HZ = 2_450_000_000, 300_000
RX_BUFFER, TX_BUFFER = 1 << 17, 4096
LOWEST_WITHOUT_HZ = 25e6 / 48


@pytest.fixture
def running() -> Iterator[Bench]:
    with bench(make_lab(1), tuned=False) as emulator:
        yield emulator


def opened(running: Bench, radio: str) -> Any:
    import iio

    context = iio.Context(running.emulator.uris[radio])
    phy = context.find_device(PHY)
    for output, name in ((False, "A_BALANCED"), (True, "A")):
        phy.find_channel("voltage0", output).attrs["rf_port_select"].value = name
    return context


def set_rate(context: Any, output: bool, rate_hz: int) -> None:
    data = context.find_device(TX if output else RX).find_channel("voltage0", output)
    chip_hz = rate_hz if rate_hz >= LOWEST_WITHOUT_HZ else 8 * rate_hz
    context.find_device(PHY).find_channel("voltage0", output).attrs["sampling_frequency"].value = str(chip_hz)
    data.attrs["sampling_frequency"].value = str(rate_hz)


def tune(context: Any, *, output: bool, gain: int) -> None:
    phy = context.find_device(PHY)
    channel = phy.find_channel("voltage0", output)
    if not output:
        channel.attrs["gain_control_mode"].value = "manual"
    # Transmitting, the module counts gains from 89 dB below the most.
    channel.attrs["hardwaregain"].value = str(gain - 89 if output else gain)
    phy.find_channel("altvoltage1" if output else "altvoltage0", True).attrs["frequency"].value = str(LO_HZ)
    channel.attrs["rf_bandwidth"].value = "200000" if output else "3000000"


def buffer_of(context: Any, output: bool, samples: int) -> Any:
    import iio

    device = context.find_device(TX if output else RX)
    for name in ("voltage0", "voltage1"):
        device.find_channel(name, output).enabled = True
    return iio.Buffer(device, samples, False)


def test_a_slow_receiver_hears_a_tone_where_it_is_and_leaves_the_radio_as_it_was(running: Bench) -> None:
    sender = running.connect("client-1")
    for path in (f"{PHY} INPUT voltage0 sampling_frequency", f"{PHY} OUTPUT voltage0 rf_bandwidth"):
        sender.set(path, 8 * RATE_HZ)
    sender.set(f"{PHY} OUTPUT altvoltage1 frequency", LO_HZ)
    sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
    sender.open_tx(4800, cyclic=True)
    sender.write_samples(tone(4800, 1 / 48))
    context = opened(running, "ps")
    set_rate(context, False, RATE_HZ)
    tune(context, output=False, gain=0)
    stream = buffer_of(context, False, RX_BUFFER)
    stream.refill()
    words = np.frombuffer(stream.read(), np.int16).astype(np.float32)
    stream.cancel()
    del stream
    heard = words.view(np.complex64)[RX_BUFFER // 2 :]
    spectrum = np.abs(np.fft.fft(heard))
    assert heard.size == RX_BUFFER // 2
    assert np.fft.fftfreq(heard.size, 1 / RATE_HZ)[np.argmax(spectrum)] == pytest.approx(50_000, abs=10)
    # As its destructor has it: the data device at the chip's own rate again.
    client = running.connect("ps")
    set_rate(context, False, int(client.read(f"{PHY} INPUT voltage0 sampling_frequency")))
    assert client.read(f"{RX} INPUT voltage0 sampling_frequency") == str(8 * RATE_HZ)
    client.open_rx(1000)


def test_a_sender_is_on_the_air_with_the_gain_that_it_set(running: Bench) -> None:
    context, client = opened(running, "ps"), running.connect("ps")
    set_rate(context, True, 4_000_000)
    tune(context, output=True, gain=79)
    assert client.read(f"{PHY} OUTPUT voltage0 hardwaregain") == "-10.000000 dB"
    stream = buffer_of(context, True, TX_BUFFER)
    words = np.rint(16384 * tone(TX_BUFFER, 1 / 16).view(np.float32)).astype(np.int16)
    for _ in range(3):
        stream.write(bytearray(words.tobytes()))
        stream.push()
    # Half of full scale, 10 dB down.
    assert float(client.debug("airdp_tx_power")) == pytest.approx(0.25 / 10, rel=1e-3)
    del stream
    assert client.debug("airdp_tx_power") == "0"
