"""Find radios on USB and on the network, and show what they say about themselves. Nothing is set, nothing is sent."""

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from fl.cli.output import RESULTS, print_json

if TYPE_CHECKING:
    from hardware.lab.discovery import Discovery, RadioInfo


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument(
        "--uri", action="append", metavar="URI", help="ask only this one: ip:HOST, usb:… or addr=HOST; repeatable"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Look and tell."""
    from hardware.lab.registry import registry

    kinds = [backend.discovery for backend in registry().backends.values() if backend.discovery is not None]
    problems: list[str] = []
    if options.uri:
        radios = [_kind_of(uri, kinds).describe(uri) for uri in options.uri]
    else:
        radios, problems = _find(kinds)
    if options.json:
        print_json({"radios": [_json(radio) for radio in radios], "problems": problems})
        return 0
    if radios:
        _print_table(radios)
    else:
        _print_checks(kinds)
    for problem in problems:
        RESULTS.print(problem, soft_wrap=True, markup=False)
    return 0


def _find(kinds: "Sequence[Discovery]") -> "tuple[list[RadioInfo], list[str]]":
    """Radios of all kinds, and problems. A kind that cannot be looked for at all is one, unless no other can either."""
    from hardware.radio.errors import HardwareError

    radios: list[RadioInfo] = []
    problems: list[str] = []
    impossible: list[HardwareError] = []
    for kind in kinds:
        try:
            found, failed = kind.find()
        except HardwareError as error:
            impossible.append(error)
            continue
        radios.extend(found)
        problems.extend(failed)
    if impossible and len(impossible) == len(kinds):
        raise impossible[0]
    return radios, [*problems, *map(str, impossible)]


def _kind_of(uri: str, kinds: "Sequence[Discovery]") -> "Discovery":
    from hardware.radio.errors import HardwareError

    for kind in kinds:
        if uri.startswith(kind.schemes):
            return kind
    known = ", ".join(f"{scheme}… ({kind.kind})" for kind in kinds for scheme in kind.schemes)
    raise HardwareError(f"no radio has an address such as '{uri}': expected {known}")


def _print_checks(kinds: "Sequence[Discovery]") -> None:
    for kind in kinds:
        RESULTS.print(f"No {kind.kind} was found. To check:")
        for check in kind.checks:
            RESULTS.print(f"  - {check}", soft_wrap=True, markup=False)


def _json(radio: "RadioInfo") -> dict[str, Any]:
    return {
        **vars(radio),
        "uris": list(radio.uris),
        "capabilities": vars(radio.capabilities),
        "details": dict(radio.details),
    }


def _print_table(radios: "Sequence[RadioInfo]") -> None:
    from rich.markup import escape
    from rich.table import Table

    for radio in radios:
        can = radio.capabilities
        emulated = f", emulated ({radio.virtual})" if radio.virtual else ""
        table = Table(show_header=False, title=", ".join(radio.uris), title_justify="left")
        table.add_row("model", escape(radio.model + emulated))
        table.add_row("serial", escape(radio.serial))
        table.add_row("firmware", escape(radio.firmware))
        if radio.temperature_c is not None:
            table.add_row("temperature", f"{radio.temperature_c:.1f} °C")
        table.add_row("frequency", f"{_span(can.center_hz, 1e6)} MHz")
        table.add_row("sample rate", f"{_span(can.sample_rate_hz, 1e6)} MS/s")
        table.add_row("bandwidth", f"{_span(can.bandwidth_hz, 1e6)} MHz")
        table.add_row("gain", f"{_span(can.tx_gain_db)} dB transmitting, {_span(can.rx_gain_db)} dB receiving")
        table.add_row("gain scale", escape(can.gain_scale))
        for name, value in radio.details.items():
            table.add_row(escape(name), escape(value))
        RESULTS.print(table)


def _span(bounds: tuple[float, float], unit: float = 1.0) -> str:
    return f"{bounds[0] / unit:g} to {bounds[1] / unit:g}"
