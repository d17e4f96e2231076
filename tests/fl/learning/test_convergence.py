"""Theorem 5: the formulae against the paper's text, and the bound against problems that meet its assumptions."""

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest
import sympy  # type: ignore[import-untyped]
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.learning.theory.convergence import TERMS, Bound, Constants, Form, UplinkRecord, convergence_bound

Array = NDArray[np.float64]

SIMPLE = Constants(
    lipschitz=2.0,
    dissimilarity=1.0,
    strong_convexity=4.0,
    step_bound=1.0,
    gradient_bound=1.0,
    heterogeneity=np.zeros(2),
    start_gap=3.0,
)
SIMPLE_RECORD = UplinkRecord(
    proximal_mu=1.0,
    dimension=3,
    weights=np.array([0.25, 0.75]),
    reuse=np.array([0.5, 0.25]),
    gains=np.array([[1.0, 1.0], [0.5, 1.0]]),
    jammer_std=np.array([0.2, 0.0]),
    noise_std=np.array([0.1, 0.1]),
)


def random_case(seed: int, *, tau: float = 1.0, mu: float | None = None) -> tuple[Constants, UplinkRecord, Array]:
    """Constants, a record of a server as printed (g_i = 1/(tau s_i)), and the s_i (M, K) in it."""
    rng = np.random.default_rng(seed)
    uplinks, clients = int(rng.integers(1, 6)), int(rng.integers(1, 5))
    weights = rng.dirichlet(np.ones(clients))
    backoffs = 1.0 + rng.exponential(size=(uplinks, clients))
    proximal_mu = float(rng.uniform(0.1, 3.0)) if mu is None else mu
    lambdas = rng.uniform(0.1, 2.0, uplinks)
    constants = Constants(
        lipschitz=float(rng.uniform(0.1, 5.0)),
        dissimilarity=float(rng.uniform(1.0, 3.0)),
        strong_convexity=float(rng.uniform(0.5, 30.0)),
        step_bound=float(rng.uniform(0.0, 2.0)),
        gradient_bound=float(rng.uniform(0.0, 2.0)),
        heterogeneity=rng.uniform(0.0, 2.0, clients),
        start_gap=float(rng.uniform(0.0, 4.0)),
    )
    record = UplinkRecord(
        proximal_mu=proximal_mu,
        dimension=int(rng.integers(1, 1000)),
        weights=weights,
        reuse=proximal_mu / (proximal_mu + lambdas),
        gains=1.0 / (tau * backoffs),
        jammer_std=rng.uniform(0.0, 0.1, uplinks),
        noise_std=np.full(uplinks, rng.uniform(0.0, 0.1)),
    )
    return constants, record, backoffs


def printed(constants: Constants, record: UplinkRecord, backoffs: Array, tau: float) -> dict[str, Array]:
    """The theorem as the paper has it, typed from its text in the paper's symbols and evaluated by sympy."""
    text = {
        "c1": "1/(2*mu) - L*B/(mu*rho**2)",
        "c2": "mu/(mu+lam) * (1 + 2*L*B*(L+rho)/(mu*rho**2)) * q*G",
        "c3": "(mu/(mu+lam))**2 * L * (1 + (L+rho)**2/(mu*rho**2)) * q**2",
        "c4": "(2*mu*(tau*s-1)**2 + (2*L-mu)*mu) / (2*mu**2*(tau*s)**2) * (kappa+G)**2",
        "c5": "L*d/2 * hcj_acj_over_au**2",
        "c6": "L*sigc_over_au**2*d/2",
    }
    expressions = {name: sympy.sympify(words) for name, words in text.items()}
    common = {
        "mu": record.proximal_mu,
        "L": constants.lipschitz,
        "B": constants.dissimilarity,
        "rho": constants.strong_convexity,
        "q": constants.step_bound,
        "G": constants.gradient_bound,
        "tau": tau,
        "d": record.dimension,
    }

    def number(name: str, **more: float) -> float:
        return float(expressions[name].subs({**common, **more}))

    lambdas = record.proximal_mu * (1.0 / record.reuse - 1.0)
    c4 = [
        sum(
            weight * number("c4", s=s, kappa=kappa)
            for weight, s, kappa in zip(record.weights, row, constants.heterogeneity, strict=True)
        )
        for row in backoffs
    ]
    return {
        "c1": np.array(number("c1")),
        "c2": np.array([number("c2", lam=value) for value in lambdas]),
        "c3": np.array([number("c3", lam=value) for value in lambdas]),
        "c4": np.array(c4),
        "c5": np.array([number("c5", hcj_acj_over_au=value) for value in record.jammer_std]),
        "c6": np.array([number("c6", sigc_over_au=value) for value in record.noise_std]),
    }


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("tau", [1.0, 0.6])
def test_paper_form_is_the_printed_theorem(seed: int, tau: float) -> None:
    constants, record, backoffs = random_case(seed, tau=tau)
    bound = convergence_bound(constants, record, Form.PAPER)
    expected = printed(constants, record, backoffs, tau)
    for name, value in expected.items():
        np.testing.assert_allclose(getattr(bound, name), value, rtol=1e-9, err_msg=name)
    total = constants.start_gap / record.uplinks + sum(expected[name].mean() for name in TERMS if name != "start")
    if bound.c1 > 0 and total >= 0:
        assert bound.void is None
        assert bound.value == pytest.approx(total / bound.c1, rel=1e-9)
    else:
        assert bound.void is not None
        assert math.isinf(bound.value)


def test_paper_form_by_hand() -> None:
    bound = convergence_bound(SIMPLE, SIMPLE_RECORD, Form.PAPER)
    assert bound.c1 == pytest.approx(0.5 - 2 / 16)
    np.testing.assert_allclose(bound.c2, [0.5 * 2.5, 0.25 * 2.5])
    np.testing.assert_allclose(bound.c3, [0.25 * 6.5, 0.0625 * 6.5])
    np.testing.assert_allclose(bound.c4, [1.5, 0.25 * (2 + 3) / 8 + 0.75 * 1.5])
    np.testing.assert_allclose(bound.c4_backoff, [0.0, 0.25 * 0.25])
    np.testing.assert_allclose(bound.c5, [3 * 0.04, 0.0])
    np.testing.assert_allclose(bound.c6, [0.03, 0.03])
    assert bound.terms["start"] == 1.5
    assert bound.value == pytest.approx(sum(bound.terms.values()) / 0.375)
    assert sum(bound.shares.values()) == pytest.approx(1.0)
    assert bound.dominant == "start"


def test_mended_form_by_hand() -> None:
    bound = convergence_bound(SIMPLE, SIMPLE_RECORD, Form.MENDED)
    assert bound.c1 == pytest.approx(0.5 - 4 / 16)
    # The first uplink extrapolates nothing, the second what the first brought.
    np.testing.assert_allclose(bound.c2, [0.0, 0.5 * 4.0])
    np.testing.assert_allclose(bound.c3, [0.0, 0.25 * 2 * 5.5])
    np.testing.assert_allclose(bound.c4, [1.5, 0.25 * (0.25 + 3 / 8) + 0.75 * 1.5])


@pytest.mark.parametrize("seed", range(4))
def test_mended_form_term_by_term_as_the_proof_meets_it(seed: int) -> None:
    constants, record, _ = random_case(seed)
    L, B, rho, mu = constants.lipschitz, constants.dissimilarity, constants.strong_convexity, record.proximal_mu
    bound = convergence_bound(constants, record, Form.MENDED)
    # (L^2/mu) E(a e + b_i)^2, a = (L + rho)/rho, e = r q, b_i = ||grad F_i||/rho, E b_i^2 <= (B ||grad f||/rho)^2
    e = np.concatenate([[0.0], record.reuse[:-1]]) * constants.step_bound
    a = (L + rho) / rho
    G = constants.gradient_bound
    np.testing.assert_allclose(bound.c1, 0.5 / mu - L**2 / mu * (B / rho) ** 2)
    np.testing.assert_allclose(bound.c2, e * G + L**2 / mu * 2 * a * e * B * G / rho)
    np.testing.assert_allclose(bound.c3, L * e**2 + L**2 / mu * a**2 * e**2)
    g = record.gains
    inner = (1 - g) ** 2 / mu + max(0.0, L / mu**2 - 0.5 / mu) * g**2
    np.testing.assert_allclose(bound.c4, inner @ (record.weights * (constants.heterogeneity + G) ** 2))


def changed_terms(before: Bound, after: Bound) -> dict[str, int]:
    """Sign of the change of each term that changed; C1 too."""
    old, new = {"c1": before.c1, **before.terms}, {"c1": after.c1, **after.terms}
    return {name: int(np.sign(new[name] - old[name])) for name in old if not math.isclose(old[name], new[name])}


@pytest.mark.parametrize("form", list(Form))
def test_each_term_answers_to_its_cause(form: Form) -> None:
    constants, record = SIMPLE, replace(SIMPLE_RECORD, proximal_mu=3.9)
    before = convergence_bound(constants, record, form)

    def respond(**changes: object) -> dict[str, int]:
        parts = {key: value for key, value in changes.items() if hasattr(record, key)}
        rest = {key: value for key, value in changes.items() if key not in parts}
        after = convergence_bound(replace(constants, **rest), replace(record, **parts), form)  # type: ignore[arg-type]
        return changed_terms(before, after)

    assert respond(jammer_std=2 * record.jammer_std) == {"c5": 1}
    assert respond(noise_std=2 * record.noise_std) == {"c6": 1}
    # mu is near 2 L: hardly anything is gained by shorter steps, so back-off raises C4.
    assert respond(gains=record.gains / 3) == {"c4": 1}
    assert respond(heterogeneity=np.array([1.0, 0.0])) == {"c4": 1}
    assert respond(reuse=record.reuse / 2) == {"c2": -1, "c3": -1}
    assert respond(step_bound=2.0) == {"c2": 1, "c3": 1}
    assert respond(gradient_bound=2.0) == {"c2": 1, "c4": 1}
    assert respond(dissimilarity=1.2) == {"c1": -1, "c2": 1}
    assert respond(start_gap=4.0) == {"start": 1}
    assert respond(dimension=6) == {"c5": 1, "c6": 1}
    assert set(respond(strong_convexity=5.0)) == {"c1", "c2", "c3"}


def test_back_off_shortens_steps_that_are_too_long() -> None:
    """mu far below 2 L: as s grows C4 falls and then rises, while its back-off part only rises."""
    constants = replace(SIMPLE, lipschitz=5.0)
    bounds = [
        convergence_bound(constants, replace(SIMPLE_RECORD, gains=np.full((2, 2), 1.0 / s)), Form.MENDED)
        for s in (1.0, 5.5, 1e6)
    ]
    c4 = [bound.terms["c4"] for bound in bounds]
    assert c4[1] < c4[0]
    assert c4[1] < c4[2]
    # Smallest where 1/s = 2 mu / (mu + 2 L), here 2/11.
    assert c4[1] == pytest.approx((9 / 11) ** 2 + 4.5 * (2 / 11) ** 2)
    assert np.all(np.diff([bound.c4_backoff.mean() for bound in bounds]) > 0)


def scaled(constants: Constants, record: UplinkRecord, factor: float) -> tuple[Constants, UplinkRecord]:
    """The same run with all losses, and mu and lambda with them, times `factor`: the models do not change."""
    return replace(
        constants,
        lipschitz=factor * constants.lipschitz,
        strong_convexity=factor * constants.strong_convexity,
        gradient_bound=factor * constants.gradient_bound,
        heterogeneity=factor * constants.heterogeneity,
        start_gap=factor * constants.start_gap,
    ), replace(record, proximal_mu=factor * record.proximal_mu)


def test_units_of_the_loss_do_not_matter_to_the_mended_form_only() -> None:
    big_constants, big_record = scaled(SIMPLE, SIMPLE_RECORD, 100.0)
    one, hundred = (
        {form: convergence_bound(constants, record, form).value for form in Form}
        for constants, record in ((SIMPLE, SIMPLE_RECORD), (big_constants, big_record))
    )
    assert hundred[Form.MENDED] == pytest.approx(1e4 * one[Form.MENDED])
    assert hundred[Form.PAPER] != pytest.approx(1e4 * one[Form.PAPER], rel=0.5)


@pytest.mark.parametrize("form", list(Form))
def test_void_says_why_and_what_would_help(form: Form) -> None:
    constants = replace(SIMPLE, strong_convexity=1.5, lipschitz=3.0, dissimilarity=2.0)
    bound = convergence_bound(constants, SIMPLE_RECORD, form)
    assert bound.void is not None
    assert bound.void.startswith(f"C1 = {bound.c1:.4g} <= 0 because")
    assert f"mu above {bound.mu_needed:.4g} (now 1)" in bound.void
    assert bound.value == math.inf
    assert bound.vacuous
    # rho rises with mu.
    for shift, positive in ((1e-6, True), (-1e-6, False)):
        mu = bound.mu_needed + shift
        helped = convergence_bound(
            replace(constants, strong_convexity=1.5 + mu - 1.0), replace(SIMPLE_RECORD, proximal_mu=mu), form
        )
        assert (helped.void is None) is positive


@pytest.mark.parametrize("form", list(Form))
def test_void_without_strong_convexity_although_rho_squared_is_large(form: Form) -> None:
    bound = convergence_bound(replace(SIMPLE, strong_convexity=-40.0), SIMPLE_RECORD, form)
    assert bound.void is not None
    assert "not strongly convex, which needs mu above 41" in bound.void
    assert math.isnan(bound.c1)
    assert np.isnan([bound.c2, bound.c3]).all()
    # What does not rest on rho stays.
    whole = convergence_bound(SIMPLE, SIMPLE_RECORD, form)
    assert {name: bound.terms[name] for name in ("start", "c4", "c5", "c6")} == {
        name: whole.terms[name] for name in ("start", "c4", "c5", "c6")
    }
    assert sum(share for share in bound.shares.values() if not math.isnan(share)) == pytest.approx(1.0)
    assert bound.dominant == "start"


def test_void_without_a_proximal_term() -> None:
    bound = convergence_bound(SIMPLE, replace(SIMPLE_RECORD, proximal_mu=0.0, reuse=np.zeros(2)), Form.PAPER)
    assert bound.void is not None
    assert "mu = 0" in bound.void
    assert np.isnan([bound.c1, bound.mu_needed]).all()
    assert np.isnan([bound.c2, bound.c3, bound.c4]).all()
    assert bound.terms["c6"] == pytest.approx(0.03)


@pytest.mark.parametrize("form", list(Form))
def test_void_where_no_dissimilarity_bound_exists(form: Form) -> None:
    bound = convergence_bound(replace(SIMPLE, dissimilarity=math.inf), SIMPLE_RECORD, form)
    assert bound.void is not None
    assert "no mu is enough" in bound.void
    assert bound.dominant == "c2"
    assert bound.shares["c2"] == 1.0
    assert bound.shares["c4"] == 0.0
    without = convergence_bound(
        replace(SIMPLE, dissimilarity=math.inf), replace(SIMPLE_RECORD, reuse=np.zeros(2)), form
    )
    assert without.terms["c2"] == 0.0


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("lipschitz", 0.0),
        ("lipschitz", math.nan),
        ("dissimilarity", 0.9),
        ("strong_convexity", math.inf),
        ("step_bound", -1.0),
        ("gradient_bound", math.inf),
        ("start_gap", -0.1),
        ("heterogeneity", np.array([1.0, -1.0])),
        ("heterogeneity", np.array([])),
    ],
)
def test_impossible_constants_are_refused(field: str, value: object) -> None:
    with pytest.raises(ConfigError, match=field.replace("_", " ")):
        replace(SIMPLE, **{field: value})  # type: ignore[arg-type]


def test_constants_of_other_clients_are_refused() -> None:
    with pytest.raises(ConfigError, match="2 clients, the constants of 3"):
        convergence_bound(replace(SIMPLE, heterogeneity=np.zeros(3)), SIMPLE_RECORD, Form.PAPER)


@dataclass(frozen=True)
class Quadratics:
    """F_i(w) = 1/2 (w - c_i)^T A_i (w - c_i), for which argmin g_i is known. A: (K, d, d). c: (K, d)."""

    A: Array
    c: Array
    weights: Array

    def gradients(self, w: Array) -> Array:
        """(T, K, d) at models (T, d)."""
        return np.asarray(np.einsum("kij,tkj->tki", self.A, w[:, None] - self.c))

    def minimise(self, w: Array, mu: float) -> Array:
        """argmin F_i + mu/2 ||. - w||^2 for models w (T, d): (T, K, d)."""
        right = np.einsum("kij,kj->ki", self.A, self.c) + mu * w[:, None]
        return np.asarray(np.einsum("kij,tkj->tki", np.linalg.inv(self.A + mu * np.eye(self.A.shape[-1])), right))

    def gap(self, w: Array) -> float:
        """f(w) - f(w*) at one model (d,)."""
        mean = np.einsum("k,kij->ij", self.weights, self.A)
        best = np.linalg.solve(mean, np.einsum("k,kij,kj->i", self.weights, self.A, self.c))
        return float(0.5 * (w - best) @ mean @ (w - best))


def simulate(
    problem: Quadratics,
    start: Array,
    mu: float,
    *,
    reuse: Array,
    gains: Array | None = None,
    noise_std: float = 0.0,
    jammer_std: float = 0.0,
    trials: int = 1,
    seed: int = 1,
) -> tuple[Constants, UplinkRecord, float]:
    """Run the theorem's own algorithm and take its constants as suprema over all that it met.

    Returned with them: min_m E||grad f(v_m)||^2 over v = w^0, w^1, w^3, ..., w^{2M-3}, the mean over the trials.
    """
    rng = np.random.default_rng(seed)
    uplinks, clients, d = len(reuse), len(problem.weights), len(start)
    gains = np.ones((uplinks, clients)) if gains is None else gains
    even = odd = np.tile(start, (trials, 1))
    q = G = 0.0
    B, kappa, measured = 1.0, np.zeros(clients), []
    for m in range(uplinks):
        own = problem.gradients(odd)
        whole = np.einsum("k,tkd->td", problem.weights, own)
        squares = np.einsum("td,td->t", whole, whole)
        measured.append(float(squares.mean()))
        B = max(B, float(np.sqrt(np.einsum("k,tkd,tkd->t", problem.weights, own, own) / squares).max()))
        local = problem.minimise(even, mu)
        for place in (odd, *np.moveaxis(local, 1, 0)):
            there = problem.gradients(place)
            mean = np.einsum("k,tkd->td", problem.weights, there)
            G = max(G, float(np.linalg.norm(mean, axis=1).max()))
            kappa = np.maximum(kappa, np.linalg.norm(there - mean[:, None], axis=2).max(axis=0))
        update = np.einsum("k,tkd->td", problem.weights * gains[m], local - even[:, None])
        step = update + math.hypot(noise_std, jammer_std) * rng.standard_normal((trials, d))
        odd = even + step
        q = max(q, float(np.linalg.norm(step, axis=1).max()))
        even = odd + reuse[m] * step
    eigenvalues = np.linalg.eigvalsh(problem.A)
    constants = Constants(
        lipschitz=float(np.abs(eigenvalues).max()),
        dissimilarity=B,
        strong_convexity=mu + float(eigenvalues.min()),
        step_bound=q,
        gradient_bound=G,
        heterogeneity=kappa,
        start_gap=problem.gap(start),
    )
    record = UplinkRecord(
        proximal_mu=mu,
        dimension=d,
        weights=problem.weights,
        reuse=reuse,
        gains=gains,
        jammer_std=np.full(uplinks, jammer_std),
        noise_std=np.full(uplinks, noise_std),
    )
    return constants, record, min(measured)


def left_out(bound: Bound, *names: str, factor: float = 0.0) -> float:
    """The bound with the named terms scaled by `factor`."""
    return sum(value * (factor if name in names else 1.0) for name, value in bound.terms.items()) / bound.c1


def one_client(d: int) -> Quadratics:
    """f = ||w||^2/2: L = 1, minimum at 0."""
    return Quadratics(np.eye(d)[None], np.zeros((1, d)), np.ones(1))


@pytest.mark.parametrize("term", ["c5", "c6"])
def test_noise_is_bounded_and_without_its_term_it_is_not(term: str) -> None:
    """mu = 2 L in equilibrium: E||grad f||^2 is 1.8 L^2 d sigma^2, the noise term 2.57 times that unit."""
    d, sigma = 20, 0.1
    start = np.full(d, sigma * math.sqrt(1.8))
    jammer_std, noise_std = (sigma, 0.0) if term == "c5" else (0.0, sigma)
    constants, record, reached = simulate(
        one_client(d), start, 2.0, reuse=np.zeros(300), noise_std=noise_std, jammer_std=jammer_std, trials=300
    )
    bound = convergence_bound(constants, record, Form.MENDED)
    assert bound.void is None
    assert reached == pytest.approx(1.8 * d * sigma**2, rel=0.1)
    assert bound.dominant == term
    assert reached <= bound.value == pytest.approx(2.0 / (1 - 2 / 9) * d * sigma**2, rel=0.02)
    assert not bound.vacuous
    assert left_out(bound, bound.dominant, factor=0.5) < reached


def test_upcycled_noise_is_bounded_and_without_its_terms_it_is_not() -> None:
    """Extrapolation by r = 0.95 moves along the noise as well: 2.93 L^2 d sigma^2 instead of 1.8."""
    d, sigma, reuse = 20, 0.1, 0.95
    variance = (1 + reuse) ** 2 / (1 - (1 - (1 + reuse) / 3) ** 2)
    start = np.full(d, sigma * math.sqrt(variance))
    constants, record, reached = simulate(
        one_client(d), start, 2.0, reuse=np.full(400, reuse), noise_std=sigma, trials=400
    )
    bound = convergence_bound(constants, record, Form.MENDED)
    assert reached == pytest.approx((variance * 4 / 9 + 1) * d * sigma**2, rel=0.1)
    assert reached <= bound.value
    assert left_out(bound, "c2", "c3") < reached


def test_start_is_bounded_and_without_its_term_it_is_not() -> None:
    constants, record, reached = simulate(one_client(3), np.ones(3), 2.0, reuse=np.zeros(1))
    bound = convergence_bound(constants, record, Form.MENDED)
    assert bound.dominant == "start"
    assert reached <= bound.value
    assert left_out(bound, "start", factor=1 / 3) < reached


def test_lost_weights_are_bounded_and_without_their_term_they_are_not() -> None:
    """Of two clients with minima at -1 and 1 the second is never heard: the model ends at -1, where grad f is L."""
    problem = Quadratics(np.ones((2, 1, 1)), np.array([[-1.0], [1.0]]), np.array([0.5, 0.5]))
    constants, record, reached = simulate(
        problem, np.array([-0.9]), 8.0, reuse=np.zeros(100), gains=np.tile([1.0, 0.0], (100, 1))
    )
    bound = convergence_bound(constants, record, Form.MENDED)
    assert bound.void is None
    assert reached <= bound.value
    assert bound.dominant == "c4"
    assert left_out(bound, "c4") < reached
    np.testing.assert_allclose(bound.c4, bound.c4_backoff)


@pytest.mark.parametrize("seed", range(8))
def test_unlike_clients_with_everything_at_once_are_bounded(seed: int) -> None:
    rng = np.random.default_rng(seed)
    clients, d, uplinks = 4, 5, 30
    factors = rng.standard_normal((clients, d, d)) / math.sqrt(d)
    A = np.einsum("kij,klj->kil", factors, factors) + 0.1 * np.eye(d)
    problem = Quadratics(A, 3.0 + 0.1 * rng.standard_normal((clients, d)), rng.dirichlet(np.full(clients, 5.0)))
    constants, record, reached = simulate(
        problem,
        np.zeros(d),
        float(rng.uniform(30.0, 60.0)),
        reuse=rng.uniform(0.05, 0.4, uplinks),
        gains=rng.uniform(0.5, 1.0, (uplinks, clients)),
        noise_std=0.003,
        jammer_std=0.002,
        trials=200,
        seed=seed,
    )
    bound = convergence_bound(constants, record, Form.MENDED)
    assert bound.void is None
    assert 0 < reached <= bound.value
    assert all(value > 0 for value in bound.terms.values())


def opposed(L: float, remainder: float, mu: float, uplinks: int) -> tuple[Constants, UplinkRecord, float]:
    """Two clients with curvatures L and remainder - L: f is convex, and proximal steps lead away from its minimum."""
    problem = Quadratics(np.array([[[L]], [[remainder - L]]]), np.zeros((2, 1)), np.array([0.5, 0.5]))
    return simulate(problem, np.ones(1), mu, reuse=np.zeros(uplinks))


def test_printed_theorem_is_violated_where_all_its_assumptions_hold() -> None:
    """With L for L^2 and B for B^2 its C1 is positive where the models move away from the minimum at every step."""
    constants, record, reached = opposed(1000.0, 10.0, 2000.0, 800)
    paper, mended = (convergence_bound(constants, record, form) for form in Form)
    assert constants.strong_convexity == 1010.0
    assert paper.void is None
    assert 0 < paper.value < 0.9 * reached
    assert mended.void is not None


def test_printed_theorem_is_negative_where_mu_exceeds_2_l() -> None:
    constants, record, reached = simulate(one_client(2), np.ones(2), 10.0, reuse=np.zeros(200))
    paper, mended = (convergence_bound(constants, record, form) for form in Form)
    assert sum(paper.terms.values()) / paper.c1 < 0 < reached <= mended.value
    assert paper.void is not None
    assert "negative" in paper.void
    assert mended.terms["c4"] == 0.0


def test_bound_that_says_nothing_is_called_vacuous() -> None:
    constants, record, _ = simulate(one_client(2), np.ones(2), 1.0, reuse=np.zeros(5))
    bound = convergence_bound(constants, record, Form.MENDED)
    assert bound.void is None
    assert bound.value > constants.gradient_bound**2
    assert bound.vacuous
    edge = math.sqrt(bound.value)
    assert replace(bound, gradient_bound=0.999 * edge).vacuous
    assert not replace(bound, gradient_bound=1.001 * edge).vacuous
