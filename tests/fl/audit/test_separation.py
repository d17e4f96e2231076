"""The worst direction by linear algebra: against brute force, and against captures of the real path."""

import math
from functools import partial

import numpy as np
import pytest

from fl.audit.jamming import covariance_of, jammer_covariance, jammer_operator, seen_draws
from fl.audit.paths import Path, Window, simulated_path
from fl.audit.separation import Separation, update_operator
from fl.audit.watch import JammerMoment, Watched, watching
from fl.errors import PrivacyError
from fl.nodes.stage import block_number
from fl.privacy.clipping import clip_update
from fl.uplink.jammer import JammerRole
from hardware.lab.model import Lab
from tests.fl.nodes.radios import SIZES, SYMBOL, TAU, lab_of, opened, planned, power_of, sent_by

HARSH = {"fading": "rayleigh", "taps": [[0, 0.0], [3, -6.0]], "max_delay_samples": 6.0, "iq_image_db": -35.0}


def drawn(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def test_an_isometry_in_white_noise_is_as_far_apart_as_its_cells() -> None:
    rng = np.random.default_rng(1)
    columns = np.linalg.qr(drawn(rng, 40, 10))[0]
    operator = np.concatenate([columns, 1j * columns], axis=1).astype(np.complex64)
    separation = Separation.of(operator, None, 2 * 0.25**2, Window(0, 40))
    mus, changes = separation.worst(20)
    assert mus == pytest.approx(np.full(20, 4.0), rel=1e-5)
    assert separation.mu(changes[0]) == pytest.approx(4.0, rel=1e-5)


def test_no_direction_is_worse_than_the_worst() -> None:
    rng = np.random.default_rng(2)
    separation = Separation.of(drawn(rng, 30, 12), covariance_of(drawn(rng, 30, 5)), 0.3, Window(0, 30))
    mus, changes = separation.worst(2)
    assert separation.mu(changes[0]) == pytest.approx(mus[0], rel=1e-9)
    assert separation.worst_mu() == pytest.approx(mus[0], rel=1e-7)
    for change in rng.standard_normal((200, 12)):
        assert separation.mu(change / np.linalg.norm(change)) < mus[0]


def test_the_template_reaches_the_separation() -> None:
    """Statistics of the best projection of simulated noise are mu apart, in units of their own deviation."""
    rng = np.random.default_rng(3)
    operator, jamming = drawn(rng, 30, 12), drawn(rng, 30, 5)
    separation = Separation.of(operator, covariance_of(jamming), 0.3, Window(0, 30))
    mus, changes = separation.worst()
    arriving = operator @ changes[0].astype(np.complex64)
    noise = math.sqrt(0.15) * drawn(rng, 30, 20_000) + jamming @ drawn(rng, 5, 20_000)
    statistics = (separation.template(arriving).conj() @ noise).real
    shift = float((separation.template(arriving).conj() @ arriving).real)
    # 20,000 draws: the deviation is known to 0.5 %.
    assert shift / statistics.std() == pytest.approx(mus[0], rel=0.025)


def test_what_is_jammed_twice_is_cancelled() -> None:
    """Noise that repeats where the signal does not protects nothing: the attacker subtracts."""
    jamming = np.array([[10.0], [10.0]], np.complex64)
    signal = np.array([[1.0], [-1.0]], np.complex64)
    repeated = Separation.of(signal, covariance_of(jamming), 2.0, Window(0, 2))
    fresh = Separation.of(signal, covariance_of(np.diag([10.0, 10.0]).astype(np.complex64)), 2.0, Window(0, 2))
    assert repeated.worst()[0][0] == pytest.approx(math.sqrt(2.0), rel=1e-6)
    assert fresh.worst()[0][0] == pytest.approx(math.sqrt(2.0 / 101.0), rel=1e-6)


def test_without_noise_nothing_is_claimed() -> None:
    with pytest.raises(PrivacyError):
        Separation.of(np.ones((2, 1), np.complex64), None, 0.0, Window(0, 2))


def captured(lab: Lab, update: np.ndarray, role: JammerRole) -> Watched:
    """The first uplink of a lab in which client 2 sends `update` and all others nothing."""
    with opened(lab, SYMBOL, power=power_of(alpha_u=0.5, jammer_role=role, jammer_sigma=0.02)) as uplink:
        watch = watching(uplink)
        plan = planned(uplink, 1)
        updates = [clip_update(np.zeros(SYMBOL, np.float32), TAU) for _ in SIZES]
        updates[2] = clip_update(update, TAU)
        uplink.exchange(plan, sent_by(plan, updates), lambda: None)
        return watch.take()


@pytest.mark.parametrize(
    ("clock", "role"),
    [("shared", JammerRole.NONE), ("shared", JammerRole.DEDICATED), ("free-running", JammerRole.NONE)],
)
def test_operators_are_what_the_real_path_does(clock: str, role: JammerRole) -> None:
    """Captures of two uplinks with the same noise differ by the operator's column, and by nothing else."""
    lab = lab_of(clock, **HARSH, **({"max_clock_ppm": 1.0} if clock == "free-running" else {}))
    rng = np.random.default_rng(4)
    update = rng.standard_normal(SYMBOL).astype(np.float32)
    update *= np.float32(TAU / np.linalg.norm(update))
    without, seen = captured(lab, np.zeros(SYMBOL, np.float32), role), captured(lab, update, role)
    with opened(lab, SYMBOL) as uplink:
        path = partial(simulated_path, uplink.lab, 1, block_number(1, 0), receiver="ps")
        whole = Window(seen.start_sample, seen.samples.size)
        operator, window = update_operator(without.clients["client-3"], path(sender="client-3"), whole, SYMBOL)
        assert (without.jammer is None) == (role is JammerRole.NONE)
        if without.jammer is not None:
            part = Window(window.start_sample + window.count // 2, 256)
            check_jamming(without.jammer, path(sender="jammer"), part, drawn(rng, without.jammer.draws()))
    first = window.start_sample - seen.start_sample
    difference = seen.samples - without.samples
    expected = operator @ update
    inside = difference[first : first + window.count]
    # float32 sums of signal and noise.
    assert np.linalg.norm(inside - expected) < 1e-3 * np.linalg.norm(expected)
    outside = np.linalg.norm(difference) ** 2 - np.linalg.norm(inside) ** 2
    assert outside < 1e-5 * np.linalg.norm(expected) ** 2


def check_jamming(jammer: JammerMoment, path: Path, window: Window, draws: np.ndarray) -> None:
    """B makes of all draws what the jammer does, and the covariance from one of them is that of all."""
    in_phase, quadrature = (jammer_operator(jammer, path, window, axis) for axis in (1.0, 1j))
    heard = path.heard(jammer.sends(lambda count: draws[:count].copy()), window)
    seen = draws[seen_draws(jammer, path, window)]
    assert np.linalg.norm(in_phase @ seen.real + quadrature @ seen.imag - heard) < 1e-3 * np.linalg.norm(heard)
    whole = (covariance_of(in_phase) + covariance_of(quadrature)) / 2
    found = jammer_covariance(jammer, path, window)
    assert np.linalg.norm(found - whole) < 1e-3 * np.linalg.norm(whole)
    # With images of 1.8 % in each mixer, draws on I alone say another thing.
    assert np.linalg.norm(found - covariance_of(in_phase)) > 1e-2 * np.linalg.norm(whole)
