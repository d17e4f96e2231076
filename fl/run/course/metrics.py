"""What is kept of every uplink: a line of metrics.jsonl."""

import math
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class UplinkMetrics:
    """One line of metrics.jsonl: the model after the uplink, epsilon spent until then, and what power control did.

    signal_norm, noise_norm: l2 norms of the aggregate's two parts where they are known; step_norm: of the aggregate,
    which is the first model step.
    weight_received: sum of p_i/s_i. backed_off, clipped: clients. score: what `accuracy` is.
    """

    uplink: int
    rounds: int
    accuracy: float
    loss: float
    test_loss: float
    epsilon: float
    label: str
    sigma: float
    alpha_u: float
    alpha_cj: float
    jamming_client: int | None
    postponed: int
    backoff_max: float
    backed_off: int
    clipped: int
    weight_received: float
    signal_norm: float | None
    noise_norm: float | None
    step_norm: float
    seconds: float
    diagnostics: dict[str, float]
    score: str = "accuracy"

    @property
    def shown(self) -> str:
        """The score in words: a percentage, or R² as it is."""
        return f"{100 * self.accuracy:5.1f} %" if self.score == "accuracy" else f"{self.accuracy:.4f}"

    def to_json(self) -> dict[str, Any]:
        """The line's object."""
        return {name: _json_ready(value) for name, value in asdict(self).items()}


def _json_ready(value: Any) -> Any:
    """`value` with strings that `float` reads back for the numbers that JSON has not: inf, -inf, nan."""
    if isinstance(value, dict):
        return {key: _json_ready(part) for key, part in value.items()}
    return str(value) if isinstance(value, float) and not math.isfinite(value) else value
