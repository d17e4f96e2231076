"""Uplinks for tests of what they cost."""

from collections.abc import Sequence

from fl.privacy.mechanism import RoundMechanism, SigmaOrigin


def without_jammer(
    gains: Sequence[float],
    sigma: float,
    origin: SigmaOrigin = SigmaOrigin.SET,
    *,
    record_bounded: bool = False,
    clip_norm: float = 1.0,
    alpha_u: float = 1.0,
) -> RoundMechanism:
    """All of its noise is the receiver's."""
    return RoundMechanism(
        uplink=1,
        received_gains=tuple(gains),
        sigma=sigma,
        sigma_origin=origin,
        record_bounded=record_bounded,
        clip_norm=clip_norm,
        alpha_u=alpha_u,
        alpha_cj=0.0,
        jammer_gain=0.0,
        noise_std_real=sigma * alpha_u,
    )
