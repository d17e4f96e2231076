"""What a Pluto does beyond the contract: exact words, settings that are really set, losses, lost connections."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import hardware.pluto.context
from hardware.lab.opened import OpenLab
from hardware.pluto.context import PlutoContext
from hardware.pluto.radio import PlutoRadio
from hardware.radio.errors import (
    AlignmentError,
    CapabilityError,
    HardwareError,
    RxOverflowError,
    SettingsMismatchError,
    TxUnderflowError,
)
from hardware.radio.settings import Limits
from hardware.virtual.iiod.emulator import Emulator
from tests.hardware.plutos import BLOCK, configured, lab_of, lose_received, lose_sent, pluto, plutos, radio_at
from tests.hardware.radio_contract import arrival, waveform

LIMITS = Limits((2.4e9, 2.5e9), 0.0)


def heard(lab: OpenLab, burst: np.ndarray[Any, np.dtype[np.complex64]], extra: int = 100) -> Any:
    """What the receiver hears of a burst of the sender, from 50 samples before it on."""
    start = lab.start_sample(200)
    lab.radios["sender"].transmit(burst, start)
    return lab.ps.receive(burst.size + extra, start - 50)


def test_every_setting_is_on_the_radio_as_another_client_reads_it() -> None:
    lab = lab_of(pluto={"rf_dc_tracking": False, "bb_dc_tracking": False})
    with plutos(lab) as opened:
        sender = pluto(opened, "sender")
        wanted = replace(
            lab.ps.settings,
            tx_center_hz=2.451e9,
            rx_center_hz=2.449e9,
            bandwidth_hz=3e6,
            tx_gain_db=-7.6,
            rx_gain_db=12,
        )
        read_back = sender.configure(wanted)
        other = PlutoContext("other", sender.uri, 2.0)
        try:
            said = {
                (channel, name, output): other.read(channel, name, output=output)
                for channel, name, output in (
                    ("voltage0", "sampling_frequency", False),
                    ("altvoltage0", "frequency", True),
                    ("altvoltage1", "frequency", True),
                    ("voltage0", "rf_bandwidth", False),
                    ("voltage0", "rf_bandwidth", True),
                    ("voltage0", "hardwaregain", True),
                    ("voltage0", "hardwaregain", False),
                    ("voltage0", "gain_control_mode", False),
                    ("voltage0", "quadrature_tracking_en", False),
                    ("voltage0", "rf_dc_offset_tracking_en", False),
                    ("voltage0", "bb_dc_offset_tracking_en", False),
                )
            }
        finally:
            other.destroy()
        assert list(said.values()) == [
            "4000000",
            "2449000000",
            "2451000000",
            "3000000",
            "3000000",
            "-7.500000 dB",
            "12.000000 dB",
            "manual",
            "1",
            "0",
            "0",
        ]
        assert read_back.tx_gain_db == pytest.approx(-7.6, abs=1e-9)


def test_a_receive_gain_between_steps_is_a_mismatch_and_parks() -> None:
    with plutos(lab_of()) as opened:
        radio = pluto(opened, "receiver")
        with pytest.raises(SettingsMismatchError, match=r"rx_gain_db was set to 10\.4 and reads back as 10"):
            radio.configure(replace(opened.lab.ps.settings, rx_gain_db=10.4))
        assert radio.parked


def test_what_somebody_else_changed_is_set_again() -> None:
    with plutos(lab_of()) as opened:
        radio = pluto(opened, "receiver")
        radio.configure(opened.lab.ps.settings)
        for attribute, wrong in (("gain_control_mode", "slow_attack"), ("quadrature_tracking_en", "0")):
            radio.context.write("voltage0", attribute, wrong, output=False)
            radio.configure(replace(opened.lab.ps.settings, rx_gain_db=7.0))
            assert radio.context.read("voltage0", attribute, output=False) != wrong
            assert radio.settings.rx_gain_db == 7.0


@pytest.mark.parametrize("name", ["receiver", "sender"])
def test_a_radio_that_another_program_left_switched_off_is_switched_on(name: str) -> None:
    """SoapySDR's module for Plutos leaves both oscillators down when it closes; others leave the chip asleep."""
    with plutos(lab_of()) as opened:
        context = pluto(opened, name).context
        context.write_device("ensm_mode", "sleep")
        for channel in ("altvoltage0", "altvoltage1"):
            context.write(channel, "powerdown", "1", output=True)
        configured(opened)
        opened.ready()
        assert context.read_device("ensm_mode") == "fdd"
        assert [context.read(f"altvoltage{lo}", "powerdown", output=True) for lo in (0, 1)] == ["0", "0"]
        burst = np.full(500, 0.5, np.complex64)
        assert np.abs(heard(opened, burst).samples).max() > 0.4


@pytest.mark.parametrize(
    ("stuck", "said"),
    [
        ("ensm_mode", "ensm_mode was set to fdd and reads back as alert"),
        ("altvoltage0", "powerdown of the receive LO was set to 0 and reads back as 1"),
        ("altvoltage1", "powerdown of the transmit LO was set to 0 and reads back as 1"),
    ],
)
def test_a_radio_that_stays_switched_off_is_a_mismatch(monkeypatch: pytest.MonkeyPatch, stuck: str, said: str) -> None:
    with plutos(lab_of()) as opened:
        radio = pluto(opened, "sender")
        if stuck == "ensm_mode":
            radio.context.write_device("ensm_mode", "alert")
            monkeypatch.setattr(PlutoContext, "write_device", lambda *_: None)
        else:
            radio.context.write(stuck, "powerdown", "1", output=True)
            written = PlutoContext.write

            def forgetful(self: PlutoContext, channel: str, attribute: str, value: str, *, output: bool) -> None:
                if (channel, attribute) != (stuck, "powerdown"):
                    written(self, channel, attribute, value, output=output)

            monkeypatch.setattr(PlutoContext, "write", forgetful)
        with pytest.raises(SettingsMismatchError, match=said):
            radio.configure(opened.lab.ps.settings)
        assert radio.parked


def test_a_gain_that_the_frequency_does_not_have_is_refused() -> None:
    """The table of gains above 4 GHz ends at 62 dB."""
    lab = lab_of()
    wanted = replace(lab.ps.settings, rx_center_hz=5.8e9, tx_center_hz=5.8e9, rx_gain_db=70.0)
    with Emulator(lab, seed=1) as emulator:
        radio = PlutoRadio("far", emulator.uris["receiver"], Limits((5.7e9, 5.9e9), 0.0), receives=True)
        with radio, pytest.raises(CapabilityError, match=r"at 5800 MHz this radio does -10 to 62 dB"):
            radio.configure(wanted)


def test_a_setting_that_does_not_stay_is_a_mismatch(monkeypatch: pytest.MonkeyPatch) -> None:
    written = PlutoContext.write

    def forgetful(self: PlutoContext, channel: str, attribute: str, value: str, *, output: bool) -> None:
        if attribute != "quadrature_tracking_en":
            written(self, channel, attribute, value, output=output)

    monkeypatch.setattr(PlutoContext, "write", forgetful)
    with plutos(lab_of(pluto={"quadrature_tracking": False})) as opened:
        radio = pluto(opened, "sender")
        with pytest.raises(SettingsMismatchError, match="quadrature_tracking_en was set to 0 and reads back as 1"):
            radio.configure(opened.lab.ps.settings)
        assert radio.parked
        assert radio.context.read("voltage0", "hardwaregain", output=True) == "-89.750000 dB"


@pytest.mark.parametrize("gain_db", [-6.0, -6.1, -6.2, -6.24, -6.25])
def test_a_gain_between_steps_of_the_attenuator_arrives(gain_db: float) -> None:
    """The attenuator alone would be off by up to 0.25 dB; tolerated are 0.01 dB, ten times the noise's error."""
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        burst = waveform(20_000)
        opened.radios["sender"].configure(replace(opened.lab.ps.settings, tx_gain_db=gain_db))
        _, amplitude = arrival(heard(opened, burst).samples, burst)
        assert 20 * np.log10(amplitude) == pytest.approx(gain_db, abs=0.01)


def test_clipped_samples_of_the_receiver_are_counted() -> None:
    with plutos(lab_of(noise_var_complex=1e-8)) as opened:
        configured(opened)
        opened.ready()
        opened.ps.configure(replace(opened.lab.ps.settings, rx_gain_db=6.0))
        burst = np.full(1000, 0.3, np.complex64)
        burst[:40] = 0.9
        burst[40:60] = -0.9j
        capture = heard(opened, burst)
        assert capture.clipped_samples == 60
        assert np.abs(capture.samples.real).max() == pytest.approx(2047 / 2048)


def test_captures_tell_temperature_and_signal_strength() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        capture = opened.ps.receive(1000, opened.ps.now())
        assert capture.temperature_c == pytest.approx(36.5)
        assert capture.rssi_db is not None
        # The noise: 1e-6 is 60 dB below full scale.
        assert capture.rssi_db == pytest.approx(60.0, abs=1.0)


def test_gains_keep_the_count_and_frequencies_break_it() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        assert opened.ready() == ("sender",)
        assert opened.ready() == ()
        sender, settings = pluto(opened, "sender"), opened.lab.ps.settings
        sender.configure(replace(settings, tx_gain_db=-20.0, rx_gain_db=3.0))
        sender.park()
        sender.configure(settings)
        before = sender.now()
        sender.transmit(waveform(100), opened.start_sample())
        sender.configure(replace(settings, tx_center_hz=settings.tx_center_hz + 1e5))
        with pytest.raises(AlignmentError, match=r"OpenLab\.ready"):
            sender.transmit(waveform(100), before + 100_000)
        sender.configure(settings)
        assert opened.ready() == ("sender",)
        assert sender.now() >= before


def test_a_parked_radio_is_not_aligned_and_sends_nothing() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.radios["sender"].park()
        assert opened.ready() == ()
        assert not pluto(opened, "sender").aligned
        assert np.abs(opened.ps.receive(20 * BLOCK, opened.ps.now()).samples).max() < 0.01


def test_a_loss_at_the_receiver_silences_all_transmitters_until_they_are_aligned_again() -> None:
    """A burst at the wrong time would be worse than none: a jammer's noise must lie upon what it protects."""
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        lose_received(pluto(opened, "receiver"))
        with pytest.raises(AlignmentError):
            opened.radios["sender"].transmit(waveform(100), 10**6)
        with pytest.raises(RxOverflowError, match="status register"):
            opened.ps.check()
        opened.ps.check()
        assert opened.ready() == ("sender",)
        burst = waveform(3000)
        lag, _ = arrival(heard(opened, burst).samples, burst)
        assert lag - 50 == 16


def test_a_loss_is_told_once_and_forgotten_by_a_new_beginning() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        sender, receiver = pluto(opened, "sender"), pluto(opened, "receiver")
        lose_sent(sender, receiver)
        with pytest.raises(TxUnderflowError, match="damaged"):
            sender.check()
        sender.check()
        lose_sent(sender, receiver)
        opened.ready()
        sender.check()
        heard(opened, waveform(100))


def test_withdrawn_bursts_do_not_leave() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        sender = opened.radios["sender"]
        start = opened.start_sample(BLOCK)
        sender.transmit(waveform(3000), start)
        assert sender.withdraw() == 1
        assert sender.withdraw() == 0
        assert np.abs(opened.ps.receive(4000, start).samples).max() < 0.01


def test_a_burst_longer_than_many_buffers() -> None:
    with plutos(lab_of(noise_var_complex=1e-8)) as opened:
        configured(opened)
        opened.ready()
        burst = waveform(7 * BLOCK + 123)
        capture = heard(opened, burst)
        scale = 10 ** (-0.25 / 20)
        difference = capture.samples[66 : 66 + burst.size] - np.float32(scale) * burst
        # Rounding at the receiver is 1/2048 per axis: the largest error of half a step, on both, and the noise.
        assert np.abs(difference).max() < 0.0015


def test_only_the_server_receives_and_it_does_not_transmit() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        with pytest.raises(HardwareError, match="the ps alone does"):
            opened.radios["sender"].receive(10, 0)
        with pytest.raises(HardwareError, match="the ps only receives"):
            opened.ps.transmit(waveform(10), 10**6)


def test_samples_that_nobody_takes_are_lost_in_the_end() -> None:
    """In real time a stream goes on while nobody reads; here it is told to."""
    with plutos(lab_of(pluto={"history_s": 0.004})) as opened:
        configured(opened)
        start = opened.ps.now()
        opened.ps.receive(10, start + 20 * BLOCK)
        with pytest.raises(HardwareError, match="gone"):
            opened.ps.receive(10, start)
        radio = pluto(opened, "receiver")
        start = radio.now()
        stream = radio._rx
        assert stream is not None
        with stream._changed:
            stream._wanted_until = start + 10 * BLOCK
            stream._changed.notify_all()
        while radio.now() < start + 10 * BLOCK:
            pass
        with pytest.raises(RxOverflowError, match="nobody received them in time"):
            radio.receive(10, start)


def test_a_connection_that_breaks_is_found_again() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        receiver = pluto(opened, "receiver")
        broken = receiver.context
        broken.explained("testing", BrokenPipeError(32, "Broken pipe"), 0.0)
        with pytest.raises(HardwareError, match=r"is not possible since the connection broke \(Broken pipe\)"):
            receiver.check()
        assert opened.ready() == ("sender",)
        assert receiver.context is not broken
        burst = waveform(1000)
        assert arrival(heard(opened, burst).samples, burst)[0] - 50 == 16


def test_a_radio_that_is_away_for_longer_is_found_at_last() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        opened.ready()
        sender = pluto(opened, "sender")
        sender.context.explained("testing", BrokenPipeError(32, "Broken pipe"), 0.0)
        here, sender.uri = sender.uri, "ip:127.3.2.1"
        for _ in range(2):
            with pytest.raises(HardwareError, match="cannot be reached"):
                opened.ready()
        sender.uri = here
        assert opened.ready() == ("sender",)
        # One that is parked on purpose is left alone.
        sender.context.explained("testing", BrokenPipeError(32, "Broken pipe"), 0.0)
        sender.park()
        assert opened.ready() == ()
        assert sender.parked


def test_parking_works_over_a_new_connection_where_the_old_one_broke() -> None:
    with plutos(lab_of()) as opened:
        sender = pluto(opened, "sender")
        sender.configure(opened.lab.ps.settings)
        sender.context.explained("testing", BrokenPipeError(32, "Broken pipe"), 0.0)
        sender.park()
        assert sender.parked
        assert sender.context.read("voltage0", "hardwaregain", output=True) == "-89.750000 dB"


@pytest.mark.parametrize("address", ["ip:127.3.2.1", "ip:127.3.2.1:1234", "usb:250.250.5"])
def test_a_radio_that_is_not_there(address: str) -> None:
    with pytest.raises(HardwareError, match=f"here cannot be reached at {address} .*is it plugged in"):
        PlutoRadio("here", address, LIMITS)


@pytest.mark.parametrize("address", ["", "192.168.2.1", "ip:plütö"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(HardwareError, match="expected ip:HOST or usb:"):
        PlutoRadio("here", address, LIMITS)


def test_missing_packages_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "adi", None)
    with pytest.raises(HardwareError, match="apt-get install libiio0"):
        hardware.pluto.context.libraries()


def test_two_programs_cannot_use_one_transmitter() -> None:
    with plutos(lab_of()) as opened:
        configured(opened)
        sender = pluto(opened, "sender")
        second = radio_at(opened.lab, "sender", sender.uri)
        try:
            with pytest.raises(HardwareError, match="sender refused opening a stream: Device or resource busy"):
                second.configure(opened.lab.ps.settings)
        finally:
            second.close()
