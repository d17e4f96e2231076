"""The folder of captures of a run: what was received in each attempt at an uplink, and what was said meanwhile.

    uplink-0003-1-ps.sigmf-meta, .sigmf-data   what the radio `ps` received in the first recorded attempt at uplink 3
    uplink-0003-1-client-2-sent.sigmf-…        what `client-2` sent in it, where that is wanted
    uplink-0003-1.jsonl                        the conversation of coordinator and nodes, and what came of it
    uplink-0003-1.npy                          the sum that was released, float32 (d,)
    opening-1-ps.sigmf-…                       what was received when the radios were opened, before any uplink
    start.npy                                  the model before the first uplink, where all are recorded

The conversation is written last: an attempt without it is not complete, and is not one. A crash leaves nothing that
looks whole; hidden files that it leaves are removed when the run goes on.
"""

import hashlib
import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError
from hardware.foundation.arrays import read_array as load_array
from hardware.foundation.documents import MOST_LINES_BYTES, parse_json, read_bounded
from hardware.foundation.durable import write_atomically
from hardware.recording.model import Recording
from hardware.recording.sigmf_files import Reserved

FOLDER = "captures"
START = "start.npy"
_UNFINISHED = (".*.tmp", ".*.reserved")
ATTEMPT = re.compile(r"uplink-(\d{4,})-(\d+)\.jsonl")
OUTCOME = "outcome"


def values_digest(values: NDArray[np.float32]) -> str:
    """sha256 of float32 values (d,)."""
    return hashlib.sha256(np.ascontiguousarray(values).tobytes()).hexdigest()


@dataclass(frozen=True)
class AttemptFiles:
    """Names of the files of one recorded attempt. number: counts the recorded attempts at this uplink from 1 on."""

    folder: Path
    uplink: int
    number: int

    @property
    def name(self) -> str:
        """What all of its files begin with."""
        return f"uplink-{self.uplink:04d}-{self.number}"

    @property
    def journal(self) -> Path:
        """The conversation."""
        return self.folder / f"{self.name}.jsonl"

    @property
    def released(self) -> Path:
        """The sum."""
        return self.folder / f"{self.name}.npy"

    def recording(self, radio: str, sent: bool = False) -> Path:
        """What a recording of a radio is called, without its endings."""
        plain = re.sub(r"[^A-Za-z0-9._-]", "_", radio)
        return self.folder / f"{self.name}-{plain}{'-sent' if sent else ''}"

    def events(self) -> list[dict[str, Any]]:
        """The conversation and its outcome."""
        try:
            events = [parse_json(line) for line in read_bounded(self.journal, MOST_LINES_BYTES).splitlines()]
            if not events or events[-1]["kind"] != OUTCOME:
                raise ValueError("it does not say what came of it")
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise RunFolderError(f"{self.journal} cannot be read: {error}") from error
        return events


@dataclass(frozen=True)
class CaptureFolder:
    """The captures of a run at `path`, which need not exist."""

    path: Path

    @classmethod
    def of(cls, run: Path) -> "CaptureFolder":
        """Of the run in this folder."""
        return cls(run / FOLDER)

    def prepare(self) -> None:
        """Make the folder, without what a crash has left."""
        self.path.mkdir(exist_ok=True)
        self.clean()

    def clean(self) -> None:
        """Remove what a crash has left: room that was kept for samples, files that were half written."""
        for pattern in _UNFINISHED:
            for path in self.path.glob(pattern):
                path.unlink()

    def attempts(self) -> list[AttemptFiles]:
        """All complete ones, in order."""
        found = [ATTEMPT.fullmatch(path.name) for path in self.path.glob("uplink-*.jsonl")]
        places = sorted((int(match[1]), int(match[2])) for match in found if match)
        return [AttemptFiles(self.path, uplink, number) for uplink, number in places]

    def of_uplink(self, uplink: int) -> list[Path]:
        """Metadata files of all complete recordings of an uplink."""
        names = [files.name for files in self.attempts() if files.uplink == uplink]
        return sorted(path for name in names for path in self.path.glob(f"{name}-*.sigmf-meta"))

    def next_attempt(self, uplink: int) -> AttemptFiles:
        """Names for one more attempt at this uplink."""
        numbers = [files.number for files in self.attempts() if files.uplink == uplink]
        return AttemptFiles(self.path, uplink, max(numbers, default=0) + 1)

    def next_opening(self, radio: str) -> tuple[int, Path]:
        """Number and name for one more recording of what comes before any uplink."""
        number = 1 + sum(1 for _ in self.path.glob(f"opening-*-{radio}.sigmf-meta"))
        return number, self.opening(number, radio)

    def opening(self, number: int, radio: str) -> Path:
        """What the recording of an opening is called, without its endings."""
        return self.path / f"opening-{number}-{radio}"

    def keep_only(self, uplink: int, opening: int | None) -> None:
        """Remove the captures of all other uplinks, and of all openings but the one that is still needed."""
        for path in [*self.path.glob("uplink-*"), *self.path.glob("opening-*")]:
            kind, number = path.name.split("-")[:2]
            if int(number) != (uplink if kind == "uplink" else opening):
                path.unlink()

    def write_array(self, path: Path, values: NDArray[np.float32]) -> None:
        """Keep float32 values (d,), atomically."""
        buffer = io.BytesIO()
        np.save(buffer, values)
        write_atomically(path, buffer.getvalue())


def read_array(path: Path) -> NDArray[np.float32]:
    """What `CaptureFolder.write_array` kept."""
    try:
        values = load_array(path)
        if values.dtype != np.float32 or values.ndim != 1:
            raise ValueError(f"it is {values.dtype} of shape {values.shape}")
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} cannot be read: {error}") from error
    return values


class Reservations:
    """Room for the recordings of one attempt, by name. All of it, or none."""

    def __init__(self, sizes: Mapping[Path, int]) -> None:
        """sizes: samples that each recording will have at most. `OSError` where there is no room."""
        self._rooms: dict[Path, Reserved] = {}
        try:
            for base, samples in sizes.items():
                self._rooms[base] = Reserved(base, samples)
        except BaseException:
            self.give_up()
            raise

    def fill(self, base: Path, recording: Recording) -> None:
        """Write one of them."""
        self._rooms.pop(base).fill(recording)

    def give_up(self) -> None:
        """Give back what was not filled."""
        for room in self._rooms.values():
            room.give_up()
        self._rooms = {}


def write_journal(files: AttemptFiles, events: list[dict[str, Any]]) -> None:
    """Write the conversation, which makes the attempt complete."""
    lines = [json.dumps(event, allow_nan=False, separators=(",", ":")).encode() + b"\n" for event in events]
    write_atomically(files.journal, b"".join(lines))
