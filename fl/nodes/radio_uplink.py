"""The uplink over radios, behind the `Uplink` contract: see the package for its states."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.noise import measure_noise
from fl.errors import ConfigError, PrivacyError
from fl.nodes.air import AirFormat
from fl.nodes.budget import Contribution, error_budget
from fl.nodes.client import ClientNode
from fl.nodes.jammer import CellNoise, JammerNode, system_noise
from fl.nodes.messages import Announcement, Decision, JammingOrder, Transmit
from fl.nodes.noise_sizing import NoiseSizing, weakest_gains
from fl.nodes.server import ServerNode, Soundings
from fl.nodes.snapshot import take_snapshot
from fl.nodes.transmitter import Transmitter, Workspace
from fl.privacy.clipping import BoundedUpdate, checked_clip_norm
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.streams import Stream
from fl.uplink.contract import (
    Aggregate,
    Prepared,
    UnprotectedError,
    UplinkPlan,
    as_cells,
    as_coordinates,
    checked_updates,
)
from fl.uplink.jammer import FactorOn, JammerPlan, JammerRole
from fl.uplink.modes import Backoff, Rescale
from fl.uplink.power_control import ClientPower
from hardware.errors import HardwareError
from hardware.lab import Lab, OpenLab
from hardware.medium import ClockMode
from hardware.samples import Capture
from phy.errors import AirdpError
from phy.fading import circular_noise

MOST_ATTEMPTS = 1000
"""Soundings per uplink that have a place of their own in simulated time and fading."""


class CoherenceError(AirdpError):
    """The predicted phase error is too large for the signals to add up; nothing was sent."""


@dataclass(frozen=True)
class RadioPower:
    """alpha_u: a number, None for the largest without back-off, or 0 to let measured noise alone give `channel_sigma`.

    jammer_sigma: noise that the privacy target needs. attempts: soundings before an uplink is given up.
    """

    alpha_u: float | None
    channel_sigma: float
    backoff: Backoff
    rescale: Rescale
    jammer_role: JammerRole
    jammer_sigma: float
    factor: float
    factor_on: FactorOn
    max_phase_error_rad: float
    attempts: int


@dataclass
class _Round:
    """State between plan and exchange. mechanism: of the plan that it belongs to."""

    mechanism: RoundMechanism
    soundings: Soundings
    decisions: tuple[Decision, ...]
    payload_start: int
    jammer: JammerNode | None
    updates: dict[int, BoundedUpdate] = field(default_factory=dict)
    bias: NDArray[np.float32] = field(default_factory=lambda: np.zeros(0, np.float32))


class RadioUplink:
    """Nodes on the radios of an open lab. sizes: samples of each client (K,), in the order of the lab's clients."""

    channel_ages = True

    def __init__(
        self,
        lab: OpenLab,
        air: AirFormat,
        sizes: NDArray[np.int64],
        clip_norm: float,
        power: RadioPower,
        *,
        record_bounded: bool,
        streams: Callable[[Stream, int], np.random.Generator],
    ) -> None:
        check_lab(lab.lab, sizes, power.jammer_role)
        self.lab, self.air, self.sizes, self.power = lab, air, sizes, power
        self.clip_norm, self.record_bounded, self.streams = checked_clip_norm(clip_norm), record_bounded, streams
        self.weights = sizes / sizes.sum()
        workspace = Workspace.of(air)
        self._transmitters = [Transmitter(radio, air, workspace) for radio in lab.clients]
        own = power.jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL)
        self._own_jammer = Transmitter(lab.jammer, air, workspace) if own and lab.jammer is not None else None
        self.clients = tuple(
            ClientNode(transmitter, float(weight), clip_norm, power.backoff)
            for transmitter, weight in zip(self._transmitters, self.weights, strict=True)
        )
        names = tuple(radio.name for radio in lab.clients) + (() if self._own_jammer is None else ("jammer",))
        self._sizing = NoiseSizing(
            air,
            self.weights,
            power.backoff,
            alpha_u=power.alpha_u,
            channel_sigma=power.channel_sigma,
            jammer_sigma=power.jammer_sigma,
            factor=power.factor,
            factor_on=power.factor_on,
        )
        self.server = ServerNode(lab.ps, air, lab.lab.clock_mode is ClockMode.SHARED, names)
        self._round: _Round | None = None

    @property
    def _all(self) -> list[Transmitter]:
        return [*self._transmitters, *([] if self._own_jammer is None else [self._own_jammer])]

    def plan(self, uplink: int) -> UplinkPlan:
        """SOUND and PLAN; a failure in them is tried again with a new sounding, and costs no privacy."""
        last: AirdpError | None = None
        self._round = None
        for attempt in range(self.power.attempts):
            try:
                return self._plan(uplink, attempt)
            except (HardwareError, PrivacyError, CoherenceError) as error:
                last = error
        message = f"uplink {uplink} was given up after {self.power.attempts} soundings, nothing was sent: {last}"
        raise type(last)(message) if last else ConfigError(message)

    def _plan(self, uplink: int, attempt: int) -> UplinkPlan:
        start = self._begin(uplink, attempt)
        soundings = self._sound(start)
        payload_start = self.lab.not_before(soundings.end_sample + self.air.turnaround_samples)
        silent = (uplink - 1) % len(self.sizes) if self.power.jammer_role is JammerRole.ROTATING else None
        alpha_u, jammer, node = self._choose_noise(_block(uplink, attempt), soundings, silent)
        silent = silent if jammer.needed else None
        start, count = payload_start + self.air.guard_samples, self.air.payload.length - 2 * self.air.guard_samples
        decisions = tuple(
            client.decide(Announcement(alpha_u, state, start, count))
            for client, state in zip(self.clients, soundings.states, strict=False)
        )
        self._gate(decisions, silent)
        plan = self._public_plan(uplink, attempt, alpha_u, jammer, silent, soundings, decisions)
        self._round = _Round(plan.mechanism, soundings, decisions, payload_start, node)
        return plan

    def _begin(self, uplink: int, attempt: int) -> int:
        """Where it starts. In simulated air each uplink and attempt has its own time and fading, however reached."""
        phase = self.air.sounding_phase_samples(len(self._all))
        margin = self.air.turnaround_samples
        medium = self.lab.medium
        self.lab.new_block(_block(uplink, attempt))
        if medium is None:
            self._align()
            return self.lab.start_sample(margin)
        whole = phase + 2 * margin + self.air.payload.length
        start = (uplink * self.power.attempts + attempt) * whole
        medium.advance(self.lab.ps.name, start - margin)
        if not self.server.shared_clock:
            # As the counters are now, not as earlier soundings left it: a run that goes on later has not heard them.
            for transmitter in self._all:
                transmitter.offset_samples = transmitter.radio.now() - self.lab.ps.now()
        return start

    def _align(self) -> None:
        aligned = self.lab.ready()
        for transmitter in self._all:
            if transmitter.radio.name in aligned:
                transmitter.offset_samples = 0

    def _sound(self, start: int) -> Soundings:
        transmitters = self._all
        soundings = self.server.sound(start, lambda slot, order: transmitters[slot].sound(order), self.lab.not_before)
        for transmitter, state in zip(transmitters, soundings.states, strict=True):
            transmitter.follow(state)
        return soundings

    def _choose_noise(
        self, block: int, soundings: Soundings, silent: int | None
    ) -> tuple[float, JammerPlan, JammerNode | None]:
        """alpha_u and the jammer's plan, with a node that has its order where the jammer is needed."""
        place = self._jamming_place(silent)
        clients, state = soundings.states[: len(self.sizes)], None if place is None else soundings.states[place]
        alpha_u, jammer = self._sizing.choose(clients, soundings.sigma.noise_std_real, state)
        if place is None or state is None or not jammer.needed:
            return alpha_u, jammer, None
        node = JammerNode(self._all[place], self._noise_source(block))
        node.decide(JammingOrder(jammer.alpha * jammer.gain, state))
        return alpha_u, jammer, node

    def _jamming_place(self, silent: int | None) -> int | None:
        """Who jams where that is needed, by the place among all transmitters; None where nobody is to."""
        if self.power.jammer_role is JammerRole.NONE:
            return None
        if silent is None and self._own_jammer is None:
            raise PrivacyError("a jammer is needed and the lab has none: no client may send")
        return len(self._transmitters) if silent is None else silent

    def _noise_source(self, block: int) -> CellNoise:
        """New noise for every attempt: of the same noise sent twice, the difference of two uplinks would be free."""
        if self.lab.medium is None:
            return system_noise
        return lambda cells: circular_noise(cells, 1.0, self.streams(Stream.JAMMER, block))

    def _gate(self, decisions: tuple[Decision, ...], silent: int | None) -> None:
        senders = [client for client in range(len(decisions)) if client != silent]
        worst = max(senders, key=lambda client: decisions[client].phase_error_rad)
        error = decisions[worst].phase_error_rad
        if not error <= self.power.max_phase_error_rad:
            raise CoherenceError(
                f"'{self.server.names[worst]}' would be off by {error:.3g} rad rms at the payload's end, "
                f"more than radio.max_phase_error_rad = {self.power.max_phase_error_rad:g}: share a reference clock, "
                "send fewer coordinates, sound with more symbols, or raise its power"
            )

    def _public_plan(
        self,
        uplink: int,
        attempt: int,
        alpha_u: float,
        jammer: JammerPlan,
        silent: int | None,
        soundings: Soundings,
        decisions: tuple[Decision, ...],
    ) -> UplinkPlan:
        noise_std = soundings.sigma.noise_std_real
        actual = self.power.backoff is Backoff.ACTUAL
        gains = (d.gain_upper * (d.backoff if actual else 1.0) for d in decisions)
        mechanism = RoundMechanism(
            uplink=uplink,
            received_gains=tuple(0.0 if client == silent else gain for client, gain in enumerate(gains)),
            sigma=math.hypot(jammer.gain * jammer.alpha, noise_std) / alpha_u,
            sigma_origin=SigmaOrigin.MEASURED,
            record_bounded=self.record_bounded,
            clip_norm=self.clip_norm,
            alpha_u=alpha_u,
            alpha_cj=jammer.alpha,
            jammer_gain=jammer.gain,
            noise_std_real=noise_std,
        )
        weakest = weakest_gains(soundings.states[: len(self.sizes)])
        powers = tuple(
            ClientPower(complex(alpha_u * weight / (gain * self.clip_norm * decision.backoff)), decision.backoff)
            for weight, gain, decision in zip(self.weights, weakest, decisions, strict=True)
        )
        return UplinkPlan(uplink, alpha_u, weakest, self.weights, powers, jammer, silent, attempt, mechanism)

    def prepare(self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]) -> Prepared:
        """Hand each client its update. `cells` of the result is the exact weighted sum, to compare with."""
        current = self._current(plan)
        current.updates = dict(self._checked(plan, updates))
        backoffs, energy = np.full(len(self.sizes), math.inf), np.zeros(len(self.sizes))
        exact = np.zeros(self.air.coordinates, np.float32)
        current.bias = np.zeros_like(exact)
        for client, update in current.updates.items():
            node = self.clients[client]
            backoffs[client], energy[client] = node.backoff_for(update), node.energy_of(update)
            weighted = update.values * np.float32(node.weight / self.clip_norm)
            exact += weighted
            current.bias += weighted * np.float32(1.0 - 1.0 / backoffs[client])
        clipped = sum(update.norm_before > update.clip_norm for update in current.updates.values())
        return Prepared(as_cells(exact), self.air.coordinates, backoffs, energy, clipped)

    def _checked(
        self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]
    ) -> Iterator[tuple[int, BoundedUpdate]]:
        return checked_updates(
            plan, updates, coordinates=self.air.coordinates, clip_norm=self.clip_norm, sizes=self.sizes
        )

    def exchange(self, plan: UplinkPlan, prepared: Prepared) -> Aggregate:
        """TRANSMIT, RECEIVE, ACCOUNT, and a comparison with the exact weighted sum."""
        current = self._current(plan)
        cells, capture, contributions = self._exchange(plan, current.updates.items())
        received = self.air.grid.to_coordinates(cells)
        exact = as_coordinates(prepared.cells, prepared.coordinates)
        diagnostics = error_budget(
            contributions,
            alpha_u=plan.alpha_u,
            noise_var_real=current.soundings.noise.noise_var_real,
            jamming_var_real=(plan.jammer.alpha * plan.jammer.gain) ** 2,
            converter_var_real=self._converter_var_real(plan, current),
            exact=exact,
            received=received,
            backoff_bias=current.bias,
        )
        diagnostics["clipped_samples"] = float(sum(c.sent.clipped_samples for c in contributions))
        scale = self.clip_norm if self.power.rescale is Rescale.RESCALED else 1.0
        return Aggregate(
            values=received * np.float32(scale),
            mechanism=self._accounted(current, capture.samples),
            signal_norm=float(np.linalg.norm(exact)) * scale,
            noise_norm=float(np.linalg.norm(received - exact)) * scale,
            diagnostics=diagnostics,
            snapshot=take_snapshot(
                self.air, self.server.names, current.soundings, current.decisions, capture.samples, cells
            ),
        )

    def exchange_stream(
        self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]
    ) -> tuple[NDArray[np.float32], RoundMechanism]:
        """`exchange` of updates that come one at a time: the sum in units of tau, and its mechanism, nothing besides.

        Memory does not grow with the number of clients.
        """
        current = self._current(plan)
        cells, capture, _ = self._exchange(plan, updates)
        return self.air.grid.to_coordinates(cells), self._accounted(current, capture.samples)

    def _exchange(
        self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]
    ) -> tuple[NDArray[np.complex64], Capture, list[Contribution]]:
        """The sum's cells divided by alpha_u, the frame that they are of, and what each client brought."""
        current = self._current(plan)
        self._round = None
        order = Transmit(current.payload_start + self.air.guard_samples)
        if current.jammer is not None:
            # The jammer first: if it cannot send, nobody has.
            current.jammer.transmit(order)
        try:
            contributions = [self._send(*sent, current, order) for sent in self._checked(plan, updates)]
            cells, capture = self.server.receive(current.payload_start)
        except BaseException:
            # Clients that have not begun shall not; the jammer goes on, over those that have.
            for transmitter in self._transmitters:
                if current.jammer is None or transmitter is not current.jammer.transmitter:
                    transmitter.radio.withdraw()
            raise
        finally:
            self._require_jammed(current)
        for transmitter in self._transmitters:
            transmitter.radio.check()
        cells *= np.float32(1.0 / plan.alpha_u)
        return cells, capture, contributions

    def _require_jammed(self, current: _Round) -> None:
        """Without proof that the jammer's noise went out whole, none of it counts."""
        if current.jammer is None:
            return
        radio = current.jammer.transmitter.radio
        try:
            radio.check()
        except HardwareError as error:
            worst = current.mechanism
            alone = replace(worst, sigma=worst.noise_std_real / worst.alpha_u, alpha_cj=0.0)
            raise UnprotectedError(
                f"uplink {worst.uplink} was sent, and the noise of '{radio.name}' with it is not certain: {error}",
                alone,
            ) from error

    def _send(self, client: int, update: BoundedUpdate, current: _Round, order: Transmit) -> Contribution:
        node = self.clients[client]
        return Contribution(
            decision=replace(current.decisions[client], backoff=node.backoff_for(update)),
            weight=node.weight,
            relative_norm=min(1.0, update.norm_before / self.clip_norm),
            sent=node.transmit(update, order),
        )

    def _accounted(self, current: _Round, samples: NDArray[np.complex64]) -> RoundMechanism:
        """The worst case, lowered where the guards around the payload show less noise than the silence before the
        soundings, both over all subcarriers: the guards are too short for each alone.

        Only downwards: noise that rose in between protects no more than was promised.
        """
        mechanism, before = current.mechanism, current.soundings.noise
        frame, delay = self.air.payload, self.air.gap_samples
        leading = samples[frame.leading_quiet_slice]
        trailing = samples[frame.trailing_quiet_slice][delay:]
        guards = measure_noise(
            np.concatenate([leading, trailing]), self.air.numerology, confidence=2 * self.air.confidence - 1
        )
        if guards.ci[1] >= before.ci[0]:
            return mechanism
        noise_std = mechanism.noise_std_real * math.sqrt(guards.pooled_lower / before.noise_var_real)
        sigma = math.hypot(mechanism.jammer_gain * mechanism.alpha_cj, noise_std) / mechanism.alpha_u
        return replace(mechanism, sigma=sigma, noise_std_real=noise_std)

    def _converter_var_real(self, plan: UplinkPlan, current: _Round) -> float:
        """Step^2/12 per axis of each sender's converter, through its channel. The receiver's own is in the silence."""
        if self.lab.medium is None:
            return 0.0
        sending = [*plan.senders]
        if plan.jammer.needed:
            sending.append(len(self.sizes) if plan.silent is None else plan.silent)
        total = 0.0
        for place in sending:
            bits = self._dac_bits(self._all[place].radio.name)
            step = 0.0 if bits is None else 1.0 / (2.0 ** (bits - 1) - 1.0)
            total += step**2 / 12.0 * float(np.mean(np.abs(current.soundings.states[place].channel) ** 2))
        return total

    def _dac_bits(self, name: str) -> int | None:
        medium = self.lab.lab.medium
        own = medium.radio.get(name)
        return medium.dac_bits if own is None or "dac_bits" not in own.model_fields_set else own.dac_bits

    def _current(self, plan: UplinkPlan) -> _Round:
        if self._round is None or self._round.mechanism != plan.mechanism:
            raise PrivacyError("an uplink is prepared and exchanged once, after it was planned")
        return self._round


def _block(uplink: int, attempt: int) -> int:
    """Number of a sounding: its fading, its place in simulated time and its jammer's noise are its own."""
    return uplink * MOST_ATTEMPTS + attempt


def check_lab(lab: Lab, sizes: NDArray[np.int64], jammer_role: JammerRole) -> None:
    """Raise `ConfigError` where a lab's radios do not suit a run with clients of these sizes (K,)."""
    if len(lab.clients) != len(sizes):
        raise ConfigError(
            f"lab '{lab.name}' has {len(lab.clients)} clients and the run {len(sizes)}: "
            f"use another lab, or --set partition.clients={len(lab.clients)}"
        )
    if jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL) and lab.jammer is None:
        raise ConfigError(f"lab '{lab.name}' has no jammer: add a radio with that role or set jammer.role = 'none'")
