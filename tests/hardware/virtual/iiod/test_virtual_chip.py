"""What the chip of a virtual Pluto does by itself: converters, tones, power meter, gain control.

Oracles: the AD9361 Reference Manual (UG-570), the kernel's driver (ad9361.c, cf_axi_dds.c) with a Pluto's defaults, and
formulas.
"""

import numpy as np
import pytest

from hardware.virtual.iiod.chip.gain_control import MODES, settled_db, slow_step_db
from hardware.virtual.shared_time import SharedTime
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

    @pytest.mark.parametrize(("attribute", "value"), [("loopback", "1"), ("bist_prbs", "2")])
    def test_words_that_are_not_from_the_antenna_neither_move_the_gain_nor_hold_time_up(
        self, monkeypatch: pytest.MonkeyPatch, attribute: str, value: str
    ) -> None:
        """The control is four samples short of a decision, which it does not wait for in steps of four."""
        steps: list[float] = []
        step, block = SharedTime._step, 30_716 // 4
        with bench(make_lab(1), tuned=False) as running:
            client = running.connect("ps")
            client.open_rx(block)
            client.set(f"{PHY} DEBUG {attribute}", value)
            monkeypatch.setattr(SharedTime, "_step", lambda self, end: (steps.append(end), step(self, end))[1])
            client.read_samples(2 * block)
            assert gain_db(client) == 71.0
        assert 0 < len(steps) < 10

    def test_the_control_begins_anew_at_another_rate(self) -> None:
        with bench(make_lab(1), tuned=False) as running:
            client = running.connect("ps")
            radio = running.emulator._virtual.radios["ps"]
            client.open_rx(10_000)
            client.read_samples(10_000)
            client.set(f"{PHY} INPUT voltage0 sampling_frequency", 4_000_000)
            assert radio.gain_control.due_samples(radio.chip.gain_mode, radio.rate_hz) == 4000

    def test_where_it_settles(self) -> None:
        assert [settled_db(mode, 20.0, 1e-4, (-3.0, 71.0)) for mode in MODES] == [20.0, 30.0, 28.0, 20.0]
        assert settled_db("slow_attack", 20.0, 0.0, (-3.0, 71.0)) == 71.0


DATA_RATE = "voltage0 sampling_frequency"


class TestFpgaFilters:
    def test_the_rates_are_the_chips_and_an_eighth_of_it(self) -> None:
        """As in a Pluto's dump, with the blank at the end."""
        with bench() as running:
            client = running.connect("ps")
            assert client.read(f"{RX} INPUT {DATA_RATE}_available") == "4000000 500000 "
            assert client.read(f"{RX} INPUT {DATA_RATE}") == "4000000"
            client.set(f"{RX} INPUT {DATA_RATE}", 500_000)
            assert client.read(f"{RX} INPUT {DATA_RATE}") == "500000"
            assert client.read(f"{TX} OUTPUT {DATA_RATE}") == "4000000"
            assert client.write(f"{RX} INPUT {DATA_RATE}", "1000000") < 0

    @pytest.mark.parametrize(
        ("frequency_hz", "passed"), [(100_000, True), (-180_000, True), (350_000, False), (1_900_000, False)]
    )
    def test_a_decimated_stream_holds_what_fits_and_nothing_else(self, frequency_hz: int, passed: bool) -> None:
        with bench() as running:
            sender = running.sender(4000, cyclic=True)
            sender.write_samples(tone(4000, frequency_hz / RATE_HZ))
            receiver = running.connect("ps")
            receiver.set(GAIN, 0)
            receiver.set(f"{RX} INPUT {DATA_RATE}", 500_000)
            receiver.open_rx(1000)
            heard = receiver.read_samples(4000)[1000:]
        if not passed:
            assert np.abs(heard).max() < 2 / 2048
            return
        assert np.abs(heard).mean() == pytest.approx(0.5, rel=0.01)
        turned = np.angle(np.vdot(heard[:-1], heard[1:])) / (2 * np.pi) * 500e3
        assert turned == pytest.approx(frequency_hz, abs=100)

    def test_an_interpolated_stream_is_eight_times_as_long(self) -> None:
        wave = tone(1000, 0.05)
        with bench() as running:
            sender = running.connect("client-1")
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            sender.set(f"{TX} OUTPUT {DATA_RATE}", 500_000)
            sender.open_tx(250)
            receiver = running.receiver(2000)
            sender.write_samples(wave)
            heard = receiver.read_samples(8000)
            assert int(sender.debug("airdp_time")) == 8000
        middle = heard[2000:7000]
        exact = np.exp(2j * np.pi * 0.05 / 8 * np.arange(middle.size))
        amplitude = np.vdot(exact, middle) / middle.size
        assert abs(amplitude) == pytest.approx(0.5, rel=0.01)
        assert np.abs(middle - amplitude * exact).max() < 4 / 2048


class TestSelfTests:
    @pytest.mark.parametrize(
        ("asked", "cycles", "level"),
        [("2 0 0 0", 1 / 32, 1.0), ("2 3 12 0", 4 / 32, 10**-0.6), ("2 250000 6 0", 2 / 32, 10**-0.3)],
    )
    def test_a_tone_in_the_received_words(self, asked: str, cycles: float, level: float) -> None:
        """`ad9361_bist_tone`: 1/32 to 4/32 of the rate, in steps of 6 dB; no antenna is needed for it."""
        with bench() as running:
            client = running.receiver(3200)
            client.set(f"{PHY} {TX_LO} powerdown", 1)
            client.set(f"{PHY} DEBUG bist_tone", asked)
            assert client.debug("bist_tone") == "2"
            heard = client.read_samples(8 * 3200)[-3200:]
            client.set(f"{PHY} DEBUG bist_tone", "0 0 0 0")
            assert not client.read_words(8 * 3200)[-3200:].any()
        exact = np.exp(2j * np.pi * cycles * np.arange(heard.size))
        assert abs(np.vdot(exact, heard)) / heard.size == pytest.approx(level, rel=0.01)

    def test_a_tone_into_the_transmitter_is_heard_by_others(self) -> None:
        with bench(make_lab(1, gain_db=-20.0)) as running:
            sender, receiver = running.connect("client-1"), running.receiver(3200)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            sender.set(f"{PHY} DEBUG bist_tone", "1 1 0 2")
            heard = receiver.read_samples(8 * 3200)[-3200:]
        # I alone: half of the tone on each side, of twice the conventional full scale.
        exact = np.exp(2j * np.pi * 2 / 32 * np.arange(heard.size))
        for side in (exact, exact.conj()):
            assert abs(np.vdot(side, heard)) / heard.size == pytest.approx(0.1, rel=0.01)

    def test_random_words_fill_the_converters_range_and_repeat(self) -> None:
        with bench() as running:
            client = running.receiver(40_000)
            client.set(f"{PHY} DEBUG bist_prbs", 2)
            words = client.read_words(8 * 40_000)[-40_000:]
            assert [client.debug("bist_prbs"), client.debug("bist_tone")] == ["2", "0"]
        values = words.reshape(-1).astype(int)
        assert (values.min(), values.max()) == (-2048, 2047)
        # Uniform: the mean of 80,000 within five standard deviations of -0.5, of which the period is 32,767.
        assert abs(values.mean() + 0.5) < 5 * 4096 / np.sqrt(12 * 32_767)
        # The sequence gives I and Q in turn, and repeats after 32,767 of them.
        assert np.array_equal(values[:40_000], values[32_767 : 32_767 + 40_000])

    @pytest.mark.parametrize("value", ["", "1", "3 0 0 0", "2 0 0", "-1 0 0 0", "a b c d"])
    def test_what_the_driver_refuses(self, value: str) -> None:
        with bench() as running:
            assert running.connect("ps").write(f"{PHY} DEBUG bist_tone", value) < 0
