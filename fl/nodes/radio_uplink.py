"""The uplink over radios, behind the `Uplink` contract: nodes of one process, and the coordinator that asks them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import circuits_of, dither_for
from fl.nodes.client import ClientNode, Departure
from fl.nodes.coordinator import VIEW, Cast, Coordinator, Round
from fl.nodes.diagnosis.exact_sum import Diagnosis
from fl.nodes.diagnosis.snapshot import take_snapshot
from fl.nodes.jammer import JammerNode, Jamming, WhiteNoise, always_system_noise
from fl.nodes.link import InProcessLink, Link, Node
from fl.nodes.messages import Received, SoundedChannel
from fl.nodes.noise_sizing import NoiseSizing
from fl.nodes.server import ServerNode
from fl.nodes.sounding import NoiseCheck
from fl.nodes.stage import LabStage, Stage
from fl.nodes.transmitter import Transmitter, Workspace, always_system_words
from fl.privacy.clipping import BoundedUpdate, checked_clip_norm
from fl.privacy.conditions import View
from fl.random_streams import Stream
from fl.uplink.alpha_u import PowerSettings
from fl.uplink.contract import Aggregate, Authorise, Contributions, TrainedHere, Updates, UplinkPlan, checked_updates
from fl.uplink.jammer import JammerRole, JammerSettings
from fl.uplink.modes import Rescale
from hardware.lab.clock import ClockMode
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab
from hardware.lab.traits import JammerNoise
from phy.dither import Dither, RandomWords, seeded_words
from phy.fading import circular_noise

Streams = Callable[[Stream, int], np.random.Generator]


@dataclass(frozen=True)
class RadioRules:
    """How an uplink over radios goes. max_phase_error_rad: coherence gate. attempts: that an uplink may take.

    diagnosis: whether each sum is compared with the exact one, which this process can know. max_gain_rise_db: of a
    client from one sounding to the next, where nodes are apart; 0 where it is not looked at.
    """

    power: PowerSettings
    jammer: JammerSettings
    max_phase_error_rad: float
    attempts: int
    diagnosis: bool = True
    max_gain_rise_db: float = 0.0

    def scale(self, clip_norm: float) -> np.float32:
        """Of a sum in units of tau, as it goes into the model."""
        return np.float32(clip_norm if self.power.rescale is Rescale.RESCALED else 1.0)


class RadioUplink(TrainedHere):
    """Nodes on the radios of an open lab. sizes: samples of each client (K,), in the order of the lab's clients.

    check_noise: looks at the noise of every silence, and may refuse it. nodes: by name, for whoever attacks the uplink.
    """

    def __init__(
        self,
        lab: OpenLab,
        air: AirFormat,
        sizes: NDArray[np.int64],
        clip_norm: float,
        rules: RadioRules,
        *,
        record_bounded: bool,
        streams: Streams,
        check_noise: NoiseCheck = lambda noise: None,
    ) -> None:
        require_suitable(lab.lab, sizes, rules.jammer.role)
        self.lab, self.air, self.sizes, self.rules = lab, air, sizes, rules
        self.clip_norm, self.weights = checked_clip_norm(clip_norm), sizes / sizes.sum()
        self._jamming_noise, self._streams = noise_source(lab.lab, streams), streams
        self.cast = cast_of(lab.lab, rules.jammer.role)
        workspace = Workspace.of(air)
        self.clients = tuple(self._client(client, workspace) for client in range(len(sizes)))
        self.nodes = self._nodes(workspace)
        self.coordinator = make_coordinator(
            InProcessLink(self.nodes),
            LabStage(lab, air, self.cast.transmitters, rules.attempts),
            self.cast,
            air,
            self.weights,
            self.clip_norm,
            rules,
            record_bounded=record_bounded,
            check_noise=check_noise,
        )
        self._round: Round | None = None
        self._passing: Iterator[tuple[int, BoundedUpdate]] = iter(())

    def _client(self, client: int, workspace: Workspace) -> ClientNode:
        jamming = self._jamming(self.cast.clients[client], workspace)
        weight, fetch = float(self.weights[client]), partial(self._fetch, client)
        return ClientNode(jamming.transmitter, weight, self.clip_norm, fetch, self.rules.power.backoff, jamming)

    def _jamming(self, name: str, workspace: Workspace) -> Jamming:
        words_for = dither_source(self.lab.lab, name, self._streams)
        transmitter = Transmitter(self.lab.radios[name], self.air, workspace, words_for=words_for)
        return Jamming(transmitter, self._jamming_noise)

    def _nodes(self, workspace: Workspace) -> dict[str, Node]:
        nodes: dict[str, Node] = dict(zip(self.cast.clients, self.clients, strict=True))
        if self.cast.jammer is not None:
            jamming = self._jamming(self.cast.jammer, workspace)
            nodes[self.cast.jammer] = JammerNode(jamming.transmitter, jamming)
        nodes[self.cast.server] = self.server = make_server(self.lab, self.air, self.cast)
        return nodes

    @property
    def channel_ages(self) -> bool:
        """A channel keeps where time stands still while clients train."""
        return self.lab.time is None

    @property
    def view(self) -> View:
        """The adversary against whom its mechanisms hold."""
        return VIEW

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """SOUND and PLAN."""
        self._round = None
        self._round = self.coordinator.plan(uplink, attempt)
        return self._round.plan

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """AUTHORISE, TRANSMIT, RECEIVE, ACCOUNT. Each client fetches its update when it is told to send."""
        current, self._round = once(self._round, plan), None
        diagnosis = Diagnosis(self.air.coordinates, self.weights, self.clip_norm) if self.rules.diagnosis else None
        authorise()
        if current.jammer is not None:
            self.lab.jammed_by(current.jammer)
        self._passing = self._watched(plan, updates, diagnosis)
        try:
            received = self.coordinator.carry(current)
            for client, _ in self._passing:
                raise PrivacyError(f"client {client} has an update more than it may send in uplink {plan.uplink}")
        finally:
            self._passing = iter(())
        return self._aggregate(current, received, diagnosis)

    def _watched(
        self, plan: UplinkPlan, updates: Updates, diagnosis: Diagnosis | None
    ) -> Iterator[tuple[int, BoundedUpdate]]:
        """Checked updates, one at a time. A client has sent its own when the next is asked for."""
        for client, update in checked_updates(plan, updates, coordinates=self.air.coordinates, sizes=self.sizes):
            yield client, update
            departure = self.clients[client].departure
            if diagnosis is not None and departure is not None:
                diagnosis.observe(client, update, departure)

    def _fetch(self, client: int) -> BoundedUpdate:
        """The update of a client that is about to send it."""
        found, update = next(self._passing)
        if found != client:
            raise PrivacyError(f"client {client} is told to send, and the next update is that of client {found}")
        return update

    def _aggregate(self, current: Round, received: Received, diagnosis: Diagnosis | None) -> Aggregate:
        plan = current.plan
        departures = [
            (client, departure) for client in plan.senders if (departure := self.clients[client].departure) is not None
        ]
        values = self.air.grid.to_coordinates(received.cells)
        scale = self.clip_norm if self.rules.power.rescale is Rescale.RESCALED else 1.0
        signal_norm, noise_norm, numbers = None, None, {}
        if diagnosis is not None:
            converters = self._converter_var_real(current)
            numbers = diagnosis.numbers(current, departures, values, converter_var_real=converters)
            signal_norm = float(np.linalg.norm(diagnosis.exact)) * scale
            noise_norm = float(np.linalg.norm(values - diagnosis.exact)) * scale
        return Aggregate(
            values=self.released(values),
            mechanism=self.coordinator.account(current, received),
            contributions=self._contributions(departures),
            signal_norm=signal_norm,
            noise_norm=noise_norm,
            diagnostics=numbers,
            snapshot=take_snapshot(self.air, self.cast.transmitters, current, received) if diagnosis else {},
        )

    def released(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """The sum as it goes into the model, of `values` (d,) in units of tau."""
        return values * self.rules.scale(self.clip_norm)

    def _contributions(self, departures: list[tuple[int, Departure]]) -> Contributions:
        backoffs, energy = np.full(len(self.sizes), np.inf), np.zeros(len(self.sizes))
        for client, departure in departures:
            backoffs[client], energy[client] = departure.backoff, departure.burst.energy
        return Contributions(backoffs, energy, sum(departure.shortened for _, departure in departures))

    def _converter_var_real(self, current: Round) -> float:
        """What dither and rounding add per axis, through each channel. The receiver's own is in the silence."""
        if self.lab.time is None:
            return 0.0
        sending = {self.cast.clients[client] for client in current.plan.senders} | {current.jammer}
        return sum(
            self._rounding_var_real(name, state, current) * float(np.mean(np.abs(state.channel) ** 2))
            for name, state in zip(self.cast.transmitters, current.soundings.states, strict=True)
            if name in sending
        )

    def _rounding_var_real(self, name: str, state: SoundedChannel, current: Round) -> float:
        circuits, noise_std = circuits_of(self.lab.radios[name]), current.soundings.sigma.noise_std_real
        if circuits.step is None:
            return 0.0
        jams = name == current.jammer
        dither = Dither.TRIANGULAR if jams else dither_for(state, self.air, circuits, noise_std)
        return 0.0 if dither is None else dither.variance * circuits.step**2


def make_coordinator(
    link: Link,
    stage: Stage,
    cast: Cast,
    air: AirFormat,
    weights: NDArray[np.float64],
    clip_norm: float,
    rules: RadioRules,
    *,
    record_bounded: bool,
    check_noise: NoiseCheck,
) -> Coordinator:
    """The coordinator of an uplink under `rules`, wherever its nodes are."""
    return Coordinator(
        link=link,
        stage=stage,
        cast=cast,
        air=air,
        weights=weights,
        clip_norm=clip_norm,
        sizing=NoiseSizing(air, weights, rules.power, rules.jammer),
        max_phase_error_rad=rules.max_phase_error_rad,
        record_bounded=record_bounded,
        check_noise=check_noise,
    )


def once(current: Round | None, plan: UplinkPlan) -> Round:
    """The round that was planned last, where `plan` is its; an uplink is carried once."""
    if current is None or current.plan is not plan:
        raise PrivacyError("an uplink is exchanged once, after it was planned")
    return current


def cast_of(lab: Lab, jammer_role: JammerRole) -> Cast:
    """Who takes part."""
    own = jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL)
    jammer = lab.jammer.name if own and lab.jammer is not None else None
    return Cast(lab.ps.name, tuple(radio.name for radio in lab.clients), jammer)


def make_server(lab: OpenLab, air: AirFormat, cast: Cast) -> ServerNode:
    """The server's node on its radio."""
    shared = lab.lab.clock_mode is ClockMode.SHARED
    # Where time is simulated an uplink depends on nothing before it, so that a resumed run repeats bit for bit.
    simulated = lab.time is not None
    server = ServerNode(lab.ps, air, shared, cast.transmitters, remembers=not simulated)
    if simulated:
        server.listener.listen_ahead(lab.ps.now())
    return server


def noise_source(lab: Lab, streams: Streams) -> Callable[[int], WhiteNoise]:
    """Where a jammer's noise comes from: number of a sounding to a source."""
    if lab.traits.jammer_noise is JammerNoise.SYSTEM:
        return always_system_noise

    def seeded(block: int) -> WhiteNoise:
        return lambda count: circular_noise(count, 1.0, streams(Stream.JAMMER, block))

    return seeded


def dither_source(lab: Lab, name: str, streams: Streams) -> Callable[[int], RandomWords]:
    """Where the bits of a transmitter's dither come from: number of a sounding to a source of its own."""
    if lab.traits.jammer_noise is JammerNoise.SYSTEM:
        return always_system_words
    place = [radio.name for radio in lab.radios].index(name)
    return lambda block: seeded_words(streams(Stream.DITHER, block * len(lab.radios) + place))


def require_suitable(lab: Lab, sizes: NDArray[np.int64], jammer_role: JammerRole) -> None:
    """Raise `ConfigError` where a lab's radios do not suit a run with clients of these sizes (K,)."""
    if len(lab.clients) != len(sizes):
        raise ConfigError(
            f"lab '{lab.name}' has {len(lab.clients)} clients and the run {len(sizes)}: "
            f"use another lab, or --set partition.clients={len(lab.clients)}"
        )
    if jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL) and lab.jammer is None:
        raise ConfigError(f"lab '{lab.name}' has no jammer: add a radio with that role or set jammer.role = 'none'")
