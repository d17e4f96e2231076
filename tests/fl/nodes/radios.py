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

from fl.nodes.air import AirFormat
from fl.nodes.messages import SoundedChannel
from fl.nodes.radio_uplink import RadioPower, RadioUplink
from fl.nodes.transmitter import Transmitter, Workspace
from fl.privacy.clipping import BoundedUpdate, clip_update
from fl.streams import generator
from fl.uplink.contract import Aggregate, Prepared, UplinkPlan
from fl.uplink.jammer import FactorOn, JammerRole
from fl.uplink.modes import Backoff, Rescale
from hardware.errors import HardwareError
from hardware.lab import Lab, OpenLab, open_lab, parse_lab
from hardware.medium import Medium
from hardware.samples import TransmitReport, sendable
from hardware.settings import RadioSettings
from phy.numerology import Numerology

Fault = Callable[[RadioUplink], None]

NUMEROLOGY = Numerology()
SIZES = np.array([100, 200, 300, 250, 150])
EQUAL = np.full(5, 200)
TAU = 2.0
NOISE_VAR_COMPLEX = 1e-5
SETTINGS = RadioSettings(5e6, 2.45e9, 2.45e9, 5e6, 0.0, 0.0)
# One symbol carries this many coordinates: multiples of it leave no padding.
SYMBOL = NUMEROLOGY.coordinates_per_symbol


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


def power_of(**changes: Any) -> RadioPower:
    """A fixed alpha_u and no jammer, unless changed."""
    return RadioPower(
        **{
            "alpha_u": 1.0,
            "channel_sigma": 1.0,
            "backoff": Backoff.WORST_CASE,
            "rescale": Rescale.RESCALED,
            "jammer_role": JammerRole.NONE,
            "jammer_sigma": 1.0,
            "factor": 1.0,
            "factor_on": FactorOn.AMPLITUDE,
            "max_phase_error_rad": 0.3,
            "attempts": 3,
            **changes,
        }
    )


@contextmanager
def opened(
    lab: Lab,
    coordinates: int,
    *,
    seed: int = 1,
    power: RadioPower | None = None,
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
    prepared: Prepared
    aggregate: Aggregate
    error: NDArray[np.float64]
    known_error: NDArray[np.float64]
    exact: NDArray[np.float64]

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


def exchange(uplink: RadioUplink, number: int, updates: Sequence[BoundedUpdate]) -> Exchange:
    """Plan, prepare and exchange, and compare with the sum in float64."""
    plan = uplink.plan(number)
    prepared = uplink.prepare(plan, sent_by(plan, updates))
    aggregate = uplink.exchange(plan, prepared)
    weights = uplink.sizes / uplink.sizes.sum()
    weights = np.where([client in plan.senders for client in range(len(weights))], weights, 0.0)
    exact = weighted_sum(updates, weights)
    received = aggregate.values.astype(np.float64) / (TAU if uplink.power.rescale is Rescale.RESCALED else 1.0)
    known = weighted_sum(updates, weights / prepared.backoffs)
    return Exchange(plan, prepared, aggregate, received - exact, received - known, exact)


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


def true_channel(lab: OpenLab, name: str, numerology: Numerology = NUMEROLOGY) -> NDArray[np.complex128]:
    """H (U,) of the link to the ps in the current block, from the medium's own taps and delay."""
    assert lab.medium is not None
    taps = lab.medium.taps(name, "ps")
    delays = lab.medium.link(name, "ps").delay_samples + np.arange(len(taps))
    return np.asarray(np.exp(-2j * np.pi * numerology.used_frequencies[:, None] * delays) @ taps)


def state_of(channel: NDArray[Any], std: float = 0.0, **changes: Any) -> SoundedChannel:
    """What a sounding of this channel shows, with errors of standard deviation `std`."""
    return SoundedChannel(
        **{
            "channel": np.asarray(channel, np.complex64),
            "channel_var": np.full(len(channel), std**2),
            "cfo_cycles_per_sample": 0.0,
            "cfo_std_cycles_per_sample": 0.0,
            "reference_sample": 0,
            "offset_samples": 0,
            **changes,
        }
    )


@dataclass
class Recorder:
    """A transmitting radio that keeps what it is given instead of sending it."""

    sent: list[tuple[int, NDArray[np.complex64]]] = field(default_factory=list)
    name: str = "recorder"
    settings: RadioSettings = SETTINGS

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
    """Who of them sent a payload; soundings have another length."""
    length = air.grid.symbols * air.numerology.symbol_samples
    assert length != air.sounding.length
    return [name for name, samples in bursts if samples == length]
