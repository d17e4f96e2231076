"""The exact weighted sum of an uplink, and the error budget of what arrived instead.

The cost is a product and a sum of the model's size for each client, and a few norms: see the benchmark `radio-uplink`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from fl.nodes.client import Departure
from fl.nodes.coordinator import Round
from fl.nodes.diagnosis.budget import Contribution, error_budget
from fl.privacy.clipping import BoundedUpdate


@dataclass
class Diagnosis:
    """The exact weighted sum of one uplink, collected as updates pass. weights: p_i (K,). In units of tau.

    lost: what power limits take from it, sum p_i (1 - 1/s_i) u_i / tau.
    """

    coordinates: int
    weights: NDArray[np.float64]
    clip_norm: float
    exact: NDArray[np.float32] = field(init=False)
    lost: NDArray[np.float32] = field(init=False)
    _term: NDArray[np.float32] = field(init=False)

    def __post_init__(self) -> None:
        """Nothing has passed yet."""
        self.exact = np.zeros(self.coordinates, np.float32)
        self.lost = np.zeros(self.coordinates, np.float32)
        self._term = np.empty(self.coordinates, np.float32)

    def observe(self, client: int, update: BoundedUpdate, departure: Departure) -> None:
        """An update has been sent."""
        share = float(self.weights[client]) / self.clip_norm
        self._add(update, share, self.exact)
        if departure.backoff > 1.0:
            self._add(update, share * (1.0 - 1.0 / departure.backoff), self.lost)

    def _add(self, update: BoundedUpdate, factor: float, total: NDArray[np.float32]) -> None:
        # Not saxpy: the threads of BLAS wait for each other, for milliseconds where other work holds one of them up.
        np.multiply(update.values, np.float32(factor), out=self._term)
        total += self._term

    def numbers(
        self,
        current: Round,
        departures: Sequence[tuple[int, Departure]],
        received: NDArray[np.float32],
        *,
        converter_var_real: float,
    ) -> dict[str, float]:
        """The error budget of `received` (d,), in units of tau. converter_var_real: of all senders' converters."""
        plan = current.plan
        contributions = [
            Contribution(current.decisions[client], float(self.weights[client]), departure)
            for client, departure in departures
        ]
        budget = error_budget(
            contributions,
            alpha_u=plan.alpha_u,
            noise_var_real=current.soundings.noise.noise_var_real,
            jamming_var_real=(plan.jammer.alpha * plan.jammer.gain) ** 2,
            converter_var_real=converter_var_real,
            exact=self.exact,
            received=received,
            backoff_bias=self.lost,
        )
        clipped = float(sum(departure.burst.clipped_samples for _, departure in departures))
        return {**budget, "clipped_samples": clipped}
