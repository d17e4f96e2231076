"""The server's step, against the formulas of the papers written out here."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.learning.server.adaptive import FedAdam, FedAvgM, FedYogi
from fl.learning.server.algorithms import Algorithm, FedAvg, FedProx, ServerState, UpcycledFL, advance
from fl.run.config import RunConfig, parse_config
from fl.run.learner import make_algorithm

PAPERS_SCHEDULE = ((25, 0.15), (50, 0.4), (75, 0.9), (80, 1.9))


def vectors(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(50).astype(np.float32), rng.standard_normal(50).astype(np.float32)


def after(algorithm: Algorithm, model: np.ndarray, aggregate: np.ndarray, uplink: int) -> np.ndarray:
    return algorithm.step(ServerState(model), aggregate, uplink).model


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(0.1)])
def test_fedavg_and_fedprox_add_the_aggregate(algorithm: FedAvg | FedProx) -> None:
    model, aggregate = vectors()
    np.testing.assert_array_equal(after(algorithm, model, aggregate, 7), model + aggregate)
    assert algorithm.steps_per_uplink == 1


def test_proximal_weights() -> None:
    assert FedAvg().proximal_mu == 0.0
    assert FedProx(0.1).proximal_mu == 0.1
    assert UpcycledFL(0.1, PAPERS_SCHEDULE).proximal_mu == 0.1


@pytest.mark.parametrize(
    ("uplink", "expected"),
    [(1, 0.15), (25, 0.15), (26, 0.4), (50, 0.4), (51, 0.9), (75, 0.9), (76, 1.9), (80, 1.9), (81, 1.9), (10**6, 1.9)],
)
def test_the_papers_lambda_at_its_boundaries(uplink: int, expected: float) -> None:
    # MODEL.md: 0.15 (m <= 25), 0.4 (<= 50), 0.9 (<= 75), 1.9 (<= 80); the default of the config is the same schedule.
    assert UpcycledFL(0.1, PAPERS_SCHEDULE).lambda_at(uplink) == expected
    default = make_algorithm(RunConfig())
    assert isinstance(default, UpcycledFL)
    assert default.lambda_at(uplink) == expected
    assert default.proximal_mu == 0.1


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**31), uplink=st.integers(1, 90), mu=st.floats(1e-3, 10))
def test_upcycled_is_its_two_steps(seed: int, uplink: int, mu: float) -> None:
    """w^{2m-1} = w^{2m-2} + sum p_i u_i, then w^{2m} = w^{2m-1} + mu/(mu + lambda_m) (w^{2m-1} - w^{2m-2})."""
    model, aggregate = vectors(seed)
    lambda_m = next((value for last, value in PAPERS_SCHEDULE if uplink <= last), 1.9)
    odd = model.astype(np.float64) + aggregate
    even = odd + mu / (mu + lambda_m) * (odd - model)
    algorithm = UpcycledFL(mu, PAPERS_SCHEDULE)
    np.testing.assert_allclose(after(algorithm, model, aggregate, uplink), even, rtol=1e-6, atol=1e-6)
    assert after(algorithm, model, aggregate, uplink).dtype == np.float32
    assert algorithm.steps_per_uplink == 2


def test_upcycled_goes_further_than_fedprox_by_a_known_factor() -> None:
    # mu = 0.1, lambda = 0.15: mu/(mu + lambda) = 0.4.
    step = after(UpcycledFL(0.1, PAPERS_SCHEDULE), np.zeros(3, np.float32), np.ones(3, np.float32), 1)
    np.testing.assert_allclose(step, 1.4, rtol=1e-6)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(0.1), UpcycledFL(0.1, PAPERS_SCHEDULE)])
def test_a_step_changes_neither_of_its_inputs(algorithm: FedAvg | FedProx | UpcycledFL) -> None:
    model, aggregate = vectors()
    kept = model.copy(), aggregate.copy()
    after(algorithm, model, aggregate, 3)
    np.testing.assert_array_equal(model, kept[0])
    np.testing.assert_array_equal(aggregate, kept[1])


@pytest.mark.parametrize(
    "schedule",
    [
        (),
        ((0, 0.1),),
        ((-3, 0.1),),
        ((5, 0.1), (5, 0.2)),
        ((5, 0.1), (4, 0.2)),
        ((5, 0.0),),
        ((5, -0.1),),
        ((5, float("nan")),),
        ((5, 0.1), (9, float("inf"))),
    ],
)
def test_impossible_schedules_are_refused(schedule: tuple[tuple[int, float], ...]) -> None:
    with pytest.raises(ConfigError, match=r"algorithm\.schedule"):
        UpcycledFL(0.1, schedule)


@pytest.mark.parametrize(("name", "kind"), [("fedavg", FedAvg), ("fedprox", FedProx), ("upcycled", UpcycledFL)])
def test_the_config_names_the_algorithm(name: str, kind: type) -> None:
    made = make_algorithm(parse_config({"algorithm": {"name": name, "mu": 0.25}}))
    assert type(made) is kind
    assert made.proximal_mu == (0.0 if name == "fedavg" else 0.25)


def steps(algorithm: Algorithm, aggregates: list[np.ndarray]) -> np.ndarray:
    state = ServerState(np.zeros_like(aggregates[0]))
    for number, aggregate in enumerate(aggregates, 1):
        state = advance(algorithm, state, aggregate, number)
    return state.model


def test_fedavgm_is_sgd_with_momentum_on_the_negative_aggregate() -> None:
    # torch.optim.SGD: v <- momentum v + g, w <- w - lr v, with g = -Delta.
    aggregates = [vectors(seed)[1] for seed in range(5)]
    weights = torch.nn.Parameter(torch.zeros(50))
    reference = torch.optim.SGD([weights], lr=0.3, momentum=0.8)
    for aggregate in aggregates:
        weights.grad = -torch.from_numpy(aggregate)
        reference.step()
    np.testing.assert_allclose(
        steps(FedAvgM(lr=0.3, momentum=0.8), aggregates), weights.detach().numpy(), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("kind", [FedAdam, FedYogi])
def test_adaptive_servers_follow_the_papers_recursion(kind: type[FedAdam]) -> None:
    """Reddi et al., algorithm 2, written out coordinate by coordinate in double precision."""
    aggregates = [vectors(seed)[1] for seed in range(6)]
    lr, beta1, beta2, tau = 0.05, 0.9, 0.95, 0.01
    w, m, v = np.zeros(50), np.zeros(50), np.full(50, tau**2)
    for delta in aggregates:
        for j in range(50):
            square = float(delta[j]) ** 2
            m[j] = beta1 * m[j] + (1 - beta1) * float(delta[j])
            if kind is FedYogi:
                v[j] -= (1 - beta2) * square * np.sign(v[j] - square)
            else:
                v[j] = beta2 * v[j] + (1 - beta2) * square
            w[j] += lr * m[j] / (np.sqrt(v[j]) + tau)
    found = steps(kind(lr=lr, beta1=beta1, beta2=beta2, tau=tau), aggregates)
    np.testing.assert_allclose(found, w, rtol=1e-4, atol=1e-5)
    other = FedAdam if kind is FedYogi else FedYogi
    assert not np.allclose(steps(other(lr=lr, beta1=beta1, beta2=beta2, tau=tau), aggregates), w, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("wrong", [{"lr": 0.0}, {"beta1": 1.0}, {"beta2": -0.1}, {"tau": float("nan")}])
def test_rates_that_cannot_work_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match=next(iter(wrong))):
        FedAdam(**wrong)
