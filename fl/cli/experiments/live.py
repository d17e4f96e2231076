"""A page about a run in the browser: learning, privacy, the radio, nodes and log. DIR may be a run that goes on or
one that has ended. Reads the folder and changes nothing. Ctrl-C ends it."""

import argparse
from pathlib import Path

from fl.cli.output import PROGRESS
from fl.errors import RunFolderError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="folder of a run")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="where the page is served (default: 127.0.0.1:8750, or any free port); beyond this machine, such as "
        "0.0.0.0:8750, the URL holds a token, and nothing is encrypted",
    )
    parser.add_argument("--token", action="store_true", help="ask for a token on this machine too")


def call(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    import asyncio

    from fl.dashboard.server import parse_listen, serve

    if not (options.folder / "config.toml").is_file():
        raise RunFolderError(
            f"{options.folder} is not the folder of a run (no config.toml in it): give one that `airdp run` has made"
        )
    listening = parse_listen(options.listen, always_token=options.token)

    def ready(url: str) -> None:
        PROGRESS.print(f"live page: {url} (Ctrl-C ends it)", soft_wrap=True)

    async def forever() -> None:
        await serve(options.folder, listening, ready, asyncio.Event(), strict_port=options.listen is not None)

    asyncio.run(forever())
    return 0
