"""The paper's convergence bound for one trial of each curve, term by term: `fl.run.bound` in a table.

Constants are estimated from the clients' data, which need not be where the report is made: then the reason stands
where the terms would.
"""

from collections.abc import Callable
from dataclasses import dataclass

from fl.report.sources import Curve, Study
from phy.errors import AirdpError


@dataclass(frozen=True)
class FormBound:
    """The bound in one form. c1 and terms: NaN where they have no meaning. value: infinite where it is void."""

    form: str
    c1: float
    terms: dict[str, float]
    dominant: str
    dominant_share: float
    value: float
    void: str | None
    vacuous: bool


@dataclass(frozen=True)
class CurveBound:
    """Of a curve's first trial. constants: by symbol. reason: why nothing was computed, None where it was."""

    curve: Curve
    trial: int
    holds: str
    constants: dict[str, float]
    caveat: str
    premises: tuple[str, ...]
    forms: tuple[FormBound, ...]
    reason: str | None

    @property
    def voids(self) -> dict[str, list[str]]:
        """Which forms are void, by the reason."""
        found: dict[str, list[str]] = {}
        for bound in self.forms:
            if bound.void:
                found.setdefault(bound.void, []).append(bound.form)
        return found


def bounds_of(study: Study, on_progress: Callable[[str, float], None]) -> tuple[CurveBound, ...]:
    """One for each curve that made an uplink. on_progress: called with the curve's name and the fraction done."""
    return tuple(_bound(study, curve, on_progress) for curve in study.filled if curve.trials[0].uplinks)


def _bound(study: Study, curve: Curve, on_progress: Callable[[str, float], None]) -> CurveBound:
    from fl.learning.theory.convergence import Form
    from fl.run.bound import bound_of_run, estimate_constants, premises_not_met, what_holds

    trial = curve.trials[0]
    holds = what_holds(curve.config)
    try:
        constants = estimate_constants(trial.folder, on_progress=lambda done: on_progress(curve.name, done))
        bounds = [bound_of_run(trial.folder, constants, form) for form in Form]
        premises = premises_not_met(trial.folder)
    except AirdpError as error:
        reason = str(error).replace(str(study.path), study.folder_name)
        return CurveBound(curve, trial.number, holds, {}, "", (), (), reason)
    return CurveBound(
        curve=curve,
        trial=trial.number,
        holds=holds,
        constants={
            "L": constants.lipschitz,
            "B": constants.dissimilarity,
            "ρ": constants.strong_convexity,
            "q": constants.step_bound,
            "G": constants.gradient_bound,
            "largest κ": float(constants.heterogeneity.max()),
        },
        caveat=constants.caveat,
        premises=premises,
        forms=tuple(
            FormBound(
                form=bound.form.value,
                c1=bound.c1,
                terms=bound.terms,
                dominant=bound.dominant,
                dominant_share=bound.shares[bound.dominant],
                value=bound.value,
                void=bound.void,
                vacuous=bound.vacuous,
            )
            for bound in bounds
        ),
        reason=None,
    )
