"""The server's side of an air node: start it, begin rounds, take sums."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fl.errors import ConfigError
from fl.flower.place import SERVER, make_place, read_token, remove_place
from fl.flower.wire import request
from fl.run.config import RunConfig, resolve_config
from hardware.foundation.child_processes import end_module, start_module

_END_S = 30.0
"""For radios to be parked."""


@dataclass(frozen=True)
class Received:
    """What an uplink brought. values: the weighted sum with noise, float32 (d,). epsilon: spent until now, of `label`.

    conditions: what must be read together with it. remaining: uplinks that noise is still sized for.
    """

    values: NDArray[np.float32]
    uplink: int
    sigma: float
    remaining: int
    epsilon: float
    label: str
    conditions: str


@dataclass(frozen=True)
class Air:
    """An air node at `place`. out: the folder with its ledger."""

    config: RunConfig
    place: Path
    out: Path

    @property
    def clients(self) -> int:
        """K."""
        return self.config.partition.clients

    @property
    def ledger_path(self) -> Path:
        """Exists from the first uplink on."""
        return self.out / "ledger.jsonl"

    def begin(self, number: int, coordinates: int) -> None:
        """Clients may hand in updates (d,) of round `number` from now on."""
        self._ask({"do": "begin", "round": number, "coordinates": coordinates})

    def exchange(self, number: int) -> Received:
        """Send the updates of round `number`; `PrivacyError` where one is missing, or the budget does not allow it."""
        said, values = self._ask({"do": "exchange", "round": number})
        return Received(values, **{**said, "epsilon": float(said["epsilon"])})

    def _ask(self, content: dict[str, Any]) -> tuple[dict[str, Any], NDArray[np.float32]]:
        return request(self.place, {**content, "token": read_token(self.place, SERVER)})


@contextmanager
def open_air(
    config: RunConfig | Mapping[str, Any] | str | Path,
    place: Path,
    *,
    out: Path | str,
    overrides: Mapping[str, Any] | None = None,
    resume: bool = False,
) -> Iterator[Air]:
    """An air node as a child of this process, as long as the block lasts.

    config, overrides: as for `fl.run`; `partition.clients` is K, the sections on data and model do not matter to the
    air. place: `default_place(context.run_id)`, where clients look for it, or the folder that `airdp-node` names. out:
    a new folder for config and ledger (`airdp ledger OUT`). resume: go on with the ledger that is there.
    """
    resolved, folder = resolve_config(config, overrides), Path(out).absolute()
    make_place(place)
    (place / "config.toml").write_text(resolved.to_toml(), encoding="utf-8")
    try:
        with (place / "stderr").open("w+") as said:
            arguments = [str(place), str(folder), *(["resume"] if resume else [])]
            process = start_module("fl.flower.node", arguments, said)
            try:
                if process.stdout is None or process.stdout.readline() != "ready\n":
                    end_module(process, _END_S)
                    said.seek(0)
                    raise ConfigError(f"the air node did not start: {' '.join(said.read().split()[-60:])}")
                yield Air(resolved, place, folder)
            finally:
                end_module(process, _END_S)
                said.seek(0)
                sys.stderr.write(said.read())
    finally:
        remove_place(place)
