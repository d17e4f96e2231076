"""Many uplinks with and without changes, through the real nodes, and what an attacker makes of each of them.

One client has nearly all of the weight. Its update is a sum of 2k orthogonal changes of equal norm, tau together, each
of which is there in half of the uplinks, drawn at random: k in the directions that can be told best, k in random ones.
Everything is linear, so a change of norm tau/sqrt(2k) is apart by mu/sqrt(2k), and an uplink makes a trial of each.
Of n uplinks mu is known to sqrt(8/mu^2 + 1/(2k)) / sqrt(n) of itself from the k changes of a kind: many small changes
show the noise better than few large ones, and mu = 37 to 0.6 % in 250 uplinks.

Every trial is a whole uplink: silence, soundings, power, jammer, transmission, capture, demodulation, account. The
fading of a simulated air stays the same, so that one direction is the worst in all of them.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl.audit.attack import CLIP_NORM, Attack
from fl.audit.jamming import jammer_covariance
from fl.audit.looks import Look, look
from fl.audit.paths import Path, Window, learn_paths, simulated_path
from fl.audit.separation import Directions, Separation, update_operator
from fl.audit.watch import Watch, Watched, watching
from fl.errors import ConfigError, PrivacyError
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.random_streams import Stream, generator
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import UplinkPlan
from hardware.air.build import air_of_this_process
from hardware.lab.clock import ClockMode
from hardware.lab.opened import OpenLab
from hardware.lab.simulation import SimulatedAir
from phy.numerology import Numerology

CHANGES = 128
"""k: changes of either kind in an uplink."""
LESSONS = 60
"""Uplinks of which the attacker is told what was sent, where it must learn the channels."""
LEAST_JAMMING = 0.9
"""Part of the jamming asked for that must be reached."""
BLOCK = 1
"""Fading block of a simulated air in which all trials take place."""


@dataclass(frozen=True)
class _StillAir:
    """A simulated air that does not fade."""

    air: SimulatedAir
    block: int

    def new_block(self, block: int) -> None:
        """Always the same."""
        del block
        self.air.new_block(self.block)


@dataclass(frozen=True)
class Trials:
    """What n uplinks gave. Columns (n, 2k) are changes, the k worst first. share: of tau that each of them has.

    present: which were there. samples, cells: the attacker's statistics from the capture and from the sum. energy:
    where nothing should be (n,). claimed: mu of each uplink by its account (n,). predicted: for the worst changes, by
    linear algebra (n, k). looks: what each uplink shows of its claim's parts. gains: claimed and true of the worst
    change, one for each jammer, where they are known. coherent: whether phases are the same in all uplinks.
    """

    client: str
    share: float
    present: NDArray[np.bool_]
    samples: NDArray[np.float64]
    cells: NDArray[np.float64]
    energy: NDArray[np.float64]
    claimed: NDArray[np.float64]
    predicted: NDArray[np.float64]
    looks: tuple[Look, ...]
    gains: tuple[tuple[float, float], ...]
    coherent: bool = True

    @property
    def shape(self) -> NDArray[np.float64]:
        """How the worst changes relate (k,). Where channels were learnt all are taken for equal: what filters err by
        makes the first of them look worse than they are."""
        return self.predicted.mean(axis=0) if self.gains else np.ones(self.predicted.shape[1])

    @property
    def mechanism(self) -> RoundMechanism:
        """Of the last uplink."""
        return self.looks[-1].mechanism


@dataclass(frozen=True)
class _Trial:
    """One row of `Trials`."""

    present: NDArray[np.bool_]
    samples: NDArray[np.float64]
    cells: NDArray[np.float64]
    energy: float
    claimed: float
    predicted: NDArray[np.float64]
    look: Look


def make_trials(lab: OpenLab, attack: Attack, on_uplink: Callable[[int], None] = lambda done: None) -> Trials:
    """All uplinks of an attack."""
    return _Attacker(lab, attack).go(on_uplink)


class _Attacker:
    def __init__(self, lab: OpenLab, attack: Attack) -> None:
        self.attack, self.lab = attack, lab
        still = lab if lab.air is None else replace(lab, air=_StillAir(lab.air, BLOCK))
        self.sizes = attack.sizes(len(lab.lab.clients))
        self.air = attack.air
        self.weight = float(self.sizes[attack.client] / self.sizes.sum())
        self.uplink = RadioUplink(
            still,
            self.air,
            self.sizes,
            CLIP_NORM,
            attack.rules(self.weight),
            record_bounded=False,
            streams=partial(generator, attack.seed),
        )
        self.watch: Watch = watching(self.uplink, None if attack.observer is None else lab.radios[attack.observer])
        self.rng = generator(attack.seed, Stream.AUDIT, attack.client)
        self.others = self._others()
        self.directions: dict[str | None, Directions] = {}
        self.lesson = np.zeros(self.air.coordinates, np.float32)
        self.lessons: dict[str | None, list[tuple[Watched, NDArray[np.float32]]]] = {}
        self.learnt: dict[str, Path] = {}
        self.gains: list[tuple[float, float]] = []
        # Senders follow the server's oscillator and clock, not an observer's.
        self.drifts = attack.observer is not None and lab.lab.clock_mode is not ClockMode.SHARED
        if air_of_this_process(lab.air) is None and lab.lab.clock_mode is not ClockMode.SHARED:
            raise ConfigError(f"lab '{lab.lab.name}' has no shared clock: its channels cannot be learnt over uplinks")
        self.share = 1.0 / math.sqrt(2 * CHANGES)
        self.present = self._tossed()
        self.trials: list[_Trial] = []

    def _others(self) -> list[BoundedUpdate]:
        """What the other clients send: nothing, in a burst as long as any. Whatever it is, the attacker knows it."""
        return [clip_update(np.zeros(self.air.coordinates, np.float32), CLIP_NORM) for _ in self.sizes]

    def _tossed(self) -> NDArray[np.bool_]:
        """Which change is there in which uplink (n, 2k): each in half of them, in an order of its own."""
        halves = np.arange(self.attack.uplinks) < self.attack.uplinks // 2
        return np.stack([self.rng.permutation(halves) for _ in range(2 * CHANGES)], axis=1)

    def go(self, on_uplink: Callable[[int], None]) -> Trials:
        number = 0
        while len(self.trials) < self.attack.uplinks:
            number += 1
            attempt_uplink(self.uplink, number, self.uplink.rules.attempts, self._carry)
            on_uplink(len(self.trials))
        rows = self.trials
        return Trials(
            client=self.uplink.cast.clients[self.attack.client],
            share=self.share,
            present=np.array([row.present for row in rows]),
            samples=np.array([row.samples for row in rows]),
            cells=np.array([row.cells for row in rows]),
            energy=np.array([row.energy for row in rows]),
            claimed=np.array([row.claimed for row in rows]),
            predicted=np.array([row.predicted for row in rows]),
            looks=tuple(row.look for row in rows),
            gains=tuple(self.gains),
            coherent=not self.drifts,
        )

    def _require_jamming(self, mechanism: RoundMechanism) -> None:
        """A jammer at its limit lowers alpha_u instead of the noise, so that less than `jamming` is its own."""
        reached = mechanism.jammer_gain * mechanism.alpha_cj / mechanism.noise_std_real
        if mechanism.alpha_cj > 0.0 and reached < LEAST_JAMMING * self.attack.jamming:
            raise ConfigError(
                f"the jammer's noise is {reached:.3g} times the receiver's at its largest amplitude, not "
                f"{self.attack.jamming:g} times: its channel is weak, or has notches that its filter must fill; bring "
                "it nearer (medium.radio.NAME.gain_db) or take a quieter receiver, for example "
                "--set medium.noise_var_complex=1e-6"
            )

    def _carry(self, plan: UplinkPlan) -> None:
        """One uplink; one in which the client jams instead of sending is no trial."""
        self._require_jamming(plan.mechanism)
        jammer = self._jamming_name(plan)
        if self.attack.client == plan.silent:
            self._exchange(plan, np.zeros(self.air.coordinates))
            return
        if jammer not in self.directions:
            mechanism, _ = self._exchange(plan, self._next_lesson())
            seen = self.watch.take()
            if not self._lesson(jammer, seen):
                self.directions[jammer] = self._learn(seen, mechanism)
            return
        directions = self.directions[jammer]
        present = self.present[len(self.trials)]
        mechanism, values = self._exchange(plan, CLIP_NORM * directions.update(self.share * present))
        if mechanism.sigma == 0.0:
            raise PrivacyError(
                f"uplink {plan.uplink} claims nothing that could be attacked: the receiver's noise beside its payload "
                "was less than its transmitters' converters allow"
            )
        self.trials.append(self._trial(self.watch.take(), mechanism, values, present, directions, jammer))

    def _jamming_name(self, plan: UplinkPlan) -> str | None:
        if not plan.jammer.needed:
            return None
        return self.uplink.cast.jammer if plan.silent is None else self.uplink.cast.clients[plan.silent]

    def _exchange(self, plan: UplinkPlan, change: NDArray[np.float64]) -> tuple[RoundMechanism, NDArray[np.float32]]:
        own = clip_update(change.astype(np.float32), CLIP_NORM)
        updates = ((client, own if client == self.attack.client else self.others[client]) for client in plan.senders)
        aggregate = self.uplink.exchange(plan, updates, lambda: None)
        return aggregate.mechanism, aggregate.values

    def _next_lesson(self) -> NDArray[np.float64]:
        """An update of norm tau in a random direction."""
        drawn = self.rng.standard_normal(self.air.coordinates)
        self.lesson = (drawn * (CLIP_NORM / np.linalg.norm(drawn))).astype(np.float32)
        return self.lesson.astype(np.float64)

    def _learn(self, seen: Watched, mechanism: RoundMechanism) -> Directions:
        """The worst changes and the best projections, from what the nodes would have sent in the uplink `seen`."""
        separation = self._separation(seen)
        gain = self._gain(separation, mechanism)
        if gain is not None:
            self.gains.append(gain)
        random = self.rng.standard_normal((CHANGES, self.air.coordinates))
        return Directions.of(separation, seen.start_sample, random)

    def _gain(self, separation: Separation, mechanism: RoundMechanism) -> tuple[float, float] | None:
        """Claimed, and the largest singular value of the way through the air in the same units."""
        if air_of_this_process(self.lab.air) is None:
            return None
        nominal = self.weight * mechanism.alpha_u / CLIP_NORM
        return mechanism.received_gains[self.attack.client], separation.largest_gain() / nominal

    def _separation(self, seen: Watched) -> Separation:
        name = self.uplink.cast.clients[self.attack.client]
        whole = Window(seen.start_sample, seen.samples.size)
        operator, window = update_operator(seen.clients[name], self._path(name), whole, self.air.coordinates)
        jamming = None
        if seen.jammer is not None:
            jamming = jammer_covariance(seen.jammer, self._path(seen.jammer.name), window)
        return Separation.of(operator, jamming, seen.noise_var_complex, window)

    def _path(self, sender: str) -> Path:
        """The air itself where it is in this process, else what the lessons taught."""
        if air_of_this_process(self.lab.air) is not None:
            receiver = self.attack.observer or self.uplink.cast.server
            return simulated_path(self.lab, self.attack.seed, BLOCK, sender, receiver, image=False)
        return self.learnt[sender]

    def _lesson(self, jammer: str | None, seen: Watched) -> bool:
        """Learn from the last uplink, where paths must be learnt; whether another lesson is needed."""
        if air_of_this_process(self.lab.air) is not None:
            return False
        lessons = self.lessons.setdefault(jammer, [])
        lessons.append((seen, self.lesson))
        if len(lessons) < LESSONS:
            return True
        name = self.uplink.cast.clients[self.attack.client]
        told = []
        for heard, update in lessons:
            bursts = [heard.clients[name].sends(update)]
            if heard.jammer is not None:
                bursts.append(heard.jammer.sent())
            told.append((bursts, heard.samples))
        paths = learn_paths(told, [heard.start_sample for heard, _ in lessons])
        self.learnt.update(zip([name] if jammer is None else [name, jammer], paths, strict=True))
        return False

    def _trial(
        self,
        seen: Watched,
        mechanism: RoundMechanism,
        values: NDArray[np.float32],
        present: NDArray[np.bool_],
        directions: Directions,
        jammer: str | None,
    ) -> _Trial:
        amounts = self.share * present
        if self.drifts:
            name = self.uplink.cast.clients[self.attack.client]
            capture = Window(seen.start_sample, seen.samples.size)
            directions = directions.followed(seen.clients[name], self._path(name), capture)
        window = directions.window
        inside = slice(window.start_sample, window.start_sample + window.count)
        # Gain and noise are under attack. What a whole client is charged for rounding would hide a lie about them.
        linear = replace(mechanism, rounding=0.0)
        ratios = linear.noise_ratios(self.sizes, Label.CLIENT, Neighbours.ZERO_OUT)
        return _Trial(
            present=present,
            samples=directions.statistics(seen.samples, CLIP_NORM * amounts),
            cells=directions.changes @ values,
            energy=empty_energy(seen.samples, inside, self.air.numerology),
            claimed=float(ratios[self.attack.client]),
            predicted=CLIP_NORM * directions.predicted_mus,
            look=look(
                seen.samples,
                mechanism,
                self.air,
                directions.update(amounts),
                self.weight,
                self.attack.client,
                jammer,
                seen.converter_var_complex,
            ),
        )


def empty_energy(samples: NDArray[np.complex64], payload: slice, numerology: Numerology) -> float:
    """Energy where no payload should be: before it, after it, and in the empty bins of it."""
    inside = samples[payload]
    whole = inside[: inside.size // numerology.fft_size * numerology.fft_size].reshape(-1, numerology.fft_size)
    empty = np.fft.fft(whole, axis=-1, norm="ortho")[:, numerology.null_bins]
    around = np.concatenate([samples[: payload.start], samples[payload.stop :]])
    return float(np.vdot(around, around).real + np.vdot(empty, empty).real)
