"""Serve the radios of a lab as virtual Plutos, which any client of libiio takes for hardware, until Ctrl-C.

LAB is a shipped name or a lab file; of its backend nothing is used. Time advances only while every open buffer is
served, or, with --paced, with the wall clock: buffers then over- and underflow.
"""

import argparse
import time
from typing import TYPE_CHECKING

from fl.experiment.commands.output import PROGRESS, RESULTS, print_json

if TYPE_CHECKING:
    from rich.table import Table

    from hardware.virtual_pluto.emulator import Emulator, RadioStatus

_REFRESH_S = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument("--port", type=int, metavar="P", help="of all radios (default 30431, that of real ones)")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulated air (default 1)")
    parser.add_argument("--paced", action="store_true", help="let time follow the wall clock")
    parser.add_argument("--json", action="store_true", help="print one JSON object with the URIs, and no status")


def call(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    from hardware.lab import find_lab
    from hardware.virtual_pluto.emulator import IIOD_PORT, Emulator

    lab = find_lab(options.lab)
    port = IIOD_PORT if options.port is None else options.port
    try:
        with Emulator(lab, seed=options.seed, port=port, paced=options.paced) as emulator:
            if options.json:
                print_json({"lab": lab.name, "mode": emulator.mode, "uris": emulator.uris})
            else:
                for name, uri in emulator.uris.items():
                    RESULTS.print(f"{name}: {uri}", soft_wrap=True, markup=False)
                RESULTS.print(
                    f"{emulator.mode}; try `iio_info -u {next(iter(emulator.uris.values()))}`; stop with Ctrl-C"
                )
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


def _watch(emulator: "Emulator") -> None:
    from rich.live import Live

    before, then = emulator.status(), time.monotonic()
    with Live(console=PROGRESS, transient=True, auto_refresh=False) as live:
        while True:
            time.sleep(_REFRESH_S)
            after, now = emulator.status(), time.monotonic()
            live.update(status_table(before, after, now - then, emulator.slipped_s), refresh=True)
            before, then = after, now


def status_table(
    before: "list[RadioStatus]", after: "list[RadioStatus]", elapsed_s: float, slipped_s: float
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
