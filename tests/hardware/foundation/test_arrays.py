"""Arrays that a stranger may have put into a file: none fills the memory, none is code."""

import io
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hardware.foundation.arrays import read_array, read_arrays
from hardware.foundation.documents import DocumentError

MOST = 1 << 20


def test_arrays_come_out_as_numpy_has_them(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6.0).reshape(2, 3),
        "b": np.array(7),
        "c": np.array(["x", "yy"]),
        "d": np.zeros((0, 3)),
        "e": np.asfortranarray(np.eye(3)[:2]),
    }
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    found = read_arrays(tmp_path / "a.npz", [*arrays, "missing"])
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype


def test_an_archive_that_unpacks_to_too_much_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(MOST + 1))
    assert path.stat().st_size < MOST // 100
    with pytest.raises(ValueError, match="more than"):
        read_arrays(path, ["a"], most_bytes=MOST)


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


def test_a_single_array(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(5.0))
    np.testing.assert_array_equal(read_array(tmp_path / "a.npy"), np.arange(5.0))
    (tmp_path / "a.npy").write_bytes((tmp_path / "a.npy").read_bytes()[:-3])
    with pytest.raises(DocumentError, match="in 37 bytes"):
        read_array(tmp_path / "a.npy")
    (tmp_path / "a.npy").write_bytes(b"x")
    with pytest.raises(DocumentError):
        read_array(tmp_path / "a.npy")
