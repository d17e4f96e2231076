"""The devices of one virtual radio: what a Pluto has, with its attributes."""

from collections.abc import Sequence
from functools import partial

from hardware.virtual.iiod.attributes import Attribute, Channel, Device, Entry, decimal, named
from hardware.virtual.iiod.chip.dds import TONES, Tone
from hardware.virtual.iiod.chip.fpga_filters import FACTOR, Decimator, Interpolator
from hardware.virtual.iiod.chip.words import RX_FORMAT, TX_FORMAT
from hardware.virtual.iiod.devices.phy_device import phy_device
from hardware.virtual.iiod.radio import VirtualRadio
from hardware.virtual.iiod.refusal import invalid
from hardware.virtual.iiod.virtual_lab import VirtualLab

XADC, TX, RX = "xadc", "cf-ad9361-dds-core-lpc", "cf-ad9361-lpc"


def devices(lab: VirtualLab, radio: VirtualRadio) -> tuple[Device, ...]:
    """The radio's devices; call their attributes under the lab's lock."""
    return (
        phy_device(lab, radio),
        Device("iio:device1", XADC, _xadc_channels(), (Attribute("sampling_frequency", lambda: "961538"),)),
        Device("iio:device2", TX, _tx_channels(radio), (), (radio.tx_registers.attribute(),), _buffer_attributes()),
        Device("iio:device3", RX, _rx_channels(radio), (), (radio.rx_registers.attribute(),), _buffer_attributes()),
    )


def _buffer_attributes() -> list[Attribute]:
    return [Attribute("length_align_bytes", lambda: "8"), Attribute("watermark", lambda: "1")]


def _xadc_channels() -> list[Channel]:
    # A Zynq's own temperature: degrees are (raw + offset) * scale / 1000.
    values = (("offset", "-2219"), ("raw", "2559"), ("scale", "123.040771484"))
    return [Channel("temp0", False, named("in_temp0", [(name, partial(str, text), None) for name, text in values]))]


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
    fixed = [("calibbias", lambda: "0", None)] if not output else []
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
