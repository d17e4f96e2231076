"""What Liu and Simeone 2020 claim for their power control, beside this project's own statements.

"Privacy for Free: Wireless Federated Learning via Uncoded Transmission with Adaptive Power Control": with everybody
received at c_t n_k times a gradient whose per-sample terms are bounded by gamma_t, T uplinks are (epsilon, delta)-DP if

    sum_t 2 gamma_t^2 c_t^2 / N_0 <= R_dp(epsilon, delta) = (sqrt(epsilon + C^2) - C)^2,    C = C^-1(1/delta)

In this project's terms, with every factor of two named:

* 2 gamma^2 c^2 / N_0 = 1/2 (2 gamma c)^2 / N_0 is the S of a Gaussian mechanism with Delta = 2 gamma c: one record is
  replaced by another (`replace-one`), and the claim is per record, as `paper-claim` and `record` are
* its noise has variance N_0 on every *real* coordinate, so N_0 is sigma_c^2, as in SNR = P / (d N_0). Were N_0 the
  variance of a complex cell, 2 sigma_c^2, whose I and Q both carry coordinates, the sum would be half of what is lost
* gamma_t is the clip norm tau, c_t = alpha_u/(n tau), sigma_t = sigma_c/alpha_u: a term is 1/2 (2/n)^2 / sigma_t^2
* R_dp, and epsilon as a function of the sum, are the accountant `liu-simeone`

So the published guarantee is an ordinary target or statement under one label, relation and accountant.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from fl.privacy.accountant import Accountant
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import PrivacyStatement, state_privacy
from fl.privacy.target import PrivacyTarget


def published_target(epsilon: float, delta: float, uplinks: int) -> PrivacyTarget:
    """(epsilon, delta) as they count it: `total_loss` is R_dp."""
    return PrivacyTarget(
        epsilon=epsilon,
        delta=delta,
        uplinks=uplinks,
        label=Label.PAPER_CLAIM,
        neighbours=Neighbours.REPLACE_ONE,
        accountant=Accountant.LIU_SIMEONE,
    )


def state_published(
    mechanisms: Sequence[RoundMechanism], sizes: NDArray[np.int64], *, delta: float
) -> PrivacyStatement:
    """Epsilon of what was sent as they count it; labelled `record` where per-sample clipping has earned that."""
    earned = bool(mechanisms) and all(mechanism.record_bounded for mechanism in mechanisms)
    return state_privacy(
        mechanisms,
        sizes,
        label=Label.RECORD if earned else Label.PAPER_CLAIM,
        neighbours=Neighbours.REPLACE_ONE,
        delta=delta,
        accountants=(Accountant.LIU_SIMEONE,),
    )
