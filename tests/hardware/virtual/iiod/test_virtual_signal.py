"""What virtual radios hear of each other. Oracles: the simulated air itself for whole bursts, and formulas of radio."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from hardware.lab.model import Lab
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.shared_time import SharedTime
from tests.hardware.virtual.iiod.raw_client import (
    CENTER_HZ,
    OVERFLOW,
    PHY,
    RATE_HZ,
    RX,
    RX_LO,
    TX,
    TX_LO,
    UNDERFLOW,
    Bench,
    RawClient,
    Samples,
    as_words,
    bench,
    make_lab,
    on_levels,
    tone,
)

LSB = 1 / 2048
HARSH = {
    "fading": "rayleigh",
    "gain_db": -6.0,
    "taps": [[0, 0.0], [3, -6.0]],
    "max_delay_samples": 4.0,
    "noise_var_complex": 1e-5,
    "iq_image_db": -40.0,
    "phase_noise_rad_per_sqrt_sample": 1e-4,
    "pa_saturation": 1.5,
}


def level(samples: Samples, cycles_per_sample: float) -> float:
    """Amplitude of a tone."""
    return abs(np.vdot(tone(samples.size, cycles_per_sample, 1.0), samples)) / samples.size


def peak(samples: Samples) -> float:
    """Frequency of the strongest tone in cycles per sample, to a fraction of a bin."""
    count = samples.size
    spectrum = np.abs(np.fft.fft(samples * np.hanning(count), 16 * count))
    return float(np.fft.fftfreq(16 * count)[np.argmax(spectrum)])


def noise_like(count: int, seed: int, amplitude: float = 0.1) -> Samples:
    values = np.random.default_rng(seed).standard_normal((count, 2), np.float32) * np.float32(amplitude)
    return on_levels(values.view(np.complex64).reshape(-1))


class TestLevels:
    def test_two_transmitters_add_up(self) -> None:
        with bench() as running:
            first, second = running.sender(4000), running.sender(4000, "client-2")
            receiver = running.receiver(4000)
            first.write_samples(tone(4000, 0.05, 0.5))
            second.write_samples(tone(4000, -0.1, 0.25))
            heard = receiver.read_samples(4000)
        assert level(heard, 0.05) == pytest.approx(0.5, rel=0.01)
        assert level(heard, -0.1) == pytest.approx(0.25, rel=0.01)
        assert np.abs(heard - tone(4000, 0.05, 0.5) - tone(4000, -0.1, 0.25)).max() < 2 * LSB

    @pytest.mark.parametrize("gain_db", [0.0, -0.25, -6.0, -20.25])
    def test_the_attenuator_attenuates(self, gain_db: float) -> None:
        with bench() as running:
            sender, receiver = running.sender(4000), running.receiver(4000)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", gain_db)
            sender.write_samples(tone(4000, 0.05, 0.9))
            heard = receiver.read_samples(4000)
        assert level(heard, 0.05) == pytest.approx(0.9 * 10 ** (gain_db / 20), rel=0.01)

    def test_receive_gain_amplifies_and_the_converter_saturates(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(1000), running.receiver(1000)
            receiver.set(f"{PHY} INPUT voltage0 hardwaregain", 20)
            sender.write_samples(tone(1000, 0.05, 0.05))
            assert level(receiver.read_samples(1000), 0.05) == pytest.approx(0.5, rel=0.01)
            sender.write_samples(tone(1000, 0.05, 0.5))
            words = receiver.read_words(1000)
        assert words.max() == 2047
        assert words.min() == -2048

    def test_words_beyond_the_conventional_full_scale_are_sent_as_they_are(self) -> None:
        words = np.full((500, 2), 30_000, np.int16)
        with bench(make_lab(1, gain_db=-12.0)) as running:
            sender, receiver = running.sender(500), running.receiver(500)
            assert sender.write_words(words) == words.nbytes
            heard = receiver.read_samples(500)
        assert np.abs(heard - (1 + 1j) * (30_000 & -16) / 16384 * 10 ** (-12 / 20)).max() < LSB

    def test_rssi_is_the_power_at_the_antenna_below_full_scale(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(1000), running.receiver(1000)
            assert receiver.read(f"{PHY} INPUT voltage0 rssi") == "127.50 dB"
            for gain_db in (0, 10):
                receiver.set(f"{PHY} INPUT voltage0 hardwaregain", gain_db)
                sender.write_samples(tone(1000, 0.05, 0.1))
                receiver.read_words(1000)
                assert receiver.read(f"{PHY} INPUT voltage0 rssi") == "20.00 dB"

    def test_power_meter_of_the_transmitter(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(1000), running.receiver(1000)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", -10)
            assert float(sender.debug("airdp_tx_power")) == 0.0
            sender.write_samples(tone(1000, 0.05, 0.5))
            receiver.read_words(1000)
            assert float(sender.debug("airdp_tx_power")) == pytest.approx(0.025, rel=0.01)
            sender.set(f"{PHY} {TX_LO} powerdown", 1)
            assert float(sender.debug("airdp_tx_power")) == 0.0
            sender.set(f"{PHY} {TX_LO} powerdown", 0)
            sender.write_samples(np.zeros(1000, np.complex64))
            assert float(sender.debug("airdp_tx_power")) == 0.0
            sender.write_samples(tone(1000, 0.05, 0.5))
            assert float(sender.debug("airdp_tx_power")) > 0.0
            sender.done(f"CLOSE {TX}")
            assert float(sender.debug("airdp_tx_power")) == 0.0


class TestTuning:
    def test_a_difference_of_carriers_is_a_frequency_offset_of_that_sign(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(4000), running.receiver(4000)
            sender.set(f"{PHY} {TX_LO} frequency", 2_450_100_000)
            receiver.set(f"{PHY} {RX_LO} frequency", 2_449_950_000)
            sender.write_samples(np.full(4000, 0.5, np.complex64))
            heard = receiver.read_samples(4000)
        assert peak(heard) * RATE_HZ == pytest.approx(150e3, abs=100)

    def test_time_never_goes_back_whatever_the_rate(self) -> None:
        with bench() as running:
            radio = running.connect("ps")
            seconds = [0.0]
            for rate_hz in (4_000_000, 3_000_000, 4_000_000, 5_000_000, 3_000_000):
                radio.set(f"{PHY} INPUT voltage0 sampling_frequency", rate_hz)
                seconds.append(int(radio.debug("airdp_time")) / rate_hz)
                radio.open_rx(100)
                radio.read_words(500)
                radio.done(f"CLOSE {RX}")
                seconds.append(int(radio.debug("airdp_time")) / rate_hz)
        # A count is a whole number of samples.
        assert (np.diff(seconds) > -0.5e-6).all()
        assert seconds[-1] >= 4 * 900 / 5e6

    def test_radios_at_another_common_rate_hear_each_other(self) -> None:
        with bench() as running:
            sender, receiver = running.connect("client-1"), running.connect("ps")
            for client in (sender, receiver):
                client.set(f"{PHY} INPUT voltage0 sampling_frequency", 2_500_000)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            sender.set(f"{PHY} {TX_LO} frequency", 2_450_100_000)
            sender.open_tx(1000)
            receiver.open_rx(1000)
            sender.write_samples(np.full(1000, 0.5, np.complex64))
            assert peak(receiver.read_samples(1000)) == pytest.approx(100e3 / 2.5e6, abs=1e-4)

    @pytest.mark.parametrize(
        ("setting", "off", "on"),
        [(f"{TX_LO} powerdown", 1, 0), ("ensm_mode", "alert", "fdd"), ("ensm_mode", "sleep", "fdd")],
    )
    def test_a_transmitter_that_is_switched_off_is_silent(self, setting: str, off: object, on: object) -> None:
        with bench() as running:
            sender, receiver = running.sender(500), running.receiver(500)
            heard = []
            for state in (on, off, on):
                sender.set(f"{PHY} {setting}", state)
                sender.write_samples(tone(500, 0.1))
                heard.append(bool(receiver.read_words(500).any()))
        assert heard == [True, False, True]

    def test_a_receiver_that_is_switched_off_hears_nothing(self) -> None:
        with bench(make_lab(1, noise_var_complex=1e-3)) as running:
            receiver = running.receiver(500)
            assert receiver.read_words(2000).any()
            receiver.set(f"{PHY} {RX_LO} powerdown", 1)
            receiver.read_words(2000)
            assert not receiver.read_words(2000).any()


class TestSources:
    def test_a_cyclic_buffer_repeats_without_a_seam(self) -> None:
        samples = tone(50, 0.06)
        with bench() as running:
            sender, receiver = running.sender(50, cyclic=True), running.receiver(777)
            sender.write_samples(samples)
            receiver.read_words(4 * 777)
            heard = receiver.read_samples(40_000)
            assert float(sender.debug("airdp_tx_power")) == pytest.approx(0.25, rel=0.01)
            sender.done(f"CLOSE {TX}")
            assert not receiver.read_words(10 * 777)[-777:].any()
        # It began when it was written, and time had gone as far as the receiver's queue.
        assert np.abs(heard - np.resize(samples, 40_000)).max() < LSB

    def test_a_cyclic_buffer_of_a_radio_whose_clock_is_fast(self) -> None:
        """Steps are counted by the first radio; this one sends more samples in each, and loses none of them."""
        lab = make_lab(1, clock="free-running", radio={"client-1": {"clock_ppm": 1000.0}, "ps": {"clock_ppm": -1000.0}})
        with bench(lab) as running:
            sender = running.sender(64, cyclic=True)
            sender.set(f"{PHY} DEBUG loopback", 1)
            sender.write_samples(tone(64, 1 / 64))
            sender.open_rx(100_000)
            heard = sender.read_words(200_000)
        ramp = np.round(np.angle(heard[:, 0] + 1j * heard[:, 1]) / (2 * np.pi) * 64).astype(int)
        assert (np.mod(np.diff(ramp), 64) == 1).all()

    def test_tones_of_the_core(self) -> None:
        with bench() as running:
            sender, receiver = running.connect("client-1"), running.receiver(4096)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            for channel, phase in (("altvoltage0", 90_000), ("altvoltage2", 0)):
                for name, value in (("frequency", 300_000), ("phase", phase), ("scale", 0.25), ("raw", 1)):
                    sender.set(f"{TX} OUTPUT {channel} {name}", value)
            receiver.read_words(4 * 4096)
            heard = receiver.read_samples(40_000)
            set_hz = int(sender.read(f"{TX} OUTPUT altvoltage0 frequency"))
            power = float(sender.debug("airdp_tx_power"))
            for channel in ("altvoltage0", "altvoltage2"):
                sender.set(f"{TX} OUTPUT {channel} raw", 0)
            receiver.read_words(8 * 4096)
            assert not receiver.read_words(4096).any()
            assert sender.debug("airdp_tx_power") == "0"
        # The core's steps are 1/65536 of the rate; its full scale is twice the conventional one.
        assert set_hz == pytest.approx(300e3, abs=RATE_HZ / 65536)
        assert peak(heard) * RATE_HZ == pytest.approx(set_hz, abs=RATE_HZ / 16 / 40_000)
        exact = tone(40_000, round(300e3 * 65536 / RATE_HZ) / 65536, 1.0)
        amplitude = np.vdot(exact, heard) / heard.size
        assert abs(amplitude) == pytest.approx(0.5, rel=0.01)
        # One tone from the first sample to the last, however it was cut.
        assert np.abs(heard - amplitude * exact).max() < 2 * LSB
        assert power == pytest.approx(0.25, rel=0.01)

    def test_a_buffer_silences_the_tones(self) -> None:
        with bench() as running:
            sender, receiver = running.connect("client-1"), running.receiver(1000)
            for name, value in (("frequency", 300_000), ("scale", 0.25), ("raw", 1)):
                sender.set(f"{TX} OUTPUT altvoltage0 {name}", value)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            receiver.read_words(8000)
            sender.open_tx(1000)
            sender.write_samples(np.zeros(4000, np.complex64))
            assert receiver.read_words(4000).any()
            assert not receiver.read_words(1000).any()

    @pytest.mark.parametrize("clock", ["shared", "free-running"])
    def test_digital_loopback_gives_the_twelve_upper_bits(self, clock: str) -> None:
        words = np.random.default_rng(1).integers(-32768, 32768, (5000, 2), np.int16)
        with bench(make_lab(1, clock=clock, max_clock_ppm=50.0)) as running:
            radio = running.connect("client-1")
            radio.set(f"{PHY} DEBUG loopback", 1)
            radio.open_tx(1000)
            radio.open_rx(700)
            assert radio.write_words(words[:4000]) == 16_000
            heard = radio.read_words(2100)
            radio.set(f"{PHY} DEBUG loopback", 0)
        assert np.array_equal(heard, words[:2100] >> 4)

    def test_a_radio_does_not_hear_itself(self) -> None:
        with bench() as running:
            radio = running.sender(100)
            radio.open_rx(100)
            radio.write_samples(tone(100, 0.1))
            assert not radio.read_words(100).any()


class TestBlocksOfFading:
    def test_a_block_is_the_same_for_the_whole_lab_and_comes_back(self) -> None:
        levels = []
        with bench(make_lab(1, fading="rayleigh")) as running:
            sender, receiver = running.sender(100), running.receiver(100)
            receiver.set(f"{PHY} INPUT voltage0 hardwaregain", -3)
            for block in (0, 1, 2, 0):
                sender.set(f"{PHY} DEBUG airdp_block", block)
                assert receiver.debug("airdp_block") == str(block)
                sender.write_samples(np.full(100, 0.2, np.complex64))
                levels.append(receiver.read_samples(100).mean())
        assert levels[0] == levels[3]
        assert len(set(levels)) == 3


def drive(running: Bench, sleeps: np.random.Generator | None = None) -> list[bytes]:
    """A conversation with three radios, with buffers of all sizes, from one thread; all that was received."""
    first, second = running.sender(1000), running.sender(333, "client-2")
    receiver, other = running.receiver(777), running.connect("ps")
    other.open_rx(5000)
    received: list[bytes] = []

    def pause() -> None:
        if sleeps is not None:
            time.sleep(sleeps.uniform(0, 0.01))

    for number in range(6):
        first.write_samples(noise_like(1000, number))
        pause()
        second.write_samples(noise_like(999, 100 + number))
        pause()
        received.append(receiver.read_words(777).tobytes())
        receiver.set(f"{PHY} DEBUG airdp_block", number)
        second.set(f"{PHY} {TX_LO} frequency", 2_450_000_000 + 1000 * number)
    received.append(other.read_words(5000).tobytes())
    second.done(f"CLOSE {TX}")
    first.write_samples(noise_like(1000, 50))
    received.append(receiver.read_words(3000 - 777).tobytes())
    return received


class TestLockstep:
    @pytest.mark.parametrize("clock", ["shared", "free-running"])
    def test_the_same_requests_give_the_same_samples_bit_for_bit(self, clock: str) -> None:
        lab = make_lab(2, clock=clock, max_clock_ppm=5.0, **HARSH)
        with bench(lab, seed=3) as running:
            expected = drive(running)
        with bench(lab, seed=3) as running:
            assert drive(running, np.random.default_rng(1)) == expected
        with bench(lab, seed=4) as running:
            assert drive(running) != expected

    def test_who_is_first_does_not_matter_once_all_buffers_are_open(self) -> None:
        lab = make_lab(2, **HARSH)
        captures = []
        for seed in (1, 2):
            rng = np.random.default_rng(seed)
            with bench(lab) as running:
                senders = [running.sender(700), running.sender(1100, "client-2")]
                receiver = running.receiver(900)

                def send(client: RawClient, number: int, pauses: list[float]) -> None:
                    for pause in pauses:
                        time.sleep(pause)
                        client.write_samples(noise_like(7700, number))

                threads = [
                    threading.Thread(target=send, args=(client, number, rng.uniform(0, 0.02, 5).tolist()))
                    for number, client in enumerate(senders)
                ]
                for thread in threads:
                    thread.start()
                captures.append(receiver.read_words(36_000))
                # The rest has no reader any more, and is not held up.
                receiver.done(f"CLOSE {RX}")
                for thread in threads:
                    thread.join()
        assert np.array_equal(*captures)

    @pytest.mark.parametrize(
        ("clock", "max_delay_samples"), [("shared", 4.0), ("shared", 0.0), ("free-running", 4.0), ("free-running", 0.0)]
    )
    def test_streaming_in_blocks_is_one_burst_through_the_air(self, clock: str, max_delay_samples: float) -> None:
        """Oracle: the simulated air, given each waveform at once."""
        lab = make_lab(2, clock=clock, max_clock_ppm=20.0, **{**HARSH, "max_delay_samples": max_delay_samples})
        waves = {"client-1": noise_like(30_000, 1), "client-2": noise_like(30_000, 2)}
        with bench(lab, seed=5) as running:
            first, second = running.sender(1000), running.sender(3000, "client-2")
            receiver = running.receiver(1234)
            second.set(f"{PHY} {TX_LO} frequency", 2_450_001_000)
            threads = [
                threading.Thread(target=client.write_samples, args=(wave,))
                for client, wave in zip((first, second), waves.values(), strict=True)
            ]
            for thread in threads:
                thread.start()
            heard = receiver.read_samples(1234 * 23)
            receiver.done(f"CLOSE {RX}")
            for thread in threads:
                thread.join()
        expected = through_the_air(lab, waves, heard.size)
        assert np.abs(heard - expected).max() < 1.01 * LSB * np.sqrt(0.5)
        assert np.abs(expected).max() > 50 * LSB

    def test_time_stands_still_while_no_buffer_is_open(self) -> None:
        with bench() as running:
            client = running.connect("ps")
            assert client.debug("airdp_time") == "0"
            time.sleep(0.05)
            assert client.debug("airdp_time") == "0"
            client.open_tx(100, cyclic=True)
            client.write_samples(tone(100, 0.1))
            assert client.debug("airdp_time") == "0"

    def test_a_transmitter_alone_is_not_held_up(self) -> None:
        with bench() as running:
            sender = running.sender(100)
            for _ in range(10):
                sender.write_samples(tone(100, 0.1))
            assert sender.debug("airdp_time") == "1000"

    def test_a_receiver_alone_advances_as_fast_as_it_is_read(self) -> None:
        with bench() as running:
            receiver = running.receiver(100)
            assert receiver.debug("airdp_time") == "400"
            receiver.read_words(250)
            # The third block has been taken out of the queue, if only in part.
            assert receiver.debug("airdp_time") == "700"
            receiver.read_words(50)
            assert receiver.debug("airdp_time") == "700"

    def test_who_has_got_samples_finds_that_time_has_advanced(self) -> None:
        """On another connection, where the order of packets would not tell."""
        with bench(make_lab(1, noise_var_complex=1e-3)) as running:
            receiver, other = running.receiver(1000), running.connect("client-1")
            for number in range(200):
                receiver.read_words(1000)
                assert other.debug("airdp_time") == str(1000 * (number + 5))

    def test_nothing_advances_past_a_transmitter_that_has_no_samples(self) -> None:
        with bench() as running:
            first, second = running.sender(100), running.sender(100, "client-2")
            receiver = running.receiver(50)
            first.write_samples(tone(300, 0.1))
            assert receiver.debug("airdp_time") == "0"
            second.write_samples(tone(100, 0.1))
            assert receiver.debug("airdp_time") == "100"
            second.done(f"CLOSE {TX}")
            assert receiver.debug("airdp_time") == "200"

    def test_a_stream_begins_at_the_moment_it_is_opened(self) -> None:
        with bench() as running:
            sender, early = running.sender(100), running.receiver(100)
            wave = noise_like(600, 1)
            sender.write_samples(wave[:300])
            late = running.connect("ps")
            late.open_rx(100)
            sender.write_samples(wave[300:])
            heard, heard_late = early.read_words(600), late.read_words(300)
        assert np.array_equal(heard[300:], heard_late)
        assert np.abs(heard - as_words(wave) / 8).max() <= 0.5

    def test_all_readers_of_a_radio_get_everything(self) -> None:
        wave = noise_like(6000, 1)
        with bench() as running:
            sender = running.sender(1000)
            readers = [running.connect("ps") for _ in range(3)]
            # One that is read late must have room for what the others read meanwhile.
            readers[0].done(f"SET {RX} BUFFERS_COUNT 8")
            for reader, size in zip(readers, (1000, 600, 1500), strict=True):
                reader.open_rx(size)
            thread = threading.Thread(target=sender.write_samples, args=(wave,))
            thread.start()
            parts: list[list[np.ndarray]] = [[], [], []]
            for _ in range(2):
                for reader, part in zip(readers, parts, strict=True):
                    part.append(reader.read_words(3000))
            thread.join()
        captures = [np.concatenate(part) for part in parts]
        assert np.array_equal(captures[0], captures[1])
        assert np.array_equal(captures[0], captures[2])
        assert np.abs(captures[0] - as_words(wave) / 8).max() <= 0.5


class TestLostBlocks:
    def test_lost_receive_blocks_leave_a_gap_and_a_bit(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(100), running.receiver(100)
            wave = noise_like(1000, 1)
            sender.write_samples(wave[:200])
            assert receiver.status(RX) == 0
            receiver.set(f"{PHY} DEBUG airdp_drop_rx_buffers", 2)
            sender.write_samples(wave[200:600])
            assert receiver.status(RX) == OVERFLOW
            assert receiver.debug("airdp_drop_rx_buffers") == "0"
            heard = receiver.read_words(400)
            expected = as_words(wave) / 8
            assert np.abs(heard - np.concatenate([expected[:200], expected[400:600]])).max() <= 0.5
            assert running.emulator.status()[0].overflows == 2

    def test_lost_transmit_blocks_are_silence_and_a_bit(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(100), running.receiver(100)
            sender.write_samples(tone(100, 0.1))
            assert sender.status(TX) == 0
            sender.set(f"{PHY} DEBUG airdp_drop_tx_buffers", 1)
            sender.write_samples(tone(100, 0.1))
            assert sender.status(TX) == UNDERFLOW
            sender.write_samples(tone(100, 0.1))
            heard = [bool(receiver.read_words(100).any()) for _ in range(3)]
        assert heard == [True, False, True]

    def test_in_lockstep_nothing_is_lost_by_itself(self) -> None:
        with bench() as running:
            sender, receiver = running.sender(100), running.receiver(100)
            sender.write_samples(tone(400, 0.1))
            time.sleep(0.05)
            receiver.read_words(400)
            assert [sender.status(TX), receiver.status(RX)] == [0, 0]


def through_the_air(lab: Lab, waves: dict[str, Samples], count: int) -> Samples:
    """What the ps hears when every sender's wave is given to the air in one piece."""
    with ThreadPoolExecutor(1) as workers:
        medium = SharedTime[VirtualRadio](lab, int(RATE_HZ), 5, 0, workers).medium
    lock = threading.Lock()
    for radio in lab.radios:
        virtual = VirtualRadio(radio, lock)
        chip = virtual.chip
        chip.rate_hz = chip.rx_bandwidth_hz = int(RATE_HZ)
        chip.tx_gain_db = chip.rx_gain_db = 0.0
        chip.rx_lo_hz = chip.tx_lo_hz = int(CENTER_HZ)
        chip.tx_lo_hz += 1000 if radio.name == "client-2" else 0
        medium.tune(radio.name, virtual.settings())
    medium.set_receiving("ps", receives=True)
    for name, wave in waves.items():
        sent = as_words(wave).astype(np.float32) / 16384
        medium.send(name, sent.view(np.complex64).reshape(-1), 0)
    return medium.listen("ps", count, 0)[0]
