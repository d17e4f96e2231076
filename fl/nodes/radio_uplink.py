"""The uplink over radios, behind the `Uplink` contract: see the package for its states."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from calibration.noise import measure_noise
from fl.errors import ConfigError, PrivacyError
from fl.nodes.air import AirFormat
from fl.nodes.budget import Contribution, error_budget
from fl.nodes.client import ClientNode
from fl.nodes.jammer import CellNoise, JammerNode, system_noise
from fl.nodes.messages import Announcement, Decision, JammingOrder, Sent, Sound, Transmit
from fl.nodes.server import ServerNode, Soundings
from fl.nodes.transmitter import Transmitter, gain_lower, relative_gain_upper, weakest_gain
from fl.privacy.clipping import BoundedUpdate, checked_clip_norm
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.streams import Stream
from fl.uplink.contract import Aggregate, Prepared, UplinkPlan, as_cells, checked_updates
from fl.uplink.jammer import SILENT, FactorOn, JammerPlan, JammerRole, reachable_alpha_u, size_jammer
from fl.uplink.modes import Backoff, Rescale
from fl.uplink.power_control import ClientPower, alpha_u_for_noise, alpha_u_without_backoff
from hardware.errors import HardwareError
from hardware.lab import Lab, OpenLab
from hardware.medium import ClockMode
from phy.errors import AirdpError
from phy.fading import circular_noise

MOST_ATTEMPTS = 1000
"""Soundings per uplink that have a place of their own in simulated time and fading."""


_SIZING_PASSES = 3


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
    """State between plan and exchange."""

    soundings: Soundings
    decisions: tuple[Decision, ...]
    payload_start: int
    jammer: JammerNode | None
    norms: dict[int, float] = field(default_factory=dict)
    backoffs: dict[int, float] = field(default_factory=dict)
    bias: NDArray[np.float32] | None = None


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
        self._transmitters = [Transmitter(radio, air) for radio in lab.clients]
        self._own_jammer = (
            None if lab.jammer is None or power.jammer_role is JammerRole.NONE else Transmitter(lab.jammer, air)
        )
        self.clients = tuple(
            ClientNode(transmitter, float(weight), clip_norm, power.backoff)
            for transmitter, weight in zip(self._transmitters, self.weights, strict=True)
        )
        names = tuple(radio.name for radio in lab.clients) + (() if self._own_jammer is None else ("jammer",))
        self.server = ServerNode(lab.ps, air, lab.lab.clock_mode is ClockMode.SHARED, names)
        self._round: _Round | None = None

    @property
    def _all(self) -> list[Transmitter]:
        return [*self._transmitters, *([] if self._own_jammer is None else [self._own_jammer])]

    def plan(self, uplink: int) -> UplinkPlan:
        """SOUND and PLAN; a failure in them is tried again with a new sounding, and costs no privacy."""
        last: AirdpError | None = None
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
        payload_start = start + self.air.sounding_phase_samples(len(self._all)) + self.air.turnaround_samples
        silent = (uplink - 1) % len(self.sizes) if self.power.jammer_role is JammerRole.ROTATING else None
        alpha_u, jammer, node = self._choose_noise(uplink, soundings, silent)
        silent = silent if jammer.needed else None
        announce_samples = self.air.payload.length
        decisions = tuple(
            client.decide(Announcement(alpha_u, state, payload_start + self.air.guard_samples, announce_samples))
            for client, state in zip(self.clients, soundings.states, strict=False)
        )
        self._gate(decisions, silent)
        self._round = _Round(soundings, decisions, payload_start, node if jammer.needed else None)
        return self._public_plan(uplink, attempt, alpha_u, jammer, silent, soundings, decisions)

    def _begin(self, uplink: int, attempt: int) -> int:
        """Where it starts. In simulated air each uplink and attempt has its own time and fading, however reached."""
        phase = self.air.sounding_phase_samples(len(self._all))
        margin = self.air.turnaround_samples
        medium = self.lab.medium
        if medium is None:
            return self.lab.start_sample(margin)
        self.lab.new_block(uplink * MOST_ATTEMPTS + attempt)
        whole = phase + 2 * margin + self.air.payload.length
        start = (uplink * self.power.attempts + attempt) * whole
        medium.advance(self.lab.ps.name, start - margin)
        return start

    def _sound(self, start: int) -> Soundings:
        for slot, transmitter in enumerate(self._all):
            transmitter.sound(Sound(start + self.air.quiet_samples + slot * self.air.slot_samples))
        soundings = self.server.listen(start, len(self._all))
        for transmitter, state in zip(self._all, soundings.states, strict=True):
            transmitter.follow(state)
        return soundings

    def _choose_noise(
        self, uplink: int, soundings: Soundings, silent: int | None
    ) -> tuple[float, JammerPlan, JammerNode | None]:
        """alpha_u and the jammer, sized so that the *measured* worst case meets the target.

        The ledger will charge each client with the upper bound of its gain, so sigma is sized for the largest of these
        bounds. They depend on alpha_u through the back-off, hence the few passes; what is charged is exact in any case.
        """
        margin = 1.0
        for _ in range(_SIZING_PASSES):
            alpha_u, jammer, node = self._size_noise(uplink, soundings, silent, margin)
            margin = max(1.0, *self._gain_bounds(soundings, alpha_u))
        return alpha_u, jammer, node

    def _gain_bounds(self, soundings: Soundings, alpha_u: float) -> list[float]:
        limit = math.sqrt(self.air.energy_limit)
        return [
            relative_gain_upper(state, self.air) / max(1.0, alpha_u * weight / (weakest_gain(state) * limit))
            for state, weight in zip(soundings.states, self.weights, strict=False)
        ]

    def _size_noise(
        self, uplink: int, soundings: Soundings, silent: int | None, margin: float
    ) -> tuple[float, JammerPlan, JammerNode | None]:
        noise_std = soundings.sigma.noise_std_real
        alpha_u = self._alpha_u(soundings, noise_std, margin)
        if self.power.jammer_role is JammerRole.NONE:
            return alpha_u, SILENT, None
        transmitter = self._transmitters[silent] if silent is not None else self._own_jammer
        if transmitter is None:
            raise PrivacyError("a jammer is needed and the lab has none: no client may send")
        state = soundings.states[silent if silent is not None else -1]
        needed = {"sigma_required": margin * self.power.jammer_sigma, "noise_std_real": noise_std}
        reach = {"gain": gain_lower(state, self.air), "amplitude_limit": self.air.jamming_limit}
        alpha_u = reachable_alpha_u(alpha_u, **needed, **reach)
        jammer = size_jammer(
            alpha_u=alpha_u, factor=self.power.factor, factor_on=self.power.factor_on, **needed, **reach
        )
        node = JammerNode(transmitter, self._noise_source(uplink))
        if jammer.needed:
            node.decide(JammingOrder(jammer.alpha * jammer.gain, state))
        return alpha_u, jammer, node

    def _noise_source(self, uplink: int) -> CellNoise:
        if self.lab.medium is None:
            return system_noise
        return lambda cells: circular_noise(cells, 1.0, self.streams(Stream.JAMMER, uplink))

    def _alpha_u(self, soundings: Soundings, noise_std: float, margin: float) -> float:
        if self.power.alpha_u is None:
            limits = np.full(len(self.sizes), self.air.energy_limit)
            return alpha_u_without_backoff(self.weights, self._weakest_gains(soundings), limits)
        return self.power.alpha_u or alpha_u_for_noise(noise_std, margin * self.power.channel_sigma)

    def _weakest_gains(self, soundings: Soundings) -> NDArray[np.complex128]:
        return np.array([weakest_gain(state) for state in soundings.states[: len(self.sizes)]], dtype=np.complex128)

    def _gate(self, decisions: tuple[Decision, ...], silent: int | None) -> None:
        senders = [client for client in range(len(decisions)) if client != silent]
        worst = max(senders, key=lambda client: decisions[client].phase_error_rad)
        error = decisions[worst].phase_error_rad
        if error > self.power.max_phase_error_rad:
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
        weakest = self._weakest_gains(soundings)
        powers = tuple(
            ClientPower(complex(alpha_u * weight / (gain * self.clip_norm * decision.backoff)), decision.backoff)
            for weight, gain, decision in zip(self.weights, weakest, decisions, strict=True)
        )
        return UplinkPlan(uplink, alpha_u, weakest, self.weights, powers, jammer, silent, attempt, mechanism)

    def prepare(self, plan: UplinkPlan, updates: Iterable[tuple[int, BoundedUpdate]]) -> Prepared:
        """Hand each client its update, which becomes cells there, and keep the exact weighted sum to compare with."""
        current = self._current()
        exact = np.zeros(self.air.coordinates, np.float32)
        current.bias = np.zeros(self.air.coordinates, np.float32)
        energy = np.zeros(len(self.sizes))
        backoffs = np.full(len(self.sizes), math.inf)
        clipped = 0
        for client, update in checked_updates(
            plan, updates, coordinates=self.air.coordinates, clip_norm=self.clip_norm, sizes=self.sizes
        ):
            backoffs[client], energy[client] = self.clients[client].load(update)
            share = np.float32(self.weights[client] / self.clip_norm)
            exact += update.values * share
            current.bias += update.values * np.float32(share * (1.0 - 1.0 / backoffs[client]))
            current.norms[client] = float(np.linalg.norm(update.values)) / self.clip_norm
            current.backoffs[client] = float(backoffs[client])
            clipped += update.norm_before > update.clip_norm
        return Prepared(as_cells(exact), self.air.coordinates, backoffs, energy, clipped)

    def exchange(self, plan: UplinkPlan, prepared: Prepared) -> Aggregate:
        """TRANSMIT, RECEIVE, ACCOUNT."""
        current = self._current()
        self._round = None
        start = current.payload_start + self.air.guard_samples
        if current.jammer is not None:
            # The jammer first: if it cannot send, nobody has.
            current.jammer.transmit(Transmit(start))
        sent = {client: self.clients[client].transmit(Transmit(start)) for client in plan.senders}
        cells, capture = self.server.receive(current.payload_start)
        received = self.air.grid.to_coordinates(cells) / np.float32(plan.alpha_u)
        exact = prepared.cells.view(np.float32)[: prepared.coordinates]
        diagnostics = self._diagnose(plan, current, sent, exact, received)
        scale = self.clip_norm if self.power.rescale is Rescale.RESCALED else 1.0
        return Aggregate(
            values=received * np.float32(scale),
            mechanism=self._accounted(plan.mechanism, capture.samples),
            signal_norm=float(np.linalg.norm(exact)) * scale,
            noise_norm=float(np.linalg.norm(received - exact)) * scale,
            diagnostics={**diagnostics, "clipped_samples": float(sum(s.clipped_samples for s in sent.values()))},
            snapshot=self._snapshot(current, capture.samples, cells / np.float32(plan.alpha_u)),
        )

    def _accounted(self, mechanism: RoundMechanism, samples: NDArray[np.complex64]) -> RoundMechanism:
        """The worst case, lowered where the guards around the payload show less noise than the silence before the
        soundings.

        Only downwards: the guards are short, and noise that rose in between protects no more than was promised.
        """
        frame, delay = self.air.payload, self.air.gap_samples
        leading = samples[frame.leading_quiet_slice]
        trailing = samples[frame.trailing_quiet_slice][delay:]
        guards = measure_noise(
            np.concatenate([leading, trailing]), self.air.numerology, confidence=2 * self.air.confidence - 1
        )
        if guards.ci[1] >= mechanism.noise_std_real**2:
            return mechanism
        noise_std = math.sqrt(guards.pooled_lower)
        sigma = math.hypot(mechanism.jammer_gain * mechanism.alpha_cj, noise_std) / mechanism.alpha_u
        return replace(mechanism, sigma=sigma, noise_std_real=noise_std)

    def _diagnose(
        self,
        plan: UplinkPlan,
        current: _Round,
        sent: dict[int, Sent],
        exact: NDArray[np.float32],
        received: NDArray[np.float32],
    ) -> dict[str, float]:
        contributions = [
            Contribution(
                replace(current.decisions[client], backoff=current.backoffs[client]),
                float(self.weights[client]),
                current.norms[client],
                sent[client],
            )
            for client in plan.senders
        ]
        bias = current.bias if current.bias is not None else np.zeros_like(exact)
        return error_budget(
            self.air,
            contributions,
            alpha_u=plan.alpha_u,
            noise_var_real=current.soundings.noise.noise_var_real,
            jamming_var_real=(plan.jammer.alpha * plan.jammer.gain) ** 2,
            converter_var_real=self._converter_var_real(current),
            exact=exact,
            received=received,
            backoff_bias=bias,
        )

    def _converter_var_real(self, current: _Round) -> float:
        """Step^2/12 per axis of each sender's converter, through its channel. The receiver's own is in the silence."""
        bits = None if self.lab.medium is None else self.lab.lab.medium.dac_bits
        if bits is None:
            return 0.0
        step = 2.0 ** (1 - bits)
        gains = sum(float(np.mean(np.abs(state.channel) ** 2)) for state in current.soundings.states)
        return step**2 / 12.0 * gains

    def _snapshot(
        self, current: _Round, payload: NDArray[np.complex64], cells: NDArray[np.complex64]
    ) -> dict[str, NDArray[np.generic]]:
        """What pictures of the uplink need, in a few hundred kilobytes."""
        states = current.soundings.states
        quiet = current.soundings.capture.samples
        return {
            "channels": np.stack([state.channel for state in states]),
            "names": np.array(self.server.names),
            "cells": cells.reshape(-1)[:4096],
            "payload_power": _block_power(payload),
            "sounding_power": _block_power(quiet),
            "spectrum": np.mean(
                np.abs(np.fft.fft(_blocks(payload, self.air.numerology.fft_size), norm="ortho")) ** 2, axis=0
            ),
            "noise_var_real_per_bin": np.array(current.soundings.noise.noise_var_real_per_bin),
            "noise_bins": np.array(current.soundings.noise.bins),
            "phase_error_rad": np.array([decision.phase_error_rad for decision in current.decisions]),
            "layout": np.array(
                [self.air.quiet_samples, self.air.slot_samples, self.air.guard_samples, self.air.turnaround_samples]
            ),
            "sample_rate_hz": np.array(self.air.numerology.sample_rate_hz),
        }

    def _current(self) -> _Round:
        if self._round is None:
            raise PrivacyError("an uplink is prepared and exchanged once, after it was planned")
        return self._round


def check_lab(lab: Lab, sizes: NDArray[np.int64], jammer_role: JammerRole) -> None:
    """Raise `ConfigError` where a lab's radios do not suit a run with clients of these sizes (K,)."""
    if len(lab.clients) != len(sizes):
        raise ConfigError(
            f"lab '{lab.name}' has {len(lab.clients)} clients and the run {len(sizes)}: "
            f"use another lab, or --set partition.clients={len(lab.clients)}"
        )
    if jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL) and lab.jammer is None:
        raise ConfigError(f"lab '{lab.name}' has no jammer: add a radio with that role or set jammer.role = 'none'")


def _blocks(samples: NDArray[np.complex64], size: int) -> NDArray[np.complex64]:
    return samples[: samples.size // size * size].reshape(-1, size)


def _block_power(samples: NDArray[np.complex64], size: int = 64) -> NDArray[np.float32]:
    """Mean |x|^2 of consecutive blocks."""
    return np.asarray(np.mean(np.abs(_blocks(samples, size)) ** 2, axis=1), dtype=np.float32)
