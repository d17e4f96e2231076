"""Soundings of 10,000 clients in groups, sample by sample: how good they are, and how long they take.

    python -m fl.bench.growth.crowd [CLIENTS]

Every client has Rayleigh paths as the lab `loopback-harsh` has them, a delay of its own, and what is left of its
carrier's offset after it was corrected. Compared is the error of its channel with that of the same estimator where each
sounds alone, which is what noise alone leaves.
"""

import json
import sys
from dataclasses import asdict, dataclass

import numpy as np
from numpy.typing import NDArray

from fl.bench.growth.group_sounding import GroupSounding
from fl.bench.radio_uplink import MULTIPATH
from fl.nodes.air_format import AirFormat
from hardware.air.link import power_profile
from phy.fading import circular_noise
from phy.modem import demodulate, modulate
from phy.numerology import Numerology

_SNR_DB = 20.0
"""Of one client alone, per cell, before S symbols are added up."""
_MAX_DELAY = 20


@dataclass(frozen=True)
class Crowd:
    """offset_hz: standard deviation of carriers' offsets that are left. error_db: median of |H^ - H|^2 / |H|^2 over
    clients; worst_db: of the worst client in a hundred. alone_db: what noise alone leaves."""

    clients: int
    offset_hz: float
    error_db: float
    worst_db: float
    alone_db: float


def simulate(clients: int, offset_hz: float, rng: np.random.Generator, symbols: int = 32) -> Crowd:
    """Groups one after the other, until every client has sounded."""
    band = AirFormat(Numerology(), 2).sounding_numerology
    group = GroupSounding(band, symbols)
    errors, alone = [], []
    for first in range(0, clients, group.members):
        members = min(group.members, clients - first)
        taps = _channels(members, group.taps, rng)
        noise_var = 10 ** (-_SNR_DB / 10)
        received = _received(group, taps, offset_hz / band.sample_rate_hz, noise_var, rng)
        power = np.sum(np.abs(taps) ** 2, axis=1)
        estimated = group.estimate(received)[:members]
        errors.append(np.sum(np.abs(estimated - taps) ** 2, axis=1) / power)
        alone.append(np.repeat(group.tap_var(noise_var).sum(axis=1), symbols)[:members] / power)
    found, floor = np.concatenate(errors), np.concatenate(alone)
    return Crowd(
        clients,
        offset_hz,
        _db(float(np.median(found))),
        _db(float(np.quantile(found, 0.99))),
        _db(float(np.median(floor))),
    )


def _db(ratio: float) -> float:
    return float(10 * np.log10(ratio))


def _channels(members: int, length: int, rng: np.random.Generator) -> NDArray[np.complex64]:
    """Taps (members, length): three paths, later by a whole delay of the client's own."""
    profile = np.sqrt(power_profile(MULTIPATH))
    drawn = rng.standard_normal((2, members, profile.size)) / np.sqrt(2)
    taps = np.zeros((members, length), np.complex64)
    places = rng.integers(0, _MAX_DELAY, members)[:, None] + np.arange(profile.size)
    np.put_along_axis(taps, places, ((drawn[0] + 1j * drawn[1]) * profile).astype(np.complex64), axis=1)
    return taps


def _received(
    group: GroupSounding, taps: NDArray[np.complex64], offset: float, noise_var: float, rng: np.random.Generator
) -> NDArray[np.complex64]:
    """Cells (S, U) that arrive of all members together, through samples. offset: in cycles per sample."""
    band = group.numerology
    length = group.symbols * band.symbol_samples
    total = circular_noise(length, noise_var / 2, rng)
    time = np.arange(length)
    for member, response in enumerate(taps):
        sent = modulate(group.cells(member), band)
        arrived = np.zeros(length, np.complex64)
        for lag in np.flatnonzero(response):
            arrived[lag:] += response[lag] * sent[: length - lag]
        # A phase that is known at the sounding's middle, as an estimate gives it.
        turned = np.exp(2j * np.pi * offset * rng.standard_normal() * (time - length / 2))
        total += arrived * turned.astype(np.complex64)
    return demodulate(total, band)


def main(arguments: list[str]) -> int:
    """One line of JSON for each offset, and the time on the air."""
    clients = int(arguments[0]) if arguments else 10_000
    rng = np.random.default_rng(1)
    for offset_hz in (0.0, 1.0, 3.0, 10.0, 30.0):
        sys.stdout.write(json.dumps(asdict(simulate(clients, offset_hz, rng))) + "\n")
    air = AirFormat(Numerology(), 10_000)
    group = GroupSounding(air.sounding_numerology, air.sounding_symbols)
    turns = -(-clients // group.members)
    rate_hz = air.numerology.sample_rate_hz
    seconds = {"alone_s": clients * air.slot_samples / rate_hz, "in_groups_s": turns * air.slot_samples / rate_hz}
    sys.stdout.write(json.dumps({"clients": clients, "members": group.members, **seconds}) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
