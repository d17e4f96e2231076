"""The mark beside a long ledger saves time and changes nothing: the oracle is the same ledger without it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fl.errors import LedgerError
from fl.privacy import ledger as ledger_module
from fl.privacy import ledger_mark
from fl.privacy.ledger import Ledger, LedgerHeader
from fl.privacy.ledger_rows import Place, encode, verified_rows
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours

HEADER = LedgerHeader(
    sizes=(40, 60), delta=1e-5, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, config_sha256="c0ffee"
)
JAMMED = RoundMechanism(
    uplink=1,
    received_gains=(1.0, 0.1 + 0.2),
    sigma=0.25,
    sigma_origin=SigmaOrigin.MEASURED,
    record_bounded=False,
    clip_norm=1.0,
    alpha_u=2.0,
    alpha_cj=0.6,
    jammer_gain=0.5,
    noise_std_real=0.4,
    bounds=(("gains", 1e-9), ("sigma", 3e-10)),
)
EVERY, UPLINKS, LOST = 10, 23, (4, 5, 20)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A ledger of 1 + 2 x 23 - 3 = 44 rows, with a mark at every tenth; three uplinks were not accounted for."""
    monkeypatch.setattr(ledger_mark, "EVERY_ROWS", EVERY)
    path = tmp_path / "ledger.jsonl"
    rng = np.random.default_rng(1)
    with Ledger.create(path, HEADER) as ledger:
        for uplink in range(1, UPLINKS + 1):
            made = replace(JAMMED, uplink=uplink, received_gains=tuple(rng.random(2).tolist()))
            row = ledger.authorise(made)
            if uplink not in LOST:
                ledger.account(row, replace(made, sigma=0.3 + 0.01 * uplink))
    assert mark_of(path).is_file()
    return path


def mark_of(path: Path) -> Path:
    return path.with_name("ledger.jsonl.sums")


@pytest.fixture
def read_from(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Numbers of the rows with which readers began."""
    begun: list[int] = []

    def watched(path: Path, start: Place) -> Iterator[object]:
        begun.append(start.seq)
        return verified_rows(path, start)

    monkeypatch.setattr(ledger_module, "verified_rows", watched)
    return begun


def said(path: Path, seen: str | None = None) -> tuple[object, ...]:
    with Ledger.open(path, resumed=False, config_sha256="c0ffee", seen=seen) as ledger:
        losses = tuple(ledger.losses.tolist())
        return losses, ledger.bounds_delta, ledger.authorised, ledger.unaccounted, ledger.head, ledger.first_hash


def test_sums_are_the_same_to_the_last_bit_and_most_rows_are_not_taken_apart(path: Path, read_from: list[int]) -> None:
    quick = said(path)
    mark_of(path).unlink()
    assert said(path) == quick
    assert read_from == [40, 0]
    assert quick[2:4] == (UPLINKS, len(LOST))


def test_a_run_goes_on_behind_the_mark(path: Path) -> None:
    """An uplink from before the mark can still be accounted for, once; what was before it is in the marks to come."""
    with Ledger.open(path) as ledger:
        lost = next(iter(ledger._tally.pending))
        planned = ledger._tally.pending[lost]
        ledger.account(lost, replace(planned, sigma=0.9))
        with pytest.raises(LedgerError, match="accounted for already"):
            ledger.account(lost, planned)
        for uplink in range(UPLINKS + 1, UPLINKS + 9):
            made = replace(JAMMED, uplink=uplink)
            ledger.account(ledger.authorise(made), made)
        now = tuple(ledger.losses.tolist())
    assert said(path)[0] == now
    mark_of(path).unlink()
    assert said(path)[0] == now


@pytest.mark.parametrize("place", [0.02, 0.4, 0.8])
def test_a_byte_changed_before_the_mark_is_found(path: Path, place: float) -> None:
    content = bytearray(path.read_bytes())
    digit = next(n for n in range(int(place * len(content)), len(content)) if chr(content[n]).isdigit())
    content[digit] = ord("7") if content[digit] != ord("7") else ord("8")
    path.write_bytes(content)
    with pytest.raises(LedgerError, match="does not match its hash"):
        said(path)


def test_a_ledger_that_was_cut_before_its_mark_is_refused(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:25]))
    with pytest.raises(LedgerError, match="it was cut"):
        said(path)


def test_a_ledger_that_ends_at_its_mark_is_read_whole(path: Path, read_from: list[int]) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:40]))
    path.with_name("ledger.jsonl.next").write_bytes(lines[39])
    said(path)
    assert read_from == [0]


def test_a_torn_row_behind_the_mark_is_finished(path: Path) -> None:
    whole = said(path)
    content = path.read_bytes()
    path.write_bytes(content[:-30])
    assert said(path) == whole
    assert path.read_bytes() == content


_SPOILT: dict[str, Callable[[bytes], bytes]] = {
    "edited": lambda mark: mark.replace(b'"size":', b'"size":1'),
    "cut": lambda mark: mark[:-20],
    "empty": lambda mark: b"",
    "no JSON": lambda mark: b"[" * 100_000,
    "of another format": lambda mark: encode({"format": 2})[0],
    "without fields": lambda mark: encode({"format": 1, "size": 3})[0],
}


@pytest.mark.parametrize("spoil", _SPOILT.values(), ids=_SPOILT.keys())
def test_a_spoilt_mark_is_as_good_as_none(path: Path, spoil: Callable[[bytes], bytes], read_from: list[int]) -> None:
    expected = said(path)
    mark_of(path).write_bytes(spoil(mark_of(path).read_bytes()))
    assert said(path) == expected
    assert read_from == [40, 0]


def test_the_mark_of_another_ledger_is_as_good_as_none(path: Path, tmp_path: Path, read_from: list[int]) -> None:
    other = tmp_path / "other" / "ledger.jsonl"
    other.parent.mkdir()
    with Ledger.create(other, replace(HEADER, sizes=(1, 2, 3))) as ledger:
        for uplink in range(1, 20):
            made = replace(JAMMED, uplink=uplink, received_gains=(0.1, 0.2, 0.3))
            ledger.account(ledger.authorise(made), made)
    expected = said(path)
    mark_of(path).write_bytes(mark_of(other).read_bytes())
    assert said(path) == expected
    assert read_from == [40, 0]


def test_a_mark_that_is_no_file_is_as_good_as_none(path: Path) -> None:
    expected = said(path)
    mark_of(path).unlink()
    mark_of(path).mkdir()
    assert said(path) == expected
    # And one that cannot be written costs nothing but time.
    with Ledger.open(path) as ledger:
        for uplink in range(UPLINKS + 1, UPLINKS + 9):
            ledger.authorise(replace(JAMMED, uplink=uplink))
    assert said(path)[2] == UPLINKS + 8


def test_a_row_that_a_checkpoint_has_seen_is_found_on_both_sides_of_the_mark(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Chunks of a prime number of bytes: hashes lie across their borders.
    monkeypatch.setattr(ledger_mark, "_CHUNK_BYTES", 97)
    for _, row in list(verified_rows(path)):
        said(path, seen=row.hash)
    with pytest.raises(LedgerError, match="lacks rows that the checkpoint has seen"):
        said(path, seen="0" * 64)


def test_another_config_is_refused(path: Path) -> None:
    with pytest.raises(LedgerError, match="another config"):
        Ledger.open(path, config_sha256="decaf")
