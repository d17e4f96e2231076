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

from fl.audit.paths import Window, learn_paths, simulated_path
from fl.audit.separation import Path, Separation, jammer_covariance, update_operator
from fl.audit.watch import Watch, Watched, watching
from fl.errors import ConfigError
from fl.nodes.air_format import AirFormat
from fl.nodes.radio_uplink import RadioRules, RadioUplink
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.sensitivity import Label, Neighbours
from fl.random_streams import Stream, generator
from fl.uplink.alpha_u import ForNoise, PowerSettings
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import UplinkPlan
from fl.uplink.jammer import JammerRole, JammerSettings
from hardware.air.build import air_of_this_process
from hardware.lab.clock import ClockMode
from hardware.lab.opened import OpenLab
from hardware.lab.simulation import SimulatedAir
from phy.numerology import Numerology

WEIGHT = 0.96
"""p_i of the client under attack."""
CLIP_NORM = 1.0
CHANGES = 128
"""k: changes of either kind in an uplink."""
LESSONS = 60
"""Uplinks of which the attacker is told what was sent, where it must learn the channels."""
LEAST_JAMMING = 0.9
"""Part of the jamming asked for that must be reached."""
BLOCK = 1
"""Fading block of a simulated air in which all trials take place."""


@dataclass(frozen=True)
class Attack:
    """What is attacked, and how. client: its number in the lab. mu: separation that noise is sized for, roughly.

    sounding_symbols: more than a run's, because a claim has the margin of its soundings' errors, and a lie about sigma
    hides in it. jamming: noise of the jammer over that of the receiver, as standard deviations. payload_rms: limit on
    power. observer: radio whose captures are attacked instead of the server's.
    """

    client: int
    uplinks: int
    seed: int = 1
    symbols: int = 3
    mu: float = 40.0
    jammer: JammerRole = JammerRole.NONE
    jamming: float = 1.2
    payload_rms: float = 0.2
    observer: str | None = None
    sounding_symbols: int = 128
    quiet_samples: int = 65536
    first_quiet_samples: int = 2**21

    def sizes(self, clients: int) -> NDArray[np.int64]:
        """n_i (K,) with which the client has the weight `WEIGHT`, or all of it where it is alone."""
        sizes = np.ones(clients, np.int64)
        sizes[self.client] = max(1, round(WEIGHT / (1.0 - WEIGHT) * (clients - 1)))
        return sizes

    def air(self, numerology: Numerology) -> AirFormat:
        """A short payload."""
        return AirFormat(
            numerology,
            self.symbols * numerology.coordinates_per_symbol,
            sounding_symbols=self.sounding_symbols,
            quiet_samples=self.quiet_samples,
            first_quiet_samples=self.first_quiet_samples,
            payload_rms=self.payload_rms,
        )

    def rules(self, weight: float) -> RadioRules:
        """Noise for the separation `mu`, of which the jammer has its part."""
        sigma = weight / self.mu
        jammed = self.jammer is not JammerRole.NONE
        own = sigma / math.hypot(1.0, self.jamming) if jammed else sigma
        return RadioRules(
            power=PowerSettings(ForNoise(own)),
            jammer=JammerSettings(self.jammer, sigma) if jammed else JammerSettings(),
            max_phase_error_rad=0.3,
            attempts=3,
            diagnosis=False,
        )


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
class Directions:
    """changes: (2k, d), orthonormal, the k worst first. templates: the attacker's projections (2k, N) in `window`.

    crosstalk: (2k, 2k), what each projection has of each other change of norm tau, which the attacker knows and
    subtracts. predicted_mu: for the worst change of norm tau, by linear algebra. window: from the capture's first
    sample.
    """

    changes: NDArray[np.float64]
    templates: NDArray[np.complex128]
    crosstalk: NDArray[np.float64]
    window: Window
    predicted_mu: float


@dataclass(frozen=True)
class Trials:
    """What n uplinks gave. Columns (n, 2k) are changes, the k worst first. share: of tau that each of them has.

    present: which were there. samples, cells: the attacker's statistics from the capture and from the sum. energy:
    where nothing should be (n,). claimed: mu of each uplink by its account (n,). predicted: for the worst change, by
    linear algebra. mechanism: of the last uplink.
    """

    client: str
    share: float
    present: NDArray[np.bool_]
    samples: NDArray[np.float64]
    cells: NDArray[np.float64]
    energy: NDArray[np.float64]
    claimed: NDArray[np.float64]
    predicted: float
    mechanism: RoundMechanism


@dataclass(frozen=True)
class _Trial:
    """One row of `Trials`."""

    present: NDArray[np.bool_]
    samples: NDArray[np.float64]
    cells: NDArray[np.float64]
    energy: float
    claimed: float
    predicted: float
    mechanism: RoundMechanism


def make_trials(lab: OpenLab, attack: Attack, on_uplink: Callable[[int], None] = lambda done: None) -> Trials:
    """All uplinks of an attack."""
    return _Attacker(lab, attack).go(on_uplink)


class _Attacker:
    def __init__(self, lab: OpenLab, attack: Attack) -> None:
        self.attack, self.lab = attack, lab
        still = lab if lab.air is None else replace(lab, air=_StillAir(lab.air, BLOCK))
        self.sizes = attack.sizes(len(lab.lab.clients))
        self.air = attack.air(Numerology(sample_rate_hz=lab.lab.sample_rate_hz))
        self.uplink = RadioUplink(
            still,
            self.air,
            self.sizes,
            CLIP_NORM,
            attack.rules(float(self.sizes[attack.client] / self.sizes.sum())),
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
            predicted=max(row.predicted for row in rows),
            mechanism=rows[-1].mechanism,
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
            self._exchange(plan, self._next_lesson())
            seen = self.watch.take()
            if not self._lesson(jammer, seen):
                self.directions[jammer] = self._learn(seen)
            return
        directions = self.directions[jammer]
        present = self.present[len(self.trials)]
        change = CLIP_NORM * self.share * (present @ directions.changes)
        mechanism, values = self._exchange(plan, change)
        self.trials.append(self._trial(self.watch.take(), mechanism, values, present, directions))

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

    def _learn(self, seen: Watched) -> Directions:
        """The worst changes and the best projections, from what the nodes would have sent in the uplink `seen`."""
        separation = self._separation(seen)
        predicted, worst = separation.worst(CHANGES)
        random = self.rng.standard_normal((CHANGES, self.air.coordinates))
        changes = np.linalg.qr(np.concatenate([worst, random]).T)[0].T
        changes *= np.sign(np.einsum("kd,kd->k", changes, np.concatenate([worst, random])))[:, None]
        arriving = separation.operator @ changes.T.astype(np.complex64)
        templates = separation.template(arriving).T.conj()
        crosstalk = CLIP_NORM * (templates @ arriving).real
        np.fill_diagonal(crosstalk, 0.0)
        first = separation.window.start_sample - seen.start_sample
        return Directions(
            changes,
            templates,
            crosstalk,
            Window(first, separation.window.count),
            CLIP_NORM * float(predicted[0]),
        )

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
            return simulated_path(self.lab, self.attack.seed, BLOCK, sender, receiver)
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
    ) -> _Trial:
        window = directions.window
        inside = slice(window.start_sample, window.start_sample + window.count)
        ratios = mechanism.noise_ratios(self.sizes, Label.CLIENT, Neighbours.ZERO_OUT)
        return _Trial(
            present=present,
            samples=(directions.templates @ seen.samples[inside]).real - directions.crosstalk @ (self.share * present),
            cells=directions.changes @ values,
            energy=empty_energy(seen.samples, inside, self.air.numerology),
            claimed=float(ratios[self.attack.client]),
            predicted=directions.predicted_mu,
            mechanism=mechanism,
        )


def empty_energy(samples: NDArray[np.complex64], payload: slice, numerology: Numerology) -> float:
    """Energy where no payload should be: before it, after it, and in the empty bins of it."""
    inside = samples[payload]
    whole = inside[: inside.size // numerology.fft_size * numerology.fft_size].reshape(-1, numerology.fft_size)
    empty = np.fft.fft(whole, axis=-1, norm="ortho")[:, numerology.null_bins]
    around = np.concatenate([samples[: payload.start], samples[payload.stop :]])
    return float(np.vdot(around, around).real + np.vdot(empty, empty).real)
