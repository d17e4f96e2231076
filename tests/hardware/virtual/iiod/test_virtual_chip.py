"""What the chip of a virtual Pluto does by itself: converters, tones, power meter, gain control.

Oracles: the AD9361 Reference Manual (UG-570), the kernel's driver (ad9361.c, cf_axi_dds.c) with a Pluto's defaults, and
formulas.
"""

import numpy as np
import pytest

from hardware.virtual.iiod.chip.gain_control import MODES, settled_db, slow_step_db
from tests.hardware.virtual.iiod.raw_client import PHY, RX, TX, TX_LO, Bench, RawClient, bench, make_lab, tone

MODE = f"{PHY} INPUT voltage0 gain_control_mode"
GAIN = f"{PHY} INPUT voltage0 hardwaregain"
RSSI = f"{PHY} INPUT voltage0 rssi"
RATE_HZ = 4_000_000
BLOCK = 4000
"""One decision of the slow control, 1 ms."""


def gain_db(client: RawClient) -> float:
    return float(client.read(GAIN).split()[0])


def repeat(running: Bench, amplitude: float, radio: str = "client-1") -> RawClient:
    """A sender whose tone does not end."""
    sender = running.sender(1000, radio, cyclic=True)
    sender.write_samples(tone(1000, 0.1, amplitude))
    return sender


class TestConverters:
    def test_a_tone_close_to_the_converters_full_scale_is_sent_undistorted(self) -> None:
        """The converter takes words up to 2^15: 29,491 are 0.9 of that, 1.8 here, with 12 bits' worth of spurs."""
        count = 4096
        wave = 29_491 * np.exp(2j * np.pi * 409 / count * np.arange(count))
        words = np.stack([wave.real, wave.imag], axis=1).astype(np.int16)
        with bench(make_lab(1, gain_db=-6.0206)) as running:
            sender, receiver = running.sender(count), running.receiver(count)
            assert sender.write_words(words) == words.nbytes
            spectrum = np.abs(np.fft.fft(receiver.read_samples(count))) / count
        level = float(spectrum[409])
        spectrum[409] = 0.0
        assert level == pytest.approx(0.9, rel=0.01)
        assert 20 * np.log10(level / spectrum.max()) > 60


class TestTones:
    @pytest.mark.parametrize("value", ["300000", "300000.75", "300000.0"])
    def test_decimals_of_a_frequency_are_cut_off(self, value: str) -> None:
        """`cf_axi_dds_write_raw` gets whole and fractional part from the kernel and uses the whole one."""
        with bench() as running:
            client = running.connect("client-1")
            client.set(f"{TX} OUTPUT altvoltage0 frequency", value)
            read = int(client.read(f"{TX} OUTPUT altvoltage0 frequency"))
        assert read == round(round(300_000 * 65536 / RATE_HZ) * RATE_HZ / 65536)


class TestPowerMeter:
    def test_it_follows_the_air_while_no_stream_is_open(self) -> None:
        with bench(make_lab(1, gain_db=-20.0, noise_var_complex=1e-6)) as running:
            receiver, sender = running.connect("ps"), running.connect("client-1")
            # Noise alone; a tone at full scale and -20 dB of link, beside it; attenuated; off; noise again.
            said = [receiver.read(RSSI)]
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            sender.open_tx(1000, cyclic=True)
            sender.write_samples(tone(1000, 0.1, 1.0))
            said.append(receiver.read(RSSI))
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", -10)
            said.append(receiver.read(RSSI))
            sender.set(f"{PHY} {TX_LO} powerdown", 1)
            said.append(receiver.read(RSSI))
            receiver.set(f"{PHY} ensm_mode", "sleep")
            said.append(receiver.read(RSSI))
        assert said == ["60.00 dB", "20.00 dB", "30.00 dB", "60.00 dB", "127.50 dB"]

    def test_a_stream_and_no_stream_say_the_same(self) -> None:
        with bench(make_lab(1, gain_db=-20.0)) as running:
            repeat(running, 0.5)
            receiver = running.connect("ps")
            before = receiver.read(RSSI)
            receiver.open_rx(1000)
            receiver.read_words(8000)
            assert receiver.read(RSSI) == before == "26.00 dB"


class TestGainControl:
    @pytest.mark.parametrize(
        ("level_dbfs", "step_db"), [(0.0, -2), (-5.1, -1), (-9.9, -1), (-10.1, 0), (-11.9, 0), (-12.1, 1), (-18.1, 2)]
    )
    def test_the_slow_control_has_the_drivers_thresholds(self, level_dbfs: float, step_db: float) -> None:
        assert slow_step_db(level_dbfs) == step_db

    def test_slow_attack_moves_by_two_then_one_decibel_a_millisecond_and_stays(self) -> None:
        with bench(make_lab(1, gain_db=-50.0)) as running:
            repeat(running, 1.0)
            receiver = running.connect("ps")
            receiver.done(f"SET {RX} BUFFERS_COUNT 1")
            receiver.set(MODE, "slow_attack")
            # The antenna has -50 dBFS: settled to between -12 and -10 dBFS before a stream begins.
            assert gain_db(receiver) in (38.0, 39.0, 40.0)
            receiver.set(MODE, "manual")
            receiver.set(GAIN, 20)
            receiver.set(MODE, "slow_attack")
            receiver.open_rx(BLOCK)
            gains = [gain_db(receiver)]
            for _ in range(14):
                receiver.read_words(BLOCK)
                gains.append(gain_db(receiver))
        # -30 dBFS: by two while below -18 dBFS, then by one up to -12.
        assert gains[:5] == [22.0, 24.0, 26.0, 28.0, 30.0]
        assert gains[-3:] in ([38.0] * 3, [39.0] * 3)
        assert set(np.diff(gains)) <= {2.0, 1.0, 0.0}

    def test_slow_attack_turns_down_what_clips(self) -> None:
        with bench(make_lab(1)) as running:
            repeat(running, 1.0)
            receiver = running.connect("ps")
            receiver.set(GAIN, 20)
            receiver.set(MODE, "slow_attack")
            receiver.open_rx(BLOCK)
            words = receiver.read_words(40 * BLOCK)
            final_db = gain_db(receiver)
        # At the end of the table, -3 dB, where a full-scale tone cannot be brought below -10 dBFS.
        assert final_db == -3.0
        power = np.mean(np.square(words[-BLOCK:].astype(float))) * 2 / 2048**2
        assert 10 * np.log10(power) == pytest.approx(-3.0, abs=0.1)
        assert np.abs(words[:BLOCK]).max() >= 2047

    def test_fast_attack_locks_within_a_millisecond_and_holds(self) -> None:
        with bench(make_lab(1, gain_db=-40.0)) as running:
            sender = repeat(running, 1.0)
            receiver = running.connect("ps")
            receiver.done(f"SET {RX} BUFFERS_COUNT 1")
            receiver.set(GAIN, 70)
            receiver.set(MODE, "fast_attack")
            receiver.open_rx(BLOCK)
            receiver.read_words(4 * BLOCK)
            locked = gain_db(receiver)
            # 6 dB down is within the window of the lock; 20 dB down is energy lost.
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", -6)
            receiver.read_words(4 * BLOCK)
            held = gain_db(receiver)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", -20)
            receiver.read_words(4 * BLOCK)
            again = gain_db(receiver)
        assert (locked, held, again) == (30.0, 30.0, 50.0)

    @pytest.mark.parametrize("mode", ["manual", "hybrid"])
    def test_nothing_moves_the_gain_in_manual_and_hybrid_mode(self, mode: str) -> None:
        """UG-570: hybrid updates its gain when a pin is pulled, which nothing on a Pluto does."""
        with bench() as running:
            repeat(running, 1.0)
            receiver = running.connect("ps")
            receiver.set(GAIN, 30)
            receiver.set(MODE, mode)
            receiver.open_rx(BLOCK)
            receiver.read_words(20 * BLOCK)
            assert gain_db(receiver) == 30.0

    def test_the_same_requests_give_the_same_samples_whatever_controls_the_gain(self) -> None:
        captures = []
        for _ in range(2):
            with bench(make_lab(1, gain_db=-30.0, noise_var_complex=1e-6)) as running:
                repeat(running, 0.5)
                receiver = running.connect("ps")
                receiver.set(MODE, "slow_attack")
                receiver.open_rx(777)
                captures.append(receiver.read_words(50_000).tobytes())
        assert captures[0] == captures[1]

    def test_where_it_settles(self) -> None:
        assert [settled_db(mode, 20.0, 1e-4, (-3.0, 71.0)) for mode in MODES] == [20.0, 30.0, 28.0, 20.0]
        assert settled_db("slow_attack", 20.0, 0.0, (-3.0, 71.0)) == 71.0
