"""Epsilon of M equal uplinks with noise sigma per real coordinate: as the paper bounds it, and exactly."""

import argparse

import numpy as np

from fl.cli.output import RESULTS, print_json, print_privacy
from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant, checked_delta
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import CLOSED_FORMS, PrivacyStatement, state_privacy

MOST_ROUNDS = 10**6
MOST_SAMPLES = 10**15


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--rounds", type=int, required=True, metavar="M", help="number of uplinks")
    parser.add_argument(
        "--samples", type=int, required=True, metavar="N", help="training samples of all clients together"
    )
    parser.add_argument(
        "--sigma", type=float, required=True, metavar="S", help="noise per real coordinate, in units of the clip norm"
    )
    parser.add_argument("--delta", type=float, required=True, metavar="D", help="of (epsilon, delta), between 0 and 1")
    parser.add_argument("--backoff", type=float, default=1.0, metavar="s", help="back-off s_i >= 1 (default 1)")
    parser.add_argument(
        "--label",
        choices=[label.value for label in Label],
        default=Label.PAPER_CLAIM.value,
        help="which sensitivity is claimed (default paper-claim)",
    )
    parser.add_argument(
        "--neighbours",
        choices=[n.value for n in Neighbours],
        default=Neighbours.ZERO_OUT.value,
        help="between which data sets epsilon holds (default zero-out)",
    )
    parser.add_argument(
        "--client-samples", type=int, metavar="n", help="samples of the client; needed for --label client"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="also liu-simeone, and Google's rdp and pld, second opinions that take a second to load",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Compute and print."""
    statement = _account(options)
    if options.json:
        given = {
            "rounds": options.rounds,
            "samples": options.samples,
            "sigma": options.sigma,
            "backoff": options.backoff,
        }
        print_json({**statement.to_json(), **given})
    else:
        print_privacy([statement])
        RESULTS.print(f"S = {statement.total_loss:.6g}, mu = {statement.mu:.6g}")
    return 0


def _account(options: argparse.Namespace) -> PrivacyStatement:
    label, neighbours = Label(options.label), Neighbours(options.neighbours)
    if not 1 <= options.rounds <= MOST_ROUNDS:
        raise PrivacyError(f"--rounds is {options.rounds}: expected 1 to {MOST_ROUNDS}")
    if not 1 <= options.samples <= MOST_SAMPLES:
        raise PrivacyError(f"--samples is {options.samples}: expected 1 to {MOST_SAMPLES}")
    if not (np.isfinite(options.sigma) and options.sigma > 0):
        raise PrivacyError(
            f"--sigma is {options.sigma}: expected a finite number above 0; without noise epsilon is infinite"
        )
    if not (np.isfinite(options.backoff) and options.backoff >= 1):
        raise PrivacyError(f"--backoff is {options.backoff}: expected a finite number of at least 1")
    if label is Label.CLIENT and options.client_samples is None:
        raise PrivacyError("--label client needs --client-samples: a client's sensitivity is its share of all samples")
    own = options.client_samples if options.client_samples is not None else options.samples
    if not 1 <= own <= options.samples:
        raise PrivacyError(f"--client-samples is {own}: expected 1 to {options.samples}")
    # The other clients together, silent: only the sizes matter for the shares.
    sizes = np.array([own, options.samples - own] if own < options.samples else [own], dtype=np.int64)
    mechanism = RoundMechanism(
        uplink=1,
        received_gains=(1.0 / options.backoff,) + (0.0,) * (len(sizes) - 1),
        sigma=options.sigma,
        sigma_origin=SigmaOrigin.SET,
        record_bounded=label is Label.RECORD,
        clip_norm=1.0,
        alpha_u=1.0,
        alpha_cj=0.0,
        jammer_gain=0.0,
        noise_std_real=options.sigma,
    )
    return state_privacy(
        [mechanism] * options.rounds,
        sizes,
        label=label,
        neighbours=neighbours,
        delta=checked_delta(options.delta),
        accountants=tuple(Accountant) if options.all else CLOSED_FORMS,
    )
