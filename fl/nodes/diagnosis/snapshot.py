"""What pictures of a radio uplink are drawn from, in a few hundred kilobytes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.fft import fft
from scipy.signal import welch

from fl.nodes.air_format import POWER_BLOCK, AirFormat
from fl.nodes.coordinator import Round
from fl.nodes.messages import Received
from fl.nodes.server import block_power
from phy.numerology import Numerology

_SPECTRUM_SAMPLES = 1 << 15
_WATERFALL_ROWS = 48
_BLOCKS_PER_ROW = 8
_FLOOR = 1e-30


def take_snapshot(
    air: AirFormat, names: Sequence[str], current: Round, received: Received
) -> dict[str, NDArray[np.generic]]:
    """Measurements and plan of one uplink, and of the updates nothing but the aggregate that was released.

    names: of the transmitters, in the order of their slots.
    """
    soundings, decisions = current.soundings, current.decisions
    payload, cells = received.samples, received.cells
    states = soundings.states
    rate_hz = air.numerology.sample_rate_hz
    layout = {
        "quiet_samples": air.quiet_samples,
        "slot_samples": air.slot_samples,
        "gap_samples": air.gap_samples,
        "turnaround_samples": air.turnaround_samples,
        "guard_samples": air.guard_samples,
        "payload_samples": air.payload.length,
        "block_samples": POWER_BLOCK,
        "cells_received": cells.size,
    }
    return {
        "names": np.array(names),
        "channels": np.stack([state.channel[state.used] for state in states]),
        "channel_var": np.stack([state.channel_var[state.used] for state in states]).astype(np.float32),
        "cfo_hz": rate_hz * np.array([state.cfo_cycles_per_sample for state in states]),
        "cfo_std_hz": rate_hz * np.array([state.cfo_std_cycles_per_sample for state in states]),
        "backoffs": np.array([decision.backoff for decision in decisions]),
        "phase_error_rad": np.array([decision.phase_error_rad for decision in decisions]),
        "cells": cells.reshape(-1)[:4096],
        "sounding_power": soundings.power,
        "slot_starts": np.array([air.slot_start(slot) for slot in range(len(states))]),
        "payload_power": block_power(payload),
        "spectrum": _power_density(payload[air.payload.payload_slice], air.numerology),
        "waterfall_db": _waterfall_db(payload, air.numerology),
        "noise_var_real_per_bin": np.array(soundings.noise.noise_var_real_per_bin),
        "noise_bins": np.array(soundings.noise.bins),
        "sample_rate_hz": np.array(rate_hz),
        **{name: np.array(value) for name, value in layout.items()},
    }


def _power_density(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.float64]:
    """Welch's estimate per FFT bin (fft_size,), in FFT order: power per Hz, full scale 1.

    Of the first samples, which are enough for a picture: all of them would take as long as a third of the uplink.
    """
    size = numerology.fft_size
    _, density = welch(
        samples[:_SPECTRUM_SAMPLES], numerology.sample_rate_hz, nperseg=size, detrend=False, return_onesided=False
    )
    return np.asarray(density, dtype=np.float64)


def _waterfall_db(samples: NDArray[np.complex64], numerology: Numerology) -> NDArray[np.float16]:
    """Power density over time and frequency (rows, fft_size) in dBFS/Hz, in FFT order, of all that was received.

    A row is a mean over up to `_BLOCKS_PER_ROW` windows that are spread over its time: a picture needs no more of them.
    Half precision, 0.06 dB at these levels, is finer than any colour.
    """
    size = numerology.fft_size
    blocks = samples.size // size
    rows = min(_WATERFALL_ROWS, blocks)
    per_row = min(_BLOCKS_PER_ROW, blocks // rows)
    first = np.arange(rows) * blocks // rows
    starts = first[:, np.newaxis] + np.arange(per_row) * (blocks // rows // per_row)
    window = np.hanning(size + 1)[:-1].astype(np.float32)
    spectra = fft(samples[: blocks * size].reshape(blocks, size)[starts] * window)
    density = (spectra.real**2 + spectra.imag**2).mean(axis=1) / (numerology.sample_rate_hz * np.sum(window**2))
    return np.asarray(10.0 * np.log10(np.maximum(density, _FLOOR)), dtype=np.float16)
