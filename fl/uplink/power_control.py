"""Adaptive power control: what each client computes from its own channel, and what the server chooses.

`control_power` is a client's own decision. It takes this client's gain, weight and limit and the broadcast alpha_u, and
nothing of any other client or other round.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from phy.units import db_to_power_ratio


@dataclass(frozen=True)
class ClientPower:
    """alpha: complex, so that it undoes the channel's phase too. backoff: s_i >= 1, infinite where h_i = 0."""

    alpha: complex
    backoff: float

    @property
    def received_gain(self) -> float:
        """Factor 1/s_i with which the client's weight p_i arrives."""
        return 1.0 / self.backoff


def power_limit(snr_db: float, coordinates: int, noise_var_real: float) -> float:
    """P_i from the paper's definition SNR_i = P_i / (d sigma_c^2): a limit on ||x_i||^2 over all d coordinates."""
    return db_to_power_ratio(snr_db) * coordinates * noise_var_real


def control_power(
    *, alpha_u: float, weight: float, gain: complex, clip_norm: float, limit: float, update_norm: float | None = None
) -> ClientPower:
    """alpha_i = alpha_u p_i / (h_i tau s_i), s_i = max(1, alpha_u p_i / (|h_i| sqrt(P_i))).

    With `update_norm` None the back-off is the worst case over ||u_i|| <= tau: public, so it leaks nothing. Given the
    norm of the current update, s_i is only as large as that update needs (`actual`); it then depends on data, and only
    the s_i = 1 bound may be claimed. A client without a channel (h_i = 0) stays silent.
    """
    magnitude = abs(gain)
    if magnitude == 0.0:
        return ClientPower(alpha=0j, backoff=math.inf)
    relative_norm = 1.0 if update_norm is None else update_norm / clip_norm
    backoff = max(1.0, alpha_u * weight * relative_norm / (magnitude * math.sqrt(limit)))
    return ClientPower(alpha=alpha_u * weight / (gain * clip_norm * backoff), backoff=backoff)


def alpha_u_for_noise(noise_std_real: float, sigma: float) -> float:
    """The alpha_u at which channel noise alone is `sigma` per coordinate: sigma = sigma_c / alpha_u."""
    return noise_std_real / sigma


def alpha_u_without_backoff(
    weights: NDArray[np.float64], gains: NDArray[np.complex128], limits: NDArray[np.float64]
) -> float:
    """Largest alpha_u with every s_i = 1: min_i |h_i| sqrt(P_i) / p_i. Shapes (K,). It takes all gains."""
    # A few units in the last place less, or rounding would give the weakest client an s_i just above 1.
    largest = float(np.min(np.abs(gains) * np.sqrt(limits) / weights)) * (1.0 - 2.0**-50)
    if largest <= 0.0:
        raise ConfigError(
            "a client has gain 0: no alpha_u keeps every back-off at 1; use power.alpha_u = 'target' or a number"
        )
    return largest
