"""Radios whose rates, carriers, crystals or filters differ, and one that hears itself.

Oracles: for filters the Butterworth formula with the corners of UG-570 and the kernel's driver; for the rest what a
tone at a frequency f of one radio must be at another.
"""

import math
import threading

import numpy as np
import pytest

from tests.hardware.virtual.iiod.raw_client import (
    CENTER_HZ,
    PHY,
    RX,
    RX_LO,
    TX_LO,
    Bench,
    RawClient,
    Samples,
    bench,
    make_lab,
    tone,
)

RATE = f"{PHY} INPUT voltage0 sampling_frequency"
RX_BANDWIDTH, TX_BANDWIDTH = f"{PHY} INPUT voltage0 rf_bandwidth", f"{PHY} OUTPUT voltage0 rf_bandwidth"
COUNT = 20_000


def strongest(samples: Samples, rate_hz: float) -> tuple[float, float]:
    """Frequency in Hz and amplitude of the strongest tone."""
    window = np.blackman(samples.size)
    spectrum = np.abs(np.fft.fft(samples * window, 8 * samples.size)) / window.sum()
    best = int(np.argmax(spectrum))
    return float(np.fft.fftfreq(8 * samples.size)[best] * rate_hz), float(spectrum[best])


def sent_tone(running: Bench, frequency_hz: float, rate_hz: int, radio: str = "client-1") -> RawClient:
    """A tone of 0.5, repeated without a seam, from a radio at its own rate."""
    sender = running.connect(radio)
    sender.set(RATE, rate_hz)
    sender.set(TX_BANDWIDTH, rate_hz)
    sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
    count = 6000
    cycles = round(frequency_hz / rate_hz * count) / count
    assert cycles * rate_hz == pytest.approx(frequency_hz, abs=1)
    sender.open_tx(count, cyclic=True)
    sender.write_samples(tone(count, cycles))
    return sender


def heard_at(running: Bench, rate_hz: int, radio: str = "ps") -> Samples:
    receiver = running.connect(radio)
    receiver.set(RATE, rate_hz)
    receiver.set(RX_BANDWIDTH, rate_hz)
    receiver.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
    receiver.open_rx(COUNT)
    heard = receiver.read_samples(2 * COUNT)[COUNT:]
    receiver.done(f"CLOSE {RX}")
    return heard


class TestRates:
    @pytest.mark.parametrize(
        ("tx_rate_hz", "rx_rate_hz"),
        [(4_000_000, 3_000_000), (3_000_000, 4_000_000), (2_500_000, 30_720_000), (10_000_000, 2_400_000)],
    )
    def test_a_tone_keeps_frequency_and_level_between_rates(self, tx_rate_hz: int, rx_rate_hz: int) -> None:
        with bench(make_lab(1)) as running:
            sent_tone(running, 500_000, tx_rate_hz)
            heard = heard_at(running, rx_rate_hz)
        frequency_hz, level = strongest(heard, rx_rate_hz)
        assert frequency_hz == pytest.approx(500e3, abs=rx_rate_hz / COUNT)
        assert level == pytest.approx(0.5, rel=0.01)
        # Nothing else but the rounding of both converters: a mirror, an alias or a seam would be beyond.
        spectrum = np.abs(np.fft.fft(heard * np.blackman(COUNT))) / np.blackman(COUNT).sum()
        near = np.abs(np.fft.fftfreq(COUNT) * rx_rate_hz - frequency_hz) < 8 * rx_rate_hz / COUNT
        assert spectrum[~near].max() < 2e-3

    def test_what_a_slower_receiver_cannot_hold_does_not_alias(self) -> None:
        """A tone at 1.8 MHz of a sender at 5 MS/s would be at -0.7 MHz of a receiver at 2.5 MS/s."""
        with bench(make_lab(1)) as running:
            sent_tone(running, 1_800_000, 5_000_000)
            assert np.abs(heard_at(running, 2_500_000)).max() < 2 / 2048

    def test_blocks_of_any_size_arrive_as_one_signal(self) -> None:
        """Cut into blocks on both sides, a long tone has no seams."""
        with bench(make_lab(1)) as running:
            sender, receiver = running.connect("client-1"), running.connect("ps")
            sender.set(RATE, 3_000_000)
            sender.set(TX_BANDWIDTH, 3_000_000)
            sender.set(f"{PHY} OUTPUT voltage0 hardwaregain", 0)
            sender.open_tx(777)
            receiver.open_rx(1234)
            wave = tone(777 * 40, 0.1)
            thread = threading.Thread(target=sender.write_samples, args=(wave,))
            thread.start()
            heard = receiver.read_samples(1234 * 25)
            receiver.done(f"CLOSE {RX}")
            thread.join()
        middle = heard[5000:25_000]
        exact = np.exp(2j * np.pi * 0.1 * 0.75 * np.arange(middle.size))
        amplitude = np.vdot(exact, middle) / middle.size
        assert abs(amplitude) == pytest.approx(0.5, rel=0.01)
        assert np.abs(middle - amplitude * exact).max() < 4 / 2048

    def test_lockstep_gives_the_same_samples_again(self) -> None:
        captures = []
        for _ in range(2):
            with bench(make_lab(2, noise_var_complex=1e-5), seed=3) as running:
                sent_tone(running, 500_000, 3_000_000)
                sent_tone(running, -250_000, 5_000_000, "client-2")
                captures.append(heard_at(running, 4_000_000).tobytes())
        assert captures[0] == captures[1]


class TestCarriers:
    def test_what_lies_outside_the_receivers_band_does_not_alias(self) -> None:
        """A tone at +1.5 MHz of a carrier 1 MHz above the receiver's is at 2.5 MHz: it would alias to -1.5 MHz."""
        with bench(make_lab(1)) as running:
            sender = sent_tone(running, 1_500_000, 4_000_000)
            sender.set(f"{PHY} {TX_LO} frequency", round(CENTER_HZ) + 1_000_000)
            assert np.abs(heard_at(running, 4_000_000)).max() < 2 / 2048

    @pytest.mark.parametrize("frequency_hz", [-1_800_000, -1_000_000, 0, 800_000])
    def test_what_lies_inside_is_heard_where_it_is(self, frequency_hz: int) -> None:
        with bench(make_lab(1)) as running:
            sender = sent_tone(running, frequency_hz, 4_000_000)
            sender.set(f"{PHY} {TX_LO} frequency", round(CENTER_HZ) + 1_000_000)
            found_hz, level = strongest(heard_at(running, 4_000_000), 4e6)
        assert found_hz == pytest.approx(frequency_hz + 1e6, abs=4e6 / COUNT)
        assert level == pytest.approx(0.5, rel=0.01)

    def test_a_carrier_beyond_both_bands_is_not_heard(self) -> None:
        with bench(make_lab(1)) as running:
            sender = sent_tone(running, 0, 4_000_000)
            sender.set(f"{PHY} {TX_LO} frequency", round(CENTER_HZ) + 5_000_000)
            assert not heard_at(running, 4_000_000).any()

    @pytest.mark.parametrize("correction_hz", [39_999_000, 40_000_400, 40_008_000])
    @pytest.mark.parametrize("clock", ["shared", "free-running"])
    def test_a_corrected_crystal_moves_the_carrier(self, correction_hz: int, clock: str) -> None:
        """The driver divides by what it believes of the crystal: the true carrier is f 40 MHz / correction."""
        with bench(make_lab(1, clock=clock)) as running:
            sender = sent_tone(running, 0, 4_000_000)
            sender.set(f"{PHY} xo_correction", correction_hz)
            found_hz, level = strongest(heard_at(running, 4_000_000), 4e6)
        assert found_hz == pytest.approx(CENTER_HZ * (40e6 / correction_hz - 1), abs=4e6 / COUNT)
        assert level == pytest.approx(0.5, rel=0.01)

    def test_correcting_what_is_wrong_with_the_crystal_puts_the_carrier_right(self) -> None:
        """A crystal that is 25 ppm fast, and a driver that is told so."""
        lab = make_lab(1, clock="free-running", radio={"client-1": {"clock_ppm": 25.0}})
        with bench(lab) as running:
            sender = sent_tone(running, 0, 4_000_000)
            before_hz, _ = strongest(heard_at(running, 4_000_000), 4e6)
            sender.set(f"{PHY} xo_correction", 40_001_000)
            after_hz, _ = strongest(heard_at(running, 4_000_000), 4e6)
        assert before_hz == pytest.approx(25e-6 * CENTER_HZ, abs=200)
        assert abs(after_hz) < 200


def butterworth_db(frequency_hz: float, corner_hz: float, order: int) -> float:
    return -10 * math.log10(1 + (frequency_hz / corner_hz) ** (2 * order))


class TestFilters:
    """Below an eighth of the rate: the discrete filters attenuate more than analogue ones towards half the rate."""

    @pytest.mark.parametrize("frequency_hz", [100_000, 200_000, 400_000, -450_000])
    def test_the_receivers_bandwidth_attenuates(self, frequency_hz: int) -> None:
        with bench(make_lab(1)) as running:
            sent_tone(running, frequency_hz, 4_000_000)
            receiver = running.connect("ps")
            receiver.set(RX_BANDWIDTH, 400_000)
            receiver.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
            receiver.open_rx(COUNT)
            found_hz, level = strongest(receiver.read_samples(2 * COUNT)[COUNT:], 4e6)
        expected_db = butterworth_db(frequency_hz, 1.4 * 200e3, 3) + butterworth_db(frequency_hz, 2.5 * 200e3, 1)
        assert found_hz == pytest.approx(frequency_hz, abs=4e6 / COUNT)
        assert 20 * math.log10(level / 0.5) == pytest.approx(expected_db, abs=1.0)

    @pytest.mark.parametrize("frequency_hz", [500_000, 1_000_000, -1_400_000])
    @pytest.mark.parametrize("bandwidth_hz", [1_250_000, 400_000])
    def test_the_senders_bandwidth_attenuates(self, frequency_hz: int, bandwidth_hz: int) -> None:
        """Its filter cannot be narrower than 625 kHz to each side, its second pole than 530."""
        with bench(make_lab(1)) as running:
            sender = sent_tone(running, frequency_hz, 12_000_000)
            sender.set(TX_BANDWIDTH, bandwidth_hz)
            _, level = strongest(heard_at(running, 12_000_000), 12e6)
        pole_hz = 5.0 * max(bandwidth_hz / 2, 530e3)
        expected_db = butterworth_db(frequency_hz, 1.6 * 625e3, 3) + butterworth_db(frequency_hz, pole_hz, 1)
        assert 20 * math.log10(level / 0.5) == pytest.approx(expected_db, abs=1.0)

    def test_the_receivers_filter_stays_with_its_carrier(self) -> None:
        with bench(make_lab(1)) as running:
            sender = sent_tone(running, 0, 4_000_000)
            sender.set(f"{PHY} {TX_LO} frequency", round(CENTER_HZ) + 400_000)
            receiver = running.connect("ps")
            receiver.set(RX_BANDWIDTH, 400_000)
            receiver.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
            receiver.open_rx(COUNT)
            _, level = strongest(receiver.read_samples(2 * COUNT)[COUNT:], 4e6)
        expected_db = butterworth_db(400e3, 1.4 * 200e3, 3) + butterworth_db(400e3, 2.5 * 200e3, 1)
        assert 20 * math.log10(level / 0.5) == pytest.approx(expected_db, abs=1.0)

    def test_filters_as_wide_as_the_rate_change_nothing(self) -> None:
        wave = tone(COUNT, 0.37)
        with bench(make_lab(1)) as running:
            sender, receiver = running.sender(COUNT), running.receiver(COUNT)
            sender.write_samples(wave)
            assert np.abs(receiver.read_samples(COUNT) - wave).max() < 1 / 2048


class TestLeakage:
    def test_a_board_with_leakage_hears_itself_by_that_much(self) -> None:
        lab = make_lab(1, radio={"client-1": {"leakage_db": -30.0}})
        with bench(lab) as running:
            radio = sent_tone(running, 500_000, 4_000_000)
            radio.set(f"{PHY} INPUT voltage0 hardwaregain", 20)
            radio.open_rx(COUNT)
            found_hz, level = strongest(radio.read_samples(COUNT), 4e6)
            assert radio.read(f"{PHY} INPUT voltage0 rssi") == "36.00 dB"
        assert found_hz == pytest.approx(500e3, abs=200)
        assert level == pytest.approx(0.5 * 10 ** (-10 / 20), rel=0.01)

    def test_two_carriers_of_one_board_are_as_far_apart_as_they_are_set(self) -> None:
        with bench(make_lab(1, leakage_db=-6.0)) as running:
            radio = sent_tone(running, 0, 4_000_000)
            radio.set(f"{PHY} {RX_LO} frequency", round(CENTER_HZ) - 300_000)
            radio.set(f"{PHY} INPUT voltage0 hardwaregain", 0)
            radio.open_rx(COUNT)
            found_hz, _ = strongest(radio.read_samples(2 * COUNT)[COUNT:], 4e6)
        assert found_hz == pytest.approx(300e3, abs=200)
