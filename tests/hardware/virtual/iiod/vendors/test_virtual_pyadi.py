"""pyadi-iio, unmodified, against virtual radios: `adi.Pluto` as a lab user writes it."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

from hardware.lab.file import find_lab
from hardware.virtual.process import emulator_process
from tests.hardware.virtual.iiod.raw_client import bench, make_lab, tone

# pyadi-iio raises an AttributeError at import where the C library is missing.
pytestmark = pytest.mark.skipif(
    shutil.which("iio_info") is None,
    reason="libiio is missing: apt-get install --no-install-recommends libiio-utils libiio0",
)

FULL_SCALE = 2**14


@contextmanager
def pluto(uri: str) -> Iterator[Any]:
    """A Pluto whose buffers are destroyed: one that is left over crashes the interpreter at its end."""
    import adi

    radio = adi.Pluto(uri)
    try:
        yield radio
    finally:
        radio.tx_destroy_buffer()
        radio.rx_destroy_buffer()


@pytest.fixture(scope="module")
def uris() -> Iterator[dict[str, str]]:
    with bench(make_lab(2)) as running:
        yield running.emulator.uris


def test_settings_are_written_and_read_back(uris: dict[str, str]) -> None:
    with pluto(uris["client-2"]) as radio:
        radio.sample_rate = 3_000_000
        radio.rx_lo = 915_000_000
        radio.tx_lo = 868_000_000
        radio.rx_rf_bandwidth = 2_000_000
        radio.tx_rf_bandwidth = 1_000_000
        radio.tx_hardwaregain_chan0 = -12.25
        radio.gain_control_mode_chan0 = "manual"
        radio.rx_hardwaregain_chan0 = 33
        radio.loopback = 1
        assert radio.sample_rate == 3_000_000
        assert (radio.rx_lo, radio.tx_lo) == (915_000_000, 868_000_000)
        assert (radio.rx_rf_bandwidth, radio.tx_rf_bandwidth) == (2_000_000, 1_000_000)
        assert radio.tx_hardwaregain_chan0 == -12.25
        assert radio.gain_control_mode_chan0 == "manual"
        assert radio.rx_hardwaregain_chan0 == 33
        assert radio.loopback == 1
        radio.loopback = 0
        assert radio._ctx.attrs["airdp,virtual"] == "lockstep"


@pytest.mark.parametrize("rate_hz", [521_000, 1_000_000, 2_084_000, 20_000_000, 61_440_000, 4_000_000])
def test_every_rate_of_pyadi_can_be_set_from_every_other(uris: dict[str, str], rate_hz: int) -> None:
    """It loads filter taps, and takes care of their order below 2.08 MS/s."""
    with pluto(uris["client-2"]) as radio:
        radio.sample_rate = 600_000
        radio.sample_rate = rate_hz
        assert radio.sample_rate == rate_hz


def test_a_wrong_value_is_refused(uris: dict[str, str]) -> None:
    with pluto(uris["client-2"]) as radio, pytest.raises(OSError, match="Invalid argument"):
        radio.tx_lo = 6_100_000_000


def test_cyclic_transmission_is_received(uris: dict[str, str]) -> None:
    with pluto(uris["client-1"]) as sender, pluto(uris["ps"]) as receiver:
        sender.tx_hardwaregain_chan0 = 0
        sender.tx_cyclic_buffer = True
        receiver.gain_control_mode_chan0 = "manual"
        receiver.rx_hardwaregain_chan0 = 0
        receiver.rx_buffer_size = 1000
        sender.tx(tone(500, 0.1, 0.5) * FULL_SCALE)
        heard = receiver.rx() / 2048
        assert np.abs(heard - np.resize(tone(500, 0.1, 0.5), 1000)).max() < 1 / 2048
        sender.tx_destroy_buffer()
        assert float(sender._ctrl.debug_attrs["airdp_tx_power"].value) == 0.0


def test_streaming_of_two_transmitters_is_received_as_their_sum(uris: dict[str, str]) -> None:
    waves = [tone(20_000, 0.03, 0.3), tone(20_000, -0.07, 0.4)]
    with pluto(uris["client-1"]) as one, pluto(uris["client-2"]) as two, pluto(uris["ps"]) as receiver:
        for radio in (one, two, receiver):
            radio.sample_rate = 4_000_000
            radio.tx_lo = radio.rx_lo = 2_450_000_000
            radio.rx_rf_bandwidth = radio.tx_rf_bandwidth = 4_000_000
        for sender in (one, two):
            sender.tx_hardwaregain_chan0 = 0
            sender.tx_cyclic_buffer = False
        receiver.gain_control_mode_chan0 = "manual"
        receiver.rx_hardwaregain_chan0 = 0
        receiver.rx_buffer_size = 1000
        # A receive buffer that is full stops the clock, so that both begin to send at the same moment.
        silence = [receiver.rx() for _ in range(4)]
        received = []
        for number in range(10):
            part = slice(2000 * number, 2000 * (number + 1))
            for sender, wave in zip((one, two), waves, strict=True):
                sender.tx(wave[part] * FULL_SCALE)
            received += [receiver.rx(), receiver.rx()]
        received += [receiver.rx() for _ in range(4)]
    assert not np.any(silence)
    assert not np.any(received[:4])
    assert np.abs(np.concatenate(received[4:]) / 2048 - sum(waves)).max() < 2 / 2048


def test_tones_of_the_core(uris: dict[str, str]) -> None:
    with pluto(uris["client-1"]) as sender, pluto(uris["ps"]) as receiver:
        sender.tx_hardwaregain_chan0 = 0
        sender.dds_single_tone(400_000, 0.25)
        receiver.gain_control_mode_chan0 = "manual"
        receiver.rx_hardwaregain_chan0 = 0
        receiver.rx_buffer_size = 4096
        heard = receiver.rx() / 2048
        sender.dds_single_tone(0, 0.0)
    spectrum = np.abs(np.fft.fft(heard)) / 4096
    peak = int(np.argmax(spectrum))
    assert peak / 4096 * 4e6 == pytest.approx(400e3, abs=4e6 / 4096)
    # Half of full scale by convention, less what falls between the bins.
    assert 0.5 * np.sinc(0.5) < spectrum[peak] < 0.5


def test_a_pluto_in_another_process() -> None:
    with emulator_process("pluto-virtual", find_lab("loopback"), seed=2) as server, pluto(server.uris["ps"]) as radio:
        radio.gain_control_mode_chan0 = "manual"
        radio.rx_hardwaregain_chan0 = 0
        radio.rx_buffer_size = 2048
        heard = radio.rx()
        assert heard.size == 2048
        # The lab's noise, 1e-5 of full scale, in units of a word.
        assert np.var(heard - heard.mean()) == pytest.approx(1e-5 * 2048**2, rel=0.2)
