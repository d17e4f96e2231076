"""Files of gains: what is read is what was written, and a damaged or doubtful file is refused with its name."""

import io
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst
from numpy.typing import NDArray

from calibration.gains import GainsFileError, GainsTable, load_gains

HEADER = "uplink,transmitter,re,im\n"

complex_gains = npst.arrays(
    np.complex128,
    npst.array_shapes(min_dims=2, max_dims=2, max_side=4),
    elements=st.complex_numbers(allow_nan=False, allow_infinity=False, max_magnitude=1e6),
)


def as_csv(clients: NDArray[np.complex128], jammer: NDArray[np.complex128] | None) -> str:
    rows = [f"{m + 1},{i},{h.real!r},{h.imag!r}" for m, row in enumerate(clients.tolist()) for i, h in enumerate(row)]
    rows += [f"{m + 1},jammer,{h.real!r},{h.imag!r}" for m, h in enumerate([] if jammer is None else jammer.tolist())]
    return HEADER + "\n".join(rows) + "\n"


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(clients=complex_gains, with_jammer=st.booleans())
def test_both_formats_give_back_every_gain(tmp_path: Path, clients: NDArray[np.complex128], with_jammer: bool) -> None:
    jammer = clients[:, 0] * 2 if with_jammer else None
    csv_path, npz_path = tmp_path / "gains.csv", tmp_path / "gains.npz"
    csv_path.write_text(as_csv(clients, jammer))
    np.savez(npz_path, client_gains=clients, **({} if jammer is None else {"jammer_gains": jammer}))
    for path in (csv_path, npz_path):
        table = load_gains(path)
        np.testing.assert_array_equal(table.client_gains, clients)
        assert table.uplinks == len(clients)
        assert table.source == str(path)
        if jammer is None:
            assert table.jammer_gains is None
        else:
            assert table.jammer_gains is not None
            np.testing.assert_array_equal(table.jammer_gains, jammer)


def test_rows_of_a_csv_may_come_in_any_order_and_from_a_spreadsheet(tmp_path: Path) -> None:
    path = tmp_path / "gains.csv"
    path.write_bytes(b"\xef\xbb\xbfuplink,transmitter,re,im\r\n1,jammer,2,0\r\n1,1,0.5,-1e-3\r\n\r\n1,0,1,0\r\n")
    table = load_gains(path)
    np.testing.assert_array_equal(table.client_gains, [[1.0, 0.5 - 1e-3j]])
    assert table.jammer_gains is not None
    np.testing.assert_array_equal(table.jammer_gains, [2.0])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "header"),
        ("uplink,transmitter,im,re\n1,0,1,0\n", "header"),
        (HEADER, "no client"),
        (HEADER + "1,jammer,1,0\n", "no client"),
        (HEADER + "1,0,1,0\n1,0,1,0\n", "line 3.*twice"),
        (HEADER + "1,0,1,0\n1,00,1,0\n", "line 3.*twice"),
        (HEADER + "0,0,1,0\n", "line 2"),
        (HEADER + "1,-1,1,0\n", "line 2"),
        (HEADER + "1,0,one,0\n", "line 2"),
        (HEADER + "1,0,1\n", "line 2.*3 values"),
        (HEADER + "1,0,0,5,0,5\n", "line 2.*6 values.*decimal points"),
        (HEADER + "1.0,0,1,0\n", "line 2"),
        (HEADER + "1,antenna,1,0\n", "line 2"),
        (HEADER + "1,0,1,0\n2,1,1,0\n", "2 gains of clients: expected 4"),
        (HEADER + "1,0,1,0\n1,2,1,0\n", "2 gains of clients: expected 3"),
        (HEADER + "1,0,1,0\n1000000000000,0,1,0\n", "expected 1000000000000"),
        (HEADER + "1,0,nan,0\n", "NaN"),
        (HEADER + "1,0,1,inf\n", "infinite"),
        (HEADER + "1,0,1,0\n1,jammer,nan,0\n", "jammer"),
        (HEADER + "1,0,1,0\n2,0,1,0\n2,jammer,1,0\n", "jammer"),
    ],
)
def test_a_doubtful_csv_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gains.csv"
    path.write_text(text)
    with pytest.raises(GainsFileError, match=message) as caught:
        load_gains(path)
    assert str(path) in str(caught.value)


@pytest.mark.parametrize("content", [b"\xff\xfe\x00binary", b"\x80", HEADER.encode() + b"1,0,\xff,0\n", b'"' * 200_000])
def test_a_csv_that_is_not_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gains.csv"
    path.write_bytes(content)
    with pytest.raises(GainsFileError, match=r"gains\.csv"):
        load_gains(path)


def npz_bytes(**arrays: NDArray[np.generic]) -> bytes:
    file = io.BytesIO()
    np.savez_compressed(file, **arrays)  # type: ignore[arg-type]
    return file.getvalue()


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"PK\x03\x04",
        npz_bytes(gains=np.ones((1, 1))),
        npz_bytes(client_gains=np.ones(3)),
        npz_bytes(client_gains=np.ones((0, 3))),
        npz_bytes(client_gains=np.ones((2, 3)), jammer_gains=np.ones(3)),
        npz_bytes(client_gains=np.full((2, 3), np.nan)),
        npz_bytes(client_gains=np.ones((2, 3)), jammer_gains=np.full(2, np.inf)),
        npz_bytes(client_gains=np.array([["a"]])),
        npz_bytes(client_gains=np.array([[None]], dtype=object)),
    ],
)
def test_a_doubtful_npz_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "gains.npz"
    path.write_bytes(content)
    with pytest.raises(GainsFileError, match=r"gains\.npz"):
        load_gains(path)


def test_a_single_array_under_the_name_of_an_archive_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "gains.npz"
    with path.open("wb") as file:
        np.save(file, np.ones((2, 3)))
    with pytest.raises(GainsFileError, match="client_gains"):
        load_gains(path)


def test_code_in_an_npz_is_not_run(tmp_path: Path) -> None:
    """A pickle could do anything; this one would make a folder."""

    class Payload:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    path = tmp_path / "gains.npz"
    path.write_bytes(npz_bytes(client_gains=np.array([[Payload()]], dtype=object)))
    with pytest.raises(GainsFileError, match=r"gains\.npz"):
        load_gains(path)
    assert not (tmp_path / "made").exists()


def test_a_damaged_npz_is_refused_or_read_as_it_was(tmp_path: Path) -> None:
    """CRC-32 of the zip format notices a changed byte of the data; the rest of the archive is not data."""
    expected = np.arange(6).reshape(2, 3) * (1 + 0.5j)
    whole = npz_bytes(client_gains=expected)
    path = tmp_path / "gains.npz"
    for position in range(len(whole)):
        for damaged in (
            whole[:position],
            whole[:position] + bytes([whole[position] ^ 0x11]) + whole[position + 1 :],
        ):
            path.write_bytes(damaged)
            try:
                table = load_gains(path)
            except GainsFileError:
                continue
            np.testing.assert_array_equal(table.client_gains, expected)


def test_what_is_no_file_of_gains_is_named(tmp_path: Path) -> None:
    with pytest.raises(GainsFileError, match=r"absent\.csv does not exist"):
        load_gains(tmp_path / "absent.csv")
    with pytest.raises(GainsFileError, match="does not exist"):
        load_gains(tmp_path)
    other = tmp_path / "gains.txt"
    other.write_text(HEADER)
    with pytest.raises(GainsFileError, match=r"expected \.csv or \.npz"):
        load_gains(other)


def test_a_table_is_checked_when_made() -> None:
    with pytest.raises(GainsFileError, match="shape"):
        GainsTable(np.ones(3, np.complex128), None, "here")
    with pytest.raises(GainsFileError, match="jammer gains for 2 uplinks"):
        GainsTable(np.ones((2, 3), np.complex128), np.ones(3, np.complex128), "here")
