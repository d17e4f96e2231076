"""Parts of a claim, from made-up uplinks: what holds is not refuted, and a lie about one subcarrier is."""

from dataclasses import replace

import numpy as np
import pytest

from fl.audit.attack import CLIP_NORM
from fl.audit.looks import Look, look
from fl.audit.parts import Part, PartFinding, Scope, over_the_band, part_findings
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from phy.frame import payload_samples
from tests.fl.audit.formats import short_format

MECHANISM = RoundMechanism(
    uplink=1,
    received_gains=(1.0,),
    sigma=0.02,
    sigma_origin=SigmaOrigin.MEASURED,
    record_bounded=False,
    clip_norm=CLIP_NORM,
    alpha_u=0.5,
    alpha_cj=0.0,
    jammer_gain=0.0,
    noise_std_real=0.01,
)
LEVEL = 1e-3
BINS = 202
CELLS = 768


def circular(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(np.complex64)


def looks(
    seed: int, *, noise: np.ndarray | float = 1.0, gain: np.ndarray | float = 1.0, uplinks: int = 60
) -> list[Look]:
    """Uplinks with these powers of noise in the margins (BINS,), and these gains of cells (CELLS,), over the claim."""
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(uplinks):
        sent = np.float32(1.5) * circular(rng, 1, CELLS) / np.float32(np.sqrt(2))
        cells = (gain * np.exp(0.3j) * sent + circular(rng, 1, CELLS)).astype(np.complex64)
        guards, margins = rng.gamma(28, 1 / 28, BINS), noise * rng.gamma(22, 1 / 22, BINS)
        found.append(Look(guards, 28, margins, 22, cells, sent, MECHANISM, 1.0))
    return found


def refuted(found: list[PartFinding], level: float = LEVEL) -> set[tuple[Part, Scope]]:
    return {(part.part, part.scope) for part in found if part.refutes(level)}


def test_a_claim_that_is_exactly_true_is_refuted_as_rarely_as_said() -> None:
    """Twelve findings in each of 200 validations, each at 1 %."""
    wrong = sum(len(refuted(part_findings("client", looks(seed)), 0.01)) for seed in range(200))
    assert wrong <= 24 + 5 * np.sqrt(24)


def test_noise_that_is_missing_everywhere_is_seen() -> None:
    found = refuted(part_findings("client", looks(1, noise=0.96**2)))
    assert {(Part.NOISE, Scope.ALL), (Part.NOISE, Scope.EIGHTH)} <= found
    assert {part for part, _ in found} == {Part.NOISE}


def test_one_quiet_subcarrier_is_seen() -> None:
    """1.5 dB less in one of 202: the mean over all of them does not show it."""
    noise = np.ones(BINS)
    noise[70] = 10**-0.15
    assert refuted(part_findings("client", looks(2, noise=noise))) == {(Part.NOISE, Scope.ONE)}


def test_noise_is_seen_where_it_is_missing_in_a_part_of_the_band_alone() -> None:
    """Plenty elsewhere does not make up for it."""
    noise = np.full(BINS, 1.5)
    noise[:25] = 0.95**2
    found = refuted(part_findings("client", looks(3, noise=noise)))
    assert (Part.NOISE, Scope.EIGHTH) in found
    assert (Part.NOISE, Scope.ALL) not in found


def test_gain_beyond_the_claim_is_seen() -> None:
    gain = np.full(CELLS, 0.8)
    gain[: CELLS // 8] = 1.15
    found = refuted(part_findings("client", looks(4, gain=gain)))
    assert (Part.GAIN, Scope.EIGHTH) in found
    assert {part for part, _ in found} == {Part.GAIN}
    assert (Part.GAIN, Scope.ALL) not in found


def test_gain_that_algebra_knows_is_compared_as_it_is() -> None:
    seen = looks(5)
    assert (Part.GAIN, Scope.ALGEBRA) in refuted(part_findings("client", seen, [(1.0, 1.001)]))
    assert (Part.GAIN, Scope.ALGEBRA) not in refuted(part_findings("client", seen, [(1.0, 0.999)]))


PAIRS = BINS // 2
JAMMED = replace(MECHANISM, alpha_cj=1.0, jammer_gain=1.0)


def pairs_of(rng: np.random.Generator, factor: np.ndarray, blocks: int) -> np.ndarray:
    """Mean w w^H over the blocks of w = factor z, z circular of unit variance (PAIRS, 2, 2)."""
    drawn = circular(rng, blocks, PAIRS, 2) / np.sqrt(2) @ factor.T
    return np.asarray(np.einsum("npi,npj->pij", drawn, drawn.conj()) / blocks)


def turned_looks(
    seed: int, *, leaked: float = 0.0, receiver: float = 0.0, jammers: tuple[str, ...] = ("jammer",)
) -> list[Look]:
    """Uplinks whose jammers leak so much of each frequency to its opposite, all power as claimed in the quietest
    direction; heard by a receiver that does so itself."""
    rng = np.random.default_rng(seed)
    mixer = np.array([[1.0, receiver * 1j], [-receiver * 1j, 1.0]])
    plain = looks(seed)
    found = []
    for number, seen in enumerate(plain):
        image = np.array([[1.0, leaked], [leaked, 1.0]])
        guards, margins = pairs_of(rng, mixer, 28), pairs_of(rng, mixer @ image, 22)
        turn = jammers[number % len(jammers)]
        found.append(replace(seen, mechanism=JAMMED, guard_pairs=guards, margin_pairs=margins, jammer=turn))
    return found


def test_noise_that_is_quiet_in_one_direction_of_two_frequencies_is_seen() -> None:
    """An image of 8 %: the power at either frequency rises by 0.6 %, and that of one direction falls by 15 %."""
    assert refuted(part_findings("client", turned_looks(1, leaked=0.08))) == {(Part.NOISE, Scope.DIRECTION)}


def test_what_the_receivers_own_mixer_does_hides_no_noise() -> None:
    """It comes after all noise and can be undone: 15 % of an image are no lie."""
    wrong = sum(len(refuted(part_findings("client", turned_looks(seed, receiver=0.15)), 0.01)) for seed in range(40))
    # Thirteen findings in each, each at 1 %.
    assert wrong <= 5.2 + 5 * np.sqrt(5.2)


def test_each_of_several_jammers_answers_for_its_own_noise() -> None:
    seen = turned_looks(2, jammers=("a", "b", "c"))
    seen = [replace(one, margins=0.94**2 * one.margins) if one.jammer == "b" else one for one in seen]
    seen = [replace(one, margins=1.2 * one.margins) if one.jammer == "c" else one for one in seen]
    wrong = [part for part in part_findings("client", seen) if part.refutes(LEVEL)]
    assert wrong
    assert {part.jammer for part in wrong} == {"b"}
    assert wrong[0].to_json()["jammer"] == "b"
    assert wrong[0].where.endswith(", b")


def test_intervals_are_about_what_was_measured_and_slack_is_what_is_left() -> None:
    part = PartFinding("client", Part.NOISE, Scope.ALL, 0.02, 1.21, 0.01)
    low, high = part.interval()
    assert part.measured == pytest.approx(0.022)
    assert low < part.measured < high
    assert part.slack(0.5) == pytest.approx(1.1)
    assert not part.refutes(LEVEL)
    assert replace(part, ratio=0.9).refutes(LEVEL)
    assert not replace(part, ratio=0.96, among=1000).refutes(LEVEL)


def test_a_capture_is_looked_at_in_units_of_its_claim() -> None:
    """Twice the noise that is claimed, and half of the gain."""
    air, rng = short_format("loopback"), np.random.default_rng(6)
    seen = []
    for _ in range(12):
        update = rng.standard_normal(air.coordinates) / np.sqrt(air.coordinates)
        cells = air.grid.to_cells(update.astype(np.float32))
        samples = 0.5 * MECHANISM.alpha_u * payload_samples(air.payload, cells)
        samples += 2.0 * MECHANISM.alpha_u * MECHANISM.sigma * circular(rng, samples.size)
        seen.append(look(samples.astype(np.complex64), MECHANISM, air, update, 1.0, 0))
    noise, gain = over_the_band(seen)
    assert noise.mean() == pytest.approx(2.0, rel=0.02)
    found = {(part.part, part.scope): part for part in part_findings("client", seen)}
    assert found[Part.GAIN, Scope.ALL].measured == pytest.approx(0.5, abs=5 * found[Part.GAIN, Scope.ALL].std)
    assert found[Part.NOISE, Scope.ALL].measured == pytest.approx(2 * MECHANISM.sigma, rel=0.02)
    assert found[Part.PAYLOAD, Scope.ALL].measured == pytest.approx(2 * MECHANISM.sigma, rel=0.05)
    assert found[Part.RECEIVER, Scope.ALL].measured == pytest.approx(2 * MECHANISM.alpha_u * MECHANISM.sigma, rel=0.02)
    assert gain.size == CELLS // 4


def test_what_a_converter_adds_is_no_noise() -> None:
    """As much as a quarter of what is claimed; with it 12 % more would be found."""
    air, rng = short_format("loopback"), np.random.default_rng(8)
    std = MECHANISM.alpha_u * MECHANISM.sigma
    added = 0.25 * 2.0 * std**2
    seen = []
    for _ in range(12):
        update = rng.standard_normal(air.coordinates) / np.sqrt(air.coordinates)
        cells = air.grid.to_cells(update.astype(np.float32))
        samples = MECHANISM.alpha_u * payload_samples(air.payload, cells)
        samples += std * np.sqrt(1.25) * circular(rng, samples.size)
        seen.append(look(samples.astype(np.complex64), MECHANISM, air, update, 1.0, 0, None, added))
    plain = {(part.part, part.scope): part for part in part_findings("client", seen)}
    for part in (Part.NOISE, Part.PAYLOAD):
        found = plain[part, Scope.ALL]
        assert found.measured == pytest.approx(MECHANISM.sigma, abs=5 * found.claimed * found.std)
