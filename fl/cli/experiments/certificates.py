"""Options that say how a Dask cluster is reached."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fl.errors import ConfigError

if TYPE_CHECKING:
    from fl.cluster.access import Access


def add_certificate_arguments(parser: argparse.ArgumentParser, wanted_for: str, named_by: str) -> None:
    """Declare them. wanted_for: what needs certificates. named_by: what says where the cluster is."""
    parser.add_argument(
        "--tls",
        type=Path,
        metavar="DIR",
        help=f"certificates for {wanted_for}: ca.pem, cert.pem, key.pem (default: Dask's)",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help=f"allow a {named_by} without TLS: whoever reaches it, or answers in its place, runs code with your rights",
    )


def given_access(address: str | None, options: argparse.Namespace, named_by: str) -> "Access | None":
    """How to reach the cluster at `address`; None where there is none."""
    from fl.cluster.access import Access

    if address is not None:
        return Access(address, options.tls, options.insecure)
    if options.tls is not None or options.insecure:
        raise ConfigError(f"{'--insecure' if options.insecure else '--tls'} is for {named_by}: give its address")
    return None
