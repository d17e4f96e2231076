"""Recordings as SigMF: NAME.sigmf-data with the samples (cf32_le) and NAME.sigmf-meta with all else.

Each segment is a capture with its place in the file (`core:sample_start`) and in the radio's count
(`core:global_index`). Samples are as the radio delivers them, full scale 1: nothing is scaled. Keys of the extension
`airdp` are optional for a reader.

The data is in place, whole and durable, before the metadata is: a data file without metadata is no recording.
"""

import os
from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hardware.foundation.arrays import MOST_BYTES
from hardware.foundation.documents import read_json
from hardware.foundation.durable import open_new, replacing, write_atomically
from hardware.foundation.file_errors import naming
from hardware.radio.errors import HardwareError
from hardware.radio.samples import Capture
from hardware.radio.settings import RadioSettings
from hardware.recording.model import Mark, Recording, RecordingError, Segment

META, DATA = ".sigmf-meta", ".sigmf-data"
NAMESPACE, NAMESPACE_VERSION = "airdp", "1.0.0"
BYTES_PER_SAMPLE = 8
_SAMPLE_TYPE = np.dtype("<c8")


def meta_path(base: Path) -> Path:
    """Of the recording that is called `base`."""
    return base.with_name(base.name + META)


def data_path(base: Path) -> Path:
    """Of the recording that is called `base`."""
    return base.with_name(base.name + DATA)


class Reserved:
    """Room on the disk for the samples of a recording that is still to come, so that it cannot fail for lack of it.

    It lies in a hidden file beside the recording until `fill`; `give_up` removes it. A second call of either does
    nothing.
    """

    def __init__(self, base: Path, sample_count: int) -> None:
        """Raise `OSError` where there is no room."""
        self.base = base
        self._scratch = base.with_name(f".{base.name}{DATA}.reserved")
        self._scratch.unlink(missing_ok=True)
        descriptor = open_new(self._scratch)
        try:
            with naming(self._scratch):
                os.posix_fallocate(descriptor, 0, max(1, sample_count * BYTES_PER_SAMPLE))
        except BaseException:
            self.give_up()
            raise
        finally:
            os.close(descriptor)

    def fill(self, recording: Recording) -> None:
        """Write the recording in the room that was kept for it."""
        with replacing(data_path(self.base)) as scratch:
            self._scratch.replace(scratch)
            with scratch.open("r+b") as file:
                for segment in recording.segments:
                    file.write(segment.capture.samples.astype(_SAMPLE_TYPE, copy=False).data)
                file.truncate()
        write_atomically(meta_path(self.base), _metadata(self.base, recording))

    def give_up(self) -> None:
        """Nothing comes."""
        self._scratch.unlink(missing_ok=True)


def write_recording(base: Path, recording: Recording) -> None:
    """Write BASE.sigmf-data, then BASE.sigmf-meta."""
    Reserved(base, recording.sample_count).fill(recording)


def _metadata(base: Path, recording: Recording) -> bytes:
    import sigmf

    rates = {segment.capture.settings.sample_rate_hz for segment in recording.segments}
    if len(rates) != 1:
        raise RecordingError(f"{base.name} has {len(rates)} sample rates: expected one")
    described = sigmf.SigMFFile(
        data_file=data_path(base),
        global_info={
            sigmf.DATATYPE_KEY: "cf32_le",
            sigmf.SAMPLE_RATE_KEY: rates.pop(),
            sigmf.HW_KEY: recording.hardware,
            sigmf.RECORDER_KEY: "airdp",
            sigmf.DESCRIPTION_KEY: recording.description,
            sigmf.EXTENSIONS_KEY: [{"name": NAMESPACE, "version": NAMESPACE_VERSION, "optional": True}],
            f"{NAMESPACE}:radio": recording.radio,
            f"{NAMESPACE}:full_scale": 1.0,
            **{f"{NAMESPACE}:{name}": value for name, value in recording.facts.items()},
        },
    )
    start = 0
    for segment in recording.segments:
        described.add_capture(start, _capture_keys(segment))
        for mark in recording.marks:
            _annotate(described, mark, segment.capture, start)
        start += segment.capture.samples.size
    described.validate()
    return str(described.dumps(pretty=True)).encode() + b"\n"


def _capture_keys(segment: Segment) -> dict[str, Any]:
    import sigmf

    capture = segment.capture
    keys = {
        sigmf.GLOBAL_INDEX_KEY: capture.start_sample,
        sigmf.FREQUENCY_KEY: capture.settings.rx_center_hz,
        sigmf.DATETIME_KEY: f"{segment.time:%Y-%m-%dT%H:%M:%S.%f}Z",
        f"{NAMESPACE}:settings": asdict(capture.settings),
        f"{NAMESPACE}:clipped_samples": capture.clipped_samples,
    }
    optional = {"temperature_c": capture.temperature_c, "rssi_db": capture.rssi_db}
    return {**keys, **{f"{NAMESPACE}:{name}": value for name, value in optional.items() if value is not None}}


def _annotate(described: Any, mark: Mark, capture: Capture, file_start: int) -> None:
    """The part of the mark that lies in this segment; the package takes what lies behind the data without a word."""
    import sigmf

    first = max(mark.start_sample, capture.start_sample)
    last = min(mark.start_sample + mark.sample_count, capture.end_sample)
    if first >= last:
        return
    keys: dict[str, Any] = {sigmf.LABEL_KEY: mark.label, sigmf.COMMENT_KEY: mark.comment}
    if mark.edges_hz is not None:
        keys[sigmf.FREQ_LOWER_EDGE_KEY], keys[sigmf.FREQ_UPPER_EDGE_KEY] = mark.edges_hz
    described.add_annotation(file_start + first - capture.start_sample, last - first, keys)


def read_recording(base: Path) -> tuple[Recording, bool]:
    """The recording, without its marks, and whether its samples have the digest that the metadata says.

    `RecordingError` names the file that is missing or cannot be used.
    """
    meta, data = meta_path(base), data_path(base)
    for path in (meta, data):
        if not path.is_file():
            raise RecordingError(f"{path} is missing: the recording is not complete")
    import sigmf
    from jsonschema.exceptions import ValidationError

    try:
        if data.stat().st_size > MOST_BYTES:
            raise ValueError(f"{data.name} has more than {MOST_BYTES} bytes")
        metadata = read_json(meta)
        # Before the package makes an object of it, which takes for granted that it is valid.
        sigmf.validate.validate(metadata)
        described = sigmf.SigMFFile(metadata=metadata)
        digest = sigmf.hashing.calculate_sha512(filename=data)
        samples = np.fromfile(data, dtype=_SAMPLE_TYPE).astype(np.complex64, copy=False)
        whole: Mapping[str, Any] = described.get_global_info()
        facts = {key.partition(":")[2]: value for key, value in whole.items() if key.partition(":")[0] == NAMESPACE}
        recording = Recording(
            radio=facts.pop("radio"),
            hardware=whole[sigmf.HW_KEY],
            description=whole[sigmf.DESCRIPTION_KEY],
            segments=_segments(samples, described.get_captures()),
            facts=facts,
        )
    except (OSError, ValueError, KeyError, TypeError, OverflowError, ValidationError, HardwareError) as error:
        reason = error.message if isinstance(error, ValidationError) else error
        raise RecordingError(f"{meta} is not a recording that airdp has written: {reason}") from error
    return recording, digest == whole.get(sigmf.SHA512_KEY)


def _segments(samples: NDArray[np.complex64], captures: list[Mapping[str, Any]]) -> tuple[Segment, ...]:
    import sigmf

    starts = [int(keys[sigmf.SAMPLE_START_KEY]) for keys in captures]
    return tuple(
        Segment(
            Capture(
                samples[start:end],
                int(keys[sigmf.GLOBAL_INDEX_KEY]),
                RadioSettings(**keys[f"{NAMESPACE}:settings"]),
                int(keys[f"{NAMESPACE}:clipped_samples"]),
                keys.get(f"{NAMESPACE}:temperature_c"),
                keys.get(f"{NAMESPACE}:rssi_db"),
            ),
            datetime.fromisoformat(keys[sigmf.DATETIME_KEY]),
        )
        for keys, start, end in zip(captures, starts, [*starts[1:], samples.size], strict=True)
    )
