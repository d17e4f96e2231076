"""What opening a long ledger costs: `python -m tests.fl.privacy.long_ledger --clients 50 --rows 100000`."""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.ledger_rows import GENESIS, encode
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours

TIME = "2026-01-01T00:00:00.000+00:00"


def write(path: Path, clients: int, rows: int) -> None:
    """Uplinks that were authorised and accounted for, written without waiting for the disk."""
    rng, head, seq = np.random.default_rng(1), GENESIS, 0
    header = LedgerHeader(tuple(range(40, 40 + clients)), 1e-5, Label.CLIENT, Neighbours.ZERO_OUT, "c0ffee")
    bounds = (("gain", 1e-9), ("noise", 1e-9))
    with path.open("wb") as file:

        def add(kind: str, fields: dict[str, Any]) -> None:
            nonlocal head, seq
            line, head = encode({"seq": seq, "kind": kind, "time": TIME, **fields, "prev": head})
            file.write(line)
            seq += 1

        add("open", header.to_json())
        for uplink in range(1, rows // 2):
            gains, sigma = tuple(rng.random(clients)), float(rng.random()) + 0.1
            one = RoundMechanism(
                uplink, gains, sigma, SigmaOrigin.MEASURED, False, 1.0, 1e-5, 0.5, 0.1, 1.0, bounds=bounds
            ).to_json()
            add("authorise", {"mechanism": one})
            add("account", {"authorised_seq": seq - 1, "mechanism": one})


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=3)
    parser.add_argument("--rows", type=int, default=100_000)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        write(path, given.clients, given.rows)
        before, taken = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
        for _ in range(5):
            started = time.process_time()
            with Ledger.open(path, resumed=False) as ledger:
                loss = float(ledger.losses.max())
            taken.append(time.process_time() - started)
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        sys.stdout.write(
            f"{given.rows} rows of {given.clients} clients, {path.stat().st_size / 1e6:.0f} MB: opened in "
            f"{min(taken):.2f} to {max(taken):.2f} s of processor time, {grown:.0f} MiB more memory, S {loss:.4g}\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
