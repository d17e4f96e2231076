"""Pictures and numbers of one radio uplink: spectrum, constellation, channels, timeline, error budget, phase error."""

import argparse
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.output import RESULTS, print_json, shown

if TYPE_CHECKING:
    from fl.inspect.view import UplinkView


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a run with uplink.kind = 'radio'")
    parser.add_argument("--round", type=int, metavar="N", help="number of the uplink (default: the last)")
    parser.add_argument(
        "--out", type=Path, metavar="FOLDER", help="where the pictures go (default: DIR/figures/round-NNNN)"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Read, draw, print."""
    from fl.inspect.figures import draw_round
    from fl.inspect.view import read_round
    from fl.run.captures import CaptureFolder
    from fl.run.folder import RunFolder, refuse_links

    folder = RunFolder(options.folder)
    view = read_round(folder, options.round)
    if options.out is None:
        refuse_links(folder.figures_path.parent)
    pictures = draw_round(view, options.out or folder.figures_path / f"round-{view.uplink:04d}")
    captures = CaptureFolder.of(folder.path).of_uplink(view.uplink)
    if options.json:
        files = {"pictures": {k: str(p) for k, p in pictures.items()}, "captures": [str(path) for path in captures]}
        print_json({"folder": str(folder.path), **summary(view), **files})
        return 0
    _print_table(view)
    for path in [*pictures.values(), *captures]:
        RESULTS.print(str(path), soft_wrap=True)
    return 0


def summary(view: "UplinkView") -> dict[str, Any]:
    """What the pictures show, as numbers; sigmas per real coordinate in units of tau."""
    snapshot, mechanism, metrics = view.snapshot, view.mechanism, view.metrics
    names = [str(name) for name in snapshot.names]
    clients = names[: snapshot.phase_error_rad.size]
    backoffs = dict(zip(clients, snapshot.backoffs.tolist(), strict=True))
    links = zip(names, snapshot.gains_db, snapshot.delays_samples, snapshot.cfo_hz, snapshot.cfo_std_hz, strict=True)
    return {
        "round": view.uplink,
        "nmse_db": view.nmse_db,
        "thermal_db": view.thermal_db,
        "above_thermal_db": view.nmse_db - view.thermal_db,
        "noise_db": view.noise_db,
        "above_noise_db": view.nmse_db - view.noise_db,
        "error_budget": view.parts,
        "sigma": mechanism.sigma,
        "sigma_receiver": mechanism.noise_std_real / mechanism.alpha_u,
        "sigma_jammer": mechanism.alpha_cj * mechanism.jammer_gain / mechanism.alpha_u,
        "alpha_u": mechanism.alpha_u,
        "alpha_cj": mechanism.alpha_cj,
        "jamming_client": None if view.silent_client is None else names[view.silent_client],
        "backoff_max": metrics["backoff_max"],
        "backed_off": metrics["backed_off"],
        "clipped_samples": int(view.diagnostics["clipped_samples"]),
        "phase_error_rad": dict(zip(clients, snapshot.phase_error_rad.tolist(), strict=True)),
        "max_phase_error_rad": view.gate_rad,
        "links": {
            name: {
                "gain_db": float(gain_db),
                "delay_samples": float(delay),
                "cfo_hz": float(cfo_hz),
                "cfo_std_hz": float(cfo_std_hz),
                "backoff": backoffs.get(name),
            }
            for name, gain_db, delay, cfo_hz, cfo_std_hz in links
        },
        **view.privacy.to_json(),
    }


def _print_table(view: "UplinkView") -> None:
    from rich.table import Table

    said = summary(view)
    worst = max(said["phase_error_rad"], key=said["phase_error_rad"].__getitem__)
    privacy = view.privacy
    epsilons = ", ".join(f"{shown(value)} ({name.value})" for name, value in privacy.epsilon.items())
    table = Table(show_header=False, title=f"{view.name}, round {view.uplink}", title_justify="left")
    table.add_column()
    table.add_column(overflow="fold")
    for name, value in (
        ("NMSE", f"{said['nmse_db']:.2f} dB"),
        ("thermal floor", f"{said['thermal_db']:.2f} dB; the NMSE is {said['above_thermal_db']:+.2f} dB from it"),
        ("floor with jammer", f"{said['noise_db']:.2f} dB; the NMSE is {said['above_noise_db']:+.2f} dB from it"),
        (
            "sigma",
            f"{said['sigma']:.4g} tau per real coordinate: receiver {said['sigma_receiver']:.4g}, "
            f"jammer {said['sigma_jammer']:.4g}",
        ),
        ("alpha_u", f"{said['alpha_u']:.4g}"),
        ("jammer", _jammer(said)),
        ("back-offs", f"largest {said['backoff_max']:.4g}; above 1 at {said['backed_off']} clients"),
        ("clipped samples", f"{said['clipped_samples']}"),
        (
            "phase error",
            f"largest {said['phase_error_rad'][worst]:.3g} rad ({worst}); gate {said['max_phase_error_rad']:g} rad",
        ),
        ("epsilon until here", f"{epsilons}; {privacy.label.value}, {privacy.conditions}"),
    ):
        table.add_row(name, value)
    RESULTS.print(table)


def _jammer(said: dict[str, Any]) -> str:
    if not said["alpha_cj"]:
        return "silent"
    who = f" by {said['jamming_client']}" if said["jamming_client"] else ""
    share = said["sigma_jammer"] / math.hypot(said["sigma_jammer"], said["sigma_receiver"])
    return f"alpha_CJ = {said['alpha_cj']:.4g}{who}, {100 * share**2:.0f} % of the noise energy"
