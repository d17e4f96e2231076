"""The device `ad9361-phy`: the chip's settings, with debug attributes of our own.

The latter begin with `airdp_`:

    airdp_block            the fading block of the whole lab; write a number to begin one
    airdp_time             sample counter of this radio
    airdp_latency          samples between antennas beside the delay of the link
    airdp_tx_power         mean |x|^2 of what is being sent, after the attenuator; 0 when nothing is
    airdp_drop_rx_buffers  write n: the next n blocks of each receive buffer are lost, and the overflow bit is set
    airdp_drop_tx_buffers  write n: the next n blocks to transmit are sent as silence, and the underflow bit is set
"""

import errno
from collections.abc import Mapping
from functools import partial

from hardware.virtual.iiod.attributes import Attribute, Channel, Device, Entry, Read, named, span, whole
from hardware.virtual.iiod.chip import transceiver
from hardware.virtual.iiod.chip.registers import AD9361_REVISION_2, PRODUCT_ID, Registers
from hardware.virtual.iiod.chip.transceiver import CHOICES, RX_LO_HZ, TX_LO_HZ
from hardware.virtual.iiod.devices.chip_settings import Access, ChipSettings
from hardware.virtual.iiod.devices.device_tree import device_tree_attributes
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.refusal import RefusalError, refuse
from hardware.virtual.iiod.virtual_lab import VirtualLab

PHY = "ad9361-phy"
_MOST_DROPS = 1 << 20
_LARGEST_BLOCK = (1 << 31) - 1
_TEMPERATURE_MILLIDEGREES = 36_500
_XO_HZ = (39_992_000, 40_008_000)


def phy_device(lab: VirtualLab, radio: VirtualRadio) -> Device:
    """Of one radio; call its attributes under the lab's lock."""
    settings = ChipSettings(lab, radio)
    return Device("iio:device1", PHY, _channels(settings), _attributes(settings), _debug_attributes(lab, radio))


def _channels(settings: ChipSettings) -> list[Channel]:
    return [
        _oscillator(settings, "altvoltage1", "TX_LO", settings.integer("tx_lo_hz", TX_LO_HZ), TX_LO_HZ),
        _receive_channel(settings),
        _oscillator(settings, "altvoltage0", "RX_LO", settings.rx_lo(), RX_LO_HZ),
        Channel("temp0", False, named("in_temp0", [("input", lambda: str(_TEMPERATURE_MILLIDEGREES), None)])),
        _transmit_channel(settings),
        *_auxiliary_channels(settings),
        Channel("out", False, named("in_out", [("voltage_filter_fir_en", *settings.fir(rx=True, tx=True))])),
    ]


def _oscillator(settings: ChipSettings, channel: str, name: str, frequency: Access, bounds: tuple[int, int]) -> Channel:
    entries: list[Entry] = [
        ("external", lambda: "0", None),
        ("fastlock_load", lambda: "0", None),
        ("fastlock_recall", partial(refuse, errno.EINVAL), None),
        ("fastlock_save", lambda: "0 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", None),
        ("fastlock_store", lambda: "0", None),
        ("frequency", *frequency),
        ("frequency_available", _in_ones(bounds), None),
        ("powerdown", *settings.switch(f"{name.lower()}_down")),
    ]
    return Channel(channel, True, named(f"out_{channel}_{name}", entries), name)


def _receive_channel(settings: ChipSettings) -> Channel:
    chip, radio = settings.chip, settings.radio
    own: list[Entry] = [
        ("gain_control_mode", *settings.gain_mode()),
        (
            "hardwaregain",
            settings.settled(lambda: f"{chip.rx_gain_db:.6f} dB"),
            settings.then_tune(chip.set_rx_gain),
        ),
        ("hardwaregain_available", lambda: "[{:.0f} 1 {:.0f}]".format(*chip.rx_gains_db), None),
        ("rf_port_select", *settings.choice("rx_port")),
        ("rssi", settings.settled(lambda: f"{radio.rssi_db():.2f} dB"), None),
    ]
    return Channel("voltage0", False, named("in_voltage0", own) + _shared_by_inputs(settings))


def _shared_by_inputs(settings: ChipSettings) -> list[Attribute]:
    shared: list[Entry] = [
        _tracking(settings, "bb_dc_offset_tracking_en"),
        ("filter_fir_en", *settings.fir(rx=True)),
        ("gain_control_mode_available", _options("gain_control_mode"), None),
        _tracking(settings, "quadrature_tracking_en"),
        ("rf_bandwidth", *settings.bandwidth("rx_bandwidth_hz")),
        ("rf_bandwidth_available", _in_ones(transceiver.RX_BANDWIDTH_HZ), None),
        _tracking(settings, "rf_dc_offset_tracking_en"),
        ("rf_port_select_available", _options("rx_port"), None),
        ("sampling_frequency", *settings.rate()),
        ("sampling_frequency_available", settings.rates, None),
    ]
    return named("in_voltage", shared)


def _transmit_channel(settings: ChipSettings) -> Channel:
    chip = settings.chip
    lowest_db, highest_db = transceiver.TX_GAIN_DB
    own: list[Entry] = [
        ("hardwaregain", lambda: f"{chip.tx_gain_db:.6f} dB", settings.then_tune(chip.set_tx_gain)),
        ("hardwaregain_available", span(lowest_db, 0.25, highest_db, digits=6), None),
        ("rf_port_select", *settings.choice("tx_port")),
        ("rssi", lambda: "0.00 dB", None),
    ]
    return Channel("voltage0", True, named("out_voltage0", own) + _shared_by_outputs(settings))


def _shared_by_outputs(settings: ChipSettings) -> list[Attribute]:
    shared: list[Entry] = [
        ("filter_fir_en", *settings.fir(tx=True)),
        ("rf_bandwidth", *settings.bandwidth("tx_bandwidth_hz")),
        ("rf_bandwidth_available", _in_ones(transceiver.TX_BANDWIDTH_HZ), None),
        ("rf_port_select_available", _options("tx_port"), None),
        ("sampling_frequency", *settings.rate()),
        ("sampling_frequency_available", settings.rates, None),
    ]
    return named("out_voltage", shared)


def _auxiliary_channels(settings: ChipSettings) -> list[Channel]:
    """Of the chip's slow converters, which nothing on a Pluto is connected to: at rest, as in its dump."""

    def fixed(channel: str, values: Mapping[str, str]) -> list[Attribute]:
        return named(channel, [(name, partial(str, text), None) for name, text in values.items()])

    inputs = fixed("in_voltage2", {"offset": "57", "raw": "1066", "scale": "0.305250"})
    return [
        Channel("voltage2", False, inputs + _shared_by_inputs(settings)),
        *(
            Channel(
                name, True, fixed(f"out_{name}", {"raw": "306", "scale": "1.000000"}) + _shared_by_outputs(settings)
            )
            for name in ("voltage2", "voltage3")
        ),
    ]


def _tracking(settings: ChipSettings, name: str) -> Entry:
    return name, *settings.tracking(name)


def _options(name: str) -> Read:
    return lambda: " ".join(CHOICES[name])


def _in_ones(bounds: tuple[float, float]) -> Read:
    return span(bounds[0], 1, bounds[1])


def _zeros(count: int) -> str:
    return " ".join("0" * count)


def _refuse_value(code: int, value: str) -> None:
    raise RefusalError(code, f"it cannot be {value!r}")


def _attributes(settings: ChipSettings) -> list[Attribute]:
    chip = settings.chip

    def choice(name: str) -> list[Attribute]:
        return [Attribute(name, *settings.choice(name)), Attribute(f"{name}_available", _options(name))]

    # The Pluto's crystal is not tunable by the chip.
    tuning = [
        attribute
        for name in ("dcxo_tune_coarse", "dcxo_tune_fine")
        for attribute in (
            Attribute(name, partial(refuse, errno.ENODEV), partial(_refuse_value, errno.ENODEV)),
            Attribute(f"{name}_available", lambda: "[0 0 0]"),
        )
    ]
    return [
        *choice("calib_mode"),
        *tuning,
        *choice("ensm_mode"),
        Attribute("filter_fir_config", lambda: chip.fir_config, chip.set_fir_config),
        Attribute("multichip_sync"),
        Attribute(
            "rssi_gain_step_error",
            lambda: f"lna_error: {_zeros(4)}\nmixer_error: {_zeros(16)}\ngain_step_calib_reg_val: {_zeros(5)}",
        ),
        Attribute("rx_path_rates", lambda: chip.path_rates()[0]),
        *choice("trx_rate_governor"),
        Attribute("tx_path_rates", lambda: chip.path_rates()[1]),
        Attribute(
            "xo_correction",
            lambda: str(chip.xo_correction_hz),
            settings.then_tune(lambda value: setattr(chip, "xo_correction_hz", whole(value, _XO_HZ))),
        ),
        Attribute("xo_correction_available", _in_ones(_XO_HZ)),
    ]


def _debug_attributes(lab: VirtualLab, radio: VirtualRadio) -> list[Attribute]:
    chip = radio.chip

    def drops(value: str) -> int:
        return whole(value, (0, _MOST_DROPS))

    def pending_rx_drops() -> str:
        return str(max((buffer.drops for buffer in radio.rx), default=radio.pending_rx_drops))

    registers = Registers({PRODUCT_ID: AD9361_REVISION_2})
    return [
        registers.attribute(),
        Attribute(
            "loopback", lambda: str(chip.loopback), lambda value: setattr(chip, "loopback", whole(value, (0, 2)))
        ),
        Attribute("bist_prbs", lambda: radio.bist.said(random=True), radio.bist.set_prbs),
        Attribute(
            "bist_tone",
            lambda: radio.bist.said(random=False),
            lambda value: radio.bist.set_tone(value, chip.rate_hz),
        ),
        Attribute(
            "airdp_block", lambda: str(lab.block), lambda value: lab.new_block(whole(value, (0, _LARGEST_BLOCK)))
        ),
        Attribute("airdp_drop_rx_buffers", pending_rx_drops, lambda value: radio.drop_rx(drops(value))),
        Attribute(
            "airdp_drop_tx_buffers",
            lambda: str(radio.pending_tx_drops),
            lambda value: setattr(radio, "pending_tx_drops", drops(value)),
        ),
        Attribute("airdp_latency", lambda: str(lab.latency_samples(radio))),
        Attribute("airdp_time", lambda: str(radio.counter)),
        Attribute("airdp_tx_power", lambda: f"{radio.tx_power():.9g}"),
        *device_tree_attributes(),
    ]
