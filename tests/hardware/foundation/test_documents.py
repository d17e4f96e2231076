"""Text files that a stranger may have made: none is waited for, and none fills the memory."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.foundation.documents import DocumentError, open_regular, read_bounded, read_json, read_toml


def test_a_file_within_its_bound_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"12345")
    assert read_bounded(tmp_path / "a", 5) == b"12345"
    with pytest.raises(DocumentError, match="more than 4 bytes"):
        read_bounded(tmp_path / "a", 4)


def test_what_is_no_file_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "device").symlink_to("/dev/zero")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "device", "folder"):
        with pytest.raises(DocumentError, match="not a regular file"):
            open_regular(tmp_path / name)
    with pytest.raises(FileNotFoundError):
        open_regular(tmp_path / "missing")


@pytest.mark.parametrize("read", [read_json, read_toml])
def test_no_reader_waits_for_a_pipe(tmp_path: Path, read: Callable[[Path], object]) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="not a regular file"):
        read(tmp_path / "pipe")


@pytest.mark.parametrize(("read", "text"), [(read_json, "[{}]"), (read_toml, "a = {}")])
def test_an_integer_of_thousands_of_digits_is_told_in_words_for_its_writer(
    tmp_path: Path, read: Callable[[Path], object], text: str
) -> None:
    """Python would advise to call a function of its own."""
    (tmp_path / "a").write_text(text.format("9" * 5000))
    with pytest.raises(DocumentError, match="an integer in it has thousands of digits"):
        read(tmp_path / "a")
