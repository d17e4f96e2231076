"""Serve the radios of a lab as virtual ones, which the drivers of real ones take for hardware, until Ctrl-C.

LAB is a shipped name or a lab file. Time advances only while every open buffer is served, or, with --paced, with the
wall clock: buffers then over- and underflow.
"""

import argparse
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from fl.cli.output import PROGRESS, RESULTS, print_json
from fl.errors import ConfigError

if TYPE_CHECKING:
    from rich.table import Table

    from hardware.lab.emulation import Emulation, RadioStatus
    from hardware.lab.model import Backend, Lab

_REFRESH_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument(
        "--backend", metavar="NAME", help="whose virtual radios (default: those of the lab's own, or else the first)"
    )
    parser.add_argument("--as", dest="kind", metavar="KIND", help="the same by the device that they are taken for")
    parser.add_argument("--port", type=int, metavar="P", help="of all radios (default: that of real ones)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulated air (default 1)")
    parser.add_argument("--paced", action="store_true", help="let time follow the wall clock")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the URIs, and no status")


def call(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from hardware.foundation.garbage import keep_what_is_loaded
    from hardware.lab.emulation import EmulationSettings
    from hardware.lab.file import find_lab

    lab = find_lab(options.lab)
    emulate = _emulating(lab, options.backend, options.kind).emulate
    if emulate is None:
        raise ConfigError(f"--backend {options.backend} has no virtual radios to serve")
    try:
        with emulate(lab, EmulationSettings(options.seed, options.port, options.paced)) as emulator:
            keep_what_is_loaded()
            if options.json:
                print_json({"lab": lab.name, "mode": emulator.mode, "uris": dict(emulator.uris)})
            else:
                for name, uri in emulator.uris.items():
                    RESULTS.print(f"{name}: {uri}", soft_wrap=True, markup=False)
                RESULTS.print(f"{emulator.mode}; try `{emulator.try_with}`; stop with Ctrl-C")
            # Whoever started this waits for these lines.
            RESULTS.file.flush()
            if options.json or not PROGRESS.is_interactive:
                while True:
                    # Not one long wait: a signal that the system gives to another thread would not end it.
                    time.sleep(_REFRESH_S)
            _watch(emulator)
    except KeyboardInterrupt:
        # The way to end it, not an interruption of something unfinished.
        return 0
    return 0


def _emulating(lab: "Lab", name: str | None, kind: str | None) -> "Backend":
    """The backend that serves: the one that is named, or of the kind of device that is, or the lab's own.

    A lab of real devices is served as those.
    """
    from hardware.lab.registry import find_backend, registry

    if name is not None and kind is not None:
        raise ConfigError("--backend and --as both say whose virtual radios: give one of them")
    if name is not None:
        return find_backend(name)
    serving = [backend for backend in registry().backends.values() if backend.emulate is not None]
    if kind is not None:
        return _of_kind(kind, serving)
    if lab.backend in serving:
        return lab.backend
    if any(backend.emulates == lab.backend.name for backend in serving):
        return _of_kind(lab.backend.name, serving)
    return next((backend for backend in serving if backend.emulates is not None), lab.backend)


def _of_kind(kind: str, serving: "list[Backend]") -> "Backend":
    kinds = {backend.emulates: backend for backend in serving if backend.emulates is not None}
    if kind not in kinds:
        raise ConfigError(f"--as {kind}: there are virtual devices of the kinds {', '.join(kinds)}")
    return kinds[kind]


def _watch(emulator: "Emulation") -> None:
    from rich.live import Live

    before, then = emulator.status(), time.monotonic()
    with Live(console=PROGRESS, transient=True, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH_S)
            after, now = emulator.status(), time.monotonic()
            live.update(status_table(before, after, now - then, emulator.slipped_s), refresh=True)
            before, then = after, now


def status_table(
    before: "Sequence[RadioStatus]", after: "Sequence[RadioStatus]", elapsed_s: float, slipped_s: float
) -> "Table":
    """What each radio did in `elapsed_s`. slipped_s: how far behind the wall clock time is, where it follows it."""
    from rich.table import Table

    late = f"; {slipped_s:.1f} s behind the wall clock: this machine is too slow" if slipped_s else ""
    table = Table("radio", title=f"buffers in + out, virtual time in seconds{late}", title_justify="left")
    for column in ("clients", "buffers", "MS/s", "overflows", "underflows", "time"):
        table.add_column(column, justify="right")
    for old, new in zip(before, after, strict=True):
        table.add_row(
            new.name,
            str(new.connections),
            f"{new.rx_buffers} + {new.tx_buffers}",
            f"{(new.streamed_samples - old.streamed_samples) / elapsed_s / 1e6:.2f}",
            str(new.overflows),
            str(new.underflows),
            f"{new.counter / new.rate_hz:.3f}",
        )
    return table
