"""The page as a process beside a run: it comes and goes with the run, and takes none of its time.

    python -m fl.dashboard.beside FOLDER LISTEN      prints its URL, serves until its standard input ends

The run holds the other end of that input, so the page ends with it however it ends.
"""

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fl.errors import ConfigError
from hardware.foundation.child_processes import end_module, start_module

_END_S = 10.0
_NICE = 10
"""Of the page's process: where cores are few the run goes first."""


@contextmanager
def page_beside(folder: Path, listen: str | None) -> Iterator[str]:
    """The URL of a page about `folder`, which need not exist yet, as long as the block lasts."""
    process = start_module("fl.dashboard.beside", [str(folder), listen or ""], subprocess.PIPE)
    try:
        if process.stdout is None or process.stderr is None:
            raise ConfigError("the page could not be started: its process has no pipes")
        url = process.stdout.readline().strip()
        if not url:
            raise ConfigError(f"the page could not be started: {process.stderr.read().strip()}")
        yield url
    finally:
        end_module(process, _END_S)


async def _serve(folder: Path, listen: str | None) -> None:
    from fl.dashboard.server import parse_listen, serve

    until = asyncio.Event()
    loop = asyncio.get_running_loop()
    # Readable means at its end: nobody writes to it.
    loop.add_reader(sys.stdin.fileno(), until.set)
    await serve(folder, parse_listen(listen), _tell, until, strict_port=listen is not None)


def _tell(url: str) -> None:
    sys.stdout.write(f"{url}\n")
    sys.stdout.flush()


def main() -> int:
    """The process."""
    from phy.errors import AirdpError

    os.nice(_NICE)
    try:
        asyncio.run(_serve(Path(sys.argv[1]), sys.argv[2] or None))
    except AirdpError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
