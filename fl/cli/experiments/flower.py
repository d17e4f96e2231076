"""Run a Flower app over the air, in simulation or with a SuperNode for each client over TLS, and take everything down
again: SuperLink, SuperNodes and the air node are processes of this command.
"""

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments of `airdp flower`."""
    parser.add_argument(
        "mode",
        choices=("simulate", "deploy"),
        help="simulate: Flower's simulation, clients share processes (needs ray); deploy: a SuperLink and a SuperNode "
        "for each client on this machine, over TLS",
    )
    parser.add_argument("app", type=Path, metavar="APP", help="folder of the Flower app, such as examples/flower")
    parser.add_argument(
        "--clients",
        type=int,
        metavar="K",
        help="how many (default: those of the config that the app's airdp-config names)",
    )
    parser.add_argument(
        "--run-config",
        action="append",
        default=[],
        metavar="'KEY=VALUE ...'",
        help="change keys of the app's own config; may be given several times",
    )


def call(options: argparse.Namespace) -> int:
    """Start, run, take down."""
    from fl.flower.federation import clients_of, deployment, simulation

    clients = options.clients or clients_of(options.app, options.run_config)
    if options.mode == "deploy":
        with deployment(clients) as federation:
            federation.run(options.app, options.run_config)
        return 0
    with simulation() as federation:
        federation.run(options.app, options.run_config, f"num-supernodes={clients}")
    return 0
