"""One uplink as a privacy mechanism: frozen, complete, and enough to recompute its loss under every label."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError


class Label(StrEnum):
    """Which sensitivity is claimed (see the package docstring)."""

    PAPER_CLAIM = "paper-claim"
    RECORD = "record"
    CLIENT = "client"


class Neighbours(StrEnum):
    """Between which data sets the claim holds."""

    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @property
    def factor(self) -> float:
        """Sensitivity relative to zero-out."""
        return 2.0 if self is Neighbours.REPLACE_ONE else 1.0


class SigmaOrigin(StrEnum):
    """Where the noise level comes from. `none` and `unknown` protect nothing."""

    SET = "set"
    SIMULATED = "simulated"
    MEASURED = "measured"
    NONE = "none"
    UNKNOWN = "unknown"


_PROVENANCE = ("clip_norm", "alpha_u", "alpha_cj", "jammer_gain", "noise_std_real")


@dataclass(frozen=True)
class RoundMechanism:
    """What one uplink releases, in units of the clip norm (the aggregate divided by tau).

    uplink: 1-based number of the uplink.
    received_gains: for each client the factor g_i with which its weight p_i arrives, 1/s_i nominally; 0 for a client
        that is silent. A radio puts the upper confidence bound of the measured |h_i alpha_i| tau / (alpha_u p_i) here.
    sigma: standard deviation of the noise per real coordinate after division by alpha_u; 0 where unknown or absent.
    record_bounded: every client's update is a mean of per-sample terms bounded by tau (`BoundedUpdate.record_terms`).
    alpha_u, alpha_cj, jammer_gain, noise_std_real, clip_norm: of what sigma is made; provenance, not used in the loss.
    """

    uplink: int
    received_gains: tuple[float, ...]
    sigma: float
    sigma_origin: SigmaOrigin
    record_bounded: bool
    clip_norm: float
    alpha_u: float
    alpha_cj: float
    jammer_gain: float
    noise_std_real: float

    def __post_init__(self) -> None:
        """Refuse values from which no loss could be computed."""
        if self.uplink < 1:
            raise PrivacyError(f"uplink number is {self.uplink}: expected 1 or more")
        if not (math.isfinite(self.sigma) and self.sigma >= 0):
            raise PrivacyError(
                f"sigma of uplink {self.uplink} is {self.sigma}: expected a finite number, 0 where it is unknown"
            )
        if not self.received_gains or not all(math.isfinite(gain) and gain >= 0 for gain in self.received_gains):
            raise PrivacyError(f"received gains of uplink {self.uplink} must be finite, not negative, one per client")
        for name in _PROVENANCE:
            value = getattr(self, name)
            if not (math.isfinite(value) and value >= 0):
                raise PrivacyError(f"{name} of uplink {self.uplink} is {value}: expected a finite number of at least 0")

    def noise_ratios(self, sizes: NDArray[np.int64], label: Label, neighbours: Neighbours) -> NDArray[np.float64]:
        """Delta_i / sigma for each client, shape (K,). Infinite where the label is not earned or sigma is unknown."""
        if len(sizes) != len(self.received_gains):
            raise PrivacyError(f"uplink {self.uplink} has {len(self.received_gains)} gains for {len(sizes)} clients")
        gains = np.asarray(self.received_gains)
        sensitivity = gains * neighbours.factor * (sizes / sizes.sum() if label is Label.CLIENT else 1.0 / sizes.sum())
        if label is Label.RECORD and not self.record_bounded:
            return np.where(gains > 0, math.inf, 0.0)
        trusted = self.sigma > 0 and self.sigma_origin not in (SigmaOrigin.NONE, SigmaOrigin.UNKNOWN)
        return sensitivity / self.sigma if trusted else np.where(gains > 0, math.inf, 0.0)

    def losses(self, sizes: NDArray[np.int64], label: Label, neighbours: Neighbours) -> NDArray[np.float64]:
        """This uplink's contribution 1/2 (Delta_i/sigma)^2 to S for each client, shape (K,)."""
        return 0.5 * self.noise_ratios(sizes, label, neighbours) ** 2

    def without_backoff(self) -> "RoundMechanism":
        """The same uplink with s_i = 1 wherever a client sends more quietly: the paper's s-free bound."""
        gains = tuple(max(gain, 1.0) if gain > 0 else 0.0 for gain in self.received_gains)
        return RoundMechanism(**{**asdict(self), "received_gains": gains})

    def to_json(self) -> dict[str, Any]:
        """As a JSON-ready mapping; `from_json` is its inverse, bit for bit."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RoundMechanism":
        """Rebuild from `to_json`; raises `PrivacyError` where a field is missing, unknown or of another type."""
        try:
            fields = dict(data)
            numbers = [*fields["received_gains"], fields["sigma"], *(fields[name] for name in _PROVENANCE)]
            if any(type(number) not in (int, float) for number in numbers):
                raise TypeError("gains, sigma and what it is made of must be numbers")
            if type(fields["uplink"]) is not int or type(fields["record_bounded"]) is not bool:
                raise TypeError("uplink must be an integer and record_bounded true or false")
            fields["received_gains"] = tuple(float(gain) for gain in fields["received_gains"])
            fields["sigma_origin"] = SigmaOrigin(fields["sigma_origin"])
            return cls(**fields)
        except (KeyError, TypeError, ValueError) as error:
            raise PrivacyError(f"not the record of an uplink: {error}") from error
