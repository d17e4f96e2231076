"""Make or list the CURVE keys by which nodes of a lab know each other.

`airdp keys new NAME` writes NAME.key, which is public, and NAME.key_secret, which stays where it was made. A node has
the name of its radio, the server that of the ps. Copy the public keys of all nodes to the server, and the server's to
all nodes.
"""

import argparse
from pathlib import Path

from fl.cli.output import RESULTS, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("action", choices=("new", "list"), help="what to do")
    parser.add_argument("names", nargs="*", metavar="NAME", help="of the keys to make")
    parser.add_argument("--keys", type=Path, default=Path("keys"), metavar="DIR", help="folder of keys (default: keys)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def call(options: argparse.Namespace) -> int:
    """Make or list."""
    from fl.errors import ConfigError
    from fl.nodes.apart.keys import SECRET, load_keys, make_keys, public_keys

    if options.action == "new":
        if not options.names:
            raise ConfigError("whose key? airdp keys new NAME, with the name of the radio")
        for name in options.names:
            make_keys(options.keys, name)
    found = [
        {"name": name, "public": key.decode(), "secret_here": (options.keys / f"{name}{SECRET}").exists()}
        for key, name in sorted(public_keys(options.keys).items(), key=lambda item: item[1])
    ]
    for row in found:
        if row["secret_here"]:
            load_keys(options.keys, str(row["name"]))
    if options.json:
        print_json({"folder": str(options.keys), "keys": found})
        return 0
    for row in found:
        where = "secret key here" if row["secret_here"] else "public key only"
        RESULTS.print(f"{row['name']}: {row['public']}  {where}", soft_wrap=True, markup=False, highlight=False)
    if not found:
        RESULTS.print(f"no keys in {options.keys}: make one with `airdp keys new NAME`", soft_wrap=True, markup=False)
    return 0
