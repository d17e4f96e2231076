"""How much noise the cooperative jammer must add so that M uplinks are (epsilon, delta)-private (Theorems 2 and 4)."""

import argparse
import math

import numpy as np

from fl.cli.output import RESULTS, print_json
from fl.cli.privacy.account import MOST_SAMPLES
from fl.errors import PrivacyError
from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.target import PrivacyTarget
from fl.uplink.jammer import FactorOn, size_jammer


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("--epsilon", type=float, required=True, metavar="E", help="target over all uplinks")
    parser.add_argument("--delta", type=float, required=True, metavar="D", help="of (epsilon, delta), between 0 and 1")
    parser.add_argument("--rounds", type=int, required=True, metavar="M", help="number of uplinks")
    parser.add_argument(
        "--samples", type=int, required=True, metavar="N", help="training samples of all clients together"
    )
    parser.add_argument("--alpha-u", type=float, required=True, metavar="A", help="the server's factor")
    parser.add_argument("--h-cj", type=float, required=True, metavar="H", help="magnitude of the jammer's channel gain")
    parser.add_argument("--sigma-c", type=float, required=True, metavar="C", help="receiver noise per real coordinate")
    parser.add_argument(
        "--factor", type=float, default=1.0, help="extra factor of at least 1 (the paper's figures use 7)"
    )
    parser.add_argument(
        "--factor-on",
        choices=[f.value for f in FactorOn],
        default=FactorOn.AMPLITUDE.value,
        help="what the factor multiplies (default amplitude)",
    )
    parser.add_argument(
        "--neighbours",
        choices=[n.value for n in Neighbours],
        default=Neighbours.ZERO_OUT.value,
        help="between which data sets epsilon holds (default zero-out)",
    )
    parser.add_argument("--accountant", choices=["paper", "exact"], default="paper", help="which bound sizes the noise")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def call(options: argparse.Namespace) -> int:
    """Size and print."""
    if not 1 <= options.samples <= MOST_SAMPLES:
        raise PrivacyError(f"--samples is {options.samples}: expected 1 to {MOST_SAMPLES}")
    if not (math.isfinite(options.h_cj) and options.h_cj >= 0):
        raise PrivacyError(f"--h-cj is {options.h_cj}: expected a finite magnitude of at least 0")
    target = PrivacyTarget(
        epsilon=options.epsilon,
        delta=options.delta,
        uplinks=options.rounds,
        neighbours=Neighbours(options.neighbours),
        accountant=Accountant(options.accountant),
    )
    plan = size_jammer(
        sigma_required=target.sigma_required(np.array([options.samples])),
        alpha_u=options.alpha_u,
        gain=options.h_cj,
        noise_std_real=options.sigma_c,
        factor=options.factor,
        factor_on=FactorOn(options.factor_on),
    )
    sigma_channel = options.sigma_c / options.alpha_u
    sigma = math.hypot(options.h_cj * plan.alpha / options.alpha_u, sigma_channel)
    label = Label.PAPER_CLAIM.value
    conditions = f"{label}, {options.neighbours} neighbours, delta {options.delta:g}, accountant {options.accountant}"
    if options.json:
        print_json(
            {
                "alpha_cj": plan.alpha,
                "needed": plan.needed,
                "sigma_required": plan.sigma_required,
                "sigma_channel": sigma_channel,
                "sigma": sigma,
                "epsilon": options.epsilon,
                "delta": options.delta,
                "label": label,
                "neighbours": options.neighbours,
                "accountant": options.accountant,
                "sigma_origin": "set",
            }
        )
        return 0
    verdict = (
        f"the jammer must send with alpha_CJ = {plan.alpha:.6g}"
        if plan.needed
        else "the jammer stays silent: channel noise suffices"
    )
    RESULTS.print(
        f"epsilon {options.epsilon:g} ({conditions}) needs sigma = {plan.sigma_required:.6g} per real coordinate",
        soft_wrap=True,
    )
    RESULTS.print(f"the channel alone gives {sigma_channel:.6g}; {verdict}; together {sigma:.6g}", soft_wrap=True)
    return 0
