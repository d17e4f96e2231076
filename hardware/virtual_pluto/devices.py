"""The devices of one virtual radio: what a Pluto has, with its attributes, plus debug attributes of our own.

The latter begin with `airdp_` and belong to `ad9361-phy`:

    airdp_block            the fading block of the whole lab; write a number to begin one
    airdp_time             sample counter of this radio
    airdp_latency          samples between antennas beside the delay of the link
    airdp_tx_power         mean |x|^2 of what is being sent, after the attenuator; 0 when nothing is
    airdp_drop_rx_buffers  write n: the next n blocks of each receive buffer are lost, and the overflow bit is set
    airdp_drop_tx_buffers  write n: the next n blocks to transmit are sent as silence, and the underflow bit is set
"""

import errno
from collections.abc import Callable, Sequence
from functools import partial

from hardware.virtual_pluto import transceiver
from hardware.virtual_pluto.attributes import Attribute, Channel, Device, decimal, flag, whole
from hardware.virtual_pluto.dds import TONES, Tone
from hardware.virtual_pluto.radio import VirtualRadio
from hardware.virtual_pluto.refusal import RefusalError
from hardware.virtual_pluto.registers import Registers
from hardware.virtual_pluto.transceiver import CHOICES
from hardware.virtual_pluto.virtual_lab import VirtualLab
from hardware.virtual_pluto.words import RX_FORMAT, TX_FORMAT

PHY, XADC, TX, RX = "ad9361-phy", "xadc", "cf-ad9361-dds-core-lpc", "cf-ad9361-lpc"
_MOST_DROPS = 1 << 20
_LARGEST_BLOCK = (1 << 31) - 1
_TEMPERATURE_MILLIDEGREES = 36_500

Read = Callable[[], str]
Write = Callable[[str], None]


def devices(lab: VirtualLab, radio: VirtualRadio) -> tuple[Device, ...]:
    """The radio's devices; call their attributes under the lab's lock."""
    return (
        Device("iio:device0", PHY, _phy_channels(lab, radio), _phy_attributes(lab, radio), _phy_debug(lab, radio)),
        Device("iio:device1", XADC, _xadc_channels(), (Attribute("sampling_frequency", lambda: "961538"),)),
        Device("iio:device2", TX, _tx_channels(radio), (), _registers(radio.tx_registers), _buffer_attributes()),
        Device("iio:device3", RX, _rx_channels(radio), (), _registers(radio.rx_registers), _buffer_attributes()),
    )


def _span(low: float, step: float, high: float, digits: int = 0) -> Read:
    return lambda: f"[{low:.{digits}f} {step:.{digits}f} {high:.{digits}f}]"


def _named(prefix: str, attributes: Sequence[tuple[str, Read | None, Write | None]]) -> list[Attribute]:
    """Attributes with the file name `prefix` and their own name."""
    return [Attribute(name, read, write, f"{prefix}_{name}") for name, read, write in attributes]


def _phy_channels(lab: VirtualLab, radio: VirtualRadio) -> list[Channel]:
    chip = radio.chip

    def then_tune(write: Write) -> Write:
        def tuned(value: str) -> None:
            write(value)
            lab.retune(radio)

        return tuned

    def stored(name: str) -> tuple[Read, Write]:
        return lambda: chip.chosen[name], then_tune(partial(chip.set_choice, name))

    def number(name: str, bounds: tuple[int, int]) -> tuple[Read, Write]:
        return lambda: str(getattr(chip, name)), then_tune(lambda value: setattr(chip, name, whole(value, bounds)))

    def rounded(name: str, bounds: tuple[int, int]) -> tuple[Read, Write]:
        return (
            lambda: str(getattr(chip, name)),
            then_tune(lambda value: setattr(chip, name, int(decimal(value, bounds)))),
        )

    def switch(name: str) -> tuple[Read, Write]:
        return lambda: str(int(getattr(chip, name))), lambda value: setattr(chip, name, flag(value))

    def tracking(name: str) -> tuple[str, Read, Write]:
        return name, lambda: str(int(chip.tracking[name])), lambda value: chip.tracking.update({name: flag(value)})

    def options(name: str) -> Read:
        return lambda: " ".join(CHOICES[name])

    def rates() -> str:
        return f"[{chip.lowest_rate_hz} 1 {transceiver.HIGHEST_RATE_HZ}]"

    def local_oscillator(channel: str, name: str, setting: str) -> Channel:
        attributes = (
            ("external", lambda: "0", None),
            ("fastlock_load", lambda: "0", None),
            ("fastlock_recall", partial(_refuse, errno.EINVAL), None),
            ("fastlock_save", lambda: "0 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0", None),
            ("fastlock_store", None, None),
            ("frequency", *number(f"{setting}_hz", transceiver.LO_HZ)),
            ("frequency_available", _span(transceiver.LO_HZ[0], 1, transceiver.LO_HZ[1]), None),
            ("powerdown", *switch(f"{setting}_down")),
        )
        return Channel(channel, True, _named(f"out_{channel}_{name}", attributes), name)

    rate = (lambda: str(chip.rate_hz), then_tune(chip.set_rate))
    rx = _named(
        "in_voltage0",
        (
            ("gain_control_mode", *stored("gain_control_mode")),
            ("hardwaregain", lambda: f"{chip.rx_gain_db:.6f} dB", then_tune(chip.set_rx_gain)),
            ("hardwaregain_available", _span(transceiver.RX_GAIN_DB[0], 1, transceiver.RX_GAIN_DB[1]), None),
            ("rf_port_select", *stored("rx_port")),
            ("rssi", lambda: f"{radio.rssi_db():.2f} dB", None),
        ),
    )
    rx_shared = _named(
        "in_voltage",
        (
            tracking("bb_dc_offset_tracking_en"),
            ("filter_fir_en", lambda: str(int(chip.rx_fir)), partial(chip.set_fir, rx=True)),
            ("gain_control_mode_available", options("gain_control_mode"), None),
            tracking("quadrature_tracking_en"),
            ("rf_bandwidth", *rounded("rx_bandwidth_hz", transceiver.RX_BANDWIDTH_HZ)),
            ("rf_bandwidth_available", _span(*_with_step(transceiver.RX_BANDWIDTH_HZ)), None),
            tracking("rf_dc_offset_tracking_en"),
            ("rf_port_select_available", options("rx_port"), None),
            ("sampling_frequency", *rate),
            ("sampling_frequency_available", rates, None),
        ),
    )
    tx = _named(
        "out_voltage0",
        (
            ("hardwaregain", lambda: f"{chip.tx_gain_db:.6f} dB", then_tune(chip.set_tx_gain)),
            (
                "hardwaregain_available",
                _span(transceiver.TX_GAIN_DB[0], 0.25, transceiver.TX_GAIN_DB[1], digits=6),
                None,
            ),
            ("rf_port_select", *stored("tx_port")),
            ("rssi", lambda: "0.00 dB", None),
        ),
    )
    tx_shared = _named(
        "out_voltage",
        (
            ("filter_fir_en", lambda: str(int(chip.tx_fir)), partial(chip.set_fir, tx=True)),
            ("rf_bandwidth", *rounded("tx_bandwidth_hz", transceiver.TX_BANDWIDTH_HZ)),
            ("rf_bandwidth_available", _span(*_with_step(transceiver.TX_BANDWIDTH_HZ)), None),
            ("rf_port_select_available", options("tx_port"), None),
            ("sampling_frequency", *rate),
            ("sampling_frequency_available", rates, None),
        ),
    )
    both_firs = (
        lambda: str(int(chip.rx_fir and chip.tx_fir)),
        partial(chip.set_fir, rx=True, tx=True),
    )
    return [
        local_oscillator("altvoltage1", "TX_LO", "tx_lo"),
        Channel("voltage0", False, rx + rx_shared),
        local_oscillator("altvoltage0", "RX_LO", "rx_lo"),
        Channel("temp0", False, _named("in_temp0", (("input", lambda: str(_TEMPERATURE_MILLIDEGREES), None),))),
        Channel("voltage0", True, tx + tx_shared),
        Channel("out", False, _named("in_out", (("voltage_filter_fir_en", *both_firs),))),
    ]


def _with_step(bounds: tuple[int, int]) -> tuple[int, int, int]:
    return bounds[0], 1, bounds[1]


def _refuse(code: int) -> str:
    raise RefusalError(code)


def _refuse_value(code: int, value: str) -> None:
    raise RefusalError(code, f"it cannot be {value!r}")


def _phy_attributes(lab: VirtualLab, radio: VirtualRadio) -> list[Attribute]:
    chip = radio.chip

    def stored(name: str) -> list[Attribute]:
        def write(value: str) -> None:
            chip.set_choice(name, value)
            lab.retune(radio)

        return [
            Attribute(name, lambda: chip.chosen[name], write),
            Attribute(f"{name}_available", lambda: " ".join(CHOICES[name])),
        ]

    xo_hz = (39_992_000, 40_008_000)
    # The Pluto's crystal is not tunable by the chip.
    tuning = [
        attribute
        for name in ("dcxo_tune_coarse", "dcxo_tune_fine")
        for attribute in (
            Attribute(name, partial(_refuse, errno.ENODEV), partial(_refuse_value, errno.ENODEV)),
            Attribute(f"{name}_available", lambda: "[0 0 0]"),
        )
    ]
    return [
        *stored("calib_mode"),
        *tuning,
        *stored("ensm_mode"),
        Attribute("filter_fir_config", lambda: chip.fir_config, chip.set_fir_config),
        Attribute("multichip_sync"),
        Attribute(
            "rssi_gain_step_error", lambda: "lna_error: 0 0 0 0\nmixer_error: 0 0 0 0\ngain_step_calib_reg_val: 0"
        ),
        Attribute("rx_path_rates", lambda: chip.path_rates()[0]),
        *stored("trx_rate_governor"),
        Attribute("tx_path_rates", lambda: chip.path_rates()[1]),
        Attribute(
            "xo_correction",
            lambda: str(chip.xo_correction_hz),
            lambda value: setattr(chip, "xo_correction_hz", whole(value, xo_hz)),
        ),
        Attribute("xo_correction_available", _span(xo_hz[0], 1, xo_hz[1])),
    ]


def _phy_debug(lab: VirtualLab, radio: VirtualRadio) -> list[Attribute]:
    chip = radio.chip

    def drops(value: str) -> int:
        return whole(value, (0, _MOST_DROPS))

    def pending_rx_drops() -> str:
        return str(max((buffer.drops for buffer in radio.rx), default=radio.pending_rx_drops))

    # The chip's own product number.
    registers = Registers({0x037: 0x0A})
    return [
        *_registers(registers),
        Attribute(
            "loopback", lambda: str(chip.loopback), lambda value: setattr(chip, "loopback", whole(value, (0, 2)))
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
    ]


def _registers(registers: Registers) -> list[Attribute]:
    return [Attribute("direct_reg_access", registers.value, registers.access)]


def _buffer_attributes() -> list[Attribute]:
    return [Attribute("length_align_bytes", lambda: "8"), Attribute("watermark", lambda: "1")]


def _xadc_channels() -> list[Channel]:
    # A Zynq's own temperature: degrees are (raw + offset) * scale / 1000.
    values = (("offset", "-2219"), ("raw", "2559"), ("scale", "123.040771484"))
    return [Channel("temp0", False, _named("in_temp0", [(name, partial(str, text), None) for name, text in values]))]


def _rx_channels(radio: VirtualRadio) -> list[Channel]:
    return [
        Channel(name, False, _stream_attributes(radio, f"in_{name}", "in_voltage", calibbias=True), "", RX_FORMAT)
        for name in ("voltage0", "voltage1")
    ]


def _tx_channels(radio: VirtualRadio) -> list[Channel]:
    buffers = [
        Channel(name, True, _stream_attributes(radio, f"out_{name}", "out_voltage", calibbias=False), "", TX_FORMAT)
        for name in ("voltage0", "voltage1")
    ]
    tones = [
        Channel(
            f"altvoltage{index}",
            True,
            _tone_attributes(radio, tone, f"out_altvoltage{index}_{TONES[index]}"),
            TONES[index],
        )
        for index, tone in enumerate(radio.dds.tones)
    ]
    return buffers + tones


def _stream_attributes(radio: VirtualRadio, own: str, shared: str, *, calibbias: bool) -> list[Attribute]:
    """Of one channel of a data device. Its corrections are at rest: the simulated front end has its own errors."""
    fixed = [("calibbias", lambda: "0", None)] if calibbias else []
    fixed += [("calibphase", lambda: "0.000000", None), ("calibscale", lambda: "1.000000", None)]
    return [*_named(own, fixed), *_named(shared, _sampling_frequency(radio))]


def _sampling_frequency(radio: VirtualRadio) -> Sequence[tuple[str, Read | None, Write | None]]:
    """Of the data devices: they run at the chip's rate, as without the FPGA's own filters."""

    def write(value: str) -> None:
        decimal(value, (radio.chip.rate_hz, radio.chip.rate_hz))

    return (
        ("sampling_frequency", lambda: str(radio.chip.rate_hz), write),
        ("sampling_frequency_available", lambda: str(radio.chip.rate_hz), None),
    )


def _tone_attributes(radio: VirtualRadio, tone: Tone, prefix: str) -> list[Attribute]:
    dds, chip = radio.dds, radio.chip
    return [
        *_named(
            prefix,
            (
                (
                    "frequency",
                    lambda: str(dds.frequency_hz(tone, chip.rate_hz)),
                    lambda value: dds.set_frequency(tone, value, chip.rate_hz),
                ),
                ("phase", lambda: str(dds.phase_millidegrees(tone)), partial(dds.set_phase, tone)),
                ("raw", lambda: str(int(tone.on)), partial(dds.set_on, tone)),
                ("scale", lambda: f"{tone.scale:.6f}", partial(dds.set_scale, tone)),
            ),
        ),
        *_named("out_altvoltage", _sampling_frequency(radio)[:1]),
    ]
