"""Serve the virtual radios of a lab from a process of their own: `python -m hardware.virtual BACKEND LAB`.

Prints one line of JSON, {"uris": {name: uri}}, when it listens, and serves until SIGTERM, SIGINT, or, with
--exit-with-stdin, until its standard input ends, which happens when its parent dies, whatever kills it.
"""

import argparse
import json
import os
import select
import signal
import sys

from hardware.foundation.garbage import keep_what_is_loaded
from hardware.lab.emulation import EmulationSettings
from hardware.lab.file import find_lab
from hardware.lab.registry import find_backend
from hardware.radio.errors import HardwareError
from hardware.virtual.kept_sockets import hand_over
from phy.errors import AirdpError


def main() -> int:
    """Serve until told to stop."""
    parser = argparse.ArgumentParser(prog="python -m hardware.virtual", description=__doc__)
    parser.add_argument("backend", metavar="BACKEND", help="whose radios they are")
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of the simulated air (default 1)")
    parser.add_argument("--port", type=int, metavar="P", help="of all radios (default: that of real ones)")
    parser.add_argument("--paced", action="store_true", help="let time follow the wall clock")
    parser.add_argument("--exit-with-stdin", action="store_true", help="stop when standard input ends")
    parser.add_argument("--sockets-to", type=int, metavar="FD", help="a Unix socket whose owner keeps the radios' open")
    options = parser.parse_args()
    signals = _signals()
    try:
        emulate = find_backend(options.backend).emulate
        if emulate is None:
            raise HardwareError(f"the backend '{options.backend}' has no virtual radios to serve")
        settings = EmulationSettings(options.seed, options.port, options.paced)
        with emulate(find_lab(options.lab), settings) as emulation:
            if options.sockets_to is not None:
                hand_over(options.sockets_to, emulation)
            keep_what_is_loaded()
            print(json.dumps({"uris": dict(emulation.uris)}), flush=True)  # noqa: T201 - this is its answer
            _wait(signals, options.exit_with_stdin)
    except AirdpError as error:
        print(f"virtual radios: error: {error}", file=sys.stderr)  # noqa: T201
        return 2
    return 0


def _signals() -> int:
    """A descriptor that becomes readable when a signal to stop comes, whichever thread the system gives it to."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.set_wakeup_fd(writer)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: None)
    return reader


def _wait(signals: int, with_stdin: bool) -> None:
    """Until a signal comes, or until standard input ends where that counts."""
    watched = [signals, 0] if with_stdin else [signals]
    while True:
        ready, _, _ = select.select(watched, [], [])
        if signals in ready or not os.read(0, 4096):
            return


if __name__ == "__main__":
    sys.exit(main())
