"""Feed a run's captures through the receiver's own code again, without radios, and compare all that comes out bit for
bit: samples, measurements, sums, sigma, the ledger's mechanisms, epsilon, and the model where every uplink is there.

Exit code 3 where anything differs.
"""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fl.cli.output import RESULTS, print_json, shown

if TYPE_CHECKING:
    from fl.run.replay import Replay

DIFFERS = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("folder", type=Path, metavar="RUN", help="folder of a run that was recorded (run --record)")
    parser.add_argument("--uplink", type=int, metavar="N", help="replay this uplink alone (default: all captures)")
    parser.add_argument("--trust", action="store_true", help="import code that the folder's config names")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")


def call(options: argparse.Namespace) -> int:
    """Replay, print, and say by the exit code whether it is the same."""
    from fl.run.folder import RunFolder
    from fl.run.replay import replay

    played = replay(RunFolder(options.folder), options.uplink)
    if options.json:
        print_json({"folder": str(options.folder), **summary(played)})
    else:
        _print_table(played)
    return 0 if played.same else DIFFERS


def summary(played: "Replay") -> dict[str, Any]:
    """JSON-ready."""
    return {
        "same": played.same,
        "attempts": [
            {
                "uplink": attempt.uplink,
                "attempt": attempt.attempt,
                "ledger_row": attempt.seq,
                "outcome": attempt.outcome,
                "sigma": None if attempt.mechanism is None else attempt.mechanism.sigma,
                "differences": [{"quantity": one.quantity, "detail": one.detail} for one in attempt.found],
            }
            for attempt in played.attempts
        ],
        "not_recorded": [{"uplink": uplink, "ledger_row": seq} for uplink, seq in played.not_recorded],
        "model_same": played.model,
        "privacy": played.privacy.to_json(),
        "recorded_privacy": played.recorded_privacy.to_json(),
    }


def _print_table(played: "Replay") -> None:
    from rich.table import Table

    table = Table("uplink", "attempt", "outcome", "sigma", "replayed", title="replay", title_justify="left")
    for attempt in played.attempts:
        sigma = "" if attempt.mechanism is None else f"{attempt.mechanism.sigma:.6g}"
        verdict = f"{len(attempt.found)} differences" if attempt.found else "the same"
        table.add_row(str(attempt.uplink), str(attempt.attempt), attempt.outcome, sigma, verdict)
    RESULTS.print(table)
    for attempt in played.attempts:
        for one in attempt.found:
            RESULTS.print(f"uplink {attempt.uplink}: {one.quantity}: {one.detail}", soft_wrap=True, markup=False)
    for uplink, seq in played.not_recorded:
        RESULTS.print(f"uplink {uplink}: the transmission of row {seq} of the ledger was not recorded", soft_wrap=True)
    model = {None: "not every uplink is there", True: "the same", False: "another one"}[played.model]
    RESULTS.print(f"model: {model}")
    epsilons = ", ".join(f"{shown(value)} ({name.value})" for name, value in played.privacy.epsilon.items())
    kept = "as in the ledger" if played.privacy == played.recorded_privacy else "the ledger says otherwise"
    RESULTS.print(
        f"epsilon: {epsilons}; {played.privacy.label.value}, {played.privacy.conditions}; {kept}", soft_wrap=True
    )
