"""The uplink over radios, behind the `Uplink` contract: nodes of one process, and the coordinator that asks them."""

from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, PrivacyError
from fl.nodes.air_format import AirFormat
from fl.nodes.circuits import circuits_of, dither_for
from fl.nodes.client import ClientNode, Departure
from fl.nodes.coordinated import CoordinatedUplink, RadioRules
from fl.nodes.coordinator import Round
from fl.nodes.diagnosis.exact_sum import Diagnosis
from fl.nodes.diagnosis.snapshot import take_snapshot
from fl.nodes.jammer import JammerNode, Jamming, WhiteNoise, always_system_noise
from fl.nodes.link import InProcessLink, Node
from fl.nodes.messages import Received, SoundedChannel
from fl.nodes.soundings.conversation import NoiseCheck
from fl.nodes.stage import LabStage
from fl.nodes.transmitter import Transmitter, Workspace, always_system_words
from fl.privacy.clipping import BoundedUpdate
from fl.random_streams import Stream
from fl.uplink.contract import Aggregate, Authorise, Contributions, TrainedHere, Updates, UplinkPlan, checked_updates
from fl.uplink.jammer import JammerRole
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab
from hardware.lab.traits import JammerNoise
from phy.dither import Dither, RandomWords, seeded_words
from phy.fading import circular_noise

Streams = Callable[[Stream, int], np.random.Generator]


class RadioUplink(CoordinatedUplink, TrainedHere):
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
        super().__init__(lab, air, sizes, clip_norm, rules)
        self._jamming_noise, self._streams = noise_source(lab.lab, streams), streams
        self._places = places_of(lab.lab)
        workspace = Workspace.of(air)
        self.clients = tuple(self._client(client, workspace) for client in range(len(sizes)))
        self.nodes = self._nodes(workspace)
        stage = LabStage(lab, air, self.cast.transmitters, rules.attempts)
        self._coordinate(InProcessLink(self.nodes), stage, record_bounded=record_bounded, check_noise=check_noise)
        self._passing: Iterator[tuple[int, BoundedUpdate]] = iter(())

    def _client(self, client: int, workspace: Workspace) -> ClientNode:
        jamming = self._jamming(self.cast.clients[client], workspace)
        weight, fetch = float(self.weights[client]), partial(self._fetch, client)
        return ClientNode(jamming.transmitter, weight, self.clip_norm, fetch, self.rules.power.backoff, jamming)

    def _jamming(self, name: str, workspace: Workspace) -> Jamming:
        words_for = dither_source(self.lab.lab, self._places[name], self._streams)
        transmitter = Transmitter(self.lab.radios[name], self.air, workspace, words_for=words_for)
        return Jamming(transmitter, self._jamming_noise)

    def _nodes(self, workspace: Workspace) -> dict[str, Node]:
        nodes: dict[str, Node] = dict(zip(self.cast.clients, self.clients, strict=True))
        if self.cast.jammer is not None:
            jamming = self._jamming(self.cast.jammer, workspace)
            nodes[self.cast.jammer] = JammerNode(jamming.transmitter, jamming)
        nodes[self.cast.server] = self.server
        return nodes

    @property
    def channel_ages(self) -> bool:
        """A channel keeps where time stands still while clients train."""
        return self.lab.time is None

    def plan(self, uplink: int, attempt: int = 0) -> UplinkPlan:
        """SOUND and PLAN."""
        return self._planned(uplink, attempt).plan

    def exchange(self, plan: UplinkPlan, updates: Updates, authorise: Authorise) -> Aggregate:
        """AUTHORISE, TRANSMIT, RECEIVE, ACCOUNT. Each client fetches its update when it is told to send."""
        current = self._once(plan)
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
        scale = float(self.scale)
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


def noise_source(lab: Lab, streams: Streams) -> Callable[[int], WhiteNoise]:
    """Where a jammer's noise comes from: number of a sounding to a source."""
    if lab.traits.jammer_noise is JammerNoise.SYSTEM:
        return always_system_noise

    def seeded(block: int) -> WhiteNoise:
        return lambda count: circular_noise(count, 1.0, streams(Stream.JAMMER, block))

    return seeded


def places_of(lab: Lab) -> dict[str, int]:
    """Each radio's place in the lab, by name."""
    return {radio.name: place for place, radio in enumerate(lab.radios)}


def dither_source(lab: Lab, place: int, streams: Streams) -> Callable[[int], RandomWords]:
    """Where the bits of a transmitter's dither come from: number of a sounding to a source of its own.

    place: of its radio in the lab.
    """
    if lab.traits.jammer_noise is JammerNoise.SYSTEM:
        return always_system_words
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
