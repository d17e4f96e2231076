"""Where the error of an aggregate comes from: the part of each cause, predicted from measurements, against the whole.

All values are energies relative to that of the exact weighted sum, so that they add up; `nmse_db` is the whole,
measured.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.nodes.client import Departure
from fl.nodes.messages import Decision
from phy.units import power_ratio_to_db


@dataclass(frozen=True)
class Contribution:
    """What one client brought: what it decided, and how its update left."""

    decision: Decision
    weight: float
    departure: Departure


def error_budget(
    contributions: Sequence[Contribution],
    *,
    alpha_u: float,
    noise_var_real: float,
    jamming_var_real: float,
    converter_var_real: float,
    exact: NDArray[np.float32],
    received: NDArray[np.float32],
    backoff_bias: NDArray[np.float32],
) -> dict[str, float]:
    """Relative energies by cause. exact, received, backoff_bias: float32 (d,), aggregates in units of tau.

    thermal, jammer: d sigma^2/alpha_u^2. csi: sum (p_i/s_i)^2 ||u_i||^2 E|dH/H|^2. phase: the same with the phase's
        drift between sounding and payload. timing: the slope over the subcarriers that a clock's uncorrected drift
        leaves. clipping: energy cut off at the transmitters, as it arrives.
    quantisation: converters' steps. backoff: weight that power limits took. other: what remains of the measured error.
    """
    energy: float = max(float(np.vdot(exact, exact)), 1e-300)
    coordinates = exact.size

    def share(contribution: Contribution) -> float:
        departure = contribution.departure
        return (contribution.weight * departure.relative_norm / departure.backoff) ** 2

    csi = math.fsum(share(c) * c.decision.csi_error for c in contributions)
    # The mean over the payload of a drift that grows from its start is below its end value; the end value is the bound.
    drift = math.fsum(
        share(c) * max(0.0, c.decision.phase_error_rad**2 - c.decision.csi_error / 2) for c in contributions
    )
    timing = math.fsum(share(c) * c.decision.timing_error for c in contributions)
    clipping = math.fsum(c.departure.burst.clipped_energy for c in contributions) / alpha_u**2
    parts = {
        "thermal": coordinates * noise_var_real / alpha_u**2,
        "jammer": coordinates * jamming_var_real / alpha_u**2,
        "csi": csi,
        "phase": drift,
        "timing": timing,
        "clipping": clipping,
        "quantisation": coordinates * converter_var_real / alpha_u**2,
        "backoff": float(np.vdot(backoff_bias, backoff_bias)),
    }
    error = received - exact
    total = float(np.vdot(error, error))
    parts["other"] = total - math.fsum(parts.values())
    relative = {f"nmse_{name}": value / energy for name, value in parts.items()}
    return {
        "nmse_db": power_ratio_to_db(total / energy),
        "thermal_db": power_ratio_to_db(parts["thermal"] / energy),
        **relative,
    }
