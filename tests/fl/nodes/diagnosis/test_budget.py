"""The error budget: parts that add up, and each cause showing where it is switched on, with the size that it has.

The simulated receiver's noise depends on the sample's number alone. The same uplink with updates of zeros therefore has
the same noise, and what the two differ by beyond the exact sum is all that the other causes did.
"""

import math
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.nodes.client import Departure
from fl.nodes.diagnosis.budget import Contribution, error_budget
from fl.nodes.messages import Decision
from fl.nodes.transmitter import Burst
from fl.uplink.alpha_u import Largest
from fl.uplink.jammer import JammerRole
from hardware.lab.file import find_lab
from hardware.lab.model import Lab
from tests.fl.nodes.radios import (
    EQUAL,
    SIZES,
    Exchange,
    alpha_u_for,
    exchange,
    lab_of,
    opened,
    power_of,
    silence_of,
    updates_of,
)

COORDINATES = 20_000
CAUSES = {"thermal", "jammer", "csi", "phase", "timing", "clipping", "quantisation", "backoff", "other"}


def one_of(lab: Lab, number: int = 1, **settings: Any) -> Exchange:
    updates = updates_of(COORDINATES)
    with opened(lab, COORDINATES, **{"power": power_of(alpha_u=alpha_u_for(updates)), **settings}) as uplink:
        return exchange(uplink, number, updates)


def without_noise(
    lab: Lab, numbers: range, coordinates: int = COORDINATES, **settings: Any
) -> tuple[float, list[dict[str, float]]]:
    """Mean over uplinks of the error's energy but for the receiver's noise, relative to the sum's, and the budgets.

    Updates are independent: equal ones through equal channels would have equal errors, which add up in amplitude.
    """
    updates = updates_of(coordinates, common=0.0)
    errors, budgets = [], []
    for number in numbers:
        with opened(lab, coordinates, **settings) as uplink:
            loud = exchange(uplink, number, updates)
        with opened(lab, coordinates, **settings) as uplink:
            quiet = exchange(uplink, number, silence_of(coordinates))
        error = loud.error - quiet.error
        errors.append(float(error @ error) / float(loud.exact @ loud.exact))
        budgets.append(loud.parts)
    return float(np.mean(errors)), budgets


def mean_of(budgets: list[dict[str, float]], cause: str) -> float:
    return float(np.mean([parts[cause] for parts in budgets]))


@pytest.mark.parametrize("name", ["loopback", "loopback-harsh", "loopback-free-clock", "benign"])
def test_parts_add_up_to_what_was_measured(name: str) -> None:
    lab = lab_of() if name == "benign" else find_lab(name)
    for number in (1, 2, 3):
        one = one_of(lab, number)
        assert set(one.parts) == CAUSES
        assert math.fsum(one.parts.values()) == pytest.approx(10 ** (one.nmse_db / 10), rel=1e-3)
        assert all(part >= 0 for cause, part in one.parts.items() if cause != "other")


def test_noise_is_nearly_all_in_benign_air() -> None:
    """Chance leaves 1 % of a noise energy of 20,000 coordinates; causes that are off are zero."""
    one = one_of(lab_of())
    total = 10 ** (one.nmse_db / 10)
    assert one.parts["thermal"] == pytest.approx(total, rel=0.04)
    assert abs(one.parts["other"]) < 0.04 * total
    assert one.parts["csi"] < 1e-3 * total
    # The phase's part is a difference of two squares.
    assert one.parts["phase"] < 1e-15
    for cause in ("jammer", "timing", "clipping", "quantisation", "backoff"):
        assert one.parts[cause] == 0.0


def test_the_jammer_shows() -> None:
    power = power_of(alpha_u=alpha_u_for(updates_of(COORDINATES)), jammer_role=JammerRole.DEDICATED, jammer_sigma=0.002)
    one = one_of(lab_of(), power=power)
    assert one.plan.jammer.needed
    total = 10 ** (one.nmse_db / 10)
    # sigma^2 = jammer^2 + thermal^2 per coordinate, of which d are in the error.
    assert one.parts["jammer"] + one.parts["thermal"] == pytest.approx(total, rel=0.05)
    assert one.parts["jammer"] > 5 * one.parts["thermal"]
    sigma = one.plan.mechanism.sigma
    # The claim counts on the bounds of both.
    assert one.parts["jammer"] + one.parts["thermal"] == pytest.approx(COORDINATES * sigma**2, rel=0.08)


def test_channel_errors_show() -> None:
    """Few sounding symbols at a low signal-to-noise ratio: the predicted part is the measured one. Per uplink it is a
    sum over 5 channels of 58 dimensions, so 12 of them leave 3 % of chance, and weights some more."""
    lab = lab_of(noise_var_complex=1e-2, delay_samples=0.5)
    power = power_of(alpha_u=0.2 * math.sqrt(COORDINATES), max_phase_error_rad=3.0)
    measured, budgets = without_noise(lab, range(1, 13), power=power, sounding_symbols=2)
    assert mean_of(budgets, "csi") == pytest.approx(measured, rel=0.15)
    assert mean_of(budgets, "csi") > 2e-4
    _, better = without_noise(lab, range(1, 2), power=power, sounding_symbols=32)
    assert mean_of(better, "csi") == pytest.approx(mean_of(budgets, "csi") / 16, rel=0.1)


def test_phase_drift_shows() -> None:
    """Free clocks and few symbols. The part is that of the drift at the payload's end: a bound on its mean over the
    payload, here not far above it. 5 clients with one frequency error each, 40 uplinks: 14 % of chance and more."""
    lab = lab_of("free-running", noise_var_complex=1e-3, max_clock_ppm=1.0)
    power = power_of(alpha_u=0.2 * math.sqrt(5000), max_phase_error_rad=3.0)
    measured, budgets = without_noise(
        lab, range(1, 41), coordinates=5000, power=power, sounding_symbols=4, quiet_samples=8192
    )
    predicted = mean_of(budgets, "phase")
    assert predicted > 10 * mean_of(budgets, "csi")
    assert 0.4 < measured / predicted < 1.3
    assert 0 < mean_of(budgets, "timing") < 1e-5 * predicted


@pytest.mark.parametrize("gain_db", [0.0, -20.0])
def test_clipping_shows(gain_db: float) -> None:
    """Payloads at half of full scale in rms: 1.8 % of the samples are cut. What is lost is weighed as it arrives."""
    settings: dict[str, Any] = {"power": power_of(alpha_u=Largest()), "sizes": EQUAL, "payload_rms": 0.5}
    measured, budgets = without_noise(lab_of(noise_var_complex=1e-9, gain_db=gain_db), range(1, 2), **settings)
    assert mean_of(budgets, "clipping") == pytest.approx(measured, rel=0.05)
    assert mean_of(budgets, "clipping") > 0.9 * math.fsum(
        part for cause, part in budgets[0].items() if cause not in ("other", "backoff")
    )
    one = one_of(lab_of(noise_var_complex=1e-9), **{**settings, "payload_rms": 0.2})
    assert one.parts["clipping"] == 0.0


@pytest.mark.parametrize("where", ["everybody", "one client", "nobody"])
def test_quantisation_shows(where: str) -> None:
    """Seven bits: steps of 1/63, dithered with six uniforms, so an error of 7 step^2/12 per axis and client as it
    arrives. Only from those who send."""
    medium: dict[str, Any] = {
        "everybody": {"dac_bits": 7},
        "one client": {"radio": {"client-3": {"dac_bits": 7}}},
        "nobody": {"radio": {"jammer": {"dac_bits": 7}}},
    }[where]
    lab = lab_of(noise_var_complex=3e-5, gain_db=-10.0, **medium)
    power = power_of(alpha_u=Largest(), jammer_role=JammerRole.DEDICATED, jammer_sigma=1e-9)
    with opened(lab, COORDINATES, power=power, sizes=EQUAL) as uplink:
        one = exchange(uplink, 1, updates_of(COORDINATES, common=0.0))
    expected = one.parts["quantisation"]
    if where == "nobody":
        assert expected == 0.0
        return
    # Soundings are quantised too, which is among the channel's errors, and dither leaves less room for peaks.
    total = 10 ** (one.nmse_db / 10)
    assert abs(one.parts["other"]) < 0.02 * total
    assert expected > 0.3 * total
    clients = 5 if where == "everybody" else 1
    by_hand = clients * COORDINATES * 7 / 63**2 / 12 * 0.1 / one.plan.alpha_u**2 / float(one.exact @ one.exact)
    assert one.parts["quantisation"] == pytest.approx(by_hand, rel=0.02)


def test_back_off_shows() -> None:
    """One weak client: the weight it lost, to the last digit that float32 has."""
    lab = lab_of(radio={"client-3": {"gain_db": -45.0}})
    one = one_of(lab)
    assert one.contributions.backoffs[2] > 1.5
    lost = SIZES[2] / SIZES.sum() * (1 - 1 / one.contributions.backoffs[2])
    assert one.parts["backoff"] == pytest.approx(lost**2, rel=1e-3)
    assert one.parts["backoff"] > 0.5 * 10 ** (one.nmse_db / 10)


def budget_of(received: NDArray[np.float32], decision: Decision, burst: Burst, **given: float) -> dict[str, float]:
    exact = np.full(4, 0.5, np.float32)
    return error_budget(
        [Contribution(decision, 0.5, Departure(decision.backoff, 0.8, shortened=False, burst=burst))] * 2,
        exact=exact,
        received=received,
        backoff_bias=np.zeros(4, np.float32),
        **{"alpha_u": 2.0, "noise_var_real": 0.0, "jamming_var_real": 0.0, "converter_var_real": 0.0, **given},
    )


def test_parts_by_hand() -> None:
    """Two clients of weight 1/2 and norm 0.8 tau; an exact sum of energy 1 in four coordinates."""
    decision = Decision(backoff=2.0, gain_upper=0.5, csi_error=0.01, phase_error_rad=0.3, timing_error=0.02)
    parts = budget_of(
        np.full(4, 1.0, np.float32),
        decision,
        Burst(100, 1.0, 3, 0.4),
        noise_var_real=0.1,
        jamming_var_real=0.2,
        converter_var_real=0.03,
    )
    share = 2 * (0.5 * 0.8 / 2.0) ** 2
    assert parts["nmse_thermal"] == pytest.approx(4 * 0.1 / 4)
    assert parts["nmse_jammer"] == pytest.approx(4 * 0.2 / 4)
    assert parts["nmse_quantisation"] == pytest.approx(4 * 0.03 / 4)
    assert parts["nmse_csi"] == pytest.approx(share * 0.01)
    assert parts["nmse_phase"] == pytest.approx(share * (0.09 - 0.005))
    assert parts["nmse_timing"] == pytest.approx(share * 0.02)
    assert parts["nmse_clipping"] == pytest.approx(2 * 0.4 / 4)
    assert parts["nmse_db"] == pytest.approx(0.0)
    assert parts["thermal_db"] == pytest.approx(-10.0)


def test_a_sum_of_zeros_has_a_budget_too() -> None:
    decision = Decision(backoff=1.0, gain_upper=1.0, csi_error=0.0, phase_error_rad=0.0, timing_error=0.0)
    parts = error_budget(
        [Contribution(decision, 1.0, Departure(1.0, 0.0, shortened=False, burst=Burst(1, 0.0, 0, 0.0)))],
        alpha_u=1.0,
        noise_var_real=1.0,
        jamming_var_real=0.0,
        converter_var_real=0.0,
        exact=np.zeros(4, np.float32),
        received=np.ones(4, np.float32),
        backoff_bias=np.zeros(4, np.float32),
    )
    assert all(math.isfinite(value) for value in parts.values())
