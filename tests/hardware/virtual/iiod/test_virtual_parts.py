"""Queues, registers and settings of a virtual radio by themselves."""

import threading

import numpy as np
import pytest

from hardware.virtual.iiod.buffers import RxBuffer, TxBuffer
from hardware.virtual.iiod.chip.registers import OVERFLOW, STATUS, UNDERFLOW, Registers
from hardware.virtual.iiod.chip.transceiver import Transceiver
from hardware.virtual.iiod.chip.words import Words, looped_words, rx_words, tx_samples
from hardware.virtual.iiod.refusal import RefusalError


def ramp(first: int, count: int) -> Words:
    return np.stack([np.arange(first, first + count), -np.arange(first, first + count)], axis=1).astype(np.int16)


class TestRxBuffer:
    def test_what_is_being_taken_is_not_overwritten_by_what_comes(self) -> None:
        lock = threading.Lock()
        with lock:
            buffer = RxBuffer(10, 3, 3, lock)
            for number in range(3):
                buffer.put(ramp(10 * number, 10))
            assert not buffer.has_room
            taken = buffer.take(40)
            assert buffer.has_room
            buffer.put(ramp(30, 10))
            assert not buffer.has_room
            assert bytes(taken) == ramp(0, 10).tobytes()
            rest = b"".join(bytes(buffer.take(12)) for _ in range(12) if buffer.ready)
        assert rest == ramp(10, 30).tobytes()

    def test_a_block_that_finds_no_room_is_lost_as_a_whole_and_counted(self) -> None:
        lock = threading.Lock()
        with lock:
            buffer = RxBuffer(10, 1, 3, lock)
            lost = [buffer.put(ramp(5 * number, 5)) for number in range(4)]
            # Room comes too late for a block that has begun without.
            buffer.put(ramp(20, 5))
            assert bytes(buffer.take(100)) == ramp(0, 10).tobytes()
            lost.append(buffer.put(ramp(25, 5)))
            assert not buffer.ready
            buffer.put(ramp(30, 10))
            assert bytes(buffer.take(100)) == ramp(30, 10).tobytes()
        assert lost == [0, 0, 0, 1, 1]


class TestTxBuffer:
    def test_blocks_leave_in_order_and_in_pieces(self) -> None:
        lock = threading.Lock()
        wave = np.arange(7, dtype=np.complex64)
        with lock:
            buffer = TxBuffer(10, 2, 3, lock)
            buffer.push(wave, 7)
            buffer.push(None, 3)
            assert not buffer.has_room
            pieces = []
            while buffer.ready:
                pieces.append(buffer.take(min(4, buffer.ready)))
            assert buffer.run_dry()
            assert not buffer.run_dry()
        assert [None if piece is None else piece.tolist() for piece in pieces] == [[0, 1, 2, 3], [4, 5, 6], None]


class TestWords:
    def test_received_words_are_rounded_and_saturate(self) -> None:
        samples = np.array([0.5 + 0.25j, 0.9999 - 1j, 5 - 5j, 0.6 / 2048 - 0.4j / 2048], np.complex64)
        assert rx_words(samples).tolist() == [[1024, 512], [2047, -2048], [2047, -2048], [1, 0]]

    def test_every_word_to_transmit_comes_back_by_its_twelve_upper_bits(self) -> None:
        words = np.arange(-32768, 32768, dtype=np.int32).astype(np.int16).reshape(-1, 2)
        samples = np.empty(len(words), np.complex64)
        tx_samples(words, 3, samples)
        assert np.array_equal(looped_words(samples), words >> 4)
        # The converter takes the upper bits and leaves the rest, so -32767 is -32768 to it.
        assert samples[0] == complex(-2.0, -2.0)
        assert samples[-1] == complex(2.0 - 2**-10, 2.0 - 2**-10)


class TestRegisters:
    def test_status_bits_are_raised_by_the_radio_and_cleared_by_writing_them(self) -> None:
        registers = Registers()
        registers.raise_status(UNDERFLOW)
        registers.raise_status(OVERFLOW)
        registers.access(f"{STATUS:#x} 0x1")
        assert registers.value() == "0x4"

    @pytest.mark.parametrize("text", ["", "x", "-1", "0x1 -2", "1 2 3", "0x10000", "0x80010000", "1 0x100000000"])
    def test_what_is_no_access_is_refused(self, text: str) -> None:
        with pytest.raises(RefusalError):
            Registers().access(text)


class TestTransceiver:
    @pytest.mark.parametrize("rate_hz", [520_834, 1_000_000, 2_083_333, 5_000_000, 30_720_000, 61_440_000])
    def test_path_rates_are_those_of_converters_that_exist(self, rate_hz: int) -> None:
        fir = rate_hz < 2_083_333
        chip = Transceiver(rx_fir=fir, tx_fir=fir)
        chip.set_rate(str(rate_hz))
        rx, tx = chip.path_rates()
        for text, limit_hz in ((rx, 640e6), (tx, 320e6)):
            rates = [int(pair.split(":")[1]) for pair in text.split()]
            assert rates == sorted(rates, reverse=True)
            # The lowest rate that the driver offers is rounded down to whole hertz.
            assert 12 * 2_083_333 <= rates[1] <= limit_hz
            assert 700e6 < rates[0] <= 1.43e9
            assert rates[-1] == rate_hz
