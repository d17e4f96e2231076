"""The outcome of a run, in Python, in JSON and in a notebook."""

import math
from base64 import b64encode
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import nn

from fl.privacy.statement import PrivacyStatement, json_number
from fl.run.folder import RunFolder
from fl.uplink.liu_simeone import Allocation

FINISHED, BUDGET_SPENT = "finished", "budget spent"
_NO_NUMBERS = ("label", "score", "diagnostics")


@dataclass(frozen=True)
class RunResult:
    """The outcome of a run. privacy: the claimed label first, then the others that hold or are published.

    allocation, published: of a run under a baseline's power control, what it planned for all uplinks, and the epsilon
    that its authors would state for what was sent. transmissions_unaccounted: of those that were charged, how many were
    cut off, and count without the jammer. score: what `accuracy` is. model: with the parameters of the last uplink.
    """

    out: Path
    status: str
    accuracy: float
    loss: float
    test_loss: float
    uplinks: int
    rounds: int
    transmissions_charged: int
    transmissions_unaccounted: int
    model_sha256: str
    privacy: tuple[PrivacyStatement, ...]
    allocation: Allocation | None
    published: PrivacyStatement | None
    score: str
    model: nn.Module = field(repr=False, compare=False)

    @property
    def history(self) -> dict[str, NDArray[np.float64]]:
        """Every number of metrics.jsonl by name, an entry for each uplink; NaN where there was none."""
        kept = RunFolder(self.out).metrics()
        rows = [{**row, **row["diagnostics"]} for row in kept]
        names = [name for name in dict.fromkeys(name for row in rows for name in row) if name not in _NO_NUMBERS]
        return {name: np.array([_as_float(row.get(name)) for row in rows]) for name in names}

    def _repr_html_(self) -> str:
        """A table and the learning curve, for notebooks."""
        percent = self.score == "accuracy"
        facts = {
            f"test {self.score}": f"{100 * self.accuracy:.2f} %" if percent else f"{self.accuracy:.4g}",
            "uplinks": f"{self.uplinks} ({self.status})",
            **{f"ε, {statement.label.value}": _epsilons(statement) for statement in self.privacy},
            "ε holds for": self.privacy[0].conditions,
            "folder": str(self.out),
        }
        left = 'style="text-align: left"'
        rows = "".join(
            f"<tr><th {left}>{escape(name)}</th><td {left}>{escape(value)}</td></tr>" for name, value in facts.items()
        )
        picture = RunFolder(self.out).figures_path / "learning.png"
        if not picture.exists():
            return f"<table>{rows}</table>"
        encoded = b64encode(picture.read_bytes()).decode()
        shown = f'<img style="max-width: 100%" alt="learning curve" src="data:image/png;base64,{encoded}">'
        return f"<table>{rows}</table>{shown}"

    def to_json(self) -> dict[str, Any]:
        """The object that `airdp run --json` prints."""
        claimed = self.privacy[0].to_json()
        return {
            "accuracy": self.accuracy,
            "score": self.score,
            "loss": None if math.isnan(self.loss) else json_number(self.loss),
            "test_loss": json_number(self.test_loss),
            "rounds": self.rounds,
            "uplinks": self.uplinks,
            "epsilon": claimed["epsilon"],
            "label": claimed["label"],
            "neighbours": claimed["neighbours"],
            "view": claimed["view"],
            "delta": claimed["delta"],
            "delta_split": claimed["delta_split"],
            "confidence": claimed["confidence"],
            "trust": claimed["trust"],
            "sigma_origin": claimed["sigma_origin"],
            "privacy": [statement.to_json() for statement in self.privacy],
            "transmissions_charged": self.transmissions_charged,
            "transmissions_unaccounted": self.transmissions_unaccounted,
            "status": self.status,
            "model_sha256": self.model_sha256,
            **({} if self.allocation is None else {"allocation": self.allocation.to_json()}),
            **({} if self.published is None else {"published": self.published.to_json()}),
            "out": str(self.out),
        }


def _epsilons(statement: PrivacyStatement) -> str:
    """Under each accountant, and infinity as a word."""
    words = {name: f"{value:.4g}" if math.isfinite(value) else "infinite" for name, value in statement.epsilon.items()}
    return ", ".join(f"{word} ({name.value})" for name, word in words.items())


def _as_float(value: Any) -> float:
    return math.nan if value is None else float(value)
