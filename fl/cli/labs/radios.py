"""Find Plutos on USB and on the network, and show what they say about themselves. Nothing is set, nothing is sent."""

import argparse
from typing import TYPE_CHECKING, Any

from fl.experiment.commands.output import RESULTS, print_json

if TYPE_CHECKING:
    from hardware.pluto_discovery import PlutoInfo

CHECKS = (
    "the cable: USB at the connector in the middle, and a cable that carries data",
    "the system: `lsusb` shows 0456:b673, and the Pluto has booted (its second LED blinks)",
    "rights: a udev rule for 0456:b673 (the package libiio0 has one; plug in again after installing it)",
    "the network: `ping 192.168.2.1`; two Plutos need different addresses (config.txt on their drive)",
    "packages: sudo apt-get install libiio0 libiio-utils; then `iio_info -S` must show it too",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--uri", action="append", metavar="URI", help="ask only this one, ip:HOST or usb:…; repeatable")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Look and tell."""
    from hardware.pluto_discovery import describe, find_plutos

    problems: list[str] = []
    if options.uri:
        radios = [describe(uri) for uri in options.uri]
    else:
        radios, problems = find_plutos()
    if options.json:
        print_json({"radios": [_json(radio) for radio in radios], "problems": problems})
        return 0
    if radios:
        _print_table(radios)
    else:
        RESULTS.print("No Pluto was found. To check:")
        for check in CHECKS:
            RESULTS.print(f"  - {check}", soft_wrap=True, markup=False)
    for problem in problems:
        RESULTS.print(problem, soft_wrap=True, markup=False)
    return 0


def _json(radio: "PlutoInfo") -> dict[str, Any]:
    return {**vars(radio), "uris": list(radio.uris), "capabilities": vars(radio.capabilities)}


def _print_table(radios: "list[PlutoInfo]") -> None:
    from rich.markup import escape
    from rich.table import Table

    for radio in radios:
        can = radio.capabilities
        emulated = f", emulated ({radio.virtual})" if radio.virtual else ""
        table = Table(show_header=False, title=", ".join(radio.uris), title_justify="left")
        table.add_row("model", escape(radio.model + emulated))
        table.add_row("serial", escape(radio.serial))
        table.add_row("firmware", escape(radio.firmware))
        table.add_row("temperature", f"{radio.temperature_c:.1f} °C")
        table.add_row("frequency", f"{_span(can.center_hz, 1e6)} MHz")
        table.add_row("sample rate", f"{_span(can.sample_rate_hz, 1e6)} MS/s")
        table.add_row("bandwidth", f"{_span(can.bandwidth_hz, 1e6)} MHz")
        table.add_row("gain", f"{_span(can.tx_gain_db)} dB transmitting, {_span(can.rx_gain_db)} dB receiving")
        RESULTS.print(table)


def _span(bounds: tuple[float, float], unit: float = 1.0) -> str:
    return f"{bounds[0] / unit:g} to {bounds[1] / unit:g}"
