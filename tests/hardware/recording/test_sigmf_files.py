"""SigMF files against the package that defines them: its validator, its reader, its digest."""

import errno
import json
import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
import sigmf

from hardware.radio.samples import Capture
from hardware.radio.settings import RadioSettings
from hardware.recording.model import Mark, Recording, RecordingError, Segment
from hardware.recording.sigmf_files import Reserved, data_path, meta_path, read_recording, write_recording

SETTINGS = RadioSettings(4e6, 2.45e9, 2.4501e9, 4e6, -10.0, 20.0)
RNG = np.random.default_rng(5)


def segment(start_sample: int, count: int, clipped: int = 0, temperature_c: float | None = None) -> Segment:
    samples = (RNG.normal(size=count) + 1j * RNG.normal(size=count)).astype(np.complex64)
    capture = Capture(samples, start_sample, SETTINGS, clipped, temperature_c)
    return Segment(capture, datetime(2026, 11, 18, 1, 2, 3, 456789, UTC))


def recording(*segments: Segment) -> Recording:
    marks = (
        Mark(1000, 50, "silence", "nobody sends"),
        Mark(7010, 1000, "payload", "all at once", (2.4486e9, 2.4516e9)),
        Mark(9999, 10, "elsewhere", "in no segment"),
    )
    return Recording("ps", "a receiver", "what it received", segments, marks, {"run": "tiny", "uplink": 3})


@pytest.fixture
def base(tmp_path: Path) -> Path:
    write_recording(tmp_path / "one", recording(segment(1000, 300), segment(7000, 200, clipped=3, temperature_c=31.5)))
    return tmp_path / "one"


def test_the_official_validator_and_reader_take_it(base: Path) -> None:
    written = np.fromfile(data_path(base), np.complex64)
    read = sigmf.fromfile(meta_path(base))  # checks the digest too
    read.validate()
    assert np.array_equal(read[:], written)
    assert written.size == 500
    assert [capture["core:sample_start"] for capture in read.get_captures()] == [0, 300]
    assert [capture["core:global_index"] for capture in read.get_captures()] == [1000, 7000]
    assert read.get_captures()[0]["core:frequency"] == SETTINGS.rx_center_hz
    assert read.get_captures()[0]["core:datetime"] == "2026-11-18T01:02:03.456789Z"
    assert read.get_global_field("core:datatype") == "cf32_le"
    assert read.get_global_field("core:sample_rate") == 4e6
    assert read.get_global_field("core:author") is None
    assert read.get_global_field("airdp:uplink") == 3
    assert read.get_global_field("core:extensions") == [{"name": "airdp", "version": "1.0.0", "optional": True}]


def test_marks_lie_where_the_counter_says_and_end_with_their_segment(base: Path) -> None:
    silence, payload = sigmf.fromfile(meta_path(base)).get_annotations()
    assert (silence["core:label"], silence["core:sample_start"], silence["core:sample_count"]) == ("silence", 0, 50)
    # 10 samples into the second segment, of which 190 are left.
    assert (payload["core:sample_start"], payload["core:sample_count"]) == (310, 190)
    assert (payload["core:freq_lower_edge"], payload["core:freq_upper_edge"]) == (2.4486e9, 2.4516e9)


def test_round_trip(tmp_path: Path) -> None:
    written = recording(segment(1000, 300), segment(7000, 200, clipped=3, temperature_c=31.5))
    write_recording(tmp_path / "one", written)
    read, intact = read_recording(tmp_path / "one")
    assert intact
    assert (read.radio, read.hardware, read.description) == (written.radio, written.hardware, written.description)
    assert read.facts == {"run": "tiny", "uplink": 3, "full_scale": 1.0}
    for one, other in zip(read.segments, written.segments, strict=True):
        assert np.array_equal(one.capture.samples, other.capture.samples)
        assert one.time == other.time
        assert replace(one.capture, samples=other.capture.samples) == other.capture


def test_a_changed_sample_is_noticed(base: Path) -> None:
    content = bytearray(data_path(base).read_bytes())
    content[8 * 123] ^= 1
    data_path(base).write_bytes(content)
    assert not read_recording(base)[1]


@pytest.mark.parametrize("path", [meta_path, data_path])
def test_a_missing_file_is_named(base: Path, path: object) -> None:
    assert callable(path)
    missing: Path = path(base)
    missing.unlink()
    with pytest.raises(RecordingError, match=missing.name):
        read_recording(base)


def test_metadata_that_is_not_ours_is_refused(base: Path) -> None:
    data = json.loads(meta_path(base).read_text())
    del data["captures"][0]["airdp:settings"]
    meta_path(base).write_text(json.dumps(data))
    with pytest.raises(RecordingError, match="airdp:settings"):
        read_recording(base)
    data["captures"][0]["core:sample_start"] = -1
    meta_path(base).write_text(json.dumps(data))
    with pytest.raises(RecordingError, match="minimum"):
        read_recording(base)


def test_without_room_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, offset: int, length: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match="No space left"):
        Reserved(tmp_path / "one", 1000)
    assert list(tmp_path.iterdir()) == []


def test_room_is_really_taken_and_given_back(tmp_path: Path) -> None:
    room = Reserved(tmp_path / "one", 100_000)
    (scratch,) = tmp_path.iterdir()
    assert scratch.name.startswith(".")
    assert 512 * scratch.stat().st_blocks >= 800_000
    room.fill(recording(segment(1000, 300)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.sigmf-data", "one.sigmf-meta"]
    assert data_path(room.base).stat().st_size == 2400
    Reserved(tmp_path / "two", 10).give_up()
    assert len(list(tmp_path.iterdir())) == 2


def test_a_recording_that_cannot_be_described_leaves_no_metadata(tmp_path: Path) -> None:
    other = segment(7000, 10)
    faster = replace(other, capture=replace(other.capture, settings=replace(SETTINGS, sample_rate_hz=5e6)))
    with pytest.raises(RecordingError, match="2 sample rates"):
        write_recording(tmp_path / "one", recording(segment(1000, 300), faster))
    assert not meta_path(tmp_path / "one").exists()
