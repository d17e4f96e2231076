"""SOUND to ACCOUNT in messages. The coordinator has no radio and no update: all that it holds is public."""

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl.errors import PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import charged_gain_upper, least_jamming
from fl.nodes.link import Link
from fl.nodes.messages import (
    Announcement,
    Check,
    Circuits,
    CountOffset,
    Decision,
    DescribeCircuits,
    JammingOrder,
    Receive,
    Received,
    SoundedChannel,
    Transmit,
    Withdraw,
)
from fl.nodes.noise.accounting import accounted
from fl.nodes.noise.sizing import IDEAL, NoiseSizing, weakest_gains
from fl.nodes.soundings.conversation import NoiseCheck, Soundings, sound
from fl.nodes.stage import Stage, block_number
from fl.privacy.conditions import View
from fl.privacy.mechanism import Bounds, RoundMechanism, SigmaOrigin
from fl.uplink.contract import NotSentError, UnprotectedError, UplinkPlan
from fl.uplink.jammer import JammerPlan, JammerRole
from fl.uplink.modes import Backoff
from fl.uplink.power_control import ClientPower
from hardware.radio.errors import HardwareError

LEAST_BEYOND = 0.95
"""Of the noise within the band, that a receiver must have beyond it for payloads without a filter."""
_ROUNDING = 1e-6
"""By which the same formula may differ between two machines."""
_LOG = logging.getLogger("airdp")
VIEW = View.SAMPLES
"""The adversary against whom an uplink over radios is accounted."""


class CoherenceError(NotSentError):
    """The predicted phase error is too large for the signals to add up; nothing was sent."""


@dataclass(frozen=True)
class Cast:
    """Names of the nodes. jammer: of a node that does nothing else, None where there is none."""

    server: str
    clients: tuple[str, ...]
    jammer: str | None

    @property
    def transmitters(self) -> tuple[str, ...]:
        """All who sound, in the order of their slots."""
        return self.clients if self.jammer is None else (*self.clients, self.jammer)


@dataclass(frozen=True)
class Round:
    """A planned uplink. circuits: of all who sounded. jammer: who jams in it, by name, None where nobody does."""

    plan: UplinkPlan
    soundings: Soundings
    circuits: tuple[Circuits, ...]
    decisions: tuple[Decision, ...]
    payload_start: int
    jammer: str | None

    @property
    def mechanism(self) -> RoundMechanism:
        """The worst case, to be authorised before it is carried."""
        return self.plan.mechanism


@dataclass
class Coordinator:
    """weights: p_i (K,). max_phase_error_rad: above it nothing is sent. check_noise: looks at every silence."""

    link: Link
    stage: Stage
    cast: Cast
    air: AirFormat
    weights: NDArray[np.float64]
    clip_norm: float
    sizing: NoiseSizing
    max_phase_error_rad: float
    record_bounded: bool
    check_noise: NoiseCheck = lambda noise: None
    _offsets: dict[str, int] = field(default_factory=dict)

    def plan(self, uplink: int, attempt: int) -> Round:
        """SOUND and PLAN. `NotSentError` where that fails: it costs no privacy."""
        try:
            return self._plan(uplink, attempt)
        except NotSentError:
            raise
        except (HardwareError, PrivacyError) as error:
            raise NotSentError(str(error)) from error

    def _plan(self, uplink: int, attempt: int) -> Round:
        soundings = self._sound(uplink, attempt)
        payload_start = self.stage.not_before(soundings.end_sample + self.air.turnaround_samples)
        turn = (uplink - 1) % len(self.weights) if self.sizing.jammer.role is JammerRole.ROTATING else None
        place = self._jamming_place(turn)
        state = None if place is None else soundings.states[place]
        soundings = _comparable(soundings, state)
        clients = soundings.states[: len(self.weights)]
        circuits = self.link.ask_all([(name, DescribeCircuits()) for name in self.cast.transmitters])
        own = IDEAL if place is None else circuits[place]
        alpha_u, jamming = self.sizing.choose(
            uplink, clients, soundings.sigma.noise_std_real, state, circuits[: len(self.weights)], own
        )
        silent = turn if jamming.needed else None
        block = block_number(uplink, attempt)
        decisions = self._announce(alpha_u, clients, payload_start, soundings.sigma.noise_std_real, block)
        self._gate(decisions, silent)
        jammer = None
        if state is not None and place is not None and jamming.needed:
            jammer = self.cast.transmitters[place]
            jamming = self._order(jammer, jamming, state, block)
        plan = self._public_plan(uplink, attempt, alpha_u, jamming, silent, soundings, decisions)
        return Round(plan, soundings, tuple(circuits), decisions, payload_start, jammer)

    def _sound(self, uplink: int, attempt: int) -> Soundings:
        beginning = self.stage.begin(uplink, attempt)
        for name, offset in beginning.offsets.items():
            self._set_offset(name, offset)
        transmitters = self.cast.transmitters
        soundings = sound(
            self.link,
            self.cast.server,
            transmitters,
            self.air,
            beginning.start_sample,
            not_before=self.stage.not_before,
            check_noise=self.check_noise,
        )
        for name, state in zip(transmitters, soundings.states, strict=True):
            if state.offset_samples:
                self._set_offset(name, self._offsets.get(name, 0) - state.offset_samples)
        return soundings

    def _set_offset(self, name: str, offset_samples: int) -> None:
        self._offsets[name] = offset_samples
        self.link.ask(name, CountOffset(offset_samples))

    def _jamming_place(self, turn: int | None) -> int | None:
        """Who jams where that is needed, by the place among all transmitters; None where nobody is to."""
        if self.sizing.jammer.role is JammerRole.NONE:
            return None
        if turn is not None:
            return turn
        if self.cast.jammer is None:
            raise PrivacyError("a jammer is needed and the lab has none: no client may send")
        return len(self.cast.clients)

    def _announce(
        self, alpha_u: float, states: Sequence[SoundedChannel], payload_start: int, noise_std_real: float, block: int
    ) -> tuple[Decision, ...]:
        payload = self.air.payload.payload_slice
        start, count = payload_start + payload.start, payload.stop - payload.start
        announced = [
            (name, Announcement(alpha_u, state, start, count, noise_std_real, block))
            for name, state in zip(self.cast.clients, states, strict=True)
        ]
        return tuple(self.link.ask_all(announced))

    def _gate(self, decisions: tuple[Decision, ...], silent: int | None) -> None:
        senders = [client for client in range(len(decisions)) if client != silent]
        worst = max(senders, key=lambda client: decisions[client].phase_error_rad)
        error = decisions[worst].phase_error_rad
        if not error <= self.max_phase_error_rad:
            raise CoherenceError(
                f"'{self.cast.clients[worst]}' would be off by {error:.3g} rad rms at the payload's end, "
                f"more than radio.max_phase_error_rad = {self.max_phase_error_rad:g}: share a reference clock, "
                "send fewer coordinates, sound with more symbols, or raise its power"
            )

    def _order(self, jammer: str, wanted: JammerPlan, state: SoundedChannel, block: int) -> JammerPlan:
        """The plan as the jammer itself decided it: what is charged is its own answer."""
        arriving = wanted.alpha * wanted.gain
        decision = self.link.ask(jammer, JammingOrder(arriving, state, block))
        if decision.alpha * decision.gain_lower > arriving * (1.0 + _ROUNDING):
            raise PrivacyError(
                f"'{jammer}' announces noise of {decision.alpha * decision.gain_lower:.6g}, and was asked for "
                f"{arriving:.6g}: what nobody has asked for is not counted on; update its airdp"
            )
        return replace(wanted, alpha=decision.alpha, gain=decision.gain_lower)

    def _public_plan(
        self,
        uplink: int,
        attempt: int,
        alpha_u: float,
        jamming: JammerPlan,
        silent: int | None,
        soundings: Soundings,
        decisions: tuple[Decision, ...],
    ) -> UplinkPlan:
        noise_std = soundings.sigma.noise_std_real
        actual = self.sizing.power.backoff is Backoff.ACTUAL
        gains = (d.gain_upper * (d.backoff if actual else 1.0) for d in decisions)
        sending = [decision for client, decision in enumerate(decisions) if client != silent]
        mechanism = RoundMechanism(
            uplink=uplink,
            received_gains=tuple(0.0 if client == silent else gain for client, gain in enumerate(gains)),
            sigma=math.hypot(jamming.gain * jamming.alpha, noise_std) / alpha_u,
            sigma_origin=SigmaOrigin.MEASURED,
            record_bounded=self.record_bounded,
            clip_norm=self.clip_norm,
            alpha_u=alpha_u,
            alpha_cj=jamming.alpha,
            jammer_gain=jamming.gain,
            noise_std_real=noise_std,
            view=VIEW,
            bounds=bounds_of(
                self.air,
                len(sending),
                jams=jamming.needed,
                # Of tails the longest burst's are all: a neighbour changes one client's.
                rounding=max(decision.rounding.delta for decision in sending),
                soundings=attempt + 1,
            ),
            rounding=max(decision.rounding.distance for decision in sending),
        )
        weakest = weakest_gains(soundings.states[: len(self.weights)])
        powers = tuple(
            ClientPower(complex(alpha_u * weight / (gain * self.clip_norm * decision.backoff)), decision.backoff)
            for weight, gain, decision in zip(self.weights, weakest, decisions, strict=True)
        )
        return UplinkPlan(uplink, alpha_u, weakest, self.weights, powers, jamming, silent, attempt, mechanism)

    def carry(self, current: Round) -> Received:
        """TRANSMIT and RECEIVE; the caller has authorised the plan. Cells are divided by alpha_u."""
        order = Transmit(current.payload_start + self.air.payload.payload_slice.start)
        if current.jammer is not None:
            # The jammer first: if it cannot send, nobody has.
            self.link.ask(current.jammer, order)
        try:
            self.link.ask_all([(self.cast.clients[client], order) for client in current.plan.senders])
            received = self.link.ask(self.cast.server, Receive(current.payload_start, current.jammer is not None))
        except BaseException as error:
            self._withdraw(current)
            # Whoever wants the program to end is not kept by a radio: without an account the jammer does not count.
            if isinstance(error, HardwareError):
                self._require_jammed(current)
            raise
        self._require_jammed(current)
        self.link.ask_all([(name, Check()) for name in self.cast.clients])
        np.multiply(received.cells, np.float32(1.0 / current.plan.alpha_u), out=received.cells)
        return received

    def _withdraw(self, current: Round) -> None:
        """Clients that have not begun shall not, and say so; the jammer goes on to its end, over those that have."""
        for name in self.cast.clients:
            if name == current.jammer:
                continue
            try:
                self.link.ask(name, Withdraw())
            except HardwareError as error:
                _LOG.error("'%s' has not confirmed that it sends nothing more: %s", name, error)

    def _require_jammed(self, current: Round) -> None:
        """Without proof that the jammer's noise went out whole, none of it counts."""
        if current.jammer is None:
            return
        try:
            self.link.ask(current.jammer, Check())
        except HardwareError as error:
            raise UnprotectedError(
                f"uplink {current.plan.uplink} was sent, and the noise of '{current.jammer}' with it is not certain: "
                f"{error}",
                current.mechanism.without_jammer(),
            ) from error

    def account(self, current: Round, received: Received) -> RoundMechanism:
        """ACCOUNT: the worst case, lowered where less noise was heard than it counts on; never raised."""
        return accounted(
            current.mechanism,
            current.soundings.noise,
            received,
            jammed=current.jammer is not None,
            rounded_anew=partial(self._rounded_anew, current),
        )

    def _rounded_anew(self, current: Round, mechanism: RoundMechanism) -> RoundMechanism:
        """With what rounding is charged in the receiver's noise as it turned out to be: see `fl.nodes.circuits`.

        Where a converter's steps are too coarse for that nothing is known of the noise that counts; a jammer's that
        would be a grid in it is none.
        """
        planned, left = current.mechanism.noise_std_real, mechanism.noise_std_real
        scenes = list(zip(current.soundings.states, current.circuits, strict=True))
        try:
            if current.jammer is not None:
                state, own = scenes[self.cast.transmitters.index(current.jammer)]
                if mechanism.alpha_cj < least_jamming(state, self.air, own, left):
                    mechanism = mechanism.without_jammer()
            risen = [
                charged_gain_upper(state, self.air, own, planned, left)
                / charged_gain_upper(state, self.air, own, planned)
                for state, own in scenes[: len(self.weights)]
            ]
        except PrivacyError:
            return replace(mechanism, sigma=0.0, sigma_origin=SigmaOrigin.UNKNOWN)
        gains = zip(mechanism.received_gains, risen, strict=True)
        return replace(mechanism, received_gains=tuple(gain * factor for gain, factor in gains))


def bounds_of(air: AirFormat, senders: int, *, jams: bool, rounding: float, soundings: int = 1) -> Bounds:
    """What gains and sigma of an uplink rest on, and how likely each may fail at the agreed confidence.

    rounding: what of delta the tails of rounding take, see `fl.privacy.converters`. soundings: of this uplink, the ones
    that were given up included: what was measured had its part in that, and any of them may have failed.
    """
    failure, jammers = soundings * (1.0 - air.confidence), int(jams)
    # Within the band and at all frequencies: which of them counts depends on both.
    bounds = {"noise": 2, "client gains": senders, "client images": senders, "jammer gain": jammers}
    bounds["jammer image"] = jammers
    if air.gain_margin > 1.0 or air.measures_level:
        bounds["linearity"] = senders + (jammers if air.gain_margin > 1.0 else 0)
    failures = {name: count * failure for name, count in bounds.items()} | {"rounding": rounding}
    return tuple((name, probability) for name, probability in failures.items() if probability)


def _comparable(soundings: Soundings, jammer: SoundedChannel | None) -> Soundings:
    """Channels with the treatment that suits all, and the noise that counts with it.

    A payload that is not filtered has sidelobes beyond the band. So it may go without a filter only where noise is
    known to be there too: the receiver's, at about the band's level, which then counts at its quietest of both; and a
    jammer's, which is not where it is filtered itself.
    """
    within, everywhere = soundings.sigma, soundings.sigma_everywhere
    quiet = everywhere.noise_std_real < LEAST_BEYOND * within.noise_std_real
    if quiet or (jammer is not None and jammer.flat is None):
        return replace(soundings, states=tuple(replace(state, flat=None) for state in soundings.states))
    if any(state.flat is not None for state in soundings.states) and everywhere.noise_var_real < within.noise_var_real:
        return replace(soundings, sigma=everywhere)
    return soundings
