"""The last radio uplink of a run: spectrum, waterfall, sum, channels, back-offs."""

import base64
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import RunFolderError
from fl.inspect.view import FLOOR_DB, Snapshot, read_snapshot, read_waterfall
from fl.run.folder import RunFolder
from phy.units import power_ratios_to_db

MOST_CELLS = 2048
MOST_CHANNELS = 128
_HISTORY = 12
"""Uplinks whose rows a waterfall begins with."""


class Radio:
    """said: of the last uplink, JSON-ready. waterfalls: rows of the last few, by uplink."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._shown: tuple[int, int] | None = None
        self.said: dict[str, Any] | None = None
        self.waterfalls: dict[int, dict[str, Any]] = {}
        self.version = 0

    def update(self, uplink: int | None, generation: int) -> None:
        """Read the uplink's file where it is another than before."""
        if uplink is None or (uplink, generation) == self._shown:
            return
        path = self._folder.snapshot_path(uplink)
        if not path.is_file():
            return
        if self._shown is None:
            self._begin(uplink)
        self._shown = (uplink, generation)
        self.version += 1
        try:
            snapshot = read_snapshot(path)
            self.said = {"uplink": uplink, **_described(snapshot)}
            self._add_waterfall(uplink)
        except RunFolderError as error:
            self.said = {"uplink": uplink, "error": str(error)}

    def _begin(self, uplink: int) -> None:
        """A page that is opened late begins with the uplinks before."""
        for earlier in range(max(1, uplink - _HISTORY + 1), uplink):
            if self._folder.snapshot_path(earlier).is_file():
                try:
                    self._add_waterfall(earlier)
                except RunFolderError:
                    # Of a history, what can be read is shown; the current uplink says what is wrong with it.
                    continue

    def _add_waterfall(self, uplink: int) -> None:
        rows = read_waterfall(self._folder.snapshot_path(uplink))
        if rows is None:
            return
        shifted = np.fft.fftshift(rows, axes=1)
        self.waterfalls[uplink] = {"rows": rows.shape[0], "bins": rows.shape[1], "db": _packed(shifted)}
        while len(self.waterfalls) > _HISTORY:
            del self.waterfalls[next(iter(self.waterfalls))]


def _described(snapshot: Snapshot) -> dict[str, Any]:
    names = [str(name) for name in snapshot.names]
    gains_db = power_ratios_to_db(np.abs(snapshot.channels) ** 2, FLOOR_DB)
    noise = 2.0 * snapshot.noise_var_real_per_bin / snapshot.sample_rate_hz
    return {
        "names": names,
        "sample_rate_hz": snapshot.sample_rate_hz,
        "fft_size": snapshot.fft_size,
        "subcarriers": snapshot.subcarriers.tolist(),
        "spectrum_db": _rounded(power_ratios_to_db(np.fft.fftshift(snapshot.spectrum), FLOOR_DB)),
        "noise_db": _rounded(power_ratios_to_db(noise, FLOOR_DB)),
        "cells": _packed(snapshot.cells[:MOST_CELLS].view(np.float32)),
        "cells_shown": min(MOST_CELLS, snapshot.cells.size),
        "cells_received": snapshot.cells_received,
        "channels_db": [_rounded(row) for row in gains_db[:MOST_CHANNELS]],
        "links": [
            {
                "name": name,
                "gain_db": float(snapshot.gains_db[row]),
                "weakest_db": float(gains_db[row].min()),
                "delay_samples": float(snapshot.delays_samples[row]),
                "cfo_hz": float(snapshot.cfo_hz[row]),
                "backoff": float(snapshot.backoffs[row]) if row < snapshot.backoffs.size else None,
                "phase_error_rad": float(snapshot.phase_error_rad[row]) if row < snapshot.backoffs.size else None,
            }
            for row, name in enumerate(names[:MOST_CHANNELS])
        ],
    }


def _rounded(values: NDArray[np.floating[Any]]) -> list[float]:
    return [round(float(value), 2) for value in values]


def _packed(values: NDArray[Any]) -> str:
    """float32, little endian, base64."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode()
