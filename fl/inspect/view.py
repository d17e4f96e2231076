"""What a run's folder knows of one radio uplink: its snapshot, its line of metrics, its row of the ledger."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError
from fl.experiment.config import UplinkKind
from fl.experiment.folder import RunFolder
from fl.privacy.ledger import read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.statement import PrivacyStatement, state_privacy
from phy.units import power_ratio_to_db

SMALLEST = 1e-30
INTENDED = ("thermal", "jammer")
CAUSES = {
    "thermal": "thermal noise",
    "jammer": "jammer",
    "csi": "channel estimate",
    "phase": "phase drift",
    "timing": "timing drift",
    "clipping": "clipping",
    "quantisation": "quantisation",
    "backoff": "back-off",
    "other": "not explained",
}

# For each array of a snapshot its dtype's kind and its axes: T transmitters, K clients, U used subcarriers, F bins.
_ARRAYS = {
    "names": ("U", "T"),
    "channels": ("c", "TU"),
    "channel_var": ("f", "TU"),
    "cfo_hz": ("f", "T"),
    "cfo_std_hz": ("f", "T"),
    "backoffs": ("f", "K"),
    "phase_error_rad": ("f", "K"),
    "cells": ("c", "N"),
    "sounding_power": ("f", "S"),
    "slot_starts": ("i", "T"),
    "payload_power": ("f", "P"),
    "spectrum": ("f", "F"),
    "noise_var_real_per_bin": ("f", "U"),
    "noise_bins": ("i", "U"),
    "sample_rate_hz": ("f", ""),
    "quiet_samples": ("i", ""),
    "slot_samples": ("i", ""),
    "gap_samples": ("i", ""),
    "turnaround_samples": ("i", ""),
    "guard_samples": ("i", ""),
    "payload_samples": ("i", ""),
    "block_samples": ("i", ""),
    "cells_received": ("i", ""),
}


@dataclass(frozen=True)
class Snapshot:
    """What `fl.nodes.radio_uplink` keeps of an uplink.

    channels, channel_var: (T, U), clients first, then a jammer of its own. cells: the first of the aggregate's, in
    units of tau. spectrum: power per Hz (F,) in FFT order. slot_starts: of the soundings, (T,). payload_samples: with
    both guards. block_samples: over which the two powers are means; that of the soundings is NaN where nobody listened.
    """

    names: NDArray[np.str_]
    channels: NDArray[np.complex64]
    channel_var: NDArray[np.float32]
    cfo_hz: NDArray[np.float64]
    cfo_std_hz: NDArray[np.float64]
    backoffs: NDArray[np.float64]
    phase_error_rad: NDArray[np.float64]
    cells: NDArray[np.complex64]
    sounding_power: NDArray[np.float32]
    slot_starts: NDArray[np.int64]
    payload_power: NDArray[np.float32]
    spectrum: NDArray[np.float64]
    noise_var_real_per_bin: NDArray[np.float64]
    noise_bins: NDArray[np.int64]
    sample_rate_hz: float
    quiet_samples: int
    slot_samples: int
    gap_samples: int
    turnaround_samples: int
    guard_samples: int
    payload_samples: int
    block_samples: int
    cells_received: int

    @property
    def fft_size(self) -> int:
        """Bins of the spectrum."""
        return int(self.spectrum.size)

    @property
    def subcarriers(self) -> NDArray[np.int64]:
        """Signed numbers of the used subcarriers (U,), ascending."""
        return np.asarray((self.noise_bins + self.fft_size // 2) % self.fft_size - self.fft_size // 2)

    @property
    def delays_samples(self) -> NDArray[np.float64]:
        """Mean delay of each channel (T,), from the phase that it turns by between neighbouring subcarriers."""
        neighbours = np.diff(self.subcarriers) == 1
        turns = (self.channels[:, 1:] * self.channels[:, :-1].conj())[:, neighbours].sum(axis=1)
        return np.asarray(-np.angle(turns) * self.fft_size / (2 * np.pi), dtype=np.float64)

    @property
    def payload_start(self) -> int:
        """First sample of the guard before the payload."""
        return int(self.slot_starts[-1]) + self.slot_samples + self.turnaround_samples

    @property
    def gains_db(self) -> NDArray[np.float64]:
        """Mean power gain of each channel (T,)."""
        return decibels(np.mean(np.abs(self.channels.astype(np.complex128)) ** 2, axis=1))

    def milliseconds(self, samples: Any) -> Any:
        """Samples, a number or an array of them, as time."""
        return samples * (1e3 / self.sample_rate_hz)


@dataclass(frozen=True)
class Round:
    """One uplink. metrics: its line. mechanism: as the ledger has it. privacy: of everything sent until then.

    gate_rad: the phase error above which nothing would have been sent.
    """

    name: str
    uplink: int
    snapshot: Snapshot
    metrics: Mapping[str, Any]
    mechanism: RoundMechanism
    privacy: PrivacyStatement
    gate_rad: float

    @property
    def diagnostics(self) -> dict[str, float]:
        """Error budget of the aggregate: see `fl.nodes.budget`."""
        return dict(self.metrics["diagnostics"])

    @property
    def parts(self) -> dict[str, float]:
        """Relative error energy by cause; the sum is the NMSE."""
        return {cause: self.diagnostics[f"nmse_{cause}"] for cause in CAUSES}

    @property
    def nmse_db(self) -> float:
        """Measured."""
        return self.diagnostics["nmse_db"]

    @property
    def thermal_db(self) -> float:
        """The floor that receiver noise sets."""
        return self.diagnostics["thermal_db"]

    @property
    def noise_db(self) -> float:
        """The floor that receiver and jammer set together."""
        return power_ratio_to_db(max(SMALLEST, sum(self.parts[cause] for cause in INTENDED)))

    @property
    def silent_client(self) -> int | None:
        """The client that jammed instead of sending an update."""
        client: int | None = self.metrics["jamming_client"]
        return client


def rounds_with_snapshot(folder: RunFolder) -> list[int]:
    """Uplinks of which pictures can be made, ascending."""
    return sorted({row["uplink"] for row in folder.metrics() if folder.snapshot_path(row["uplink"]).is_file()})


def read_round(folder: RunFolder, uplink: int | None = None) -> Round:
    """What the folder knows of an uplink, by default of the last; raises an `AirdpError` where it cannot be had."""
    config = folder.config()
    if config.uplink.kind is not UplinkKind.RADIO:
        raise RunFolderError(
            f"{folder.path} is a run with uplink.kind = '{config.uplink.kind.value}', which sends no samples: "
            "nothing to inspect; a run with radios is `airdp run loopback`"
        )
    existing = rounds_with_snapshot(folder)
    if not existing:
        raise RunFolderError(f"{folder.path} has no finished radio uplink yet: go on with `airdp run ... --resume`")
    chosen = existing[-1] if uplink is None else uplink
    if chosen not in existing:
        raise RunFolderError(f"{folder.path} has no round {chosen}: expected one of {_ranges(existing)}")
    contents = read_ledger(folder.ledger_path)
    spent = [mechanism for mechanism in contents.mechanisms if mechanism.uplink <= chosen]
    if not spent or spent[-1].uplink != chosen:
        raise RunFolderError(f"{folder.ledger_path} does not know round {chosen}: it belongs to another run")
    snapshot = read_snapshot(folder.snapshot_path(chosen))
    if snapshot.backoffs.size != len(contents.header.sizes):
        raise RunFolderError(
            f"{folder.snapshot_path(chosen)} has {snapshot.backoffs.size} clients and the ledger "
            f"{len(contents.header.sizes)}: it belongs to another run"
        )
    return Round(
        name=config.name,
        uplink=chosen,
        snapshot=snapshot,
        metrics=_checked_metrics(folder, chosen, len(contents.header.sizes)),
        mechanism=spent[-1],
        privacy=state_privacy(
            spent,
            contents.header.sizes_array,
            label=contents.header.label,
            neighbours=contents.header.neighbours,
            delta=contents.header.delta,
        ),
        gate_rad=config.radio.max_phase_error_rad,
    )


def _ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as text: 1-5, 7."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ", ".join(str(low) if low == high else f"{low}-{high}" for low, high in runs)


def _checked_metrics(folder: RunFolder, uplink: int, clients: int) -> dict[str, Any]:
    row = next(row for row in folder.metrics() if row["uplink"] == uplink)
    diagnostics = row.get("diagnostics")
    needed = ["nmse_db", "thermal_db", "clipped_samples", *(f"nmse_{cause}" for cause in CAUSES)]
    missing = [key for key in needed if not isinstance(diagnostics, dict) or not _is_number(diagnostics.get(key))]
    missing += [key for key in ("alpha_cj", "backoff_max", "backed_off") if not _is_number(row.get(key))]
    if row.get("jamming_client", clients) not in (None, *range(clients)):
        missing.append("jamming_client")
    if missing:
        raise RunFolderError(f"{folder.metrics_path} is damaged: round {uplink} has no number for '{missing[0]}'")
    return row


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def read_snapshot(path: Path) -> Snapshot:
    """The arrays of an uplink, each of the kind and shape that belongs to it, and finite."""
    try:
        # Opened here because numpy leaves its own handle open when the archive is damaged.
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            arrays = {name: np.asarray(file[name]) for name in _ARRAYS}
        _check_arrays(arrays)
    except Exception as error:  # A damaged archive makes zipfile, zlib and numpy raise nearly anything.
        raise RunFolderError(
            f"{path} is damaged or of another version: {error}; inspect another round, or run again"
        ) from error
    fields: dict[str, Any] = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    return Snapshot(**fields)


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    sizes: dict[str, int] = {}
    for name, (kind, axes) in _ARRAYS.items():
        array = arrays[name]
        shape = tuple(sizes.setdefault(axis, size) for axis, size in zip(axes, array.shape, strict=False))
        if array.dtype.kind != kind or array.ndim != len(axes) or array.shape != shape or not array.size:
            raise ValueError(f"'{name}' is {array.dtype} of shape {array.shape}")
        if kind != "U" and not (np.isfinite(array) | (np.isnan(array) & (name == "sounding_power"))).all():
            raise ValueError(f"'{name}' is not finite")
    lowest = {"block_samples": 1, "quiet_samples": 0, "slot_samples": 1, "gap_samples": 0, "guard_samples": 0}
    if any(arrays[name] < least for name, least in lowest.items()) or arrays["sample_rate_hz"] <= 0:
        raise ValueError("its layout is impossible")
    bins = arrays["noise_bins"]
    if bins.min() < 0 or bins.max() >= sizes["F"] or sizes["K"] > sizes["T"] or sizes["U"] < 2:
        raise ValueError("its arrays do not fit together")


def decibels(power: NDArray[Any]) -> NDArray[np.float64]:
    """10 log10 of powers, held above -300 dB."""
    return np.asarray(10.0 * np.log10(np.maximum(power.astype(np.float64), SMALLEST)))
