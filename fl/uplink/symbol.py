"""The paper's channel on cells: y = sum_i h_i x_i + h_CJ x_CJ + z, gains constant within an uplink."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.privacy.clipping import BoundedUpdate, checked_clip_norm
from fl.privacy.conditions import View
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.random_streams import Stream
from fl.uplink.alpha_u import PowerSettings, UplinkState, choose_alpha_u
from fl.uplink.channel import Channel, ChannelState
from fl.uplink.contract import (
    Aggregate,
    Authorise,
    Contributions,
    TrainedHere,
    Updates,
    UplinkPlan,
    as_cells,
    as_coordinates,
    cells_needed,
    checked_updates,
)
from fl.uplink.jammer import SILENT, JammerPlan, JammerRole, JammerSettings, reachable_alpha_u, size_jammer
from fl.uplink.modes import Backoff, Rescale
from fl.uplink.power_control import ClientPower, control_power
from phy.fading import circular_noise

MAX_POSTPONED = 1000
"""Soundings in a row without the needed jammer after which the uplink gives up."""
PART_CELLS = 1 << 16
"""Cells that are worked on at a time: they stay in a core's cache, and nothing but the sum has the size of a model."""
SMALLEST_NOISE_STD = 1e-30
"""Far from float32's subnormal numbers."""


@dataclass(frozen=True)
class SymbolUplink(TrainedHere):
    """sizes: samples of each client (K,). limits: P_i, limits on ||x_i||^2 (K,). noise_std_real: sigma_c.

    streams: generator for a purpose and an uplink number.
    """

    sizes: NDArray[np.int64]
    coordinates: int
    clip_norm: float
    record_bounded: bool
    channel: Channel
    noise_std_real: float
    limits: NDArray[np.float64]
    power: PowerSettings
    jammer: JammerSettings
    streams: Callable[[Stream, int], np.random.Generator]
    channel_ages: bool = False
    view: View = View.CELLS

    def __post_init__(self) -> None:
        """Refuse values for which the equations have no meaning."""
        checked_clip_norm(self.clip_norm)
        if not (math.isfinite(self.noise_std_real) and self.noise_std_real > 0):
            raise ConfigError(f"noise standard deviation is {self.noise_std_real}: expected a finite number above 0")
        if self.noise_std_real < SMALLEST_NOISE_STD:
            raise ConfigError(
                f"noise standard deviation is {self.noise_std_real}: expected {SMALLEST_NOISE_STD} or more, "
                "because noise is simulated in float32 and would be less than what the ledger says"
            )

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """Sound, choose alpha_u, size the jammer, and let each client decide from its own gain.

        A needed jammer that is absent costs no privacy: the uplink is postponed to the next sounding.
        """
        del attempt
        rng = self.streams(Stream.CHANNEL, uplink)
        for postponed in range(MAX_POSTPONED):
            state = self.channel.state(uplink, rng)
            silent = (uplink - 1) % len(self.sizes) if self.jammer.role is JammerRole.ROTATING else None
            alpha_u, jammer = self._choose_noise(uplink, state, silent)
            if jammer.needed and self.jammer.availability < 1.0 and rng.random() >= self.jammer.availability:
                continue
            # A rotating client that need not jam learns like the others.
            return self._plan_clients(uplink, state, alpha_u, jammer, silent if jammer.needed else None, postponed)
        raise ConfigError(f"the jammer was absent in {MAX_POSTPONED} soundings in a row: raise jammer.availability")

    def _choose_noise(self, uplink: int, state: ChannelState, silent: int | None) -> tuple[float, JammerPlan]:
        weights = self.sizes / self.sizes.sum()
        alpha_u = choose_alpha_u(
            self.power.alpha_u, UplinkState(uplink, self.noise_std_real, weights, state.clients, self.limits)
        )
        if self.jammer.role is JammerRole.NONE:
            return alpha_u, SILENT
        gain = abs(state.jammer if silent is None else state.clients[silent])
        # A jamming client spreads its P_i over all real coordinates: alpha_CJ^2 d <= P_i.
        limit = self.jammer.amplitude_limit if silent is None else math.sqrt(self.limits[silent] / self.coordinates)
        if math.isfinite(limit):
            alpha_u = reachable_alpha_u(
                alpha_u,
                sigma_required=self.jammer.sigma_required,
                gain=gain,
                noise_std_real=self.noise_std_real,
                amplitude_limit=limit,
            )
        jammer = size_jammer(
            sigma_required=self.jammer.sigma_required,
            alpha_u=alpha_u,
            gain=gain,
            noise_std_real=self.noise_std_real,
            factor=self.jammer.factor,
            factor_on=self.jammer.factor_on,
            amplitude_limit=limit,
        )
        return alpha_u, jammer

    def _plan_clients(
        self, uplink: int, state: ChannelState, alpha_u: float, jammer: JammerPlan, silent: int | None, postponed: int
    ) -> UplinkPlan:
        weights = self.sizes / self.sizes.sum()
        powers = tuple(
            control_power(
                alpha_u=alpha_u, weight=float(weight), gain=complex(gain), clip_norm=self.clip_norm, limit=float(limit)
            )
            for weight, gain, limit in zip(weights, state.clients, self.limits, strict=True)
        )
        claimed = (power.received_gain if self.power.backoff is Backoff.WORST_CASE else 1.0 for power in powers)
        mechanism = RoundMechanism(
            uplink=uplink,
            received_gains=tuple(0.0 if client == silent else gain for client, gain in enumerate(claimed)),
            sigma=math.hypot(jammer.gain * jammer.alpha, self.noise_std_real) / alpha_u,
            sigma_origin=SigmaOrigin.SIMULATED,
            record_bounded=self.record_bounded,
            clip_norm=self.clip_norm,
            alpha_u=alpha_u,
            alpha_cj=jammer.alpha,
            jammer_gain=jammer.gain,
            noise_std_real=self.noise_std_real,
        )
        return UplinkPlan(uplink, alpha_u, state.clients, weights, powers, jammer, silent, postponed, mechanism)

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """Sum the signals h_i x_i, add the jammer's and the receiver's noise, and divide by alpha_u."""
        total, contributions = self._signals(plan, updates)
        authorise()
        scale = np.float32((self.clip_norm if self.power.rescale is Rescale.RESCALED else 1.0) / plan.alpha_u)
        total *= scale
        signal_norm = math.sqrt(sum(_energy(total[part]) for part in _parts(total.size)))
        noise_energy = 0.0
        for part, noise in self._noise(plan, total.size, scale):
            # Of an odd number of coordinates the last Q is nobody's.
            noise_energy += _energy(noise.view(np.float32)[: self.coordinates - 2 * part.start])
            total[part] += noise
        values = as_coordinates(total, self.coordinates)
        return Aggregate(values, plan.mechanism, contributions, signal_norm, math.sqrt(noise_energy))

    def _noise(self, plan: UplinkPlan, cells: int, scale: np.float32) -> Iterator[tuple[slice, NDArray[np.complex64]]]:
        """scale times the receiver's noise and the jammer's, part by part; how they are divided changes nothing."""
        own, jamming = (self.streams(stream, plan.uplink) for stream in (Stream.NOISE, Stream.JAMMER))
        received_std = plan.jammer.gain * plan.jammer.alpha
        for part in _parts(cells):
            count = part.stop - part.start
            noise = circular_noise(count, self.noise_std_real**2, own)
            if plan.jammer.needed:
                noise += circular_noise(count, received_std**2, jamming)
            noise *= scale
            yield part, noise

    def _signals(self, plan: UplinkPlan, updates: Updates) -> tuple[NDArray[np.complex64], Contributions]:
        """x_i = alpha_i u_i as the updates come, and the sum of h_i x_i. Part of one signal in memory at a time."""
        total = np.zeros(cells_needed(self.coordinates), np.complex64)
        backoffs = np.full(len(self.sizes), math.inf)
        energy = np.zeros(len(self.sizes))
        clipped = 0
        for client, update in checked_updates(plan, updates, coordinates=self.coordinates, sizes=self.sizes):
            actual = self.power.backoff is Backoff.ACTUAL
            power = self._actual_power(plan, client, update) if actual else plan.powers[client]
            cells = as_cells(update.values)
            for part in _parts(cells.size):
                signal = cells[part] * np.complex64(power.alpha)
                energy[client] += _energy(signal)
                signal *= np.complex64(plan.gains[client])
                total[part] += signal
            backoffs[client] = power.backoff
            clipped += update.norm_before > update.clip_norm
        return total, Contributions(backoffs, energy, clipped)

    def _actual_power(self, plan: UplinkPlan, client: int, update: BoundedUpdate) -> ClientPower:
        return control_power(
            alpha_u=plan.alpha_u,
            weight=float(plan.weights[client]),
            gain=complex(plan.gains[client]),
            clip_norm=self.clip_norm,
            limit=float(self.limits[client]),
            update_norm=float(np.linalg.norm(update.values.astype(np.float64))),
        )


def _parts(cells: int) -> list[slice]:
    return [slice(start, min(start + PART_CELLS, cells)) for start in range(0, cells, PART_CELLS)]


def _energy(values: NDArray[np.complex64] | NDArray[np.float32]) -> float:
    return float(np.vdot(values, values).real)
