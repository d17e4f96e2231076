"""Hostile files: whatever a reader is given, it reads it or refuses it with an error of ours.

AIRDP_FUZZ=N sets the number of inputs of each format (default 1,000), AIRDP_FUZZ_SEED the seed. `make fuzz` goes on for
an hour, with a new seed in each round.
"""

import contextlib
import gzip
import io
import json
import math
import os
import random
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tomli_w
from numpy.typing import NDArray

from calibration.diagnostics import diagnose_silence
from calibration.gains import load_gains
from calibration.noise import noise_of
from calibration.record import new_record, parse_record, save_record
from calibration.silence import observe_silence
from fl.audit.runs.evidence import Evidence, UplinkEvidence
from fl.dashboard.follow import Followed
from fl.inspect.view import LAYOUT, read_snapshot
from fl.learning.data.idx import read_images, read_labels
from fl.nodes.apart.own_ledger import PERMITS, used_rows
from fl.nodes.journal.codec import encode as encode_value
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.ledger_rows import encode
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from fl.report.provenance import versions_of
from fl.report.sources import read_study
from fl.run import run
from fl.run.captures import AttemptFiles
from fl.run.config import load_config
from fl.run.folder import Checkpoint, RunFolder
from fl.sweep.plan import SweepFolder, load_plan
from hardware.foundation.arrays import read_array, read_arrays
from hardware.lab.file import load_lab
from hardware.radio.samples import Capture
from hardware.radio.settings import RadioSettings
from hardware.recording.model import Recording, Segment
from hardware.recording.sigmf_files import meta_path, read_recording, write_recording
from phy.errors import AirdpError
from tests.calibration.silences import SMALL, white
from tests.conftest import REPOSITORY, TINY
from tests.fuzz.mutation import mutate_bytes, mutate_value

COUNT = int(os.environ.get("AIRDP_FUZZ", "1000"))
SEED = int(os.environ.get("AIRDP_FUZZ_SEED", "13"))
pytestmark = pytest.mark.timeout(300 + COUNT // 10)
Read = Callable[[bytes], object]


def attack(
    name: str, seeds: list[bytes], make: Callable[[bytes, random.Random], bytes], read: Read, count: int = COUNT
) -> None:
    """Refused or read, `count` times; and not always the same, or the mutations would show nothing."""
    draw = random.Random(f"{name} {SEED}")
    refused = 0
    for number in range(count):
        content = make(draw.choice(seeds), draw)
        try:
            read(content)
        except AirdpError:
            refused += 1
        except BaseException as error:
            error.add_note(f"input {number} of {name}, seed {SEED}: {content[:500]!r}")
            raise
    assert refused > 0
    if COUNT >= 1000:
        assert refused < count


def values_of(load: Callable[[str], Any], dump: Callable[[Any], str]) -> Callable[[bytes, random.Random], bytes]:
    """Half of the inputs are changed as bytes, half as values and written again."""

    def make(content: bytes, draw: random.Random) -> bytes:
        if draw.random() < 0.5:
            return mutate_bytes(content, draw)
        with contextlib.suppress(TypeError, ValueError):
            return dump(mutate_value(load(content.decode()), draw)).encode(errors="surrogatepass")
        return mutate_bytes(content, draw)

    return make


def load_toml(text: str) -> Any:
    import tomllib

    return tomllib.loads(text)


TOML = values_of(load_toml, tomli_w.dumps)
JSON = values_of(json.loads, json.dumps)


def of_file(path: Path, read: Callable[[Path], object]) -> Read:
    def reading(content: bytes) -> object:
        path.write_bytes(content)
        return read(path)

    return reading


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)


def test_configs(tmp_path: Path) -> None:
    seeds = [tomli_w.dumps(TINY).encode(), *(path.read_bytes() for path in (REPOSITORY / "fl/configs").glob("*.toml"))]
    attack("config", seeds, TOML, of_file(tmp_path / "c.toml", lambda path: load_config(str(path)).digest()))


def test_labs(tmp_path: Path) -> None:
    seeds = [path.read_bytes() for path in (REPOSITORY / "hardware/labs").glob("*.toml")]
    attack("lab", seeds, TOML, of_file(tmp_path / "lab.toml", load_lab))


def test_sweep_files(tmp_path: Path) -> None:
    seeds = [path.read_bytes() for path in (REPOSITORY / "fl/configs/sweeps").glob("*-quick.toml")]
    attack("sweep file", seeds, TOML, of_file(tmp_path / "s.toml", lambda path: load_plan(str(path))))


def test_sweep_folders(tmp_path: Path) -> None:
    seeds = [json.dumps(load_plan("quickstart").to_json()).encode()]
    attack("sweep folder", seeds, JSON, of_file(tmp_path / "sweep.json", lambda path: SweepFolder(tmp_path).plan()))


def small_ledger(path: Path) -> bytes:
    header = LedgerHeader((40, 60), 1e-5, Label.CLIENT, Neighbours.ZERO_OUT, "c0ffee")
    with Ledger.create(path, header) as ledger:
        for uplink in (1, 2):
            one = RoundMechanism(
                uplink,
                (1.0, 0.3),
                0.25,
                SigmaOrigin.MEASURED,
                False,
                1.0,
                1e-5,
                0.5,
                0.1,
                1.0,
                bounds=(("gain", 1e-9),),
            )
            ledger.account(ledger.authorise(one), one)
    return path.read_bytes()


def resigned(content: bytes, draw: random.Random) -> bytes:
    """Rows with odd values and the right hashes, as one who knows the format could write them."""
    rows = [json.loads(line) for line in content.splitlines()]
    changed = mutate_value(rows, draw)
    if not isinstance(changed, list):
        return mutate_bytes(content, draw)
    head, lines = "0" * 64, []
    for seq, row in enumerate(changed):
        if not isinstance(row, dict):
            continue
        linked = {**{key: part for key, part in row.items() if key != "hash"}, "seq": seq, "prev": head}
        try:
            line, head = encode(linked)
        except (TypeError, ValueError):
            return mutate_bytes(content, draw)
        lines.append(line)
    return b"".join(lines)


def use_ledger(path: Path) -> None:
    """All that a run and a reader do with it: whatever it says, epsilon is a number and not below zero."""
    path.with_name(path.name + ".next").unlink(missing_ok=True)
    contents = read_ledger(path)
    with Ledger.open(path, resumed=False) as ledger:
        assert not np.isnan(ledger.losses).any()
    stated = state_privacy(
        contents.mechanisms,
        contents.header.sizes_array,
        label=contents.header.label,
        neighbours=contents.header.neighbours,
        delta=contents.header.delta,
    )
    assert all(epsilon >= 0 and not math.isnan(epsilon) for epsilon in stated.epsilon.values())


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
@pytest.mark.parametrize("make", [mutate_bytes, resigned], ids=["bytes", "signed again"])
def test_ledgers(tmp_path: Path, make: Callable[[bytes, random.Random], bytes]) -> None:
    attack(f"ledger {make.__name__}", [small_ledger(tmp_path / "l")], make, of_file(tmp_path / "l", use_ledger))


def test_calibration_records(tmp_path: Path) -> None:
    silence = observe_silence(white(32, np.random.default_rng(100), SMALL), SMALL)
    settings = RadioSettings(5e6, 2.45e9, 2.45e9, 5e6, -10.0, 40.0)
    noise, diagnostics = noise_of(silence), diagnose_silence(silence)
    save_record(new_record("ps", settings, SMALL, noise, diagnostics, datetime.now(UTC)), tmp_path / "r")
    attack("record", [(tmp_path / "r").read_bytes()], JSON, lambda content: parse_record(content, "the record"))


def test_metrics(tmp_path: Path) -> None:
    row = {"uplink": 1, "rounds": 2, "accuracy": 0.5, "loss": "inf", "epsilon": 1.5, "diagnostics": {"nmse_db": -20.0}}
    seeds = [(json.dumps(row) + "\n").encode() * 3]
    folder = RunFolder(tmp_path)
    lines = values_of(
        lambda text: [json.loads(line) for line in text.splitlines()],
        lambda rows: "".join(json.dumps(one) + "\n" for one in rows),
    )
    attack("metrics", seeds, lines, of_file(folder.metrics_path, lambda path: folder.metrics()))


@pytest.mark.usefixtures("no_figures", "one_thread")
def test_files_that_a_report_reads(tmp_path: Path) -> None:
    """Of a run that has ended, one file after the other."""
    run(TINY, tmp_path / "run")
    folder = RunFolder(tmp_path / "run")
    lines = values_of(
        lambda text: [json.loads(line) for line in text.splitlines()],
        lambda rows: "".join(json.dumps(one) + "\n" for one in rows),
    )

    def use(path: Path) -> None:
        study = read_study(folder.path)
        assert study.curves[0].trials[0].rounds >= 0
        assert all(isinstance(said, str) for said in versions_of(study))

    for name in ("metrics.jsonl", "result.json", "partition.json", "versions.json"):
        path = folder.path / name
        content, make = path.read_bytes(), lines if name == "metrics.jsonl" else JSON
        attack(name, [content], make, of_file(path, use), COUNT // 4)
        path.write_bytes(content)


def arrays_changed(content: bytes, draw: random.Random) -> bytes:
    """Archives with other arrays in them, written anew so that their checksums are right; and changed bytes."""
    if draw.random() < 0.4:
        return mutate_bytes(content, draw)
    with np.load(io.BytesIO(content)) as file:
        arrays = {name: file[name] for name in file.files}
    name = draw.choice(list(arrays))
    odd: list[Any] = [
        np.array(10**17), np.array(-1), np.array(1e300), np.array(np.nan), np.array("x"), np.zeros(0), np.zeros((2, 3)),
        np.array([10**18]), np.array(True), np.zeros(5, np.complex64), np.array([b"x"]), np.array(["a" * 1000]),
        np.full(3, np.inf, np.float32),
    ]  # fmt: skip
    if draw.random() < 0.2:
        del arrays[name]
    else:
        arrays[name] = draw.choice(odd)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


def test_checkpoints(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    folder.save_checkpoint(Checkpoint(3, np.linspace(-1, 1, 200).astype(np.float32), "a" * 64))
    seeds = [folder.checkpoint_path.read_bytes()]
    attack("checkpoint", seeds, arrays_changed, of_file(folder.checkpoint_path, lambda path: folder.load_checkpoint()))


def small_snapshot() -> dict[str, NDArray[Any]]:
    """Two transmitters, one of them a client, on eight bins."""
    sizes = {"T": 2, "K": 1, "U": 4, "F": 8, "N": 5, "S": 6, "P": 7}
    kinds: dict[str, Any] = {"U": "<U6", "c": np.complex64, "f": np.float64, "i": np.int64}
    made = {name: np.ones([sizes[axis] for axis in one.axes], kinds[one.kind]) for name, one in LAYOUT.items()}
    return {**made, "noise_bins": np.array([1, 2, 6, 7])}


def test_snapshots(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.savez(buffer, **small_snapshot())

    def use(path: Path) -> None:
        snapshot = read_snapshot(path)
        assert np.isfinite(snapshot.delays_samples).all()
        assert np.isfinite(snapshot.gains_db).all()

    attack("snapshot", [buffer.getvalue()], arrays_changed, of_file(tmp_path / "u.npz", use))


@pytest.mark.filterwarnings("ignore:overflow:RuntimeWarning")
def test_what_canaries_have_shown(tmp_path: Path) -> None:
    one, present = UplinkEvidence(np.linspace(-1, 1, 40), np.full(40, 0.5), 1.0), np.arange(40) % 2 == 0
    folder = RunFolder(tmp_path)
    for uplink in (1, 2):
        folder.save_evidence(uplink, one)
    path = tmp_path / "audit" / "uplink-0002.npz"

    def use(path: Path) -> None:
        Evidence.of(folder.evidence(2), present).bounds(1e-5)

    attack("canaries", [path.read_bytes()], arrays_changed, of_file(path, use))


def test_single_arrays(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.save(buffer, np.linspace(-1, 1, 50).astype(np.float32))
    attack("array", [buffer.getvalue()], mutate_bytes, of_file(tmp_path / "a.npy", read_array))


def test_gains(tmp_path: Path) -> None:
    text = "uplink,transmitter,re,im\n" + "".join(
        f"{uplink},{link},0.5,-0.25\n" for uplink in (1, 2) for link in ("0", "1", "jammer")
    )
    buffer = io.BytesIO()
    np.savez(buffer, client_gains=np.ones((2, 3), complex), jammer_gains=np.ones(2, complex))
    attack("gains as text", [text.encode()], mutate_bytes, of_file(tmp_path / "g.csv", load_gains))
    attack("gains", [buffer.getvalue()], arrays_changed, of_file(tmp_path / "g.npz", load_gains))


@pytest.mark.filterwarnings("ignore::DeprecationWarning:sigmf")
@pytest.mark.filterwarnings("ignore:Found undeclared extensions")
def test_recordings(tmp_path: Path) -> None:
    """SigMF: the samples stay as they are, what describes them is changed."""
    base, settings = tmp_path / "r", RadioSettings(5e6, 2.45e9, 2.45e9, 5e6, -10.0, 40.0)
    captures = [Capture(np.zeros(8, np.complex64), start, settings, 0) for start in (0, 100)]
    segments = tuple(Segment(capture, datetime.now(UTC)) for capture in captures)
    write_recording(base, Recording("ps", "a radio", "a recording", segments, facts={"uplink": 1}))
    meta = meta_path(base)
    attack("recording", [meta.read_bytes()], JSON, of_file(meta, lambda path: read_recording(base)))


def test_idx_files(tmp_path: Path) -> None:
    images = bytes([0, 0, 8, 3, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 3]) + bytes(range(24))
    keep = np.ones(4, np.bool_)
    seeds = {"i": images, "l": bytes([0, 0, 8, 1, 0, 0, 0, 4]) + bytes(4)}
    attack("images", [seeds["i"]], mutate_bytes, of_file(tmp_path / "i", lambda path: read_images(path, keep, (2, 3))))
    attack("labels", [seeds["l"]], mutate_bytes, of_file(tmp_path / "l", read_labels))
    packed = gzip.compress(seeds["l"])
    attack("packed labels", [packed], mutate_bytes, of_file(tmp_path / "l.gz", read_labels))


def test_journals_of_captures(tmp_path: Path) -> None:
    """The conversation of an uplink, as `airdp replay` reads it: lines, and the values in them."""
    row = {"kind": "begin", "memory": encode_value(np.arange(3.0)), "known_offsets": [], "count": 1}
    asked = {"kind": "ask", "said": encode_value({"a": (1, 2.0, 3j, math.inf)})}
    seeds = ["".join(json.dumps(one) + "\n" for one in (row, asked, {"kind": "outcome"})).encode()]
    lines = values_of(
        lambda text: [json.loads(line) for line in text.splitlines()],
        lambda rows: "".join(json.dumps(one) + "\n" for one in rows),
    )
    files = AttemptFiles(tmp_path, 1, 1)
    attack("journal", seeds, lines, of_file(files.journal, lambda path: files.events()))


def test_rows_that_a_client_has_used(tmp_path: Path) -> None:
    seeds = [b"".join(b'{"row": "%064x"}\n' % number for number in range(3))]
    attack("permits", seeds, mutate_bytes, of_file(tmp_path / PERMITS, lambda path: used_rows(tmp_path)))


def test_what_a_page_follows(tmp_path: Path) -> None:
    """Log, noise and metrics together: the page names what it cannot read, and shows the rest."""
    time = "2026-01-01T00:00:00.000+00:00"
    lines: list[dict[str, Any]] = [
        {"time": time, "kind": "run", "state": "started"},
        {"time": time, "kind": "state", "state": "sound", "uplink": 1, "attempt": 0},
        {"time": time, "kind": "node", "node": "client-1", "state": "sent", "uplink": 1},
        {"time": time, "kind": "message", "level": "warning", "text": "x"},
        {"uplink": 1, "attempt": 0, "silence": {"noise": {"noise_var_real": 1.0, "ci": [0.5, 2.0]}}, "accuracy": 0.5},
    ]
    seeds = ["".join(json.dumps(line) + "\n" for line in lines).encode()]
    make = values_of(
        lambda text: [json.loads(line) for line in text.splitlines()],
        lambda rows: "".join(json.dumps(one) + "\n" for one in rows),
    )
    folder = RunFolder(tmp_path)

    def follow(content: bytes) -> None:
        for name in ("log.jsonl", "noise.jsonl", "metrics.jsonl", "result.json", "lab.toml"):
            (tmp_path / name).write_bytes(content)
        followed = Followed(folder)
        followed.update()
        news = followed.news({})
        json.dumps(news, allow_nan=False)
        if news["run"]["problems"] or news["run"]["damaged_lines"]:
            raise AirdpError("named on the page")

    attack("what a page follows", seeds, make, follow)


def test_an_archive_that_grows_beyond_reason_is_refused(tmp_path: Path) -> None:
    """A bomb: zeros of which a thousandth is left. And a header that announces more than there is."""
    path = tmp_path / "bomb.npz"
    import zipfile

    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + zlib.compress(b"")[:2])
    with pytest.raises(AirdpError):
        read_arrays(path)
    with zipfile.ZipFile(path, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (100000000000000000,), }"
        padded = header + b" " * (117 - len(header)) + b"\n"
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded)
    with pytest.raises(AirdpError):
        read_arrays(path)
