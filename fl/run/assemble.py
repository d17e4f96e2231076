"""From a config to the parts of a run. Everything that can be wrong shows here, before a folder is made."""

import math
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from calibration.gains import load_gains
from calibration.record import parse_record
from fl.audit.runs.canaries import Canaries
from fl.errors import ConfigError
from fl.learning.settings import LocalMode
from fl.nodes.air_format import AirFormat
from fl.nodes.calibrated import CalibrationCheck
from fl.nodes.coordinated import CoordinatedUplink, RadioRules
from fl.nodes.radio_uplink import RadioUplink, require_suitable
from fl.privacy.liu_simeone import published_target
from fl.privacy.target import PrivacyTarget
from fl.random_streams import generator
from fl.run.config import Fading, RunConfig, UplinkKind
from fl.run.delta_split import split_delta
from fl.run.inputs import Inputs, gather
from fl.run.learner import Learner, make_learner
from fl.uplink.alpha_u import AlphaU, Fixed, ForNoise, Largest, PowerSettings, Scheduled
from fl.uplink.channel import Channel, FileChannel, RayleighChannel, StaticChannel
from fl.uplink.contract import Uplink
from fl.uplink.ideal import IdealUplink
from fl.uplink.jammer import JammerRole, JammerSettings
from fl.uplink.liu_simeone import Allocation, allocate, largest_alpha_u
from fl.uplink.modes import BaselineBudget, PowerControl
from fl.uplink.power_control import power_limit
from fl.uplink.symbol import SymbolUplink
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab, open_lab
from phy.numerology import Numerology
from phy.units import db_to_amplitude_ratio


class Onlooker(Protocol):
    """Is shown an uplink over radios before anything is sent over it."""

    def tap(self, lab: OpenLab) -> None:
        """The radios are open, and nobody uses them yet."""
        ...

    def attach(self, uplink: CoordinatedUplink) -> None:
        """The uplink on these radios has been made."""
        ...


OpenUplink = Callable[[Onlooker], AbstractContextManager[Uplink]]


@dataclass(frozen=True)
class Parts(Learner):
    """What a run is made of. sizes: n_i (K,). open_uplink: radios are on only within it.

    calibration: that the lab is held against, where there is one.

    allocation: what a baseline planned for all uplinks, None under adaptive power control. inputs: what it was made of.
    canaries: records that an audit has replaced, None where there are none.
    """

    inputs: Inputs
    calibration: CalibrationCheck | None
    sizes: NDArray[np.int64]
    allocation: Allocation | None
    canaries: Canaries | None
    open_uplink: OpenUplink

    @property
    def statistics(self) -> dict[str, Any]:
        """See `Learner.statistics`. Of clients elsewhere nothing is known but how many samples they have."""
        if self.clients:
            return super().statistics
        sizes = self.sizes
        return {"clients": len(sizes), "samples": int(sizes.sum()), "sizes": sizes.tolist()}


def assemble_server(
    config: RunConfig,
    sizes: NDArray[np.int64],
    make: Callable[[CalibrationCheck | None, int], OpenUplink],
) -> Parts:
    """The server's part where clients are elsewhere. sizes: n_i (K,) as they said. make: calibration and d to uplink.

    Of the data only the test set is used: nothing of a client's is here.
    """
    learner = replace(make_learner(config), clients=())
    inputs = gather(config, learner.model)
    calibration = calibration_of(config, inputs)
    return Parts(
        inputs=inputs,
        calibration=calibration,
        **vars(learner),
        sizes=sizes,
        allocation=None,
        canaries=None,
        open_uplink=make(calibration, learner.start.size),
    )


def assemble(config: RunConfig) -> Parts:
    """Load and build everything; raises an `AirdpError` for whatever does not fit."""
    learner = make_learner(config)
    sizes, coordinates = learner.partition.sizes, learner.start.size
    allocation = make_allocation(config, sizes, coordinates)
    inputs = gather(config, learner.model)
    calibration = calibration_of(config, inputs)
    return Parts(
        inputs=inputs,
        calibration=calibration,
        **vars(learner),
        sizes=sizes,
        allocation=allocation,
        canaries=make_canaries(config, sizes, coordinates),
        open_uplink=make_uplink(config, inputs.lab, calibration, sizes, allocation, coordinates),
    )


def privacy_target(config: RunConfig, epsilon: float) -> PrivacyTarget:
    """The run's target with another epsilon, at the delta that is the mechanism's."""
    return PrivacyTarget(
        epsilon=epsilon,
        delta=split_delta(config).mechanism,
        uplinks=config.uplink.uplinks,
        label=config.label,
        neighbours=config.privacy.neighbours,
        accountant=config.privacy.accountant,
    )


def make_allocation(config: RunConfig, sizes: NDArray[np.int64], coordinates: int) -> Allocation | None:
    """What the baseline that [power] names gives every one of the M uplinks; None under adaptive power control."""
    power, privacy = config.power, config.privacy
    if power.control is PowerControl.ADAPTIVE:
        return None
    if power.baseline_accountant is BaselineBudget.OURS:
        target = privacy_target(config, privacy.epsilon)
    else:
        target = published_target(privacy.epsilon, privacy.delta, config.uplink.uplinks)
    return allocate(
        largest_alpha_u(
            _make_channel(config, len(sizes)),
            partial(generator, config.seed),
            sizes,
            _power_limits(config, len(sizes), coordinates),
            target.uplinks,
        ),
        target,
        sizes=sizes,
        noise_std_real=config.channel.noise_std_real,
        clip_norm=privacy.clip_norm,
        contraction=power.contraction,
    )


def make_canaries(config: RunConfig, sizes: NDArray[np.int64], coordinates: int) -> Canaries | None:
    """The canaries that [audit] asks for."""
    if not config.audit.canaries:
        return None
    return Canaries(config.audit.canaries, coordinates, tuple(int(size) for size in sizes), config.seed)


def calibration_of(config: RunConfig, inputs: Inputs) -> CalibrationCheck | None:
    """The calibration that [radio] names, seen to be usable today."""
    if inputs.calibration is None:
        return None
    source = config.radio.calibration
    calibration = CalibrationCheck(parse_record(inputs.calibration, source), source)
    calibration.require_usable()
    return calibration


def make_uplink(
    config: RunConfig,
    lab: Lab | None,
    calibration: CalibrationCheck | None,
    sizes: NDArray[np.int64],
    allocation: Allocation | None,
    coordinates: int,
) -> OpenUplink:
    """The uplink that [uplink] and its sections describe, checked now and opened when it is called."""
    record_bounded = config.local.mode is LocalMode.RECORD
    if lab is not None:
        return make_radio_uplink(config, lab, calibration, sizes, coordinates)
    if config.uplink.kind is UplinkKind.IDEAL:
        ideal = IdealUplink(sizes, coordinates, config.privacy.clip_norm, record_bounded)
        return lambda onlooker: nullcontext(ideal)
    symbol = SymbolUplink(
        sizes=sizes,
        coordinates=coordinates,
        clip_norm=config.privacy.clip_norm,
        record_bounded=record_bounded,
        channel=_make_channel(config, len(sizes)),
        noise_std_real=config.channel.noise_std_real,
        limits=_power_limits(config, len(sizes), coordinates),
        power=_power(config, sizes, allocation),
        jammer=_jammer(config, sizes),
        streams=partial(generator, config.seed),
    )
    return lambda onlooker: nullcontext(symbol)


def make_radio_uplink(
    config: RunConfig, lab: Lab, calibration: CalibrationCheck | None, sizes: NDArray[np.int64], coordinates: int
) -> OpenUplink:
    """A radio uplink, its format and power checked; the radios are opened, and parked again, by its context."""
    air, make = radio_uplink_on(config, lab, calibration, sizes, coordinates)

    @contextmanager
    def opened(onlooker: Onlooker) -> Iterator[Uplink]:
        with open_lab(lab, config.seed) as radios:
            if calibration is not None:
                calibration.check_radios(radios, air)
            onlooker.tap(radios)
            uplink = make(radios)
            onlooker.attach(uplink)
            yield uplink

    return opened


def air_format(config: RunConfig, lab: Lab, coordinates: int) -> AirFormat:
    """The format of an uplink over the radios of a lab, as every node of it computes it; without a calibration."""
    settings, confidence = config.radio, split_delta(config).confidence
    if confidence is None:
        raise ConfigError("uplink.kind is not 'radio': nothing is measured, and no bound has a confidence")
    numerology = Numerology(settings.fft_size, settings.cp_samples, settings.data_subcarriers, lab.sample_rate_hz)
    return AirFormat(
        numerology=numerology,
        coordinates=coordinates,
        sounding_symbols=settings.sounding_symbols,
        # A weak channel is charged for the sum of both errors: where one is measured longer, so is the other.
        level_symbols=max(8, settings.sounding_symbols // 4),
        quiet_samples=settings.quiet_samples,
        first_quiet_samples=settings.first_quiet_samples,
        guard_samples=16 * settings.fft_size,
        payload_rms=settings.payload_rms,
        confidence=confidence,
    )


def radio_rules(config: RunConfig, sizes: NDArray[np.int64]) -> RadioRules:
    """How an uplink over radios goes."""
    return RadioRules(
        power=_power(config, sizes, allocation=None),
        jammer=_jammer(config, sizes),
        max_phase_error_rad=config.radio.max_phase_error_rad,
        attempts=config.radio.attempts,
        diagnosis=config.radio.diagnosis,
        max_gain_rise_db=config.radio.max_gain_rise_db,
    )


def radio_uplink_on(
    config: RunConfig, lab: Lab, calibration: CalibrationCheck | None, sizes: NDArray[np.int64], coordinates: int
) -> tuple[AirFormat, Callable[[OpenLab], RadioUplink]]:
    """Format of a radio uplink, and what makes one on open radios."""
    air = air_format(config, lab, coordinates)
    require_suitable(lab, sizes, config.jammer.role)
    if calibration is not None:
        air = calibration.applied_to(air, transmitters_of(lab, config.jammer.role))
    rules = radio_rules(config, sizes)

    def make(radios: OpenLab) -> RadioUplink:
        return RadioUplink(
            radios,
            air,
            sizes,
            config.privacy.clip_norm,
            rules,
            record_bounded=config.local.mode is LocalMode.RECORD,
            streams=partial(generator, config.seed),
            check_noise=(lambda noise: None) if calibration is None else calibration.check_silence,
        )

    return air, make


def transmitters_of(lab: Lab, jammer_role: JammerRole) -> list[str]:
    """Names of all who send in a run."""
    own = lab.jammer if jammer_role in (JammerRole.DEDICATED, JammerRole.EXTERNAL) else None
    return [radio.name for radio in (*lab.clients, *([] if own is None else [own]))]


def _power_limits(config: RunConfig, clients: int, coordinates: int) -> NDArray[np.float64]:
    return np.full(clients, power_limit(config.channel.snr_db, coordinates, config.channel.noise_std_real**2))


def _power(config: RunConfig, sizes: NDArray[np.int64], allocation: Allocation | None) -> PowerSettings:
    return PowerSettings(_alpha_u(config, sizes, allocation), config.power.backoff, config.power.aggregate)


def _alpha_u(config: RunConfig, sizes: NDArray[np.int64], allocation: Allocation | None) -> AlphaU:
    if allocation is not None:
        return Scheduled(tuple(allocation.alpha_u.tolist()))
    if config.power.alpha_u == "largest":
        return Largest()
    if config.power.alpha_u == "target":
        target = privacy_target(config, config.power.channel_epsilon or config.privacy.epsilon)
        return ForNoise(target.sigma_required(sizes))
    return Fixed(config.power.alpha_u)


def _make_channel(config: RunConfig, clients: int) -> Channel:
    settings = config.channel
    jammer_amplitude = db_to_amplitude_ratio(config.jammer.gain_db)
    if settings.fading is Fading.RAYLEIGH:
        return RayleighChannel(clients, jammer_amplitude)
    if settings.fading is Fading.STATIC:
        return StaticChannel(clients, settings.static_gain, jammer_amplitude)
    own_node = config.jammer.role in (JammerRole.DEDICATED, JammerRole.EXTERNAL)
    # A baseline that plans ahead needs the gains of uplinks that the run may not make.
    uplinks = config.last_uplink if config.power.control is PowerControl.ADAPTIVE else config.uplink.uplinks
    return FileChannel(load_gains(Path(settings.path)), clients, uplinks, own_node)


def _jammer(config: RunConfig, sizes: NDArray[np.int64]) -> JammerSettings:
    settings = config.jammer
    if settings.role is JammerRole.NONE:
        return JammerSettings()
    limit = math.inf
    if settings.snr_limit_db != "none":
        # P_CJ = SNR d sigma_c^2 spread over d coordinates: alpha_CJ = sqrt(SNR) sigma_c.
        limit = db_to_amplitude_ratio(settings.snr_limit_db) * config.channel.noise_std_real
    return JammerSettings(
        role=settings.role,
        sigma_required=privacy_target(config, config.privacy.epsilon).sigma_required(sizes),
        factor=settings.factor,
        factor_on=settings.factor_on,
        availability=settings.availability,
        amplitude_limit=limit,
    )
