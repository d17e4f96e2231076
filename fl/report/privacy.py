"""Epsilon, recomputed from the ledger of every trial, beside what is claimed.

For a jammer with an extra factor there are two noises to speak of: the one that was sent, and the bound that the
factor multiplies. A title that names the target of such a design speaks of the second.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from fl.privacy.accountant import Accountant
from fl.privacy.conditions import View
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import PrivacyStatement, state_privacy
from fl.report.sources import Curve, Trial
from fl.run.config import JammerConfig
from fl.uplink.jammer import FactorOn, JammerRole

TOLERANCE = 0.005
"""Relative: within it a recomputed epsilon is the claimed one, which a title gives with two or three digits."""
AS_SENT = "as sent"
AT_THE_BOUND = "at the bound (factor removed)"


@dataclass(frozen=True)
class Span:
    """Smallest and largest over the trials."""

    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Span":
        """From at least one value."""
        return cls(min(values), max(values))


@dataclass(frozen=True)
class PrivacyRow:
    """One curve at one delta, for one of its two noises.

    claim: the stated epsilon; None where none is stated. target: what the config sizes noise for at its own delta, None
    at another delta. compared: the claim speaks of this noise. paper, exact: epsilon under `label`; free: the paper's
    with every s_i = 1; client_paper, client_exact: under the label `client`. views: of the adversaries that the trials'
    epsilons hold against. delta_bounds: part of delta for measured bounds that may fail, None where a ledger does not
    say.
    """

    curve: Curve
    noise: str
    claim: float | None
    target: float | None
    delta: float
    compared: bool
    label: Label
    neighbours: Neighbours
    sigma_origin: str
    views: tuple[View, ...]
    delta_bounds: Span | None
    transmissions: Span
    paper: Span
    free: Span
    exact: Span
    client_paper: Span
    client_exact: Span

    def deviation(self, span: Span) -> Span | None:
        """`span` relative to the claim, 0 where they are equal; None where nothing is compared."""
        if self.claim is None or not self.compared:
            return None
        return Span(span.low / self.claim - 1.0, span.high / self.claim - 1.0)

    def agrees(self, span: Span) -> bool | None:
        """Whether every trial's epsilon is the claimed one within `TOLERANCE`; None where nothing is compared."""
        deviation = self.deviation(span)
        return None if deviation is None else max(abs(deviation.low), abs(deviation.high)) <= TOLERANCE


def privacy_rows(curve: Curve) -> list[PrivacyRow]:
    """For each claim of the curve, or for its config's delta where it has none: the noise as sent, then the bound's."""
    privacy = curve.config.privacy
    claims: list[tuple[float | None, float]] = [*curve.point.claims] or [(None, privacy.delta)]
    views: dict[str, Callable[[RoundMechanism], RoundMechanism]] = {AS_SENT: lambda mechanism: mechanism}
    if has_factor(curve.config.jammer):
        views = {AT_THE_BOUND: lambda mechanism: without_factor(mechanism, curve.config.jammer), **views}
    return [
        _row(curve, claim, delta, noise, view, compared=noise == next(iter(views)))
        for claim, delta in claims
        for noise, view in views.items()
    ]


def _row(
    curve: Curve,
    claim: float | None,
    delta: float,
    noise: str,
    view: Callable[[RoundMechanism], RoundMechanism],
    *,
    compared: bool,
) -> PrivacyRow:
    own = [_state(trial, view, delta, trial.ledger.header.label) for trial in curve.trials]
    client = [_state(trial, view, delta, Label.CLIENT) for trial in curve.trials]
    header = curve.trials[0].ledger.header
    privacy = curve.config.privacy
    parts = [statement.delta_bounds for statement in own]
    return PrivacyRow(
        curve=curve,
        noise=noise,
        claim=claim,
        target=privacy.epsilon if delta == privacy.delta else None,
        delta=delta,
        compared=compared,
        label=header.label,
        neighbours=header.neighbours,
        sigma_origin="+".join(sorted({origin for statement in own for origin in statement.sigma_origin.split("+")})),
        views=tuple(view for view in View if any(statement.view is view for statement in own)),
        delta_bounds=None if None in parts else Span.of([part for part in parts if part is not None]),
        transmissions=Span.of([statement.uplinks for statement in own]),
        paper=Span.of([statement.epsilon[Accountant.PAPER] for statement in own]),
        free=Span.of([statement.epsilon_without_backoff[Accountant.PAPER] for statement in own]),
        exact=Span.of([statement.epsilon[Accountant.EXACT] for statement in own]),
        client_paper=Span.of([statement.epsilon[Accountant.PAPER] for statement in client]),
        client_exact=Span.of([statement.epsilon[Accountant.EXACT] for statement in client]),
    )


def _state(
    trial: Trial, view: Callable[[RoundMechanism], RoundMechanism], delta: float, label: Label
) -> PrivacyStatement:
    header = trial.ledger.header
    return state_privacy(
        [view(mechanism) for mechanism in trial.ledger.mechanisms],
        header.sizes_array,
        label=label,
        neighbours=header.neighbours,
        delta=delta,
        unaccounted=trial.ledger.unaccounted,
        jammer=header.jammer,
    )


def has_factor(jammer: JammerConfig) -> bool:
    """Whether a jammer sends more than its bound asks for."""
    return jammer.role is not JammerRole.NONE and jammer.factor != 1.0


def without_factor(mechanism: RoundMechanism, jammer: JammerConfig) -> RoundMechanism:
    """The uplink as it would be had the jammer sent its bound: alpha_CJ divided by what multiplied it.

    sigma follows from sigma^2 = ((|h_CJ| alpha_CJ)^2 + sigma_c^2) / alpha_u^2. Where a power limit has cut the factor,
    this takes out more than was put in: sigma is then too small and epsilon too large.
    """
    amplitude = jammer.factor if jammer.factor_on is FactorOn.AMPLITUDE else math.sqrt(jammer.factor)
    alpha_cj = mechanism.alpha_cj / amplitude
    if mechanism.sigma == 0.0:
        return mechanism
    sigma = math.hypot(mechanism.jammer_gain * alpha_cj, mechanism.noise_std_real) / mechanism.alpha_u
    return replace(mechanism, alpha_cj=alpha_cj, sigma=sigma)


LABEL_MEANING = {
    Label.PAPER_CLAIM: (
        "The number that the published theorem gives for these ledgers. It is not a guarantee for these runs: the "
        "theorem takes an update for a mean of per-record terms, each bounded by τ. Here an update comes from several "
        "local SGD steps and is clipped as a whole, so one record may move all of it."
    ),
    Label.RECORD: (
        "Holds for one record of one client under the stated neighbours: every update was one full-batch step on "
        "gradients that were clipped record by record."
    ),
    Label.CLIENT: (
        "Holds for everything that one client owns, however its update was made, because the whole update is clipped "
        "to τ. Of the epsilons on this page, it is the one that needs no trust in how clients train."
    ),
}
NEIGHBOUR_MEANING = {
    Neighbours.ZERO_OUT: (
        "Two data sets are neighbours when the contribution of one record (or client) is replaced by zero; the sizes "
        "of the clients are public and stay. Against replacing it by another one, sensitivity doubles."
    ),
    Neighbours.REPLACE_ONE: "Two data sets are neighbours when one record (or client) is replaced by another one.",
}
ORIGIN_MEANING = {
    "set": "σ was written down by hand.",
    "simulated": (
        "The noise came from a seeded generator, so that runs repeat. Whoever knows the seed can subtract it: the "
        "figures say what the same noise from a source that nobody can predict would give."
    ),
    "measured": "σ is the lower confidence bound of noise that was measured in silence before each uplink.",
    "none": "There was no noise: epsilon is infinite.",
    "unknown": "The noise is not known: epsilon is infinite.",
}

VIEW_MEANING = {
    View.SAMPLES: "Against whoever has every sample that the server's radio delivered.",
    View.CELLS: "Against whoever has the demodulated sum alone; raw samples may tell more.",
}


def delta_meaning(row: PrivacyRow) -> str:
    """How a row's delta is divided."""
    if row.delta_bounds is None:
        return "Ledgers of an older format do not say how their measured bounds may fail: δ is the mechanism's alone."
    if row.delta_bounds.high == 0.0:
        return "All of it is the mechanism's: nothing that was measured may fail."
    return (
        f"Of it, {row.delta_bounds.high:.3g} is set aside for measured bounds of noise and gains that may fail, over "
        f"all transmissions, and {row.delta - row.delta_bounds.high:.3g} is left to the mechanism."
    )


def meanings(rows: Sequence[PrivacyRow]) -> list[tuple[str, str]]:
    """A sentence about each label, relation, view, delta and origin in `rows`; `client` is always there."""
    labels = [label for label in Label if label is Label.CLIENT or any(row.label is label for row in rows)]
    relations = [relation for relation in Neighbours if any(row.neighbours is relation for row in rows)]
    origins = [origin for origin in ORIGIN_MEANING if any(origin in row.sigma_origin.split("+") for row in rows)]
    views = [view for view in View if any(view in row.views for row in rows)]
    deltas = dict.fromkeys((f"δ = {row.delta:g}", delta_meaning(row)) for row in rows)
    return [
        *((label.value, LABEL_MEANING[label]) for label in labels),
        *((relation.value, NEIGHBOUR_MEANING[relation]) for relation in relations),
        *((f"view {view.value}", VIEW_MEANING[view]) for view in views),
        *deltas,
        *((f"σ {origin}", ORIGIN_MEANING[origin]) for origin in origins),
    ]
