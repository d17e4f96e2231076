"""The devices of one virtual radio: what a Pluto has, with its attributes."""

import errno
from collections.abc import Sequence
from functools import partial

from hardware.virtual.iiod.attributes import Attribute, Channel, Device, Entry, decimal, named
from hardware.virtual.iiod.chip.dds import TONES, Tone
from hardware.virtual.iiod.chip.fpga_filters import FACTOR, Decimator, Interpolator
from hardware.virtual.iiod.chip.words import RX_FORMAT, TX_FORMAT
from hardware.virtual.iiod.devices.phy_device import phy_device
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.refusal import invalid, refuse
from hardware.virtual.iiod.virtual_lab import VirtualLab

SUPPLY, XADC, TX, RX = "adm1177", "xadc", "cf-ad9361-dds-core-lpc", "cf-ad9361-lpc"
# Raw values of a Pluto at rest, from its dump: of the supply's current and voltage, and of the Zynq's own voltages.
_SUPPLY = {"current0": ("758", "0.516601562"), "voltage0": ("736", "6.433105468")}
_RAILS = (
    *(("vccint", "1382"), ("vccaux", "2464"), ("vccbram", "1382"), ("vccpint", "1376"), ("vccpaux", "2460")),
    *(("vccoddr", "1836"), ("vrefp", "1703"), ("vrefn", "2")),
)
_NO_SEQUENCE = "CH0 : PN9 : Out of Sync : PN Error\nCH1 : PN9 : Out of Sync : PN Error"
_RAIL_SCALE, _PIN = "0.732421875", ("3702", "0.244140625")


def devices(lab: VirtualLab, radio: VirtualRadio) -> tuple[Device, ...]:
    """The radio's devices; call their attributes under the lab's lock."""
    received = [radio.rx_registers.attribute(), Attribute("pseudorandom_err_check", lambda: _NO_SEQUENCE)]
    return (
        Device("iio:device0", SUPPLY, [_measured(name, "", *values) for name, values in _SUPPLY.items()]),
        phy_device(lab, radio),
        Device("iio:device2", XADC, _xadc_channels(), (Attribute("sampling_frequency", lambda: "961538"),)),
        Device("iio:device3", TX, _tx_channels(radio), (), (radio.tx_registers.attribute(),), _buffer_attributes()),
        Device("iio:device4", RX, _rx_channels(radio), (), received, _buffer_attributes()),
    )


def _buffer_attributes() -> list[Attribute]:
    fixed = {"data_available": "0", "length_align_bytes": "8", "watermark": "1"}
    return [Attribute(name, partial(str, text)) for name, text in fixed.items()]


def _measured(channel: str, name: str, raw: str, scale: str, **more: str) -> Channel:
    """A channel of a slow converter. The value is (raw + offset) * scale, in milliamperes, millivolts, millidegrees."""
    prefix = f"in_{channel}_{name}" if name else f"in_{channel}"
    values = {"raw": raw, "scale": scale, **more}
    return Channel(
        channel, False, named(prefix, [(key, partial(str, text), None) for key, text in values.items()]), name
    )


def _xadc_channels() -> list[Channel]:
    # Its temperature is the Zynq's own.
    rails = [_measured(f"voltage{at}", name, raw, _RAIL_SCALE) for at, (name, raw) in enumerate(_RAILS)]
    return [
        _measured("temp0", "", "2559", "123.040771484", offset="-2219"),
        *rails,
        _measured(f"voltage{len(rails)}", "", *_PIN),
    ]


def _rx_channels(radio: VirtualRadio) -> list[Channel]:
    return [
        Channel(name, False, _stream_attributes(radio, f"in_{name}", "in_voltage", output=False), "", RX_FORMAT)
        for name in ("voltage0", "voltage1")
    ]


def _tx_channels(radio: VirtualRadio) -> list[Channel]:
    buffers = [
        Channel(name, True, _stream_attributes(radio, f"out_{name}", "out_voltage", output=True), "", TX_FORMAT)
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


def _stream_attributes(radio: VirtualRadio, own: str, shared: str, *, output: bool) -> list[Attribute]:
    """Of one channel of a data device. Its corrections are at rest: the simulated front end has its own errors."""
    fixed: list[Entry] = []
    if not output:
        # The core has no input for pulses per second on a Pluto.
        fixed = [("calibbias", lambda: "0", None), ("samples_pps", partial(refuse, errno.ENODEV), None)]
    fixed += [("calibphase", lambda: "0.000000", None), ("calibscale", lambda: "1.000000", None)]
    return [*named(own, fixed), *named(shared, _sampling_frequency(radio, output=output))]


def _sampling_frequency(radio: VirtualRadio, *, output: bool) -> Sequence[Entry]:
    """Of the data devices: the chip's rate, or an eighth of it, with which the FPGA's filter is switched on."""

    def filtered() -> bool:
        return (radio.interpolator if output else radio.decimator) is not None

    def write(value: str) -> None:
        wanted_hz = int(decimal(value, (1, radio.chip.rate_hz)))
        if wanted_hz not in _rates(radio):
            raise invalid(f"{wanted_hz} is not one of {_rates(radio)}")
        on = wanted_hz != radio.chip.rate_hz
        if on is filtered():
            return
        if output:
            radio.interpolator = Interpolator() if on else None
        else:
            radio.decimator = Decimator() if on else None

    return (
        ("sampling_frequency", lambda: str(_rates(radio)[filtered()]), write),
        # With a blank at the end, as a Pluto says it.
        ("sampling_frequency_available", lambda: "{} {} ".format(*_rates(radio)), None),
    )


def _rates(radio: VirtualRadio) -> tuple[int, int]:
    return radio.chip.rate_hz, radio.chip.rate_hz // FACTOR


def _tone_attributes(radio: VirtualRadio, tone: Tone, prefix: str) -> list[Attribute]:
    dds, chip = radio.dds, radio.chip
    return [
        *named(
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
        *named("out_altvoltage", [("sampling_frequency", lambda: str(chip.rate_hz), None)]),
    ]
