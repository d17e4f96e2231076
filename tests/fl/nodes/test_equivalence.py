"""`symbol` and `radio` are one uplink at two fidelities: the same noise, the same learning, the same epsilon."""

import math
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from fl.privacy.accountant import Accountant
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.random_streams import generator
from fl.run import run
from fl.run.config import load_config
from fl.uplink.alpha_u import Fixed, PowerSettings
from fl.uplink.channel import StaticChannel
from fl.uplink.jammer import JammerRole, JammerSettings
from fl.uplink.symbol import SymbolUplink
from tests.fl.nodes.radios import (
    NOISE_VAR_COMPLEX,
    SIZES,
    TAU,
    exchange,
    lab_of,
    nothing,
    opened,
    power_of,
    sent_by,
    updates_of,
    weighted_sum,
)

COORDINATES = 155_830
ALPHA_U = 0.05 * math.sqrt(COORDINATES)
SIGMA_C = math.sqrt(NOISE_VAR_COMPLEX / 2)


def symbol_of(alpha_u: float = ALPHA_U, **changes: Any) -> SymbolUplink:
    """The paper's equation with unit gains and power to spare, at the radio's alpha_u and noise."""
    return SymbolUplink(
        **{
            "sizes": SIZES,
            "coordinates": COORDINATES,
            "clip_norm": TAU,
            "record_bounded": False,
            "channel": StaticChannel(len(SIZES)),
            "noise_std_real": SIGMA_C,
            "limits": np.full(len(SIZES), 1e12),
            "power": PowerSettings(Fixed(alpha_u)),
            "jammer": JammerSettings(),
            "streams": partial(generator, 1),
            **changes,
        }
    )


def symbol_noise(uplink: SymbolUplink, number: int) -> NDArray[np.float64]:
    updates = updates_of(COORDINATES)
    plan = uplink.plan(number)
    values = uplink.exchange(plan, sent_by(plan, updates), nothing).values
    return np.asarray(values.astype(np.float64) / TAU - weighted_sum(updates, SIZES / SIZES.sum()))


@pytest.fixture(scope="module")
def radio_noise() -> NDArray[np.float64]:
    """Two uplinks of the paper's size over benign radios: 311,660 errors."""
    with opened(lab_of(), COORDINATES, power=power_of(alpha_u=ALPHA_U)) as uplink:
        done = [exchange(uplink, number, updates_of(COORDINATES)) for number in (1, 2)]
    assert all(one.contributions.backoffs.max() == 1.0 for one in done)
    return np.concatenate([one.error for one in done])


def variance_p_value(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Two-sided F-test of equal variances, means zero."""
    lower = float(stats.f.cdf(np.mean(first**2) / np.mean(second**2), first.size, second.size))
    return 2 * min(lower, 1 - lower)


def test_noises_are_the_same(radio_noise: NDArray[np.float64]) -> None:
    """Two-sample Kolmogorov-Smirnov and F-test on the errors of both: accepted at the same sigma, refused by both at a
    sigma that is 3 % off in either direction. The KS distance of a 3 % scale is 0.0073, which 311,660 values a side
    refuse with p = 1e-7; the F-test sees it at 23 standard deviations."""
    noise = np.concatenate([symbol_noise(symbol_of(), number) for number in (1, 2)])
    assert stats.ks_2samp(radio_noise, noise).pvalue > 1e-3
    assert variance_p_value(radio_noise, noise) > 1e-3
    for factor in (0.97, 1.03):
        other = symbol_of(noise_std_real=factor * SIGMA_C)
        wrong = np.concatenate([symbol_noise(other, number) for number in (1, 2)])
        assert stats.ks_2samp(radio_noise, wrong).pvalue < 1e-4
        assert variance_p_value(radio_noise, wrong) < 1e-9


def test_the_radios_noise_is_white_over_coordinates(radio_noise: NDArray[np.float64]) -> None:
    """As the symbol uplink's is: no two neighbours, and no two halves of a cell, know of each other."""
    for lag in (1, 2, 192, 384):
        correlation = float(np.corrcoef(radio_noise[lag:], radio_noise[:-lag])[0, 1])
        assert abs(correlation) < 4.5 / math.sqrt(radio_noise.size)
    even, odd = radio_noise[0::2], radio_noise[1::2]
    assert variance_p_value(even, odd) > 1e-3


def test_jammed_noises_are_the_same() -> None:
    """With a jammer both are Gaussian of the same sigma, but for the margin that measuring the jammer's gain costs:
    below 2 % here, so the F-test is made after it is taken out."""
    sigma, coordinates = 4 * SIGMA_C / ALPHA_U, COORDINATES
    power = power_of(alpha_u=ALPHA_U, jammer_role=JammerRole.DEDICATED, jammer_sigma=sigma)
    with opened(lab_of(), coordinates, power=power) as uplink:
        one = exchange(uplink, 1, updates_of(coordinates))
    mechanism = one.plan.mechanism
    settings = JammerSettings(JammerRole.DEDICATED, sigma_required=mechanism.sigma)
    noise = symbol_noise(symbol_of(jammer=settings), 1)
    assert mechanism.sigma == pytest.approx(sigma, rel=0.01)
    ratio = math.sqrt(np.mean(one.error**2) / np.mean(noise**2))
    assert 0.995 < ratio < 1.02
    assert stats.ks_2samp(one.error / ratio, noise).pvalue > 1e-3
    assert stats.ks_2samp(one.error / ratio * 1.05, noise).pvalue < 1e-4


def test_the_same_sigma_is_the_same_epsilon() -> None:
    """alpha_u and the channel's noise given, unit gains: the radio's bounds on what it measured, which fail with 1e-9
    each, cost 6 % of sigma, and never give anything away. Client-level epsilon goes with its square."""
    power = power_of(alpha_u=1.0)
    with opened(lab_of(), 5000, power=power, first_quiet_samples=2**21, confidence=1 - 1e-9) as uplink:
        radio = [uplink.plan(number).mechanism for number in range(1, 11)]
    symbol = [symbol_of(coordinates=5000, alpha_u=1.0).plan(number).mechanism for number in range(1, 11)]
    for label in (Label.CLIENT, Label.PAPER_CLAIM):
        for accountant in (Accountant.PAPER, Accountant.EXACT):
            measured, assumed = (
                state_privacy(rows, SIZES * 100, label=label, neighbours=Neighbours.ZERO_OUT, delta=1e-5).epsilon[
                    accountant
                ]
                for rows in (radio, symbol)
            )
            assert assumed <= measured < 1.16 * assumed


@pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")
def test_both_learn_alike_at_the_same_epsilon(tmp_path: Path) -> None:
    """The shipped config on the shipped lab, and the symbol uplink with the same config: digits, 5 clients, a jammer,
    10 uplinks of 5 epochs, 5 seeds. Mean accuracy within a point, each epsilon within 5 %. The symbol uplink's power
    limit is that of the lab: payload_rms^2 256/384 |h|^2 / sigma_c^2 = 25.3 dB per coordinate."""
    limit_db = 10 * math.log10(0.2**2 * 256 / 384 * 10**-1.2 / 5e-6)
    short = ["uplink.uplinks=10", "local.epochs=5", f"channel.snr_db={limit_db:.2f}"]
    accuracies: dict[str, list[float]] = {"radio": [], "symbol": []}
    for seed in range(1, 6):
        epsilons = []
        for kind, reached in accuracies.items():
            config = load_config("loopback", [*short, f"seed={seed}", f"uplink.kind={kind}"])
            result = run(config, tmp_path / f"{kind}-{seed}")
            reached.append(result.accuracy)
            epsilons.append(result.privacy[0].epsilon[Accountant.PAPER])
            assert result.transmissions_charged == 10
        assert epsilons[0] == pytest.approx(epsilons[1], rel=0.05)
        assert epsilons[1] == pytest.approx(5.0, rel=1e-6)
    radio, symbol = (float(np.mean(accuracies[kind])) for kind in ("radio", "symbol"))
    assert abs(radio - symbol) < 0.01
    assert min(radio, symbol) > 0.85
