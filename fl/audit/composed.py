"""Many uplinks, each in fading of its own, by linear algebra: what an attacker has of all of them, and what is claimed.

Clients have equal weights, and noise is sized as a run's: for `EPSILON` over all uplinks, of which the receiver's own
noise gives `CHANNEL_EPSILON`. In every uplink the worst direction is another one, and a record that could lie in each
of them is what privacy promises for: separations add up as squares, mu^2 = sum_b mu_b^2. Nothing is sampled but the
soundings and the silence that the nodes decide by, so a direction that a random one would miss is not missed here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.audit.jamming import composite_covariance
from fl.audit.paths import Path, Window, simulated_path
from fl.audit.runs.bounds import epsilon_of_mu
from fl.audit.separation import Separation, composite_factor, update_operator
from fl.audit.watch import Watched, watching
from fl.errors import ConfigError
from fl.nodes.air_format import AirFormat
from fl.nodes.coordinated import RadioRules
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.clipping import clip_update
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.target import PrivacyTarget
from fl.random_streams import generator
from fl.uplink.alpha_u import ForNoise, PowerSettings
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import UplinkPlan
from fl.uplink.jammer import JammerRole, JammerSettings
from hardware.air.build import air_of_this_process
from hardware.lab.opened import OpenLab

EPSILON = 5.0
CHANNEL_EPSILON = 8.0
DELTA = 1e-5
RECORDS = 287
"""n_i of every client."""
LABEL = Label.PAPER_CLAIM
"""A record moves its client's update by tau/n_i: what is claimed of the label `record` is the same number."""
CLIP_NORM = 1.0
SYMBOLS = 4
"""Of the sounding's numerology: they fill one symbol of a payload, so that every frequency is among the directions."""


@dataclass(frozen=True)
class Composed:
    """claimed, attacked: mu of a record (blocks, clients), by the account and in the worst direction of each block."""

    clients: tuple[str, ...]
    claimed: NDArray[np.float64]
    attacked: NDArray[np.float64]

    @property
    def holds(self) -> bool:
        """Whether all uplinks together claim enough for every client."""
        return bool(np.all(composed_mu(self.attacked) <= composed_mu(self.claimed)))

    @property
    def worst(self) -> int:
        """The client for which the attacker has most of what is claimed."""
        return int(np.argmax(composed_mu(self.attacked) / composed_mu(self.claimed)))

    @property
    def above(self) -> list[int]:
        """Blocks, from 1 on, in which the attacker has more of some client than that uplink alone claims."""
        return [int(place) + 1 for place in np.flatnonzero(np.any(self.attacked > self.claimed, axis=1))]

    def to_json(self) -> dict[str, Any]:
        """For `airdp validate --blocks --json`: the worst client first."""
        ratios = composed_mu(self.attacked) / composed_mu(self.claimed)
        rows = [self._row(int(place)) for place in np.argsort(-ratios, kind="stable")]
        return {
            "verdict": "holds" if self.holds else "refuted",
            "blocks": int(self.claimed.shape[0]),
            "composed": {key: rows[0][key] for key in ("client", "claimed", "attacked")},
            "blocks_above_claim": self.above,
            "clients": rows,
            "label": LABEL.value,
            "delta": DELTA,
        }

    def _row(self, place: int) -> dict[str, Any]:
        claimed, attacked = self.claimed[:, place], self.attacked[:, place]
        return {
            "client": self.clients[place],
            "claimed": _composition(claimed),
            "attacked": _composition(attacked),
            "largest_ratio": float((attacked / claimed).max()),
            "claimed_mu_per_block": claimed.tolist(),
            "attacked_mu_per_block": attacked.tolist(),
        }


def composed_mu(per_block: NDArray[np.float64]) -> NDArray[np.float64]:
    """mu of all blocks together, from (blocks, ...)."""
    return np.asarray(np.sqrt(np.sum(per_block**2, axis=0)))


def _composition(per_block: NDArray[np.float64]) -> dict[str, float]:
    mu = float(composed_mu(per_block))
    return {"mu": mu, "epsilon": epsilon_of_mu(mu, DELTA)}


@dataclass(frozen=True)
class Composition:
    """What is composed. clients: numbers of those that are attacked. air: a run's format, with a short payload."""

    blocks: int
    clients: tuple[int, ...]
    jammer: JammerRole
    air: AirFormat
    seed: int = 1

    def rules(self, sizes: NDArray[np.int64]) -> RadioRules:
        """As a run's with these targets."""
        sigma, own = (
            PrivacyTarget(epsilon, DELTA, self.blocks).sigma_required(sizes) for epsilon in (EPSILON, CHANNEL_EPSILON)
        )
        jammed = self.jammer is not JammerRole.NONE
        return RadioRules(
            power=PowerSettings(ForNoise(own if jammed else sigma)),
            jammer=JammerSettings(self.jammer, sigma) if jammed else JammerSettings(),
            max_phase_error_rad=0.3,
            attempts=10,
            diagnosis=False,
        )


def compose(lab: OpenLab, wanted: Composition, on_block: Callable[[int], None] = lambda done: None) -> Composed:
    """One uplink in each fading block, and the worst direction of each client in it."""
    medium = air_of_this_process(lab.air)
    if medium is None:
        raise ConfigError(
            f"lab '{lab.lab.name}': its air is not in this process, so the channels of each block are not known "
            "exactly: expected a lab of simulated radios in one process; leave --blocks out to attack by trials"
        )
    sizes = np.full(len(lab.lab.clients), RECORDS, np.int64)
    air, coordinates = wanted.air, wanted.air.coordinates
    streams = partial(generator, wanted.seed)
    uplink = RadioUplink(lab, air, sizes, CLIP_NORM, wanted.rules(sizes), record_bounded=False, streams=streams)
    watch = watching(uplink)
    zeros = [clip_update(np.zeros(coordinates, np.float32), CLIP_NORM) for _ in sizes]
    claimed, attacked = (np.zeros((wanted.blocks, len(wanted.clients))) for _ in range(2))
    names = tuple(uplink.cast.clients[client] for client in wanted.clients)

    def carry(plan: UplinkPlan) -> None:
        mechanism = uplink.exchange(plan, ((client, zeros[client]) for client in plan.senders), lambda: None).mechanism
        seen = watch.take()
        path_of = partial(simulated_path, lab, wanted.seed, medium.block, receiver=uplink.cast.server, image=False)
        ratios = mechanism.noise_ratios(sizes, LABEL, Neighbours.ZERO_OUT)
        sending = [place for place, client in enumerate(wanted.clients) if client != plan.silent]
        if not sending:
            return
        found = worst_separations(seen, [names[place] for place in sending], path_of, coordinates)
        claimed[plan.uplink - 1, sending] = ratios[[wanted.clients[place] for place in sending]]
        attacked[plan.uplink - 1, sending] = CLIP_NORM / RECORDS * found

    for number in range(1, wanted.blocks + 1):
        attempt_uplink(uplink, number, uplink.rules.attempts, carry)
        on_block(number)
    return Composed(names, claimed, attacked)


def worst_separations(
    seen: Watched, clients: list[str], path_of: Callable[[str], Path], coordinates: int
) -> NDArray[np.float64]:
    """mu of the worst change of unit norm of each client, all in the same noise."""
    whole = Window(seen.start_sample, seen.samples.size)
    probed = [update_operator(seen.clients[name], path_of(name), whole, coordinates) for name in clients]
    first = min(window.start_sample for _, window in probed)
    end = max(window.start_sample + window.count for _, window in probed)
    window = Window(first, end - first)
    jamming = None
    if seen.jammer is not None:
        jamming = composite_covariance(seen.jammer, path_of(seen.jammer.name), window)
    factor = composite_factor(jamming, seen.noise_var_complex, window)
    found = []
    for operator, own in probed:
        before = own.start_sample - first
        after = window.count - before - own.count
        padded = np.pad(operator, ((before, after), (0, 0)))
        found.append(Separation.composite(padded, factor, window).worst_mu())
    return np.array(found)
