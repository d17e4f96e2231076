"""What the shipped simulated labs claim, beside what there is: `python -m docs.measure_claims`.

For each of them, a run as it is shipped: epsilon, the sum's error above the noise, accuracy. And the same uplinks with
updates of zeros, whose sum is all the noise that there is: mu as it is claimed over mu as it is, all uplinks together.
With a number N, accuracy over the seeds 1 to N besides.

CELLS has the same of version 0.1.0, which sent payloads with a cyclic prefix and claimed for the view `cells`. What the
noise was that it claimed `THEN` of, and what is claimed of that noise now, is the last figure.
"""

import math
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from fl.privacy.accountant import Accountant, epsilon_paper, loss_for_epsilon
from fl.privacy.clipping import clip_update
from fl.run import run
from fl.run.assemble import Parts, assemble
from fl.run.config import resolve_config

UPLINKS = 30
DELTA = 1e-5
THEN = 4.93
CELLS = {
    ("loopback", "dedicated"): 1.043,
    ("loopback", "none"): 1.042,
    ("loopback-harsh", "dedicated"): 1.198,
    ("loopback-harsh", "none"): 1.206,
}


class _Nobody:
    """Looks at nothing."""

    def tap(self, lab: object) -> None:
        """See `Onlooker`."""

    def attach(self, uplink: object) -> None:
        """See `Onlooker`."""


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory() as folder:
        yield Path(folder) / "run"


def claimed_over_true(parts: Parts, clip_norm: float) -> float:
    """mu of the worst client by the accounts over mu of its nominal weight in the noise that arrives, composed."""
    zeros = clip_update(np.zeros(parts.start.size, np.float32), clip_norm)
    claimed, true = [], []
    with parts.open_uplink(_Nobody()) as uplink:
        for number in range(1, UPLINKS + 1):
            plan = uplink.plan(number, 0)
            done = uplink.exchange(plan, ((client, zeros) for client in plan.senders), lambda: None)
            noise_std = float(np.std(done.values.astype(np.float64))) / clip_norm
            claimed.append(max(done.mechanism.received_gains) / done.mechanism.sigma)
            true.append(max(1.0 / plan.powers[client].backoff for client in plan.senders) / noise_std)
    return math.hypot(*claimed) / math.hypot(*true)


def epsilon_now(ratio: float, then: float) -> float:
    """Of noise of which `THEN` was claimed."""
    return epsilon_paper(loss_for_epsilon(Accountant.PAPER, THEN, DELTA) * (ratio / then) ** 2, DELTA)


def above_noise_db(diagnostics: Mapping[str, float]) -> float:
    """The sum's error over receiver's and planned jammer's noise."""
    noise = diagnostics["nmse_thermal"] + diagnostics["nmse_jammer"]
    return diagnostics["nmse_db"] - 10.0 * math.log10(noise)


def _run(name: str, **overrides: Any) -> tuple[float, float, float]:
    """Epsilon by `paper`, mean error above the noise in dB, accuracy in percent."""
    above: list[float] = []
    with _folder() as folder:
        result = run(
            name, folder, overrides=overrides, on_uplink=lambda seen: above.append(above_noise_db(seen.diagnostics))
        )
    return result.privacy[0].epsilon[Accountant.PAPER], float(np.mean(above)), 100.0 * result.accuracy


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def main() -> None:
    """Print everything."""
    seeds = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    for name in ("loopback", "loopback-harsh", "loopback-free-clock"):
        epsilon, above, accuracy = _run(name)
        _say(f"{name}: epsilon {epsilon:.3f}, {above:.2f} dB above the noise, accuracy {accuracy:.2f} %")
        for jammer in ("dedicated", "none"):
            then = CELLS.get((name, jammer))
            if then is None:
                continue
            config = resolve_config(name, {"jammer.role": jammer})
            ratio = claimed_over_true(assemble(config), config.privacy.clip_norm)
            now = epsilon_now(ratio, then)
            _say(
                f"  jammer {jammer}: mu is claimed as {ratio:.3f} of what it is, once {then:.3f}: noise once claimed "
                f"as {THEN} is claimed as {now:.2f} ({100 * (now / THEN - 1):+.1f} %)"
            )
        if seeds:
            found = np.array([_run(name, seed=seed)[2] for seed in range(1, seeds + 1)])
            error = found.std(ddof=1) / math.sqrt(seeds)
            _say(f"  accuracy over the seeds 1 to {seeds}: {found.mean():.2f} +- {error:.2f} %")


if __name__ == "__main__":
    main()
