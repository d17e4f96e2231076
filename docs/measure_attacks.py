"""Attacks on every simulated lab under every condition of the guide: `python -m docs.measure_attacks FOLDER [ROW ...]`.

A row is a lab and a condition, `loopback-harsh.rotating`; without any all are made. Each is an `airdp validate --json`,
kept as ROW.json in the folder, where what is there already stays. Prints the guide's table of what the folder holds.
"""

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

CLIENT = {"loopback-harsh": "client-2"}
"""Under attack; `client-1` elsewhere."""
ALGEBRA = ("loopback", "loopback-harsh", "loopback-free-clock")
"""Labs whose air is in this process, so that the gain is known by linear algebra."""
CONDITIONS = {
    "dedicated": ("dedicated jammer", ("--jammer", "dedicated")),
    "none": ("no jammer", ("--jammer", "none")),
    "rotating": ("rotating jammer", ("--jammer", "rotating")),
    "strong": ("strong jammer, 10 times", ("--jamming", "10", "--set", "medium.noise_var_complex=5e-7")),
    "back-off": ("back-off", ("--jammer", "none", "--payload-rms", "0.005")),
}
HARSH = {
    "rotating": (
        "rotating jammer, 0.6 times",
        ("--jammer", "rotating", "--jamming", "0.6", "--set", "medium.noise_var_complex=3e-7"),
    ),
    "strong": ("strong jammer, 10 times", ("--jamming", "10", "--set", "medium.noise_var_complex=1e-6")),
}
LABS = ("loopback", "loopback-harsh", "loopback-free-clock", "pluto-virtual", "gnuradio", "usrp-virtual")
ROWS = tuple(f"{lab}.{condition}" for lab in LABS for condition in CONDITIONS)
HEAD = (
    "lab",
    "conditions",
    "claimed",
    "samples, worst 16",
    "samples, worst, all trials",
    "cells, all",
    "algebra",
    "noise",
    "gain",
    "resolution",
    "against the claim",
)


def conditions_of(row: str) -> tuple[str, tuple[str, ...]]:
    """What a row's conditions are called, and the options that make them."""
    lab, _, condition = row.partition(".")
    return (HARSH if lab == "loopback-harsh" else {}).get(condition, CONDITIONS[condition])


def attack(row: str, folder: Path) -> None:
    """Make one row. Exit code 3 is a refuted claim, which is a result too."""
    lab = row.partition(".")[0]
    command = (str(Path(sys.executable).with_name("airdp")), "validate", lab, "--json")
    client = ("--client", CLIENT.get(lab, "client-1"))
    done = subprocess.run([*command, *client, *conditions_of(row)[1]], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"{row}: exit code {done.returncode}")
    (folder / f"{row}.json").write_text(done.stdout, encoding="utf-8")


def cells_of(row: str, found: Mapping[str, Any]) -> tuple[str, ...]:
    """One row of the guide's table from what the command printed."""
    lab, client = row.partition(".")[0], found["clients"][0]
    attacks = {(each["view"], each["direction"]): each for each in client["attacks"]}
    # Each jammer's own findings have its name; the table has those of all together.
    parts = {(each["part"], each["scope"]): each for each in client["parts"] if "jammer" not in each}
    gain = parts["gain", "algebra" if lab in ALGEBRA else "eighth"]
    worst, fitted = attacks["samples", "worst"], client["worst_direction"]
    below = "below" if fitted["below_claim"] else "not above"
    return (
        f"`{lab}`",
        conditions_of(row)[0],
        f"{client['claimed_mu']:.2f}",
        _with_interval(worst),
        _with_interval(fitted),
        f"{attacks['cells', 'every']['measured_mu']:.2f}",
        f"{client['predicted_mu']:.2f}",
        f"{parts['noise', 'eighth']['measured'] / parts['noise', 'eighth']['claimed']:.3f}",
        f"{gain['measured'] / gain['claimed']:.3f}",
        f"{100 * found['resolution']:.1f} %",
        "**refuted**" if found["verdict"] == "refuted" else below,
    )


def _with_interval(found: Mapping[str, Any]) -> str:
    low, high = found["ci"]
    return f"{found['measured_mu']:.2f} ({low:.2f}–{high:.2f})"


def _say(cells: tuple[str, ...]) -> None:
    sys.stdout.write(f"| {' | '.join(cells)} |\n")


def main() -> None:
    """Make what is missing, print the table."""
    folder, wanted = Path(sys.argv[1]), tuple(sys.argv[2:]) or ROWS
    unknown = sorted(set(wanted) - set(ROWS))
    if unknown:
        raise SystemExit(f"no row '{unknown[0]}': expected one of {', '.join(ROWS)}")
    folder.mkdir(parents=True, exist_ok=True)
    for row in wanted:
        if not (folder / f"{row}.json").exists():
            attack(row, folder)
    _say(HEAD)
    _say(("---",) * len(HEAD))
    for row in ROWS:
        kept = folder / f"{row}.json"
        if kept.exists():
            _say(cells_of(row, json.loads(kept.read_text(encoding="utf-8"))))


if __name__ == "__main__":
    main()
