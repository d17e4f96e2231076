"""What power control and the jammer did: shares and sizes over all uplinks of all trials of a curve."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.privacy.mechanism import RoundMechanism
from fl.report.sources import Curve, Trial

Quantiles = tuple[float, float, float]
LEVELS = (0.05, 0.5, 0.95)


def quantiles(values: NDArray[np.float64]) -> Quantiles | None:
    """5 %, 50 % and 95 % of the values that are numbers, infinity among them; None where there is none."""
    known = values[~np.isnan(values)]
    if not known.size:
        return None
    low, middle, high = np.quantile(known, LEVELS, method="inverted_cdf")
    return float(low), float(middle), float(high)


@dataclass(frozen=True)
class PowerRow:
    """Shares in [0, 1] of (client, uplink) pairs, over the clients that sent; norms as in the metrics.

    backoff_max: largest s_i of any. weight: sum of p_i/s_i. sigma: per real coordinate, in units of tau.
    """

    curve: Curve
    uplinks: int
    backed_off: float
    backoff_median: float
    backoff_max: float
    weight: Quantiles | None
    alpha_u: Quantiles | None
    clipped: float
    signal_norm: Quantiles | None
    noise_norm: Quantiles | None
    sigma: Quantiles | None


def power_row(curve: Curve) -> PowerRow | None:
    """None where no uplink was made."""
    senders = int(sum(trial.senders.sum() for trial in curve.trials))
    if not senders:
        return None
    backoffs = quantiles(_all(curve, "backoff_max"))
    return PowerRow(
        curve=curve,
        uplinks=sum(trial.uplinks for trial in curve.trials),
        backed_off=float(_all(curve, "backed_off").sum()) / senders,
        backoff_median=float("nan") if backoffs is None else backoffs[1],
        backoff_max=float(_all(curve, "backoff_max").max()),
        weight=quantiles(_all(curve, "weight_received")),
        alpha_u=quantiles(_all(curve, "alpha_u")),
        clipped=float(_all(curve, "clipped").sum()) / senders,
        signal_norm=quantiles(_all(curve, "signal_norm")),
        noise_norm=quantiles(_all(curve, "noise_norm")),
        sigma=quantiles(_mechanisms(curve, lambda mechanism: mechanism.sigma)),
    )


@dataclass(frozen=True)
class JammerRow:
    """Of the ledgers' transmissions. active: share with alpha_CJ > 0. alpha_cj, energy: over those alone.

    energy: the jammer's part of the noise's energy, in [0, 1]. postponed: soundings given up because it was absent.
    """

    curve: Curve
    transmissions: int
    active: float
    alpha_cj: Quantiles | None
    energy: Quantiles | None
    postponed: int


def jammer_row(curve: Curve) -> JammerRow | None:
    """None where no uplink was made."""
    alphas = _mechanisms(curve, lambda mechanism: mechanism.alpha_cj)
    if not alphas.size:
        return None
    active = alphas > 0
    return JammerRow(
        curve=curve,
        transmissions=alphas.size,
        active=float(active.mean()),
        alpha_cj=quantiles(alphas[active]),
        energy=quantiles(_mechanisms(curve, _jammer_energy)[active]),
        postponed=int(_all(curve, "postponed").sum()),
    )


def _jammer_energy(mechanism: RoundMechanism) -> float:
    jammer, channel = (mechanism.jammer_gain * mechanism.alpha_cj) ** 2, mechanism.noise_std_real**2
    return jammer / (jammer + channel) if jammer > 0 else 0.0


def _all(curve: Curve, metric: str) -> NDArray[np.float64]:
    return np.concatenate([trial.metrics[metric] for trial in curve.trials])


def _mechanisms(curve: Curve, value: Callable[[RoundMechanism], float]) -> NDArray[np.float64]:
    def of(trial: Trial) -> list[float]:
        return [value(mechanism) for mechanism in trial.ledger.mechanisms]

    return np.array([number for trial in curve.trials for number in of(trial)], dtype=np.float64)
