"""Lines that a run is writing, or a stranger has put there."""

import json
from pathlib import Path

import pytest

from fl.dashboard.tail import Tail, parse_object
from hardware.foundation.documents import DocumentError


@pytest.mark.parametrize("line", [b"", b"[1]", b"3", b"{", b"[" * 100_000, b'{"a": ' * 100_000])
def test_lines_that_are_no_objects(line: bytes) -> None:
    assert parse_object(line) is None


def test_a_growing_file_is_read_once(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    tail = Tail(path)
    assert tail.read() == []
    path.write_bytes(b'{"a": 1}\nnot json\n{"a"')
    assert tail.read() == [{"a": 1}]
    assert tail.damaged == 1
    with path.open("ab") as file:
        file.write(b': 2}\n{"a": 3}\n')
    assert tail.read() == [{"a": 2}, {"a": 3}]
    assert tail.read() == []
    assert tail.generation == 0


def test_a_replaced_file_starts_over(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(b'{"a": 1}\n{"a": 2}\n')
    tail = Tail(path)
    tail.read()
    (tmp_path / "new").write_bytes(b'{"a": 1}\n')
    (tmp_path / "new").replace(path)
    assert tail.read() == [{"a": 1}]
    assert tail.generation == 1


def test_a_line_without_an_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "lines").write_bytes(b"x" * 300)
    tail = Tail(tmp_path / "lines", most_bytes_at_once=100, most_line_bytes=250)
    assert tail.read() == []
    assert tail.read() == []
    with pytest.raises(DocumentError, match="a line of more than 250 bytes"):
        tail.read()


def test_a_line_with_a_number_beyond_floats_is_damaged() -> None:
    assert parse_object(json.dumps({"a": 10**400}).encode()) is None
    assert parse_object(json.dumps({"a": 2**60}).encode()) == {"a": 2**60}
