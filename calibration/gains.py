"""Channel gains from a file: measured in a lab or made by another simulator.

Two formats, chosen by the ending:

* `.csv` with the header `uplink,transmitter,re,im`; uplinks count from 1, transmitters are `0` … `K-1` and `jammer`
* `.npz` with `client_gains` complex (M, K) and, where there is a jammer, `jammer_gains` complex (M,)

A file with a single uplink stands for a static channel.
"""

import csv
from dataclasses import dataclass
from io import TextIOWrapper
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hardware.foundation.arrays import read_arrays
from hardware.foundation.documents import DocumentError, open_regular
from phy.errors import AirdpError

JAMMER = "jammer"
_COLUMNS = ["uplink", "transmitter", "re", "im"]


class GainsFileError(AirdpError):
    """A file of gains that cannot be used."""


@dataclass(frozen=True)
class GainsTable:
    """client_gains: complex128 (M, K). jammer_gains: complex128 (M,), or None where the file has none."""

    client_gains: NDArray[np.complex128]
    jammer_gains: NDArray[np.complex128] | None
    source: str

    def __post_init__(self) -> None:
        """Refuse tables with holes, wrong shapes or values that are not numbers."""
        if self.client_gains.ndim != 2 or self.client_gains.size == 0:
            raise GainsFileError(
                f"{self.source}: client gains have shape {self.client_gains.shape}, expected (uplinks, clients)"
            )
        if self.jammer_gains is not None and self.jammer_gains.shape != self.client_gains.shape[:1]:
            raise GainsFileError(
                f"{self.source}: {self.jammer_gains.shape} jammer gains for {len(self.client_gains)} uplinks"
            )
        for name, gains in (("client", self.client_gains), (JAMMER, self.jammer_gains)):
            if gains is not None and not np.all(np.isfinite(gains)):
                raise GainsFileError(
                    f"{self.source}: a {name} gain is missing, NaN or infinite; expected re and im for every uplink"
                )

    @property
    def uplinks(self) -> int:
        """Number M of uplinks in the file."""
        return len(self.client_gains)


def load_gains(path: Path) -> GainsTable:
    """Read `path`; raises `GainsFileError` that says what is wrong with it."""
    if not path.is_file():
        raise GainsFileError(f"gains file {path} does not exist: set channel.path to a .csv or .npz file of gains")
    if path.suffix == ".npz":
        return _load_npz(path)
    if path.suffix == ".csv":
        return _load_csv(path)
    raise GainsFileError(f"gains file {path} ends in '{path.suffix}': expected .csv or .npz")


def _load_npz(path: Path) -> GainsTable:
    try:
        arrays = read_arrays(path, ("client_gains", "jammer_gains"))
        clients = arrays["client_gains"].astype(np.complex128)
        jammer = arrays["jammer_gains"].astype(np.complex128) if "jammer_gains" in arrays else None
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise GainsFileError(
            f"gains file {path} cannot be read: {error}; expected 'client_gains' complex (M, K)"
        ) from error
    return GainsTable(clients, jammer, str(path))


def _csv_rows(path: Path) -> list[tuple[int, list[str]]]:
    """Line number and values of each row below the header."""
    try:
        with open_regular(path) as stream, TextIOWrapper(stream, newline="", encoding="utf-8-sig") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, DocumentError, UnicodeDecodeError, csv.Error) as error:
        raise GainsFileError(f"gains file {path} cannot be read: {error}; expected {','.join(_COLUMNS)}") from error
    if header != _COLUMNS:
        raise GainsFileError(f"gains file {path} has the header {header}: expected {','.join(_COLUMNS)}")
    return rows


def _load_csv(path: Path) -> GainsTable:
    gains: dict[tuple[int, str], complex] = {}
    for line_number, row in _csv_rows(path):
        try:
            if len(row) != len(_COLUMNS):
                raise ValueError(
                    f"{len(row)} values, expected {len(_COLUMNS)} with decimal points: {','.join(_COLUMNS)}"
                )
            key = (int(row[0]), row[1] if row[1] == JAMMER else str(int(row[1])))
            value = complex(float(row[2]), float(row[3]))
        except ValueError as error:
            raise GainsFileError(f"gains file {path} line {line_number}: {error}") from error
        if key in gains or key[0] < 1 or key[1].startswith("-"):
            raise GainsFileError(
                f"gains file {path} line {line_number}: uplink {key[0]}, transmitter {key[1]} "
                "is given twice, or counts from below its first number"
            )
        gains[key] = value
    of_clients = [int(name) for _, name in gains if name != JAMMER]
    if not of_clients:
        raise GainsFileError(
            f"gains file {path} has no client's gain: expected at least one row with a transmitter number"
        )
    uplinks = max(uplink for uplink, _ in gains)
    clients = 1 + max(of_clients)
    # Before a table is made, which one mistyped number would make too large for the memory.
    if len(of_clients) != uplinks * clients:
        raise GainsFileError(
            f"gains file {path} has {len(of_clients)} gains of clients: expected {uplinks * clients}, "
            f"one for each of {uplinks} uplinks and {clients} clients"
        )
    table = np.full((uplinks, clients), complex("nan"))
    jammer = np.full(uplinks, complex("nan"))
    for (uplink, name), value in gains.items():
        if name == JAMMER:
            jammer[uplink - 1] = value
        else:
            table[uplink - 1, int(name)] = value
    return GainsTable(table, jammer if len(gains) > len(of_clients) else None, str(path))
