"""Files that a stranger may have put into a folder: none is waited for, none fills the memory, none is code."""

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from fl.errors import RunFolderError
from fl.inspect.bounded_files import MOST_ARRAY_BYTES, Tail, open_regular, parse_object, read_arrays, read_bounded


def test_a_file_within_its_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(RunFolderError, match="more than 4 bytes"):
        read_bounded(tmp_path / "a", 4)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(RunFolderError, match=r"not a regular file|cannot be read"):
            open_regular(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


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
    with pytest.raises(RunFolderError, match="a line of more than 250 bytes"):
        tail.read()


def test_arrays_come_out_as_numpy_has_them(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6.0).reshape(2, 3), "b": np.array(7), "c": np.array(["x", "yy"]), "d": np.zeros((0, 3))}
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = read_arrays(tmp_path / "a.npz", [*arrays, "missing"])
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(MOST_ARRAY_BYTES + 1))
    assert path.stat().st_size < 1 << 20
    with pytest.raises(ValueError, match="more than"):
        read_arrays(path, ["a"])


def test_a_shape_that_its_bytes_do_not_fill_is_refused_before_memory_is_taken(tmp_path: Path) -> None:
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**15,)})
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("a.npy", buffer.getvalue() + bytes(8))
    with pytest.raises(ValueError, match="in 8 bytes"):
        read_arrays(tmp_path / "a.npz", ["a"])


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.system, (f"touch {tmp_path / 'sprung'}",)

    np.savez(tmp_path / "a.npz", a=np.array([Trap()], dtype=object))
    with pytest.raises(ValueError, match="pickle"):
        read_arrays(tmp_path / "a.npz", ["a"])
    assert not (tmp_path / "sprung").exists()


def test_objects_with_numbers_beyond_floats_do_not_stop_a_reader() -> None:
    assert parse_object(json.dumps({"a": 10**400}).encode()) == {"a": 10**400}
