"""The server's step, against the formulas of the papers written out here."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fl.errors import ConfigError
from fl.learning.algorithms import FedAvg, FedProx, UpcycledFL
from fl.run.assemble import make_algorithm
from fl.run.config import RunConfig, parse_config

PAPERS_SCHEDULE = ((25, 0.15), (50, 0.4), (75, 0.9), (80, 1.9))


def vectors(seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.standard_normal(50).astype(np.float32), rng.standard_normal(50).astype(np.float32)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(0.1)])
def test_fedavg_and_fedprox_add_the_aggregate(algorithm: FedAvg | FedProx) -> None:
    model, aggregate = vectors()
    np.testing.assert_array_equal(algorithm.step(model, aggregate, uplink=7), model + aggregate)
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
    np.testing.assert_allclose(algorithm.step(model, aggregate, uplink), even, rtol=1e-6, atol=1e-6)
    assert algorithm.step(model, aggregate, uplink).dtype == np.float32
    assert algorithm.steps_per_uplink == 2


def test_upcycled_goes_further_than_fedprox_by_a_known_factor() -> None:
    # mu = 0.1, lambda = 0.15: mu/(mu + lambda) = 0.4.
    step = UpcycledFL(0.1, PAPERS_SCHEDULE).step(np.zeros(3, np.float32), np.ones(3, np.float32), 1)
    np.testing.assert_allclose(step, 1.4, rtol=1e-6)


@pytest.mark.parametrize("algorithm", [FedAvg(), FedProx(0.1), UpcycledFL(0.1, PAPERS_SCHEDULE)])
def test_a_step_changes_neither_of_its_inputs(algorithm: FedAvg | FedProx | UpcycledFL) -> None:
    model, aggregate = vectors()
    kept = model.copy(), aggregate.copy()
    algorithm.step(model, aggregate, 3)
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
