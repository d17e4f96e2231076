"""Labs, uplinks and updates that the tests of the nodes share."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.nodes.air_format import PAYLOAD_SYMBOL, AirFormat
from fl.nodes.coordinated import RadioRules
from fl.nodes.messages import SoundedChannel
from fl.nodes.radio_uplink import RadioUplink
from fl.nodes.transmitter import Transmitter, Workspace
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.random_streams import generator
from fl.uplink.alpha_u import AlphaU, Fixed, PowerSettings
from fl.uplink.attempts import attempt_uplink
from fl.uplink.contract import Aggregate, Contributions, UplinkPlan
from fl.uplink.jammer import JammerRole, JammerSettings
from fl.uplink.modes import Backoff, Rescale
from hardware.air.medium import Medium
from hardware.lab.file import parse_lab
from hardware.lab.model import Lab
from hardware.lab.opened import OpenLab, open_lab
from hardware.radio.errors import HardwareError
from hardware.radio.samples import TransmitReport, sendable
from hardware.radio.settings import RadioSettings
from phy.inversion import band_numerology
from phy.modem import demodulate
from phy.numerology import Numerology
from tests.hardware.simulated import medium_in

Fault = Callable[[RadioUplink], None]

NUMEROLOGY = Numerology()
SIZES = np.array([100, 200, 300, 250, 150])
EQUAL = np.full(5, 200)
TAU = 2.0
NOISE_VAR_COMPLEX = 1e-5
SETTINGS = RadioSettings(5e6, 2.45e9, 2.45e9, 5e6, 0.0, 0.0)
BAND = band_numerology(NUMEROLOGY)
# One symbol of a payload carries this many coordinates: multiples of it leave no padding.
SYMBOL = PAYLOAD_SYMBOL * NUMEROLOGY.coordinates_per_symbol


def lab_of(clock: str = "shared", *, clients: int = 5, jammer: bool = True, **medium: Any) -> Lab:
    """A simulated lab in which everything is ideal but the receiver's noise, unless `medium` says otherwise."""
    radios: list[dict[str, Any]] = [
        {"name": "ps", "role": "ps"},
        {"name": "client", "role": "client", "count": clients},
    ]
    return parse_lab(
        {
            "lab": {
                "name": "test",
                "backend": "loopback",
                "sample_rate_hz": 5e6,
                "center_hz": 2.45e9,
                "tx_gain_db": 0.0,
                "rx_gain_db": 0.0,
                "clock": clock,
            },
            "limits": {"band_hz": [2.44e9, 2.46e9], "max_tx_gain_db": 0.0},
            "radio": radios + ([{"name": "jammer", "role": "jammer"}] if jammer else []),
            "medium": {"noise_var_complex": NOISE_VAR_COMPLEX, **medium},
        }
    )


def power_of(
    *,
    alpha_u: AlphaU | float = 1.0,
    backoff: Backoff = Backoff.WORST_CASE,
    rescale: Rescale = Rescale.RESCALED,
    jammer_role: JammerRole = JammerRole.NONE,
    jammer_sigma: float = 1.0,
    max_phase_error_rad: float = 0.3,
    attempts: int = 3,
    diagnosis: bool = True,
) -> RadioRules:
    """A fixed alpha_u and no jammer, unless changed."""
    rule = Fixed(alpha_u) if isinstance(alpha_u, float) else alpha_u
    return RadioRules(
        power=PowerSettings(rule, backoff, rescale),
        jammer=JammerSettings(jammer_role, jammer_sigma),
        max_phase_error_rad=max_phase_error_rad,
        attempts=attempts,
        diagnosis=diagnosis,
    )


@contextmanager
def opened(
    lab: Lab,
    coordinates: int,
    *,
    seed: int = 1,
    power: RadioRules | None = None,
    sizes: NDArray[np.int64] = SIZES,
    **air: Any,
) -> Iterator[RadioUplink]:
    """An uplink on the radios of `lab`, which are on within the block. air: of its `AirFormat`."""
    with open_lab(lab, seed) as radios:
        yield RadioUplink(
            radios,
            AirFormat(NUMEROLOGY, coordinates, **air),
            sizes,
            TAU,
            power or power_of(),
            record_bounded=False,
            streams=partial(generator, seed),
        )


def updates_of(coordinates: int, *, common: float = 1.0, length: float = 1.0, seed: int = 5) -> list[BoundedUpdate]:
    """Five updates of norm `length` TAU, any two of which have the correlation common^2."""
    rng = np.random.default_rng(seed)
    shared = rng.standard_normal(coordinates)
    made = []
    for _ in SIZES:
        values = common * shared + math.sqrt(1 - common**2) * rng.standard_normal(coordinates)
        made.append(clip_update((values * (length * TAU / np.linalg.norm(values))).astype(np.float32), TAU))
    return made


def silence_of(coordinates: int) -> list[BoundedUpdate]:
    """Updates of zeros: what arrives is noise."""
    return [clip_update(np.zeros(coordinates, np.float32), TAU) for _ in SIZES]


def sent_by(plan: UplinkPlan, updates: Sequence[BoundedUpdate]) -> Iterator[tuple[int, BoundedUpdate]]:
    return ((client, updates[client]) for client in plan.senders)


def weighted_sum(
    updates: Sequence[BoundedUpdate], shares: NDArray[np.float64] | Sequence[float]
) -> NDArray[np.float64]:
    """sum_i shares_i u_i/tau in float64: the oracle of every aggregate."""
    return np.asarray(
        sum(share / TAU * update.values.astype(np.float64) for share, update in zip(shares, updates, strict=True))
    )


@dataclass(frozen=True)
class Exchange:
    """One whole uplink. error: what was received less sum p_i u_i/tau; known_error: less sum p_i/s_i u_i/tau."""

    plan: UplinkPlan
    aggregate: Aggregate
    error: NDArray[np.float64]
    known_error: NDArray[np.float64]
    exact: NDArray[np.float64]

    @property
    def contributions(self) -> Contributions:
        return self.aggregate.contributions

    @property
    def nmse_db(self) -> float:
        return decibels(self.error @ self.error / (self.exact @ self.exact))

    @property
    def known_nmse_db(self) -> float:
        """With the weights that the back-offs left, which are public."""
        return decibels(self.known_error @ self.known_error / (self.exact @ self.exact))

    @property
    def parts(self) -> dict[str, float]:
        """The error budget without its decibels."""
        found = self.aggregate.diagnostics.items()
        return {
            name.removeprefix("nmse_"): part for name, part in found if name.startswith("nmse_") and "db" not in name
        }


def planned(uplink: RadioUplink, number: int) -> UplinkPlan:
    """A plan, from as many soundings as it may take."""
    return attempt_uplink(uplink, number, uplink.rules.attempts, lambda plan: plan)


def nothing() -> None:
    """An authorisation that is written nowhere."""


def exchange(uplink: RadioUplink, number: int, updates: Sequence[BoundedUpdate]) -> Exchange:
    """Plan and exchange, and compare with the sum in float64."""
    plan = planned(uplink, number)
    aggregate = uplink.exchange(plan, sent_by(plan, updates), nothing)
    weights = uplink.sizes / uplink.sizes.sum()
    weights = np.where([client in plan.senders for client in range(len(weights))], weights, 0.0)
    exact = weighted_sum(updates, weights)
    received = aggregate.values.astype(np.float64) / (TAU if uplink.rules.power.rescale is Rescale.RESCALED else 1.0)
    known = weighted_sum(updates, weights / aggregate.contributions.backoffs)
    return Exchange(plan, aggregate, received - exact, received - known, exact)


def alpha_u_for(
    updates: Sequence[BoundedUpdate],
    snr_db: float = 20.0,
    sizes: NDArray[np.int64] = SIZES,
    noise_var_complex: float = NOISE_VAR_COMPLEX,
) -> float:
    """alpha_u at which the exact sum has this signal-to-noise ratio per cell: alpha_u^2 |sum|^2 / (d sigma_c^2)."""
    exact = weighted_sum(updates, sizes / sizes.sum())
    return math.sqrt(10 ** (snr_db / 10) * exact.size * noise_var_complex / 2) / float(np.linalg.norm(exact))


def decibels(ratio: float) -> float:
    return 10 * math.log10(ratio)


def true_channel(lab: OpenLab, name: str, numerology: Numerology = BAND) -> NDArray[np.complex128]:
    """H (U',) of the link to the ps in the current block, from the medium's own taps and delay."""
    medium = medium_in(lab)
    taps = medium.taps(name, "ps")
    delays = medium.link(name, "ps").delay_samples + np.arange(len(taps))
    return np.asarray(np.exp(-2j * np.pi * numerology.used_frequencies[:, None] * delays) @ taps)


def state_of(channel: NDArray[Any], std: float = 0.0, **changes: Any) -> SoundedChannel:
    """What a sounding of this channel (U',), at the subcarriers of the band, shows, with errors of deviation `std`."""
    return SoundedChannel(
        **{
            "channel": np.asarray(channel, np.complex64),
            "channel_var": np.full(len(channel), std**2),
            "numerology": NUMEROLOGY,
            "cfo_cycles_per_sample": 0.0,
            "cfo_std_cycles_per_sample": 0.0,
            "reference_sample": 0,
            "offset_samples": 0,
            **changes,
        }
    )


def through(
    burst: tuple[int, NDArray[np.complex64]], taps: Sequence[complex], air: AirFormat, start_sample: int
) -> NDArray[np.complex64]:
    """Cells of the payload that begins at `start_sample`, as a noiseless server reads them behind these taps."""
    first, samples = burst
    heard = np.convolve(samples.astype(np.complex128), np.asarray(taps))
    length = air.grid.symbols * air.payload_numerology.symbol_samples
    place = start_sample - first
    padded = np.pad(heard, (max(0, -place), length))
    window = padded[max(place, 0) : max(place, 0) + length]
    return demodulate(np.ascontiguousarray(window, np.complex64), air.payload_numerology)


@dataclass
class Recorder:
    """A transmitting radio that keeps what it is given instead of sending it."""

    sent: list[tuple[int, NDArray[np.complex64]]] = field(default_factory=list)
    name: str = "recorder"
    settings: RadioSettings = SETTINGS
    tx_step: float | None = None
    tx_image_db: float | None = -math.inf

    def transmit(
        self, samples: NDArray[np.complex64], start_sample: int, *, allow_clipping: bool = False
    ) -> TransmitReport:
        ready, clipped = sendable(samples, allow_clipping)
        self.sent.append((start_sample, ready.copy()))
        return TransmitReport(start_sample, ready.size, clipped)


def transmitter_of(radio: Any, air: AirFormat) -> Transmitter:
    return Transmitter(radio, air, Workspace.of(air))


def fault(radio: str, call: str, error: HardwareError) -> Fault:
    """What lets the next such call of a simulated radio fail."""

    def inject(uplink: RadioUplink) -> None:
        target: Any = uplink.lab.radios[radio]
        target.fail_next(call, error)

    return inject


def watch_air(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(radio, samples) of every burst that reaches a simulated air from now on."""
    bursts: list[tuple[str, int]] = []
    send = Medium.send

    def watched(self: Medium, name: str, samples: NDArray[np.complex64], start_sample: int) -> None:
        send(self, name, samples, start_sample)
        bursts.append((name, samples.size))

    monkeypatch.setattr(Medium, "send", watched)
    return bursts


def payloads(bursts: Sequence[tuple[str, int]], air: AirFormat) -> list[str]:
    """Who of them sent a payload, or noise over one; soundings have another length."""
    return [name for name, samples in bursts if samples != air.sounding.length]
