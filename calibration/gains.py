"""Channel gains from a file: measured in a lab or made by another simulator.

Two formats, chosen by the ending:

* `.csv` with the header `uplink,transmitter,re,im`; uplinks count from 1, transmitters are `0` … `K-1` and `jammer`
* `.npz` with `client_gains` complex (M, K) and, where there is a jammer, `jammer_gains` complex (M,)

A file with a single uplink stands for a static channel.
"""

import csv
import zipfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from phy.errors import AirdpError

JAMMER = "jammer"


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
        with np.load(path, allow_pickle=False) as archive:
            clients = archive["client_gains"].astype(np.complex128)
            jammer = archive["jammer_gains"].astype(np.complex128) if "jammer_gains" in archive else None
    except (KeyError, ValueError, OSError, zipfile.BadZipFile) as error:
        raise GainsFileError(
            f"gains file {path} cannot be read: {error}; expected 'client_gains' complex (M, K)"
        ) from error
    return GainsTable(clients, jammer, str(path))


def _load_csv(path: Path) -> GainsTable:
    gains: dict[tuple[int, str], complex] = {}
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        if reader.fieldnames != ["uplink", "transmitter", "re", "im"]:
            raise GainsFileError(
                f"gains file {path} has the header {reader.fieldnames}: expected uplink,transmitter,re,im"
            )
        for row in reader:
            try:
                key = (
                    int(row["uplink"]),
                    row["transmitter"] if row["transmitter"] == JAMMER else str(int(row["transmitter"])),
                )
                value = complex(float(row["re"]), float(row["im"]))
            except (TypeError, ValueError) as error:
                raise GainsFileError(f"gains file {path} line {reader.line_num}: {error}") from error
            if key in gains or key[0] < 1 or key[1].startswith("-"):
                raise GainsFileError(
                    f"gains file {path} line {reader.line_num}: uplink {key[0]}, transmitter {key[1]} "
                    "is given twice, or counts from below its first number"
                )
            gains[key] = value
    if not any(name != JAMMER for _, name in gains):
        raise GainsFileError(
            f"gains file {path} has no client's gain: expected at least one row with a transmitter number"
        )
    uplinks = max(uplink for uplink, _ in gains)
    clients = 1 + max(int(name) for _, name in gains if name != JAMMER)
    table = np.full((uplinks, clients), complex("nan"))
    jammer = np.full(uplinks, complex("nan"))
    for (uplink, name), value in gains.items():
        if name == JAMMER:
            jammer[uplink - 1] = value
        else:
            table[uplink - 1, int(name)] = value
    return GainsTable(table, None if np.all(np.isnan(jammer)) else jammer, str(path))
