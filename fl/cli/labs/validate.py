"""Attack a lab's privacy claim: neighbouring inputs many times over its radios, and how far apart they can be told.

Exit code 3: the claim is refuted.
"""

import argparse
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.labs.validation_tables import print_composed, print_observer, print_validation
from fl.cli.output import PROGRESS, print_json
from fl.errors import ConfigError

if TYPE_CHECKING:
    from fl.audit.attack import Attack
    from fl.audit.trials import Trials
    from fl.audit.verdict import Validation
    from fl.nodes.air_format import AirFormat
    from fl.uplink.jammer import JammerRole
    from hardware.lab.model import Lab

REFUTED = 3
DEFAULT_TRIALS = 2000
_DELTA = 1e-5
_MOST_TRIALS = 1_000_000
_EXAMPLES = (0.5, 1.0, 1.5)
"""mu for which epsilon against an observer is shown beside the claimed one."""
_ROLES = ("dedicated", "rotating", "none")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("lab", metavar="LAB", help="shipped name or lab file")
    parser.add_argument(
        "--trials",
        type=int,
        default=DEFAULT_TRIALS,
        metavar="N",
        help=f"of each hypothesis, of every client (default {DEFAULT_TRIALS})",
    )
    parser.add_argument("--client", metavar="NAME", help="attack this client only (default: each)")
    parser.add_argument("--observer", metavar="NAME", help="what this radio of the lab receives, instead of the ps")
    parser.add_argument("--jammer", choices=_ROLES, help="who jams (default: the lab's jammer where it has one)")
    parser.add_argument(
        "--jamming", type=float, default=1.2, metavar="R", help="jammer's noise over the receiver's (default 1.2)"
    )
    parser.add_argument("--payload-rms", type=float, metavar="A", help="power limit of clients (default: a run's)")
    parser.add_argument(
        "--sounding-symbols", type=int, metavar="N", help="longer soundings make margins smaller (default: a run's)"
    )
    parser.add_argument(
        "--blocks",
        type=int,
        metavar="N",
        help="instead of trials: N uplinks in fading of their own, each attacked by linear algebra, composed",
    )
    parser.add_argument(
        "--set", action="append", default=[], metavar="A.B=C", help="override a key of the lab file, may be repeated"
    )
    parser.add_argument("--backend", metavar="NAME", help="reach the lab's radios through this backend")
    parser.add_argument("--seed", type=int, default=1, metavar="N", help="of inputs and of a simulated air (default 1)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="write index.html and pictures there")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Attack, judge, print."""
    lab = _lab(options)
    _check(lab, options)
    return _compose(lab, options) if options.blocks is not None else _try(lab, options)


def _lab(options: argparse.Namespace) -> "Lab":
    """The lab, with the keys that --set gives."""
    import tomllib

    from fl.run.config import apply_override
    from hardware.lab.file import find_lab, on_backend, parse_lab

    lab = find_lab(options.lab, options.backend)
    if not options.set:
        return lab
    data = tomllib.loads(Path(lab.source).read_text(encoding="utf-8"))
    for override in options.set:
        apply_override(data, override)
    changed = parse_lab(data, f"{lab.source} with --set {' --set '.join(options.set)}")
    return on_backend(changed, options.backend) if options.backend else changed


def _check(lab: "Lab", options: argparse.Namespace) -> None:
    if not 32 <= options.trials <= _MOST_TRIALS:
        raise ConfigError(f"--trials is {options.trials}: expected 32 to {_MOST_TRIALS}")
    if not (math.isfinite(options.jamming) and options.jamming > 0):
        raise ConfigError(f"--jamming is {options.jamming}: expected a number above 0")
    if options.blocks is not None and options.blocks < 1:
        raise ConfigError(f"--blocks is {options.blocks}: expected 1 or more")
    names = [radio.name for radio in lab.clients]
    if options.client is not None and options.client not in names:
        raise ConfigError(f"lab '{lab.name}' has no client '{options.client}': it has {', '.join(names)}")
    observers = [radio.name for radio in lab.observers]
    if options.observer is not None and options.observer not in observers:
        listed = ", ".join(observers) or "none"
        raise ConfigError(f"lab '{lab.name}' has no observer '{options.observer}': it has {listed}; see [[radio]] role")
    if options.observer is not None and options.blocks is not None:
        raise ConfigError("--observer and --blocks: expected one of them; blocks are composed for the ps")


def _role(lab: "Lab", options: argparse.Namespace) -> "JammerRole":
    from fl.uplink.jammer import JammerRole

    return JammerRole(options.jammer or ("none" if lab.jammer is None else "dedicated"))


def _air(lab: "Lab", options: argparse.Namespace, symbols: int) -> "AirFormat":
    """The format of a run over this lab, confidence of its bounds included, with a short payload."""
    from fl.run.assemble import air_format
    from fl.run.config import parse_config

    given = {"payload_rms": options.payload_rms, "sounding_symbols": options.sounding_symbols}
    config = parse_config(
        {
            "uplink": {"kind": "radio"},
            "partition": {"clients": len(lab.clients)},
            "jammer": {"role": _role(lab, options).value},
            "radio": {name: value for name, value in given.items() if value is not None},
        },
        "airdp validate",
    )
    short = air_format(config, lab, coordinates=1)
    return replace(short, coordinates=symbols * short.numerology.coordinates_per_symbol)


def _attacked(lab: "Lab", options: argparse.Namespace) -> tuple[int, ...]:
    """Numbers of the clients."""
    return tuple(number for number, radio in enumerate(lab.clients) if options.client in (None, radio.name))


def _try(lab: "Lab", options: argparse.Namespace) -> int:
    from fl.audit.verdict import judge

    attacks = _attacks(lab, options)
    with _progress() as said:
        trials = [_made(lab, attack, said) for attack in attacks]
    validation = judge(trials)
    facts = _facts(lab, attacks[0], trials)
    page = None if options.out is None else _write(options.out, validation, trials, facts)
    if options.json:
        print_json(
            {
                **validation.to_json(),
                **facts,
                **_against(validation, options.observer),
                "page": None if page is None else str(page),
            }
        )
    else:
        print_validation(validation, facts, page)
        print_observer(_against(validation, options.observer))
    return 0 if validation.holds else REFUTED


def _compose(lab: "Lab", options: argparse.Namespace) -> int:
    from fl.audit.composed import SYMBOLS, Composition, compose
    from hardware.lab.opened import open_lab

    if options.out is not None:
        raise ConfigError("--out is for trials: --blocks has no page; use --json")
    air = _air(lab, options, SYMBOLS)
    wanted = Composition(options.blocks, _attacked(lab, options), _role(lab, options), air, options.seed)
    with _progress() as said, open_lab(lab, options.seed) as opened:
        composed = compose(opened, wanted, lambda done: said("blocks", done, options.blocks))
    facts = {"lab": lab.name, "backend": lab.backend.name, "jammer": wanted.jammer.value, "seed": options.seed}
    if options.json:
        print_json({**composed.to_json(), **facts})
    else:
        print_composed(composed, lab.name)
    return 0 if composed.holds else REFUTED


def _attacks(lab: "Lab", options: argparse.Namespace) -> "list[Attack]":
    from fl.audit.attack import SYMBOLS, Attack
    from fl.audit.verdict import WORST

    air = _air(lab, options, SYMBOLS)
    return [
        Attack(
            client=number,
            uplinks=max(8, 2 * math.ceil(options.trials / WORST)),
            air=air,
            seed=options.seed,
            jammer=_role(lab, options),
            jamming=options.jamming,
            observer=options.observer,
        )
        for number in _attacked(lab, options)
    ]


def _made(lab: "Lab", attack: "Attack", said: Callable[[str, int, int], None]) -> "Trials":
    from fl.audit.trials import make_trials
    from hardware.lab.opened import open_lab

    name = lab.clients[attack.client].name
    with open_lab(lab, attack.seed) as opened:
        return make_trials(opened, attack, lambda done: said(name, done, attack.uplinks))


def _facts(lab: "Lab", attack: "Attack", trials: "list[Trials]") -> dict[str, Any]:
    mechanism = trials[0].mechanism
    jamming = mechanism.alpha_cj * mechanism.jammer_gain
    return {
        "lab": lab.name,
        "backend": lab.backend.name,
        "jammer": attack.jammer.value,
        "jammer_over_receiver": jamming / mechanism.noise_std_real,
        "uplinks": attack.uplinks,
        "receiver": attack.observer or lab.ps.name,
        "seed": attack.seed,
        "neighbours": "zero-out",
        "label": "client",
    }


def _against(validation: "Validation", observer: str | None) -> dict[str, Any]:
    """What holds against an observer: mu by which every claimed one is to be multiplied, and epsilon of an uplink."""
    if observer is None:
        return {}
    from fl.audit.runs.bounds import epsilon_of_mu
    from fl.audit.verdict import View

    found = validation.worst(View.SAMPLES)
    client = next(client for client in validation.clients if client.client == found.client)
    # The measured value may be below what algebra knows, by chance and by converters; the larger one holds.
    factor = max(client.predicted_mu, client.fitted.interval()[1]) / found.claimed_mu
    return {
        "observer": {
            "name": observer,
            "factor": factor,
            "epsilon": [
                {
                    "mu": claimed,
                    "claimed": epsilon_of_mu(claimed, _DELTA),
                    "holds": epsilon_of_mu(factor * claimed, _DELTA),
                }
                for claimed in _EXAMPLES
            ],
            "delta": _DELTA,
        }
    }


@contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    with Progress(*columns, console=PROGRESS, disable=not PROGRESS.is_interactive, transient=True) as progress:
        task = progress.add_task("opening the lab", total=None)
        yield lambda name, done, total: progress.update(task, completed=done, total=total, description=name)


def _write(out: Path, validation: "Validation", trials: "list[Trials]", facts: dict[str, Any]) -> Path:
    from fl.audit.shown.page import write_page
    from fl.audit.shown.picture import draw, save

    out.mkdir(parents=True, exist_ok=True)
    pictures = {made.client: out / f"{made.client}.png" for made in trials}
    for made in trials:
        save(draw(made), pictures[made.client])
    return write_page(out, validation, facts, pictures)
