"""The ledger: what was authorised stays charged, whatever is done to the file or to the process that writes it.

The chain's oracle is written out here: the hash of a row is the SHA-256 of its JSON without `hash`, keys sorted.
"""

import errno
import hashlib
import json
import math
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from fl.errors import LedgerError, PrivacyError
from fl.privacy import ledger as ledger_module
from fl.privacy.accountant import Accountant
from fl.privacy.ledger import Ledger, LedgerHeader, read_ledger
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.privacy.sensitivity import Label, Neighbours
from fl.privacy.statement import state_privacy
from hardware.foundation import durable

HEADER = LedgerHeader(
    sizes=(40, 60), delta=1e-5, label=Label.CLIENT, neighbours=Neighbours.ZERO_OUT, config_sha256="c0ffee"
)
# 1e-05 has two JSON spellings of equal length, and 0.1 + 0.2 has seventeen digits, of which the last is not unique.
PLANNED = RoundMechanism(
    uplink=1,
    received_gains=(1.0, 0.1 + 0.2),
    sigma=0.25,
    sigma_origin=SigmaOrigin.SIMULATED,
    record_bounded=False,
    clip_norm=1.0,
    alpha_u=1e-05,
    alpha_cj=0.0,
    jammer_gain=0.0,
    noise_std_real=1.0,
)
MEASURED = replace(PLANNED, sigma=0.5, sigma_origin=SigmaOrigin.MEASURED)
# sigma^2 = (0.3^2 + 0.4^2)/2^2, of which 0.4^2 is the receiver's.
JAMMED = replace(PLANNED, sigma=0.25, alpha_u=2.0, alpha_cj=0.6, jammer_gain=0.5, noise_std_real=0.4)

quick = settings(
    max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger.jsonl"


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sweeps over thousands of files need not wait for a disk; that rows are synced has tests of its own."""
    monkeypatch.setattr(durable.os, "fsync", lambda descriptor: None)


@pytest.fixture
def written(path: Path) -> bytes:
    """open, authorise, account, authorise."""
    ledger = Ledger.create(path, HEADER)
    ledger.account(ledger.authorise(PLANNED), MEASURED)
    ledger.authorise(replace(PLANNED, uplink=2))
    return path.read_bytes()


def rows_of(content: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in content.splitlines()]


def digest(row: dict[str, Any]) -> str:
    body = {key: value for key, value in row.items() if key != "hash"}
    return hashlib.sha256(json.dumps(body, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def chained(rows: list[dict[str, Any]], *, pairs: bool = False) -> bytes:
    """Rows with numbers and hashes made right: what someone who knows the format could write.

    pairs: each account is for the row before it.
    """
    previous, lines = "0" * 64, []
    for seq, row in enumerate(rows):
        linked = {**row, "seq": seq, "prev": previous}
        if pairs and row["kind"] == "account":
            linked["authorised_seq"] = seq - 1
        previous = linked["hash"] = digest(linked)
        lines.append(json.dumps(linked, separators=(",", ":")).encode() + b"\n")
    return b"".join(lines)


def snapshot(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


def refused_by_both(path: Path, match: str = "ledger") -> None:
    """Neither reading nor taking up works, and neither changes anything."""
    before = snapshot(path.parent)
    for use in (read_ledger, Ledger.open):
        with pytest.raises(LedgerError, match=match) as caught:
            use(path)
        assert str(path) in str(caught.value)
    assert snapshot(path.parent) == before


def test_rows_stand_in_order_and_are_chained(path: Path, written: bytes) -> None:
    rows = rows_of(written)
    assert [row["kind"] for row in rows] == ["open", "authorise", "account", "authorise"]
    assert [row["seq"] for row in rows] == [0, 1, 2, 3]
    assert [row["prev"] for row in rows] == ["0" * 64, *(row["hash"] for row in rows[:-1])]
    assert [row["hash"] for row in rows] == [digest(row) for row in rows]
    assert chained(rows) == written
    contents = read_ledger(path)
    assert contents.header == HEADER
    assert contents.head == rows[-1]["hash"]
    assert contents.hashes == {row["hash"] for row in rows}
    assert (contents.authorised, contents.accounted, contents.resumes) == (2, 1, 0)


def test_an_account_replaces_the_worst_case_and_its_absence_keeps_it(path: Path, written: bytes) -> None:
    assert read_ledger(path).mechanisms == (MEASURED, replace(PLANNED, uplink=2))


def test_without_an_account_the_jammer_does_not_count(path: Path) -> None:
    """Not for who reads, nor for who writes, nor for who takes it up."""
    ledger = Ledger.create(path, HEADER)
    proven = ledger.authorise(JAMMED)
    ledger.account(proven, JAMMED)
    cut_off = ledger.authorise(replace(JAMMED, uplink=2))
    alone = replace(JAMMED, uplink=2, sigma=0.4 / 2.0, alpha_cj=0.0)
    assert ledger.mechanisms == {proven: JAMMED, cut_off: alone}
    assert read_ledger(path).mechanisms == (JAMMED, alone)
    assert read_ledger(path).proven == (True, False)
    taken_up = Ledger.open(path)
    assert taken_up.mechanisms == {proven: JAMMED, cut_off: alone}
    assert (ledger.unaccounted, taken_up.unaccounted, read_ledger(path).unaccounted) == (1, 1, 1)
    taken_up.account(cut_off, replace(JAMMED, uplink=2))
    assert read_ledger(path).mechanisms == (JAMMED, replace(JAMMED, uplink=2))


def test_a_jammer_fault_on_a_full_disk_is_charged_without_the_jammer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The account that would say so cannot be written, neither the row nor its announcement."""

    def full(target: Path, content: bytes) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    ledger = Ledger.create(path, HEADER)
    seq = ledger.authorise(JAMMED)
    alone = JAMMED.without_jammer()
    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "write_atomically", full)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.account(seq, alone)
    assert ledger.mechanisms == {seq: alone}
    assert read_ledger(path).mechanisms == (alone,)
    assert tuple(Ledger.open(path).mechanisms.values()) == (alone,)


def test_an_uplink_sent_again_is_charged_again(path: Path) -> None:
    ledger = Ledger.create(path, HEADER)
    ledger.authorise(PLANNED)
    ledger.account(ledger.authorise(PLANNED), MEASURED)
    assert read_ledger(path).mechanisms == (PLANNED, MEASURED)
    assert list(ledger.mechanisms.values()) == [PLANNED, MEASURED]


def test_epsilon_comes_from_the_file_alone(path: Path, written: bytes) -> None:
    """By hand, for the label client: client 1 has p g / sigma = 0.6 x 0.3 / 0.5, then 0.6 x 0.3 / 0.25; client 0 has
    0.4 / 0.5 and 0.4 / 0.25 and is the worst."""
    contents = read_ledger(path)
    said = state_privacy(
        contents.mechanisms,
        contents.header.sizes_array,
        label=contents.header.label,
        neighbours=contents.header.neighbours,
        delta=contents.header.delta,
    )
    expected = 0.5 * ((0.4 / 0.5) ** 2 + (0.4 / 0.25) ** 2)
    assert said.total_loss == pytest.approx(expected, rel=1e-14)
    assert said.epsilon[Accountant.PAPER] == pytest.approx(
        expected + 2 * math.sqrt(expected * math.log(1e5)), rel=1e-14
    )
    same = state_privacy(
        [MEASURED, replace(PLANNED, uplink=2)],
        HEADER.sizes_array,
        label=HEADER.label,
        neighbours=HEADER.neighbours,
        delta=HEADER.delta,
    )
    assert said == same


@pytest.mark.usefixtures("no_waiting")
def test_every_flipped_byte_is_noticed(path: Path, written: bytes) -> None:
    """All of them, one at a time: in names, numbers, hashes, commas, ends of lines. 0x01 makes 4 a 5 in the last of
    seventeen digits, 0x20 makes e an E: the same numbers, spelled otherwise."""
    for position in range(len(written)):
        for flip in (0x01, 0x20):
            damaged = bytearray(written)
            damaged[position] ^= flip
            path.write_bytes(damaged)
            with pytest.raises(LedgerError):
                read_ledger(path)


@pytest.mark.usefixtures("no_waiting")
@quick
@given(data=st.data())
def test_every_other_edit_is_noticed(path: Path, written: bytes, data: st.DataObject) -> None:
    """A stretch of bytes replaced by others, longer or shorter, also by what JSON would take for the same."""
    start = data.draw(st.integers(0, len(written)))
    stop = data.draw(st.integers(start, min(len(written), start + 4)))
    spelled = st.sampled_from([b"", b" ", b"\n", b"\t", b"\r", b"0", b"E", b"e-5", b"1.0", b"\xef\xbb\xbf", b"\x00"])
    inserted = data.draw(st.one_of(spelled, st.binary(max_size=4)))
    edited = written[:start] + inserted + written[stop:]
    whole_rows_cut = written.startswith(edited) and (edited.endswith(b"\n"))
    if edited == written or whole_rows_cut:
        return
    path.write_bytes(edited)
    with pytest.raises(LedgerError):
        read_ledger(path)


@pytest.mark.parametrize(
    "edit",
    [
        pytest.param(lambda lines: lines[1:], id="first removed"),
        pytest.param(lambda lines: [lines[0], *lines[2:]], id="authorise removed"),
        pytest.param(lambda lines: [*lines[:2], *lines[3:]], id="account removed"),
        pytest.param(lambda lines: [lines[0], lines[2], lines[1], lines[3]], id="swapped"),
        pytest.param(lambda lines: lines[::-1], id="reversed"),
        pytest.param(lambda lines: [*lines, lines[-1]], id="last duplicated"),
        pytest.param(lambda lines: [lines[0], lines[0], *lines[1:]], id="first duplicated"),
        pytest.param(lambda lines: [*lines, lines[2]], id="account repeated"),
        pytest.param(lambda lines: [*lines[:2], b"\n", *lines[2:]], id="empty line"),
        pytest.param(lambda lines: [*lines[:2], b"{}\n", *lines[2:]], id="empty row"),
        pytest.param(lambda lines: [*lines[:2], b"null\n", *lines[2:]], id="no row"),
        pytest.param(lambda lines: [*lines, b"[" * 100_000 + b"\n"], id="nested"),
        pytest.param(lambda lines: [*lines, b"\xff\n"], id="no text"),
        pytest.param(lambda lines: [*lines[:2], chained(rows_of(lines[1])), *lines[2:]], id="row of another chain"),
    ],
)
def test_rows_removed_moved_or_added_are_noticed(
    path: Path, written: bytes, edit: Callable[[list[bytes]], list[bytes]]
) -> None:
    path.write_bytes(b"".join(edit(written.splitlines(keepends=True))))
    refused_by_both(path)


def test_an_edited_row_with_a_new_hash_breaks_the_chain(path: Path, written: bytes) -> None:
    lines = written.splitlines(keepends=True)
    row = json.loads(lines[1])
    row["mechanism"]["sigma"] = 100.0
    row["hash"] = digest(row)
    lines[1] = json.dumps(row, separators=(",", ":")).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    refused_by_both(path, "line 3 does not follow")


def test_rows_cut_off_at_the_end_are_seen_by_who_kept_the_last_hash(path: Path, written: bytes) -> None:
    """From the file alone they cannot be; a checkpoint holds the head."""
    head = read_ledger(path).head
    path.write_bytes(b"".join(written.splitlines(keepends=True)[:-1]))
    assert head not in read_ledger(path).hashes


@pytest.mark.parametrize(
    ("change", "match"),
    [
        (lambda rows: rows[1:], "start with an 'open' row"),
        (lambda rows: [{**rows[0], "format": 3}, *rows[1:]], "format 2 or earlier"),
        (lambda rows: [{**rows[0], "view": "everything"}, *rows[1:]], "everything"),
        (lambda rows: [{key: value for key, value in rows[0].items() if key != "view"}, *rows[1:]], "view"),
        (lambda rows: [{**rows[0], "delta": 0.0}, *rows[1:]], "delta"),
        (lambda rows: [{**rows[0], "sizes": []}, *rows[1:]], "sizes"),
        (lambda rows: [{**rows[0], "sizes": [0, 10]}, *rows[1:]], "sizes"),
        (lambda rows: [{**rows[0], "label": "none"}, *rows[1:]], "Label"),
        (lambda rows: [*rows, rows[0]], "unknown kind 'open'"),
        (lambda rows: [*rows, {"kind": "refund"}], "unknown kind 'refund'"),
        (lambda rows: [*rows, {"kind": "authorise"}], "mechanism"),
        (lambda rows: [*rows, {}], "kind"),
        (lambda rows: [*rows, rows[2]], "not authorised"),
        (lambda rows: [*rows[:1], rows[2]], "not authorised"),
        (lambda rows: [*rows, {**rows[2], "authorised_seq": 2}], "not authorised"),
        (lambda rows: [*rows, {**rows[2], "authorised_seq": [1]}], "cannot be read"),
        (lambda rows: [*rows, {**rows[1], "mechanism": {**rows[1]["mechanism"], "sigma": "1"}}], r"sigma: .*number"),
        (
            lambda rows: [*rows, {**rows[1], "mechanism": {**rows[1]["mechanism"], "record_bounded": "no"}}],
            r"record_bounded: .*boolean",
        ),
        (lambda rows: [*rows, {**rows[1], "mechanism": {**rows[1]["mechanism"], "sigma": 10**400}}], "sigma"),
        (lambda rows: [*rows, {**rows[1], "mechanism": {**rows[1]["mechanism"], "uplink": 10**30}}], "uplink"),
        (lambda rows: [{**rows[0], "sizes": [10**400, 1]}, *rows[1:]], "sizes"),
        (lambda rows: [{**rows[0], "delta": 10**400}, *rows[1:]], "cannot be read"),
        (lambda rows: [*rows, {**rows[1], "mechanism": {**rows[1]["mechanism"], "received_gains": [1]}}], "1 gains"),
    ],
)
def test_a_chain_that_is_right_but_says_nonsense_is_refused(
    path: Path, written: bytes, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], match: str
) -> None:
    path.write_bytes(chained(change(rows_of(written))))
    refused_by_both(path, match)


def test_what_is_no_ledger_is_refused(path: Path) -> None:
    refused_by_both(path, "cannot read")
    assert not path.exists()
    path.write_bytes(b"")
    refused_by_both(path, "empty")
    path.unlink()
    path.mkdir()
    with pytest.raises(LedgerError, match="cannot read"):
        read_ledger(path)


def test_a_ledger_is_never_overwritten(path: Path, written: bytes) -> None:
    with pytest.raises(LedgerError, match="exists already"):
        Ledger.create(path, HEADER)
    assert path.read_bytes() == written


def test_a_header_without_meaning_cannot_exist() -> None:
    for changes in ({"sizes": ()}, {"sizes": (3, 0)}, {"delta": 0.0}, {"delta": 1.0}):
        with pytest.raises(PrivacyError):
            replace(HEADER, **changes)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("kind", ["open", "authorise", "account"])
def test_a_row_torn_at_any_byte_is_finished(path: Path, kind: str) -> None:
    """A crash after 0, 1, 2 … bytes of the last row, while `.next` holds it whole."""
    ledger = Ledger.create(path, HEADER)
    if kind != "open":
        seq = ledger.authorise(PLANNED)
    if kind == "account":
        ledger.account(seq, MEASURED)
    whole = path.read_bytes()
    next_path = path.with_name("ledger.jsonl.next")
    last = next_path.read_bytes()
    assert whole.endswith(last)
    start = len(whole) - len(last)
    for cut in range(start, len(whole)):
        path.write_bytes(whole[:cut])
        next_path.write_bytes(last)
        before = snapshot(path.parent)
        if cut > start or kind == "open":
            with pytest.raises(LedgerError, match=r"truncated|empty"):
                read_ledger(path)
        assert snapshot(path.parent) == before, "reading changes nothing"
        taken_up = Ledger.open(path)
        # Even where not one byte of the row was there: it may have been cut, and charging it does no harm.
        assert path.read_bytes().startswith(whole)
        rows = rows_of(path.read_bytes())
        assert rows[-1]["kind"] == "resume"
        assert len(rows) == len(rows_of(whole)) + 1
        assert read_ledger(path).mechanisms == tuple(taken_up.mechanisms.values())
    assert read_ledger(path).mechanisms == {"open": (), "authorise": (PLANNED,), "account": (MEASURED,)}[kind]


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize(
    "beside",
    [
        pytest.param(lambda last, earlier: None, id="no .next"),
        pytest.param(lambda last, earlier: b"", id="empty"),
        pytest.param(lambda last, earlier: earlier, id="an earlier row"),
        pytest.param(lambda last, earlier: last[:-1], id="itself torn"),
        pytest.param(lambda last, earlier: last * 2, id="two rows"),
        pytest.param(lambda last, earlier: last[:-40] + b"0" * 38 + last[-2:], id="another hash"),
        pytest.param(lambda last, earlier: last.replace(b'"sigma":0.25', b'"sigma":9.25'), id="another sigma"),
    ],
)
def test_a_torn_row_that_next_does_not_hold_is_refused(
    path: Path, written: bytes, beside: Callable[[bytes, bytes], bytes | None]
) -> None:
    lines = written.splitlines(keepends=True)
    next_path = path.with_name("ledger.jsonl.next")
    held = beside(lines[-1], lines[1])
    if held is None:
        next_path.unlink()
    else:
        next_path.write_bytes(held)
    start = len(written) - len(lines[-1])
    for cut in (start + 1, start + 20, start + len(lines[-1]) // 2, len(written) - 2, len(written) - 1):
        path.write_bytes(written[:cut])
        refused_by_both(path)


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("tail", [b"\x00", b"\x00" * 300, b"garbage", b"{", b'{"seq":4}'])
def test_a_tail_that_no_append_left_is_refused(path: Path, written: bytes, tail: bytes) -> None:
    path.write_bytes(written + tail)
    refused_by_both(path, r"truncated|does not follow|hash")


@pytest.mark.usefixtures("no_waiting")
@pytest.mark.parametrize("zeros", ["behind", "in front", "around", "all"])
def test_zeros_in_place_of_a_part_of_the_row_are_filled_in(path: Path, written: bytes, zeros: str) -> None:
    """A power cut may keep the length of a file and lose any of its blocks; `.next` holds the row whole."""
    charged = read_ledger(path).mechanisms
    last = written.splitlines(keepends=True)[-1]
    start, half = len(written) - len(last), len(last) // 2
    tail = {
        "behind": last[:half] + bytes(len(last) - half),
        "in front": bytes(half) + last[half:],
        "around": bytes(10) + last[10:half] + bytes(len(last) - half - 3),
        "all": bytes(len(last)),
    }[zeros]
    path.write_bytes(written[:start] + tail)
    with pytest.raises(LedgerError, match=r"hash|truncated"):
        read_ledger(path)
    Ledger.open(path, resumed=False)
    assert path.read_bytes() == written
    assert read_ledger(path).mechanisms == charged


@pytest.mark.usefixtures("no_waiting")
def test_zeros_before_the_announced_row_are_not_filled_in(path: Path, written: bytes) -> None:
    lines = written.splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], bytes(len(lines[2])), lines[3]]))
    refused_by_both(path)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "was deleted": Path.unlink,
    "was replaced": lambda path: path.write_bytes(path.rename(path.with_name("moved")).read_bytes()),
    "cut or written to": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "0 bytes instead": lambda path: path.write_bytes(b""),
    "was cut or written to by another": lambda path: path.write_bytes(path.read_bytes() + b"{}\n"),
}


@pytest.mark.parametrize("said", DAMAGE)
def test_a_ledger_that_was_changed_meanwhile_takes_no_row(path: Path, said: str) -> None:
    """Noticed before the row is announced, so before anything is sent; nothing is made in place of what is gone."""
    ledger = Ledger.create(path, HEADER)
    seq = ledger.authorise(PLANNED)
    DAMAGE[said](path)
    before = snapshot(path.parent)
    for write in (lambda: ledger.authorise(replace(PLANNED, uplink=2)), lambda: ledger.account(seq, MEASURED)):
        with pytest.raises(LedgerError, match=said) as caught:
            write()
        assert str(path) in str(caught.value)
    assert snapshot(path.parent) == before


@pytest.mark.parametrize(
    ("put", "said"),
    [
        (lambda folder: folder.write_text("a file in its place"), "was deleted or moved"),
        (lambda folder: folder.symlink_to(folder.name), r"cannot be looked at any more \(Too many levels"),
    ],
)
def test_a_ledger_whose_folder_is_something_else_now_takes_no_row(
    tmp_path: Path, put: Callable[[Path], object], said: str
) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    ledger = Ledger.create(folder / "ledger.jsonl", HEADER)
    folder.rename(tmp_path / "elsewhere")
    put(folder)
    with pytest.raises(LedgerError, match=said):
        ledger.authorise(PLANNED)


@pytest.mark.usefixtures("no_waiting")
def test_the_running_sums_are_those_of_all_rows(path: Path) -> None:
    """To the last bit: taken up or not, and whatever was cut off; sizes are such that rounding shows."""
    ledger, bounds = Ledger.create(path, HEADER), (("gain", 1e-9), ("noise", 3e-10))
    for uplink in range(1, 40):
        sigma = 0.1 + 0.37 / uplink
        seq = ledger.authorise(replace(JAMMED, uplink=uplink, sigma=sigma, bounds=bounds))
        if uplink % 7:
            ledger.account(seq, replace(JAMMED, uplink=uplink, sigma=sigma, bounds=bounds))
    taken_up = Ledger.open(path, resumed=False)
    assert taken_up.losses.tobytes() == ledger.losses.tobytes()
    assert taken_up.bounds_delta == ledger.bounds_delta == pytest.approx(39 * 1.3e-9, rel=1e-12)
    assert (taken_up.authorised, taken_up.unaccounted) == (ledger.authorised, ledger.unaccounted) == (39, 5)
    stated = state_privacy(
        read_ledger(path).mechanisms,
        HEADER.sizes_array,
        label=HEADER.label,
        neighbours=HEADER.neighbours,
        delta=HEADER.delta,
    )
    assert ledger.losses.max() == pytest.approx(stated.total_loss, rel=1e-13)


def test_rows_of_earlier_versions_are_read(path: Path, written: bytes) -> None:
    """Their keys were in the order of writing, with the hash last."""
    rows = [{"seq": 0, "kind": row["kind"], "prev": "", **row} for row in rows_of(written)]
    older = chained([{key: value for key, value in row.items() if key != "hash"} for row in rows])
    assert older != written
    path.write_bytes(older)
    path.with_name("ledger.jsonl.next").unlink()
    assert read_ledger(path).mechanisms == (MEASURED, replace(PLANNED, uplink=2))
    assert Ledger.open(path).authorised == 2
    path.write_bytes(older.replace(b'"sigma":0.5', b'"sigma":5.0'))
    refused_by_both(path, "line 3 does not match its hash")


@pytest.mark.usefixtures("no_waiting")
def test_what_a_ledger_holds_in_memory_does_not_grow_with_its_rows(path: Path) -> None:
    """Taken up with 400 and with 4,000 rows: less than 100 bytes for each row more, of which one is meant."""
    peaks = []
    with Ledger.create(path, HEADER) as one:
        one.account(one.authorise(PLANNED), MEASURED)
    path.with_name("ledger.jsonl.next").unlink()
    rows = rows_of(path.read_bytes())
    for pairs in (200, 2000):
        path.write_bytes(chained([rows[0], *(paired for _ in range(pairs) for paired in rows[1:])], pairs=True))
        tracemalloc.start()
        ledger = Ledger.open(path, resumed=False)
        peaks.append(tracemalloc.get_traced_memory()[0])
        tracemalloc.stop()
        assert (ledger.authorised, ledger.unaccounted) == (pairs, 0)
    assert peaks[1] - peaks[0] < 100 * 3600


def test_a_torn_row_does_not_hide_damage_before_it(path: Path, written: bytes) -> None:
    path.write_bytes(written.replace(b'"sigma":0.5', b'"sigma":5.0')[:-30])
    refused_by_both(path)


def test_a_row_that_was_announced_and_is_missing_is_charged(path: Path, written: bytes) -> None:
    """A crash before the append and a ledger that lost its last row look the same: the row counts."""
    charged = read_ledger(path).mechanisms
    path.write_bytes(b"".join(written.splitlines(keepends=True)[:-1]))
    Ledger.open(path)
    assert path.read_bytes().startswith(written)
    assert read_ledger(path).mechanisms == charged


@pytest.mark.parametrize("lost", [2, 3])
def test_a_ledger_that_was_cut_by_more_than_the_announced_row_is_refused(path: Path, written: bytes, lost: int) -> None:
    path.write_bytes(b"".join(written.splitlines(keepends=True)[:-lost]))
    before = snapshot(path.parent)
    with pytest.raises(LedgerError, match="lacks rows"):
        Ledger.open(path)
    assert snapshot(path.parent) == before


def test_a_fresh_ledger_is_opened_without_a_resume_row(path: Path, written: bytes) -> None:
    Ledger.open(path, resumed=False)
    assert path.read_bytes() == written


def test_taking_up_appends_a_row_and_goes_on(path: Path, written: bytes) -> None:
    ledger = Ledger.open(path)
    assert list(ledger.mechanisms.values()) == [MEASURED, replace(PLANNED, uplink=2)]
    content = path.read_bytes()
    assert content.startswith(written)
    row = rows_of(content)[-1]
    assert row["kind"] == "resume"
    assert (row["authorised"], row["accounted"]) == (2, 1)
    assert ledger.head == row["hash"] == read_ledger(path).head
    ledger.account(3, replace(MEASURED, uplink=2))
    ledger.authorise(replace(PLANNED, uplink=3))
    contents = read_ledger(path)
    assert contents.mechanisms == (MEASURED, replace(MEASURED, uplink=2), replace(PLANNED, uplink=3))
    assert (contents.authorised, contents.accounted, contents.resumes) == (3, 2, 1)


@pytest.mark.parametrize("reopened", [False, True])
def test_accounting_twice_or_for_nothing_is_refused(path: Path, reopened: bool) -> None:
    ledger = Ledger.create(path, HEADER)
    seq = ledger.authorise(PLANNED)
    ledger.account(seq, MEASURED)
    if reopened:
        ledger = Ledger.open(path)
    before = snapshot(path.parent)
    with pytest.raises(LedgerError, match="accounted for already"):
        ledger.account(seq, replace(MEASURED, sigma=100.0))
    for nothing in (0, seq + 1, -1, 99):
        with pytest.raises(LedgerError, match="authorised nothing"):
            ledger.account(nothing, MEASURED)
    assert snapshot(path.parent) == before
    assert read_ledger(path).mechanisms == (MEASURED,)
    assert tuple(ledger.mechanisms.values()) == (MEASURED,)


def test_who_authorises_can_rely_on_the_row_being_there(path: Path) -> None:
    """Read by another reader as soon as the call returns, uplink after uplink."""
    ledger = Ledger.create(path, HEADER)
    for uplink in range(1, 6):
        seq = ledger.authorise(replace(PLANNED, uplink=uplink))
        contents = read_ledger(path)
        assert contents.mechanisms[-1] == replace(PLANNED, uplink=uplink)
        assert contents.head == ledger.head
        ledger.account(seq, replace(MEASURED, uplink=uplink))
        assert read_ledger(path).mechanisms[-1] == replace(MEASURED, uplink=uplink)


@pytest.fixture
def synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes, bytes]]:
    """What was synced, in order: name of the file, its content, and the ledger's content at that time."""
    events: list[tuple[str, bytes, bytes]] = []

    def record(descriptor: int) -> None:
        target = Path(f"/proc/self/fd/{descriptor}").readlink()
        ledger = tmp_path / "ledger.jsonl"
        content = target.read_bytes() if target.is_file() else b""
        events.append((target.name, content, ledger.read_bytes() if ledger.exists() else b""))

    monkeypatch.setattr(durable.os, "fsync", record)
    return events


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="names of open files come from /proc")
def test_a_row_is_on_disk_before_authorise_returns(path: Path, synced: list[tuple[str, bytes, bytes]]) -> None:
    """First whole in `.next` (file, then its folder), and only then begun in the ledger, which is synced last."""
    ledger = Ledger.create(path, HEADER)
    assert synced[-1][0] == path.parent.name, "a new file's entry in its folder"
    synced.clear()
    earlier = path.read_bytes()
    ledger.authorise(PLANNED)
    row = path.read_bytes().removeprefix(earlier)
    assert [name for name, _, _ in synced] == [".ledger.jsonl.next.tmp", path.parent.name, "ledger.jsonl"]
    assert synced[0][1:] == (row, earlier)
    assert synced[1][2] == earlier
    assert synced[2][1] == earlier + row


@pytest.mark.parametrize("written_bytes", [0, 1, 100, 10_000])
def test_a_full_disk_stops_the_ledger_until_it_is_opened_again(
    path: Path, monkeypatch: pytest.MonkeyPatch, written_bytes: int
) -> None:
    """A second row after a torn one would make both unreadable, so the ledger takes none."""
    ledger = Ledger.create(path, HEADER)
    ledger.authorise(PLANNED)

    def torn(file: durable.AppendOnlyFile, content: bytes) -> None:
        with file.path.open("ab") as stream:
            stream.write(content[:written_bytes])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(durable.AppendOnlyFile, "append", torn)
        with pytest.raises(LedgerError, match="No space left"):
            ledger.authorise(replace(PLANNED, uplink=2))
    before = snapshot(path.parent)
    with pytest.raises(LedgerError, match="open it again"):
        ledger.authorise(replace(PLANNED, uplink=3))
    with pytest.raises(LedgerError, match="open it again"):
        ledger.account(1, MEASURED)
    assert snapshot(path.parent) == before
    assert (ledger.authorised, ledger.unaccounted) == (1, 1)

    Ledger.open(path)
    assert read_ledger(path).mechanisms == (PLANNED, replace(PLANNED, uplink=2))


def test_a_disk_that_fails_before_the_row_is_begun_costs_nothing(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ledger = Ledger.create(path, HEADER)
    before = path.read_bytes()

    def failing(target: Path, content: bytes) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr(ledger_module, "write_atomically", failing)
        with pytest.raises(LedgerError, match="Input/output error"):
            ledger.authorise(PLANNED)
    assert path.read_bytes() == before
    ledger.authorise(PLANNED)
    assert read_ledger(path).mechanisms == (PLANNED,)


def test_a_row_that_json_cannot_hold_is_never_begun(path: Path) -> None:
    ledger = Ledger.create(path, HEADER)
    before = snapshot(path.parent)
    with pytest.raises(PrivacyError):
        ledger.authorise(replace(PLANNED, alpha_u=math.nan))
    assert snapshot(path.parent) == before
