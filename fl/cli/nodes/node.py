"""Take part in a run as a client or the jammer, beside one radio of a lab. The server is `airdp run` with `--listen`.

A client trains on its own data, which never leaves this process, sends over its own radio, and keeps a ledger of its
own in --state. It sends nothing without a row of the server's ledger that it has checked, and nothing that brings all
runs of its --state together beyond its own --budget-epsilon, whatever the server says.
"""

import argparse
import math
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("role", choices=("client", "jammer"), help="what the node is")
    parser.add_argument(
        "--lab", required=True, metavar="LAB", help="shipped name or lab file, with the radio's address"
    )
    parser.add_argument("--backend", metavar="NAME", help="instead of the lab's own")
    parser.add_argument("--name", required=True, metavar="NAME", help="of the radio in the lab, and of the key")
    parser.add_argument("--server", required=True, metavar="tcp://ADDRESS:PORT", help="where the run listens")
    parser.add_argument("--keys", type=Path, default=Path("keys"), metavar="DIR", help="folder of keys (default: keys)")
    parser.add_argument("--state", type=Path, metavar="DIR", help="folder of what the node keeps (default: nodes/NAME)")
    parser.add_argument(
        "--data",
        default="",
        metavar="DATA",
        help="of a client: an .npz file with x and y, or package.module:function (default: its share of the run's)",
    )
    parser.add_argument(
        "--budget-epsilon",
        type=float,
        default=math.inf,
        metavar="E",
        help="largest epsilon that this client allows, all runs in --state together",
    )
    parser.add_argument(
        "--budget-delta", type=float, default=1e-5, metavar="D", help="delta of that epsilon (default 1e-5)"
    )
    parser.add_argument(
        "--budget-label", choices=("paper-claim", "record", "client"), help="claim of that epsilon (default: the run's)"
    )
    parser.add_argument(
        "--budget-neighbours", choices=("zero-out", "replace-one"), help="between which data (default: the run's)"
    )
    parser.add_argument("--trust", action="store_true", help="import code that the server's config names")
    parser.add_argument(
        "--give-up", type=float, default=600.0, metavar="S", help="seconds to wait for a server (default 600)"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing but warnings and errors")


def call(options: argparse.Namespace) -> int:
    """Serve until the run is over."""
    from fl.cli.output import plain
    from fl.nodes.apart.own_budget import Budget
    from fl.privacy.sensitivity import Label, Neighbours
    from fl.processes.node import run_node
    from fl.processes.settings import NodeSettings, to_nobody
    from hardware.lab.file import find_lab
    from hardware.lab.model import Role

    run_node(
        NodeSettings(
            lab=find_lab(options.lab, options.backend),
            name=options.name,
            role=Role(options.role),
            server=options.server,
            keys=options.keys,
            state=options.state or Path("nodes") / options.name,
            data=options.data,
            budget=Budget(
                options.budget_epsilon,
                options.budget_delta,
                Label(options.budget_label) if options.budget_label else None,
                Neighbours(options.budget_neighbours) if options.budget_neighbours else None,
            ),
            trust=options.trust,
            give_up_s=options.give_up,
            said=to_nobody if options.quiet else lambda line: plain(f"{options.name}: {line}"),
        )
    )
    return 0
