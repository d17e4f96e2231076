"""One uplink as a privacy mechanism: frozen, complete, and enough to recompute its loss under every label."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.privacy.conditions import View
from fl.privacy.sensitivity import Clipping, Label, Neighbours, charged_sensitivity


class SigmaOrigin(StrEnum):
    """Where the noise level comes from. `none` and `unknown` protect nothing."""

    SET = "set"
    SIMULATED = "simulated"
    MEASURED = "measured"
    NONE = "none"
    UNKNOWN = "unknown"


Bounds = tuple[tuple[str, float], ...]
"""(name, probability with which it fails) of each bound that a mechanism rests on."""
_PROVENANCE = ("clip_norm", "alpha_u", "alpha_cj", "jammer_gain", "noise_std_real", "rounding")


@dataclass(frozen=True)
class RoundMechanism:
    """What one uplink releases, in units of the clip norm (the aggregate divided by tau).

    uplink: 1-based number of the uplink.
    received_gains: for each client the factor g_i with which its weight p_i arrives, 1/s_i nominally; 0 for a client
        that is silent. A radio puts the upper confidence bound of the measured |h_i alpha_i| tau / (alpha_u p_i) here.
    sigma: standard deviation of the noise per real coordinate after division by alpha_u; 0 where unknown or absent.
    record_bounded: every client's update is a mean of per-sample terms bounded by tau.
    clip_norm: tau. With `record_bounded` it is what every update must prove (`clipping`).
    alpha_u, alpha_cj, jammer_gain, noise_std_real: of what sigma is made; provenance, not used in the loss.
    view: the strongest adversary against whom the loss holds.
    bounds: measured bounds that gains and sigma are, each with the probability that it is not one; empty where nothing
        was measured, None where it is not known. What may fail is part of delta (`bounds_delta`).
    rounding: by how much converters may bring two updates further apart in what arrives, in units of the clip norm
        (`fl.privacy.converters.rounding_distance`); 0 where nothing is rounded.
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
    view: View = View.CELLS
    bounds: Bounds | None = ()
    rounding: float = 0.0

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
        for name, probability in self.bounds or ():
            if not 0.0 <= probability <= 1.0:
                raise PrivacyError(
                    f"bound '{name}' of uplink {self.uplink} fails with {probability}: expected a probability"
                )

    @property
    def bounds_delta(self) -> float | None:
        """Probability that any of the bounds fails, at most (union); None where it is not known."""
        return None if self.bounds is None else math.fsum(probability for _, probability in self.bounds)

    def noise_ratios(
        self, sizes: NDArray[np.int64], label: Label, neighbours: Neighbours, *, smoothed: bool = True
    ) -> NDArray[np.float64]:
        """Delta_i / sigma for each client, shape (K,). Infinite where the label is not earned or sigma is unknown.

        smoothed: see `charged_sensitivity`.
        """
        if len(sizes) != len(self.received_gains):
            raise PrivacyError(f"uplink {self.uplink} has {len(self.received_gains)} gains for {len(sizes)} clients")
        gains = np.asarray(self.received_gains)
        if self.sigma == 0 or self.sigma_origin in (SigmaOrigin.NONE, SigmaOrigin.UNKNOWN):
            return np.where(gains > 0, math.inf, 0.0)
        with np.errstate(over="ignore"):
            charged = charged_sensitivity(
                label,
                neighbours,
                sizes,
                gains,
                record_bounded=self.record_bounded,
                rounding=self.rounding,
                smoothed=smoothed,
            )
            return np.asarray(charged / self.sigma)

    def clipping(self, samples: int) -> Clipping:
        """How the update of a client with so many samples must have been bounded for the losses to hold."""
        return Clipping.each_of(samples, self.clip_norm) if self.record_bounded else Clipping.whole(self.clip_norm)

    def losses(
        self, sizes: NDArray[np.int64], label: Label, neighbours: Neighbours, *, smoothed: bool = True
    ) -> NDArray[np.float64]:
        """This uplink's contribution 1/2 (Delta_i/sigma)^2 to S for each client, shape (K,)."""
        # Beyond the largest number the loss is infinite.
        with np.errstate(over="ignore"):
            return 0.5 * self.noise_ratios(sizes, label, neighbours, smoothed=smoothed) ** 2

    def without_backoff(self) -> "RoundMechanism":
        """The same uplink with s_i = 1 wherever a client sends more quietly: the paper's s-free bound."""
        gains = tuple(max(gain, 1.0) if gain > 0 else 0.0 for gain in self.received_gains)
        return RoundMechanism(**{**asdict(self), "received_gains": gains})

    def without_jammer(self) -> "RoundMechanism":
        """The same uplink with the receiver's noise alone: what it was at worst where no jammer's noise is proven.

        Never more noise than it has. Where the receiver's is not known the sigma is `unknown`, and the loss infinite.
        """
        if self.alpha_cj == 0.0:
            return self
        if self.noise_std_real == 0.0 or self.alpha_u == 0.0:
            return replace(self, sigma=0.0, sigma_origin=SigmaOrigin.UNKNOWN, alpha_cj=0.0)
        return replace(self, sigma=min(self.sigma, self.noise_std_real / self.alpha_u), alpha_cj=0.0)

    def to_json(self) -> dict[str, Any]:
        """As a JSON-ready mapping; `from_json` is its inverse, bit for bit."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "RoundMechanism":
        """Rebuild from `to_json`; raises `PrivacyError` where a field is missing, unknown or of another type."""
        try:
            fields = {"rounding": 0.0, **data}
            numbers = [*fields["received_gains"], fields["sigma"], *(fields[name] for name in _PROVENANCE)]
            if any(type(number) not in (int, float) for number in numbers):
                raise TypeError("gains, sigma and what it is made of must be numbers")
            if type(fields["uplink"]) is not int or type(fields["record_bounded"]) is not bool:
                raise TypeError("uplink must be an integer and record_bounded true or false")
            fields["received_gains"] = tuple(float(gain) for gain in fields["received_gains"])
            fields["sigma_origin"] = SigmaOrigin(fields["sigma_origin"])
            # Ledgers of format 1 say neither: they were about cells, and the bounds of what was measured are not known.
            fields["view"] = View(fields.get("view", View.CELLS))
            measured = fields["sigma_origin"] is SigmaOrigin.MEASURED
            fields["bounds"] = _bounds_of(fields.get("bounds", None if measured else ()))
            return cls(**fields)
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise PrivacyError(f"not the record of an uplink: {error}") from error


def _bounds_of(data: Any) -> Bounds | None:
    if data is None:
        return None
    pairs = tuple((name, probability) for name, probability in data)
    if any(type(name) is not str or type(probability) not in (int, float) for name, probability in pairs):
        raise TypeError("bounds must be pairs of a name and a probability")
    return tuple((name, float(probability)) for name, probability in pairs)
