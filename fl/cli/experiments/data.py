"""Download a data set where there is internet, with its checksum verified before anything is used."""

import argparse
from pathlib import Path

from fl.cli.output import PROGRESS, RESULTS


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("name", choices=["emnist"], metavar="NAME", help="emnist (562 MB)")
    parser.add_argument(
        "--to", type=Path, metavar="DIR", help="folder (default: the user's cache, where runs look for it)"
    )


def call(options: argparse.Namespace) -> int:
    """Download with a progress bar."""
    from rich.progress import Progress

    from fl.learning.data.fetch import download_emnist, emnist_cache_folder

    with Progress(console=PROGRESS, disable=not PROGRESS.is_interactive) as progress:
        task = progress.add_task(options.name, total=None)
        target = download_emnist(
            options.to or emnist_cache_folder(),
            progress=lambda done, total: progress.update(task, completed=done, total=total),
        )
    RESULTS.print(f"{options.name} is in {target}", soft_wrap=True)
    return 0
