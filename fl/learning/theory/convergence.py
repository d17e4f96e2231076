"""The convergence bound of Upcycled-FL over the air (Theorem 5) as formulae of constants and of a run's record.

    min_m E||grad f(w^{2m-1})||^2 <= ( (f(w^0) - f(w*))/M + mean_m (C2 + C3 + C4 + C5) + C6 ) / C1,    if C1 > 0

with r_m = mu/(mu + lambda_m), E_i the mean over clients with weights p_i, and what reaches the model of client i's
update u_i being p_i g_i u_i with g_i = 1/(tau s_i), plus noise of variance v_j (jammer) and v_c (receiver) a
coordinate:

    form     `paper`, as printed                              `mended`, as the steps of its proof give it
    C1       1/(2 mu) - L B / (mu rho^2)                      1/(2 mu) - L^2 B^2 / (mu rho^2)
    C2       r_m (1 + 2 L B (L + rho)/(mu rho^2)) q G         r_m (1 + 2 L^2 B (L + rho)/(mu rho^2)) q G
    C3       r_m^2 L (1 + (L + rho)^2/(mu rho^2)) q^2         r_m^2 L (1 + L (L + rho)^2/(mu rho^2)) q^2
    C4       E_i[((1 - g_i)^2 2 mu + (2 L - mu) mu g_i^2)     E_i[((1 - g_i)^2 2 mu + max(0, 2 L - mu) g_i^2)
                 / (2 mu^2) (kappa_i + G)^2]                      / (2 mu^2) (kappa_i + G)^2]
    C5, C6   L d v_j / 2, L d v_c / 2                         the same

`paper` is what is published; statement and Appendix C agree on it but for typing errors ((kappa_i + d) for
(kappa_i + G), ||w^{2m} - w^{2m-1}|| for ||w^{2m-1} - w^{2m-2}||). It does not follow from its own steps, and there are
problems that meet every assumption and violate it. What `mended` changes, and why:

* ||grad F_i(a) - grad F_i(b)||^2 is at most L^2 ||a - b||^2; the proof has L. The units tell as well: C1 must scale as
  1/f, which L B/(mu rho^2) does not.
* B-dissimilarity bounds E_i||grad F_i||^2 by B^2 ||grad f||^2; the proof has B. The cross term in C2 has B rightly.
* L/mu^2 - 1/(2 mu) is (2 L - mu)/(2 mu^2); C4 has one mu more in its numerator. Where mu > 2 L, Jensen's inequality
  turns round and the term is at most 0; as printed C4 may become negative, and the bound with it, which is then void.
* Indices. Steps w^{2m-1} -> w^{2m+1} for m = 1..M would start from f(w^1) and take M + 1 uplinks. M uplinks make the
  steps w^0 -> w^1 -> w^3 -> ... -> w^{2M-1}; the first extrapolates nothing. `mended` therefore has C2 = C3 = 0 for the
  first uplink, r_{m-1} for uplink m, and bounds the smallest of w^0, w^1, ..., w^{2M-3}. `paper` sums m = 1..M with
  every s, alpha and lambda of index m (or 2m + 1) taken from uplink m.
* tau. As printed the server divides by alpha_u alone. A server that multiplies by tau as well (`rescaled`) is the same
  with alpha_u/tau for alpha_u: g_i = 1/s_i and tau^2 times the noise. Both forms take g_i and the noise as they reach
  the model, so this is the caller's to fill in.

Both rest on exact local minimisers w_i = argmin g_i, unclipped. alpha_u may differ between uplinks: C6 is then a mean.
"""

import math
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError

Array = NDArray[np.float64]
TERMS = {
    "start": "what there was to descend, (f(w⁰) − f(w*))/M",
    "c2": "upcycled steps: they may go against the gradient",
    "c3": "upcycled steps: their length on a curved loss",
    "c4": "back-off on unlike clients, and steps of 1/μ on a curved loss",
    "c5": "the jammer’s noise",
    "c6": "the receiver’s noise",
}
"""What is added up and divided by C1, and what each stands for."""


class Form(StrEnum):
    """Which C1 to C4: as published, or as the steps of the published proof give them."""

    PAPER = "paper"
    MENDED = "mended"


@dataclass(frozen=True, eq=False)
class Constants:
    """What the theorem assumes of the losses and of the model's course.

    lipschitz: L, of every grad F_i. dissimilarity: B, sqrt(E_i||grad F_i||^2) <= B ||grad f||. strong_convexity: rho,
    of F_i + mu/2 ||w - w_global||^2; not positive where there is none. step_bound: q >= ||w^{2m-1} - w^{2m-2}||.
    gradient_bound: G >= ||grad f||. heterogeneity: kappa_i >= ||grad F_i - grad f||, (K,). start_gap: f(w^0) - f(w*).
    """

    lipschitz: float
    dissimilarity: float
    strong_convexity: float
    step_bound: float
    gradient_bound: float
    heterogeneity: Array
    start_gap: float

    def __post_init__(self) -> None:
        """Refuse what no loss could have; an infinite B is one that does not exist."""
        ranges = {
            "lipschitz": (self.lipschitz, 0.0 < self.lipschitz < math.inf, "a finite number above 0"),
            "dissimilarity": (self.dissimilarity, self.dissimilarity >= 1.0, "1 or more (E||x||^2 >= ||E x||^2)"),
            "strong convexity": (self.strong_convexity, math.isfinite(self.strong_convexity), "a finite number"),
            "step bound": (self.step_bound, 0.0 <= self.step_bound < math.inf, "a finite number of at least 0"),
            "gradient bound": (self.gradient_bound, 0.0 <= self.gradient_bound < math.inf, "0 or more, finite"),
            "start gap": (self.start_gap, 0.0 <= self.start_gap < math.inf, "f(w*) of at most f(w^0), both finite"),
        }
        for name, (value, valid, expected) in ranges.items():
            if not valid:
                raise ConfigError(f"{name} of the convergence bound is {value:g}: expected {expected}")
        kappa = self.heterogeneity
        if kappa.ndim != 1 or not kappa.size or not (np.isfinite(kappa) & (kappa >= 0)).all():
            raise ConfigError("heterogeneity of the convergence bound: expected one finite number >= 0 per client")


@dataclass(frozen=True, eq=False)
class UplinkRecord:
    """What M uplinks were. weights: p_i (K,). reuse: r_m = mu/(mu + lambda_m), 0 without upcycling, (M,).

    gains: g_i (M, K), 0 for a silent client. jammer_std, noise_std: of the two noises per real coordinate as they reach
    the model, (M,). dimension: d. proximal_mu: 0 for FedAvg.
    """

    proximal_mu: float
    dimension: int
    weights: Array
    reuse: Array
    gains: Array
    jammer_std: Array
    noise_std: Array

    @property
    def uplinks(self) -> int:
        """M."""
        return len(self.reuse)


@dataclass(frozen=True, eq=False)
class Bound:
    """The bound and what it is made of. c2 to c6: by uplink, (M,); NaN where mu or rho leaves them without a meaning.

    c1: NaN likewise. c4_backoff: the part of C4 that g_i = 1 would remove, (M,); the rest is what steps of 1/mu may
    cost on a curved loss, which back-off shortens: with mu < 2 L, C4 falls with s_i at first. start_gap: f(w^0) -
    f(w*). void: why there is no bound, or None. mu_needed: C1 > 0 for every mu above it while the losses stay as they
    are (rho grows as mu does).
    """

    form: Form
    c1: float
    start_gap: float
    c2: Array
    c3: Array
    c4: Array
    c5: Array
    c6: Array
    c4_backoff: Array
    gradient_bound: float
    mu_needed: float
    void: str | None

    @property
    def terms(self) -> dict[str, float]:
        """The addends that C1 divides: means over the uplinks by name, the first one (f(w^0) - f(w*))/M."""
        means = {name: float(getattr(self, name).mean()) for name in TERMS if name != "start"}
        return {"start": self.start_gap / len(self.c2), **means}

    @property
    def shares(self) -> dict[str, float]:
        """Each term's part of the sum of all that have a value, by size: C1 divides all alike, whatever it is."""
        sizes = {name: abs(value) for name, value in self.terms.items()}
        total = sum(size for size in sizes.values() if not math.isnan(size))
        return {name: _share(size, total) for name, size in sizes.items()}

    @property
    def dominant(self) -> str:
        """The largest of the terms that have a value."""
        sizes = {name: abs(value) for name, value in self.terms.items() if not math.isnan(value)}
        return max(sizes, key=sizes.__getitem__)

    @property
    def value(self) -> float:
        """Right-hand side of the theorem; infinite where it is void."""
        return math.inf if self.void else sum(self.terms.values()) / self.c1

    @property
    def vacuous(self) -> bool:
        """Whether it says no more than the assumption ||grad f|| <= G does."""
        return self.value >= self.gradient_bound**2


def _share(size: float, total: float) -> float:
    if math.isinf(total):
        return math.nan if math.isnan(size) else float(math.isinf(size))
    return size / total if total > 0 else size


def convergence_bound(constants: Constants, record: UplinkRecord, form: Form) -> Bound:
    """Theorem 5 in the given form; see the module."""
    if record.gains.shape != (record.uplinks, len(constants.heterogeneity)):
        raise ConfigError(
            f"the record is of {record.gains.shape[1]} clients, the constants of {len(constants.heterogeneity)}"
        )
    L, mu = constants.lipschitz, record.proximal_mu
    B, rho = constants.dissimilarity, constants.strong_convexity
    # 2 mu (1/(2 mu) - C1) rho^2: C1 > 0 while rho^2 exceeds it.
    threshold = 2.0 * (L * B if form is Form.PAPER else (L * B) ** 2)
    proximal, convex = mu > 0, mu > 0 and rho > 0
    nothing = np.full(record.uplinks, math.nan)
    c1 = (1.0 - threshold / rho**2) / (2.0 * mu) if convex else math.nan
    mu_needed = math.sqrt(threshold) - (rho - mu)
    c2, c3 = _extrapolation(constants, record, form) if convex else (nothing, nothing)
    backoff, curvature = _power_control(constants, record, form) if proximal else (nothing, nothing)
    half = 0.5 * L * record.dimension
    bound = Bound(
        form=form,
        c1=c1,
        start_gap=constants.start_gap,
        c2=c2,
        c3=c3,
        c4=backoff + curvature,
        c5=half * record.jammer_std**2,
        c6=half * record.noise_std**2,
        c4_backoff=backoff,
        gradient_bound=constants.gradient_bound,
        mu_needed=mu_needed if proximal else math.nan,
        void=_why_void(mu, rho, c1, threshold, mu_needed, form),
    )
    if bound.value < 0:
        return replace(bound, void=f"it is negative: C4 < 0 because mu > 2 L = {2 * L:.4g}, where its proof fails")
    return bound


def _extrapolation(constants: Constants, record: UplinkRecord, form: Form) -> tuple[Array, Array]:
    """C2 and C3: what the second model step of an uplink may do, which moves without looking at the data."""
    L, B, rho, mu = constants.lipschitz, constants.dissimilarity, constants.strong_convexity, record.proximal_mu
    q, reuse, extra = constants.step_bound, record.reuse, 1.0
    if form is Form.MENDED:
        reuse, extra = np.append(0.0, reuse[:-1]), L
    second = (1.0 + 2.0 * extra * L * B * (L + rho) / (mu * rho**2)) * q * constants.gradient_bound
    third = L * (1.0 + extra * (L + rho) ** 2 / (mu * rho**2)) * q**2
    # Where nothing is extrapolated the term is 0, also for an infinite B.
    c2 = np.multiply(reuse, second, out=np.zeros_like(reuse), where=reuse > 0)
    return c2, reuse**2 * third


def _power_control(constants: Constants, record: UplinkRecord, form: Form) -> tuple[Array, Array]:
    """The two parts of C4: updates that do not arrive at their weight, and steps of 1/mu on a curved loss."""
    L, mu = constants.lipschitz, record.proximal_mu
    curvature = (2.0 * L - mu) * mu if form is Form.PAPER else max(0.0, 2.0 * L - mu)
    moments = record.weights * (constants.heterogeneity + constants.gradient_bound) ** 2
    return (1.0 - record.gains) ** 2 @ moments / mu, record.gains**2 @ moments * (curvature / (2.0 * mu**2))


def _why_void(mu: float, rho: float, c1: float, threshold: float, mu_needed: float, form: Form) -> str | None:
    if not mu > 0:
        return "mu = 0: without a proximal term the theorem has nothing to say"
    enough = f"C1 > 0 needs mu above {mu_needed:.4g} (now {mu:g})" if math.isfinite(mu_needed) else "no mu is enough"
    if not rho > 0:
        return f"rho = {rho:.4g} <= 0: g_i is not strongly convex, which needs mu above {mu - rho:.4g}; {enough}"
    if not c1 > 0:
        sides = "2 L B" if form is Form.PAPER else "2 L^2 B^2"
        return f"C1 = {c1:.4g} <= 0 because {sides} = {threshold:.4g} is not below rho^2 = {rho**2:.4g}; {enough}"
    return None
