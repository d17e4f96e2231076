"""Small runs over radios, and things that happen in the middle of them."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from fl.nodes.messages import Receive
from fl.nodes.radio_uplink import RadioUplink
from fl.run import run
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder


def small_run(lab: str, *, clients: int, uplinks: int, **changes: Any) -> dict[str, Any]:
    """Sections of a config for a radio run of a second or so. changes: keys to add or replace, by section."""
    sections: dict[str, Any] = {
        "name": "tiny",
        "data": {"train_samples": 200},
        "partition": {"clients": clients},
        "model": {"hidden": 8},
        "local": {"epochs": 1, "workers": 1},
        "uplink": {"kind": "radio", "uplinks": uplinks},
        "radio": {"lab": lab, "quiet_samples": 8192, "first_quiet_samples": 65536, "sounding_symbols": 8},
        "power": {"channel_epsilon": 50.0},
        "jammer": {"role": "dedicated"},
    }
    for key, value in changes.items():
        sections[key] = {**sections.get(key, {}), **value}
    return sections


PLUTO_UPLINKS = 3


def pluto_run(lab: str, **changes: Any) -> dict[str, Any]:
    """The same for a lab of three Plutos."""
    radio = {"attempts": 2, **changes.pop("radio", {})}
    return small_run(lab, clients=3, uplinks=PLUTO_UPLINKS, radio=radio, **changes)


@contextmanager
def before(name: str, call: int, inject: Callable[[RadioUplink], None]) -> Iterator[None]:
    """Let something happen before the `call`-th call of the uplink's plan or exchange."""
    original = getattr(RadioUplink, name)
    calls = 0

    def watched(self: RadioUplink, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == call:
            inject(self)
        return original(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RadioUplink, name, watched)
        yield


def at_receive(happens: Callable[[RadioUplink], None]) -> Callable[[RadioUplink], None]:
    """To inject: let something happen once the payload is sent, when the server is told to receive it."""

    def inject(uplink: RadioUplink) -> None:
        link: Any = uplink.coordinator.link
        ask = link.ask

        def watched(node: str, message: Any) -> Any:
            if isinstance(message, Receive):
                link.ask = ask
                happens(uplink)
            return ask(node, message)

        link.ask = watched

    return inject


def ledger_rows(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "ledger.jsonl").read_text().splitlines()]


def rows_of(folder: Path) -> list[str]:
    return [row["kind"] for row in ledger_rows(folder)]


def error_db(folder: Path) -> float:
    """Power of the aggregates' errors, in the mean over the uplinks.

    `nmse_db` is relative to the exact sum, which the noise of earlier uplinks changes: at 14 dB of noise by more than
    what is to be compared.
    """
    return 10 * math.log10(fmean(row["noise_norm"] ** 2 for row in RunFolder(folder).metrics()))


def assert_like_the_loopback(lab: str, backend: str, noise_var_real: float, folder: Path) -> None:
    """Same lab, same fading: the error of the aggregates within 1 dB, the noise within its interval.

    The jammer's noise comes from the system and differs from run to run: the power over three uplinks scatters by
    0.16 dB, so that 1 dB is six times that, and refuses a wrong scale.
    """
    blocks, bins = 64, 192
    sections = pluto_run(lab, radio={"quiet_samples": blocks * 256})
    errors_db: dict[str, float] = {}
    for name in (backend, "loopback"):
        result = run({**sections, "radio": {**sections["radio"], "backend": name}}, folder / name)
        assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
        errors_db[name] = error_db(folder / name)
        low, high = chi2.ppf([1e-7, 1 - 1e-7], 2 * blocks * bins) / (2 * blocks * bins)
        for uplink in range(1, PLUTO_UPLINKS + 1):
            with np.load(RunFolder(folder / name).snapshot_path(uplink)) as snapshot:
                measured = float(np.mean(snapshot["noise_var_real_per_bin"]))
            assert low * noise_var_real < measured < high * noise_var_real
        assert high < 1.05
    assert errors_db[backend] == pytest.approx(errors_db["loopback"], abs=1.0)
