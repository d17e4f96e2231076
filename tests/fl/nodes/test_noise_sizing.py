"""alpha_u and the jammer, sized for made-up soundings of flat channels, whose bounds can be written down."""

import math

import numpy as np
import pytest

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.messages import Circuits, FlatChannel, SoundedChannel
from fl.nodes.noise.sizing import NoiseSizing, weakest_gains
from fl.nodes.precoding import ESTIMATOR_BIAS, OUT_OF_BAND
from fl.uplink.alpha_u import AlphaU, Fixed, ForNoise, Largest, PowerSettings
from fl.uplink.jammer import SILENT, FactorOn, JammerRole, JammerSettings
from fl.uplink.modes import Backoff
from tests.fl.nodes.radios import BAND, NUMEROLOGY, state_of

AIR = AirFormat(NUMEROLOGY, 384)
WEIGHTS = np.array([0.2, 0.3, 0.5])
NOISE_STD = 2e-3


def flat(gain: float, relative_std: float = 0.0) -> SoundedChannel:
    """A single path without delay, whose estimate has this deviation in the band and at single subcarriers."""
    channel = np.full(BAND.data_subcarriers, gain * 1j)
    return state_of(channel, gain * relative_std, flat=FlatChannel(gain * 1j, 0, 0.0, relative_std))


def errors(relative_std: float) -> tuple[float, float]:
    """Bounds on |H - H^|/|H^| in the band and beyond it: noise at the quantile, and the estimator's own error."""
    noise = AIR.error_quantile() * relative_std
    return noise + ESTIMATOR_BIAS, 1.1 * noise


def upper(relative_std: float) -> float:
    inside, outside = errors(relative_std)
    both = (1 - OUT_OF_BAND) * (1 + inside) ** 2 + OUT_OF_BAND * (1 + outside) ** 2
    return max(1 + inside, math.sqrt(both))


def lower(gain: float, relative_std: float) -> float:
    return gain * (1 - max(errors(relative_std)))


RULE = Fixed(0.1)


def sizing(
    *,
    alpha_u: AlphaU = RULE,
    backoff: Backoff = Backoff.WORST_CASE,
    jammer_sigma: float = 0.05,
    factor: float = 1.0,
    factor_on: FactorOn = FactorOn.AMPLITUDE,
) -> NoiseSizing:
    jammer = JammerSettings(JammerRole.DEDICATED, jammer_sigma, factor, factor_on)
    return NoiseSizing(AIR, WEIGHTS, PowerSettings(alpha_u, backoff), jammer)


CLIENTS = (flat(0.7, 0.001), flat(0.5, 0.01), flat(1.0, 0.003))
WORST = upper(0.01)


def test_nobody_jams_and_alpha_u_is_the_one_given() -> None:
    assert sizing().choose(1, CLIENTS, NOISE_STD, None) == (0.1, SILENT)


def test_noise_alone_is_sized_for_the_largest_bound() -> None:
    alpha_u, jammer = sizing(alpha_u=ForNoise(0.05)).choose(1, CLIENTS, NOISE_STD, None)
    assert jammer == SILENT
    assert WORST > 1.01
    assert NOISE_STD / alpha_u == pytest.approx(WORST * 0.05, rel=1e-6)


def test_the_largest_alpha_u_is_that_of_the_weakest_client_for_its_weight() -> None:
    alpha_u, _ = sizing(alpha_u=Largest()).choose(1, CLIENTS, NOISE_STD, None)
    # 0.5/0.3 is less than 0.7/0.2 and 1.0/0.5.
    assert alpha_u == pytest.approx(0.5 / 0.3 * math.sqrt(AIR.energy_limit), rel=1e-6)


@pytest.mark.parametrize(
    ("factor", "factor_on", "more"),
    [(1.0, FactorOn.AMPLITUDE, 1.0), (2.0, FactorOn.AMPLITUDE, 2.0), (2.0, FactorOn.VARIANCE, math.sqrt(2))],
)
def test_the_jammer_adds_what_is_missing_and_its_factor(factor: float, factor_on: FactorOn, more: float) -> None:
    """It is counted with the lower bound of its gain, against the target times the clients' largest bound."""
    jamming = sizing(factor=factor, factor_on=factor_on)
    alpha_u, jammer = jamming.choose(1, CLIENTS, NOISE_STD, flat(0.8, 0.02))
    assert alpha_u == 0.1
    assert jammer.sigma_required == pytest.approx(WORST * 0.05, rel=1e-6)
    assert jammer.gain == pytest.approx(lower(0.8, 0.02), rel=1e-6)
    missing = math.sqrt((alpha_u * WORST * 0.05) ** 2 - NOISE_STD**2)
    assert jammer.alpha * jammer.gain == pytest.approx(more * missing, rel=1e-6)


def test_noise_that_is_enough_needs_no_jammer() -> None:
    alpha_u, jammer = sizing().choose(1, CLIENTS, 0.1 * 0.05 * WORST * 1.0001, flat(0.8))
    assert (alpha_u, jammer.needed) == (0.1, False)
    # Enough for gains of exactly 1, which nobody has measured.
    assert sizing().choose(1, CLIENTS, 0.1 * 0.05 * 1.0001, flat(0.8))[1].needed


def test_a_jammer_sends_no_less_than_rounding_leaves_gaussian() -> None:
    """Hardly any noise is missing: it sends some steps of its converter, more than it is asked for, and all of it
    counts. Where a step arrives above the receiver's noise no noise is enough, and nobody may send."""
    nearly, step = 0.1 * 0.05 * WORST * (1 - 1e-6), 1 / 2047
    _, ideal = sizing().choose(1, CLIENTS, nearly, flat(0.8))
    _, rounded = sizing().choose(1, CLIENTS, nearly, flat(0.8), jammer_circuits=Circuits(step))
    assert 0 < ideal.alpha < 0.1 * step
    assert 1.2 * step < rounded.alpha < 2 * step
    assert rounded.gain == ideal.gain
    plenty = sizing().choose(1, CLIENTS, NOISE_STD, flat(0.8))
    assert sizing().choose(1, CLIENTS, NOISE_STD, flat(0.8), jammer_circuits=Circuits(step)) == plenty
    with pytest.raises(PrivacyError, match="a grid with gaps"):
        sizing().choose(1, CLIENTS, NOISE_STD, flat(0.8), jammer_circuits=Circuits(1 / 127))


@pytest.mark.parametrize(("gain", "relative_std"), [(0.01, 0.0), (0.8, 10.0)], ids=["far", "lost in noise"])
def test_out_of_the_jammers_reach_everybody_is_quieter(gain: float, relative_std: float) -> None:
    wanted = 1.0
    alpha_u, jammer = sizing(alpha_u=Fixed(0.5), jammer_sigma=wanted).choose(
        1, CLIENTS, NOISE_STD, flat(gain, relative_std)
    )
    reached = max(0.0, lower(gain, relative_std)) * AIR.jamming_limit
    assert alpha_u == pytest.approx(math.hypot(reached, NOISE_STD) / (WORST * wanted), rel=1e-6)
    assert alpha_u < 0.1
    assert jammer.needed is (reached > 0)
    assert math.hypot(jammer.alpha * jammer.gain, NOISE_STD) / alpha_u == pytest.approx(WORST * wanted, rel=1e-6)


@pytest.mark.parametrize("backoff", list(Backoff))
@pytest.mark.parametrize("factor", [0.5, 1.1, 4.0])
def test_a_back_off_lowers_a_bound_only_where_it_may_be_claimed(backoff: Backoff, factor: float) -> None:
    """The second client is the least well known, and backs off: by little, or by more than its bound is above 1."""
    gain, relative_std = 0.05, 0.1
    alpha_u = factor * gain * math.sqrt(AIR.energy_limit) / WEIGHTS[1]
    clients = (flat(1.0, 0.001), flat(gain, relative_std), flat(1.0, 0.002))
    chosen, jammer = sizing(alpha_u=Fixed(alpha_u), jammer_sigma=1e-3, backoff=backoff).choose(
        1, clients, 1e-6, flat(1.0)
    )
    claimed = 1.0 if backoff is Backoff.ACTUAL else max(1.0, factor)
    assert upper(relative_std) / 4 < upper(0.002) < upper(relative_std) / 1.1
    assert chosen == alpha_u
    assert jammer.sigma_required == pytest.approx(1e-3 * max(upper(relative_std) / claimed, upper(0.002)), rel=1e-6)


@pytest.mark.parametrize("step", [1.5, 1.05, 1.001])
def test_noise_is_enough_for_a_client_that_backs_off_by_less_the_more_of_it_there_is(step: float) -> None:
    """More noise over alpha_u is a lower alpha_u, at which it backs off by less: each pass asks for `step` times what
    the one before has asked for, until the bound of a client that does not back off is reached."""
    bound, sigma = upper(0.05), 0.05
    assert bound > 1.2
    backoff = bound / step
    gain = (NOISE_STD / sigma) * WEIGHTS[1] / (backoff * math.sqrt(AIR.energy_limit))
    clients = (flat(1.0, 0.001), flat(gain, 0.05), flat(1.0, 0.001))
    alpha_u, _ = sizing(alpha_u=ForNoise(sigma)).choose(1, clients, NOISE_STD, None)
    left = max(1.0, alpha_u * WEIGHTS[1] / (gain * math.sqrt(AIR.energy_limit)))
    assert NOISE_STD / alpha_u >= sigma * bound / left * (1 - 1e-9)


def test_weakest_gains_are_those_of_the_weakest_subcarriers() -> None:
    """Two paths, 1 and 0.6: |H| is smallest at 0.4; undoing it takes 2.5 times the amplitude, and a filter's ripple."""
    channel = 1 + 0.6 * np.exp(-2j * np.pi * BAND.used_frequencies * 9)
    found = weakest_gains([state_of(channel), flat(0.5)]).real
    assert 0.38 < found[0] <= 0.4
    assert found[1] == 0.5
