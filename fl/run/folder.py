"""A run is a folder: everything that a figure shows can be recomputed from it.

config.toml      every key as resolved            ledger.jsonl     privacy, append-only (fl.privacy.ledger)
versions.json    what it ran on                   metrics.jsonl    one line per uplink
inputs.json      digests of files that count      checkpoint.npz   model after the last finished uplink
partition.json   who holds what, data's digest    lab.toml         the lab as resolved, of a run over radios
result.json      the outcome, written at the end  figures/*.png
radio/*.npz      one per radio uplink, for `airdp inspect`
noise.jsonl      noise as measured in each attempt at a radio uplink
log.jsonl        what happened when, for whoever looks on (fl.nodes.journal.log); nothing rests on it
levels.json      how loud clients sounded last, of a run with nodes apart and radio.max_gain_rise_db
captures/        what was received in radio uplinks, where that is wanted (fl.run.captures)
calibration.json the record of the lab that a radio run rests on, where one was given
allocation.json  what a baseline's power control planned, where one was used
audit/*.npz      one per uplink, of a run with canaries, for `airdp audit`
"""

import fcntl
import io
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError, RunFolderError
from fl.run.config import RunConfig, parse_config
from hardware.foundation.arrays import read_arrays
from hardware.foundation.documents import MOST_LINES_BYTES, parse_json, read_bounded, read_json, read_toml
from hardware.foundation.durable import append_durably, make_folders, sync_folder, write_atomically
from hardware.foundation.scratch import make_locked
from phy.errors import AirdpError

if TYPE_CHECKING:
    from fl.audit.runs.evidence import UplinkEvidence


ALLOCATION = "allocation.json"
MOST_UPLINKS = 10_000_000
"""Of a run: what a file says about more of them is damage."""
_MEASURED = (
    *("accuracy", "loss", "test_loss", "epsilon", "sigma", "alpha_u", "alpha_cj", "backoff_max", "backed_off"),
    *("clipped", "weight_received", "step_norm", "seconds"),
)
_MEMORY = "memory."
"""What the names of an algorithm's own arrays begin with in a checkpoint."""


@dataclass(frozen=True)
class Checkpoint:
    """The run after `uplink` uplinks. model: float32 (d,). ledger_head: hash of the ledger's last row at that time.

    memory: what the server's algorithm keeps from step to step, by name.
    """

    uplink: int
    model: NDArray[np.float32]
    ledger_head: str
    memory: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)


@dataclass(frozen=True)
class RunFolder:
    """Paths and files of one run."""

    path: Path

    @property
    def config_path(self) -> Path:
        """Resolved config."""
        return self.path / "config.toml"

    @property
    def ledger_path(self) -> Path:
        """Privacy ledger."""
        return self.path / "ledger.jsonl"

    @property
    def metrics_path(self) -> Path:
        """Metrics by uplink."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoint_path(self) -> Path:
        """Last finished uplink."""
        return self.path / "checkpoint.npz"

    @property
    def figures_path(self) -> Path:
        """Folder of pictures."""
        return self.path / "figures"

    def config(self) -> RunConfig:
        """The config that the folder's run was started with."""
        try:
            return parse_config(read_toml(self.config_path), origin=str(self.config_path))
        except FileNotFoundError as error:
            raise RunFolderError(f"{self.path} is not the folder of a run: there is no config.toml in it") from error
        except (OSError, ValueError, ConfigError) as error:
            raise RunFolderError(f"{self.path} is not the folder of a run: {error}") from error

    def read_json(self, name: str) -> Any:
        """Content of a JSON file of the folder."""
        try:
            return read_json(self.path / name)
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.path / name} cannot be read: {error}") from error

    def write_json(self, name: str, data: Any) -> None:
        """Write a JSON file of the folder, atomically."""
        write_atomically(self.path / name, json.dumps(data, indent=1, allow_nan=False).encode() + b"\n")

    def require_run(self) -> None:
        """Refuse the folder of a loop of somebody's own (`fl.open_uplink`, Flower), where nobody has kept metrics."""
        if not (self.path / "partition.json").exists() and not self.metrics_path.exists():
            raise RunFolderError(
                f"{self.path} is of a loop that keeps no metrics here (fl.open_uplink, Flower): `airdp ledger` and "
                "`airdp live` show what there is"
            )

    def metrics(self) -> list[dict[str, Any]]:
        """All whole lines of metrics.jsonl; a torn last line (a crash, a power cut) is left out."""
        if not self.metrics_path.exists():
            return []
        try:
            lines = read_bounded(self.metrics_path, MOST_LINES_BYTES).split(b"\n")[:-1]
            if lines and b"\0" in lines[-1]:
                # A disk may keep the end of what was not synced, with zeros in place of its beginning.
                lines.pop()
            rows = [parse_json(line) for line in lines]
        except (OSError, ValueError) as error:
            raise RunFolderError(f"{self.metrics_path} is damaged: {error}") from error
        if not all(isinstance(row, dict) and type(row.get("uplink")) is int for row in rows):
            raise RunFolderError(f"{self.metrics_path} is damaged: a line does not say which uplink it is of")
        for row in rows:
            wrong = next((key for key in _MEASURED if key in row and not _is_measured(row[key])), None)
            if type(row.get("rounds", 0)) is not int:
                wrong = "rounds"
            if wrong is not None:
                raise RunFolderError(
                    f"{self.metrics_path} is damaged: '{wrong}' of uplink {row['uplink']} is no number; "
                    "restore it, or start anew elsewhere"
                )
        return rows

    def append_metrics(self, row: dict[str, Any]) -> None:
        """Add the line of one uplink, durably."""
        append_durably(self.metrics_path, json.dumps(row, allow_nan=False).encode() + b"\n")

    def keep_metrics_until(self, uplink: int) -> None:
        """Drop lines after `uplink`: they will be made again."""
        rows = [row for row in self.metrics() if row["uplink"] <= uplink]
        write_atomically(self.metrics_path, b"".join(json.dumps(row).encode() + b"\n" for row in rows))

    def save_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Replace the checkpoint, atomically."""
        buffer = io.BytesIO()
        np.savez(
            buffer,
            uplink=checkpoint.uplink,
            model=checkpoint.model,
            ledger_head=np.array(checkpoint.ledger_head),
            **{_MEMORY + name: array for name, array in checkpoint.memory.items()},
        )
        write_atomically(self.checkpoint_path, buffer.getvalue())

    def snapshot_path(self, uplink: int) -> Path:
        """What pictures of one radio uplink are drawn from."""
        return self.path / "radio" / f"uplink-{uplink:04d}.npz"

    def save_snapshot(self, uplink: int, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        """Keep the arrays of one uplink, atomically."""
        path = self.snapshot_path(uplink)
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **dict(arrays))
        write_atomically(path, buffer.getvalue())

    def save_evidence(self, uplink: int, evidence: "UplinkEvidence") -> None:
        """Keep what an uplink says about the run's canaries, atomically."""
        path = self.path / "audit" / f"uplink-{uplink:04d}.npz"
        path.parent.mkdir(exist_ok=True)
        buffer = io.BytesIO()
        np.savez_compressed(buffer, **evidence.to_arrays())
        write_atomically(path, buffer.getvalue())

    def evidence(self, uplinks: int) -> "list[UplinkEvidence]":
        """What the first `uplinks` uplinks say about the run's canaries."""
        # Imported here: PyTorch comes with it, and whoever lists configs or reads a ledger need not wait for that.
        from fl.audit.runs.evidence import UplinkEvidence

        found = []
        for uplink in range(1, uplinks + 1):
            path = self.path / "audit" / f"uplink-{uplink:04d}.npz"
            try:
                arrays = read_arrays(path, ("statistics", "shifts", "sigma"))
                found.append(UplinkEvidence(arrays["statistics"], arrays["shifts"], float(arrays["sigma"].item())))
            except (OSError, KeyError, TypeError, ValueError, AirdpError) as error:
                raise RunFolderError(f"{path} cannot be read: {error}") from error
        return found

    def load_checkpoint(self) -> Checkpoint | None:
        """The checkpoint, or None before the first uplink."""
        if not self.checkpoint_path.exists():
            return None
        try:
            arrays = read_arrays(self.checkpoint_path)
            memory = {name.removeprefix(_MEMORY): part for name, part in arrays.items() if name.startswith(_MEMORY)}
            uplink, head = arrays["uplink"].item(), arrays["ledger_head"].item()
            checkpoint = Checkpoint(int(uplink), arrays["model"], str(head), memory)
            if checkpoint.model.dtype != np.float32 or not np.isfinite(checkpoint.model).all():
                raise ValueError("its model is not finite float32")
            if not 0 <= checkpoint.uplink <= MOST_UPLINKS:
                raise ValueError(f"it is of uplink {checkpoint.uplink}")
            return checkpoint
        except (OSError, KeyError, TypeError, ValueError, OverflowError) as error:
            raise RunFolderError(
                f"{self.checkpoint_path} is damaged: {error}; restore it or start anew elsewhere"
            ) from error


def _is_measured(value: Any) -> bool:
    """A number, or the text that stands for one that JSON has not."""
    return (type(value) in (int, float)) or value in ("inf", "-inf", "nan")


def is_unused(path: Path) -> bool:
    """Whether a run may be started at `path`: nothing there, or an empty folder."""
    try:
        if not path.exists():
            return True
        if not path.is_dir():
            raise RunFolderError(f"{path} is a file: give a folder with --out")
        return not any(path.iterdir())
    except OSError as error:
        raise RunFolderError(f"cannot read {path}: {error.strerror}; choose another folder with --out") from error


@contextmanager
def created(path: Path) -> Iterator[RunFolder]:
    """A folder that appears at `path` only when the block has filled it, all at once.

    What earlier processes were filling when they were killed is removed.
    """
    try:
        make_folders(path.parent)
        scratch, descriptor = make_locked(path.parent, f".{path.name}.")
    except OSError as error:
        raise RunFolderError(f"cannot make {path}: {error.strerror}; choose another folder with --out") from error
    try:
        yield RunFolder(scratch)
        sync_folder(scratch)
        try:
            scratch.rename(path)
        except OSError as error:
            raise RunFolderError(
                f"cannot put the run in place of {path}: {error.strerror}; choose a new folder with --out"
            ) from error
        sync_folder(path.parent)
    except BaseException:
        shutil.rmtree(scratch, ignore_errors=True)
        raise
    finally:
        os.close(descriptor)


def refuse_links(path: Path) -> None:
    """Raise `RunFolderError` where a folder in `path`, or within one of its folders, is a link.

    Who packed it may be a stranger, and what is written or removed behind a link may be anything of this user's.
    """
    for home, folders, _ in os.walk(path):
        for name in folders:
            if os.path.islink(os.path.join(home, name)):  # noqa: PTH114, PTH118 - once for each of many folders
                raise RunFolderError(
                    f"{Path(home) / name} is a link, which may lead anywhere: put the folder itself in its place"
                )


@contextmanager
def locked(folder: RunFolder) -> Iterator[None]:
    """Keep other processes from running in the folder; the lock goes with this process, however it ends."""
    descriptor = os.open(folder.path, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise RunFolderError(
            f"another process is running in {folder.path}: wait for it or choose another folder"
        ) from error
    finally:
        os.close(descriptor)
