"""What a run's folder knows of one radio uplink: its snapshot, its line of metrics, its row of the ledger."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError
from fl.privacy.ledger import read_ledger
from fl.privacy.mechanism import RoundMechanism
from fl.privacy.statement import PrivacyStatement, state_privacy
from fl.run.config import UplinkKind
from fl.run.folder import RunFolder
from hardware.foundation.arrays import read_arrays
from phy.units import power_ratio_to_db, power_ratios_to_db

_MOST_ARRAY_BYTES = 64 << 20
"""Of one array of a snapshot; that of an uplink of a thousand transmitters has a tenth of it."""
FLOOR_DB = -300.0
"""Lower levels are drawn and written as this."""
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


@dataclass(frozen=True)
class _Array:
    """Kind of a dtype, and axes: T transmitters, K clients, U used subcarriers, F bins, others of their own."""

    kind: str
    axes: str = ""


_Count = Annotated[int, _Array("i")]


@dataclass(frozen=True)
class Snapshot:
    """What `fl.nodes.diagnosis.snapshot` keeps of an uplink.

    channels, channel_var: (T, U), clients first, then a jammer of its own. cells: the first of the aggregate's, in
    units of tau. spectrum: power per Hz (F,) in FFT order. slot_starts: of the soundings, (T,). payload_samples: with
    both guards. block_samples: over which the two powers are means; that of the soundings is NaN where nobody listened.
    """

    names: Annotated[NDArray[np.str_], _Array("U", "T")]
    channels: Annotated[NDArray[np.complex64], _Array("c", "TU")]
    channel_var: Annotated[NDArray[np.float32], _Array("f", "TU")]
    cfo_hz: Annotated[NDArray[np.float64], _Array("f", "T")]
    cfo_std_hz: Annotated[NDArray[np.float64], _Array("f", "T")]
    backoffs: Annotated[NDArray[np.float64], _Array("f", "K")]
    phase_error_rad: Annotated[NDArray[np.float64], _Array("f", "K")]
    cells: Annotated[NDArray[np.complex64], _Array("c", "N")]
    sounding_power: Annotated[NDArray[np.float32], _Array("f", "S")]
    slot_starts: Annotated[NDArray[np.int64], _Array("i", "T")]
    payload_power: Annotated[NDArray[np.float32], _Array("f", "P")]
    spectrum: Annotated[NDArray[np.float64], _Array("f", "F")]
    noise_var_real_per_bin: Annotated[NDArray[np.float64], _Array("f", "U")]
    noise_bins: Annotated[NDArray[np.int64], _Array("i", "U")]
    sample_rate_hz: Annotated[float, _Array("f")]
    quiet_samples: _Count
    slot_samples: _Count
    gap_samples: _Count
    turnaround_samples: _Count
    guard_samples: _Count
    payload_samples: _Count
    block_samples: _Count
    cells_received: _Count

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
        return power_ratios_to_db(np.mean(np.abs(self.channels.astype(np.complex128)) ** 2, axis=1), FLOOR_DB)

    def milliseconds(self, samples: Any) -> Any:
        """Samples, a number or an array of them, as time."""
        return samples * (1e3 / self.sample_rate_hz)


LAYOUT: dict[str, _Array] = {
    name: hint.__metadata__[0] for name, hint in get_type_hints(Snapshot, include_extras=True).items()
}


@dataclass(frozen=True)
class UplinkView:
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
        """Error budget of the aggregate: see `fl.nodes.diagnosis.budget`."""
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
        return power_ratio_to_db(sum(self.parts[cause] for cause in INTENDED), FLOOR_DB)

    @property
    def silent_client(self) -> int | None:
        """The client that jammed instead of sending an update."""
        client: int | None = self.metrics["jamming_client"]
        return client


def rounds_with_snapshot(folder: RunFolder) -> list[int]:
    """Uplinks of which pictures can be made, ascending."""
    return sorted({row["uplink"] for row in folder.metrics() if folder.snapshot_path(row["uplink"]).is_file()})


def read_round(folder: RunFolder, uplink: int | None = None) -> UplinkView:
    """What the folder knows of an uplink, by default of the last; raises an `AirdpError` where it cannot be had."""
    config = folder.config()
    if config.uplink.kind is not UplinkKind.RADIO:
        raise RunFolderError(
            f"{folder.path} is a run with uplink.kind = '{config.uplink.kind.value}', which sends no samples: "
            "nothing to inspect; a run with radios has uplink.kind = 'radio'"
        )
    existing = rounds_with_snapshot(folder)
    if not existing:
        folder.require_run()
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
    return UplinkView(
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
            unaccounted=sum(
                mechanism.uplink <= chosen and not proven
                for mechanism, proven in zip(contents.mechanisms, contents.proven, strict=True)
            ),
            jammer=contents.header.jammer,
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
        arrays = read_arrays(path, LAYOUT, most_bytes=_MOST_ARRAY_BYTES)
        _check_arrays(arrays)
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(
            f"{path} is damaged or of another version: {error}; inspect another round, or run again"
        ) from error
    values: dict[str, Any] = {name: array if array.ndim else array.item() for name, array in arrays.items()}
    return Snapshot(**values)


def read_waterfall(path: Path) -> NDArray[np.float32] | None:
    """Power density of an uplink in dBFS/Hz over time and frequency (rows, F), in FFT order; None in older files."""
    try:
        rows = read_arrays(path, ["waterfall_db"], most_bytes=_MOST_ARRAY_BYTES).get("waterfall_db")
        if rows is not None and (rows.dtype.kind != "f" or rows.ndim != 2 or not np.isfinite(rows).all()):
            raise ValueError(f"'waterfall_db' is {rows.dtype} of shape {rows.shape}")
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}; inspect another round, or run again") from error
    return None if rows is None else rows.astype(np.float32)


def _check_arrays(arrays: Mapping[str, NDArray[Any]]) -> None:
    sizes: dict[str, int] = {}
    for name, expected in LAYOUT.items():
        array, kind, axes = arrays[name], expected.kind, expected.axes
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
