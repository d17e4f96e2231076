"""Taps of a radio, and a radio that plays back what one of them kept."""

import numpy as np
import pytest

from hardware.lab.opened import OpenLab, open_lab
from hardware.radio.errors import HardwareError
from hardware.recording.model import Tape
from hardware.recording.replay import NotRecordedError, ReplayRadio
from tests.hardware.pair_lab import pair_lab

PAIR = pair_lab({"backend": "loopback"}, {})


def heard(lab: OpenLab, tape: Tape) -> list[np.ndarray[tuple[int], np.dtype[np.complex64]]]:
    lab.ps.tap_received(tape)
    tape.wind()
    return [lab.ps.receive(100, 5000).samples, lab.ps.receive(50, 6000).samples]


def test_what_is_played_back_is_what_was_received() -> None:
    tape = Tape()
    with open_lab(PAIR, seed=1) as lab:
        first, second = heard(lab, tape)
        assert tape.sample_count == 150
        radio = ReplayRadio("ps", tape.cut(), lab.ps.capabilities, lab.ps.limits)
        settings = lab.ps.settings
        lab.ps.receive(10, 7000)
    assert tape.cut() == ()
    played = radio.receive(100, 5000)
    assert np.array_equal(played.samples, first)
    assert (played.settings, played.start_sample) == (settings, 5000)
    assert np.array_equal(radio.receive(20, 6010).samples, second[10:30])
    for count, start in ((100, 5001), (10, 7000), (10, 4995)):
        with pytest.raises(NotRecordedError, match=f"{count} samples from {start}"):
            radio.receive(count, start)


def test_it_sends_nothing() -> None:
    tape = Tape()
    with open_lab(PAIR, seed=1) as lab:
        heard(lab, tape)
        radio = ReplayRadio("ps", tape.cut(), lab.ps.capabilities, lab.ps.limits)
        with pytest.raises(HardwareError, match="plays a recording back"):
            radio.configure(lab.ps.settings)
    with pytest.raises(HardwareError, match="parked"):
        radio.transmit(np.ones(4, np.complex64), 10**9)


def test_a_tape_keeps_its_own_copy_of_what_was_sent() -> None:
    tape = Tape()
    with open_lab(PAIR, seed=1) as lab:
        client = lab.clients[0]
        client.tap_sent(tape)
        tape.wind()
        samples = np.full(8, 0.5, np.complex64)
        client.transmit(samples, client.now() + 100)
        samples[:] = 2.0
        client.transmit(samples, client.now() + 100, allow_clipping=True)
    first, second = tape.cut()
    assert np.array_equal(first.capture.samples, np.full(8, 0.5, np.complex64))
    assert np.allclose(second.capture.samples, 1.0)
    assert (first.capture.clipped_samples, second.capture.clipped_samples) == (0, 8)
