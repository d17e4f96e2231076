"""What the score of runs is, and how it is written: accuracy in percent, R² as it is."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

ACCURACY = "accuracy"
_MIXED = "score"


@dataclass(frozen=True)
class Score:
    """Values are multiplied by `scale` and lie in low .. high. unit: as it stands after the name. step: of a gap."""

    name: str
    unit: str
    step: str
    scale: float
    digits: int
    low: float
    high: float

    @property
    def title(self) -> str:
        """Of an axis or a column."""
        return f"test {self.name}{self.unit}"

    def number(self, value: float) -> str:
        """Without its unit."""
        return f"{self.scale * value:.{self.digits}f}"


def score_of(names: Iterable[str]) -> Score:
    """names: of the trials' scores (`Target.score`). Where they are not one, each is given as it is, at best 1."""
    found = set(names) or {ACCURACY}
    if found == {ACCURACY}:
        return Score(ACCURACY, " in %", " in points", 100.0, 2, 0.0, 100.0)
    return Score(found.pop() if len(found) == 1 else _MIXED, "", "", 1.0, 4, -math.inf, 1.0)
