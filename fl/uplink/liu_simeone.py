"""Baseline: the power control of Liu and Simeone 2020 for over-the-air sums (NOMA), without artificial noise.

Every client is received with the same c_t, h_k alpha_k = c_t, so the weakest channel limits all, and nobody backs off.
With alpha_u = n tau c_t that is this project's uplink under another rule for alpha_u (conventions and factors of two:
`fl.privacy.liu_simeone`). Gradient descent that leaves 1 - mu/L of its optimality gap after every uplink forgets early
noise, so the c_t over all M uplinks minimise the part of the final gap that noise causes,

    sum_t (1 - mu/L)^-t N_0 / c_t^2    with    c_t^2 <= X_t = min_k P_k |h_k|^2 / (n_k tau)^2    and    S <= budget,

which is convex in c_t^2. If c_t^2 = X_t keeps the budget, privacy is free. Else

    c_t^2 = min{ N_0 (1 - mu/L)^(-t/2) / (sqrt(2 zeta) tau), X_t },    zeta such that the budget is spent exactly.

This is the offline optimum: it takes the gains of all clients in all M uplinks before the first one. A simulated
channel can give them, a real one cannot: it is the best case for the baseline. Adaptive power control takes a client's
own gain in the current uplink.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.privacy.statement import json_number
from fl.privacy.target import PrivacyTarget
from fl.random_streams import Stream
from fl.uplink.channel import Channel
from fl.uplink.power_control import alpha_u_without_backoff

SMALLEST_SHARE = 1e-60
"""Of the first uplink's power in the last one's: 1e-30 in amplitude is noise that float32 hardly holds."""


@dataclass(frozen=True)
class Allocation:
    """alpha_u: of every uplink, float64 (M,). limited: where the weakest channel sets it, c_t^2 = X_t, bool (M,).

    zeta: that of the published rule, 0 where privacy is free. target: what may be spent. planned: S of all M uplinks.
    All of it is public: sizes, gains and limits enter, data does not.
    """

    alpha_u: NDArray[np.float64]
    limited: NDArray[np.bool_]
    zeta: float
    target: PrivacyTarget
    planned: float

    @property
    def free(self) -> bool:
        """Whether the power limits alone keep the budget."""
        return bool(self.limited.all())

    def to_json(self) -> dict[str, Any]:
        """What a run says about its allocation; its alpha_u are in the metrics."""
        return {
            "control": "liu-simeone",
            "gains": "all known in advance",
            "privacy_free": self.free,
            "zeta": json_number(self.zeta),
            "uplinks": self.alpha_u.size,
            "uplinks_limited_by_power": int(np.count_nonzero(self.limited)),
            "planned_S": self.planned,
            "budget_S": self.target.total_loss,
            "budget": {
                "epsilon": self.target.epsilon,
                "delta": self.target.delta,
                "label": self.target.label.value,
                "neighbours": self.target.neighbours.value,
                "accountant": self.target.accountant.value,
            },
        }


def largest_alpha_u(
    channel: Channel,
    streams: Callable[[Stream, int], np.random.Generator],
    sizes: NDArray[np.int64],
    limits: NDArray[np.float64],
    uplinks: int,
) -> NDArray[np.float64]:
    """n tau sqrt(X_t) of every uplink, float64 (M,): `channel` and `streams` as the uplink will use them."""
    weights = sizes / sizes.sum()
    largest = np.empty(uplinks)
    for number in range(1, uplinks + 1):
        gains = channel.state(number, streams(Stream.CHANNEL, number)).clients
        if not np.abs(gains).all():
            raise ConfigError(
                f"client {int(np.argmin(np.abs(gains)))} has gain 0 in uplink {number}: "
                "clients that are all received alike cannot send then; use power.control = 'adaptive'"
            )
        largest[number - 1] = alpha_u_without_backoff(weights, gains, limits)
    return largest


def allocate(
    largest: NDArray[np.float64],
    target: PrivacyTarget,
    *,
    sizes: NDArray[np.int64],
    noise_std_real: float,
    clip_norm: float,
    contraction: float,
) -> Allocation:
    """The optimum for the budget of `target`. largest: n tau sqrt(X_t), (M,). contraction: mu/L in [0, 1)."""
    uplinks = largest.size
    # S of an uplink is Delta^2/(2 sigma_t^2) = alpha_u^2 price.
    price = 0.5 * (target.sensitivity(sizes) / noise_std_real) ** 2
    # (1 - mu/L)^(-t/2) relative to the last uplink, which cannot overflow.
    decay = 0.5 * math.log1p(-contraction)
    shares = np.exp(decay * np.arange(uplinks - 1, -1, -1))
    if shares[0] < SMALLEST_SHARE:
        raise ConfigError(
            f"power.contraction is {contraction}: over {uplinks} uplinks it leaves the first ones no power; "
            f"expected at most {-math.expm1(2.0 * math.log(SMALLEST_SHARE) / (uplinks - 1)):.4g}"
        )
    level = water_level(shares, largest**2, target.total_loss / price)
    wanted = np.sqrt(shares * level)
    limited = wanted >= largest
    alpha_u = np.where(limited, largest, wanted)
    # c_t^2 = alpha_u^2/(n tau)^2 = N_0 (1 - mu/L)^(-t/2) / (sqrt(2 zeta) tau), at the last uplink, whose share is 1.
    root = float(sizes.sum()) ** 2 * clip_norm * noise_std_real**2 * math.exp(-decay * uplinks) / level
    return Allocation(alpha_u, limited, 0.5 * root * root, target, price * float(np.square(alpha_u).sum()))


def water_level(shares: NDArray[np.float64], limits: NDArray[np.float64], total: float) -> float:
    """The level at which sum_t min(shares_t level, limits_t) = total; infinite where all limits together are less.

    Piecewise linear in the level with corners limits/shares: solved segment by segment instead of by bisection, so that
    no tolerance decides what is spent.
    """
    if limits.sum() <= total:
        return math.inf
    order = np.argsort(limits / shares, kind="stable")
    limits, shares = limits[order], shares[order]
    filled = np.concatenate(([0.0], np.cumsum(limits)[:-1]))
    unfilled = np.cumsum(shares[::-1])[::-1]
    levels = (total - filled) / unfilled
    fits = levels * shares <= limits
    # Only rounding can leave the total above every segment.
    return float(levels[np.argmax(fits)]) if fits.any() else math.inf
