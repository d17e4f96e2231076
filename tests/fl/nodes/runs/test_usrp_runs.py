"""Runs over virtual USRPs: they agree with the loopback, and every fault costs what it must and no more."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import hardware.virtual.process
from fl.nodes.radio_uplink import RadioUplink
from fl.run import run
from fl.run.folder import RunFolder
from fl.run.runner import FINISHED
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab, parse_lab
from hardware.radio.errors import HardwareError
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.fl.nodes.small_runs import assert_like_the_loopback, at_receive, before, ledger_rows, rows_of, small_run
from tests.hardware.usrps import BACKEND, assert_silent
from tests.uhd_needed import needs_uhd

pytestmark = [needs_uhd, pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")]

MANY_PACKETS = 600
"""Of 363 samples: from the decision to send beyond the beginning of what is sent."""


def test_the_same_run_as_over_the_loopback(tmp_path: Path) -> None:
    # The whole [medium] section's noise, and the converter's steps of 1/8191.
    noise_var_real = medium_of(find_lab(BACKEND)).noise_var_complex / 2 + (1 / 8191) ** 2 / 12
    assert_like_the_loopback(BACKEND, BACKEND, noise_var_real, tmp_path)


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """A lab of two clients, a jammer and a server."""
    found = find_lab(BACKEND).to_tables()
    found["lab"]["timeout_s"] = 1.0
    found["radio"] = [radio for radio in found["radio"] if radio["name"] != "client-3"]
    return found


@pytest.fixture(scope="module")
def served(tables: dict[str, Any]) -> Iterator[EmulatorProcess]:
    with emulator_process(BACKEND, parse_lab(tables), seed=1) as process:
        yield process


@pytest.fixture
def lab_file(tables: dict[str, Any], served: EmulatorProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs find the boxes that are served already."""
    monkeypatch.setattr(hardware.virtual.process, "emulator_process", lambda *_, **__: nullcontext(served))
    file = tmp_path / "lab.toml"
    file.write_text(tomli_w.dumps(tables))
    return file


Faults = Mapping[int, tuple[str, dict[str, int]]]
"""Number of an uplink to a box and what is ordered there."""
HEALED = {"ref_locked": 1, "frozen": 0, "vanished": 0}


@contextmanager
def faults(method: str, served: EmulatorProcess, planned: Faults) -> Iterator[None]:
    """Let something happen before the first plan or exchange of uplinks, and be over before the second."""
    original: Callable[..., Any] = getattr(RadioUplink, method)
    ordered: set[int] = set()

    def watched(self: RadioUplink, uplink: Any, *arguments: Any) -> Any:
        number = uplink if isinstance(uplink, int) else uplink.uplink
        if number in planned:
            box, orders = planned[number]
            if number not in ordered:
                ask(served.uris[box], **orders)
            ordered.add(number)
        return original(self, uplink, *arguments)

    def healed(self: RadioUplink, uplink: int, attempt: int = 0) -> Any:
        if attempt:
            for box, orders in planned.values():
                ask(served.uris[box], **{key: value for key, value in HEALED.items() if key in orders})
        return plan(self, uplink, attempt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RadioUplink, method, watched)
        plan: Callable[..., Any] = RadioUplink.plan
        patch.setattr(RadioUplink, "plan", healed)
        yield


def sections(lab_file: Path, uplinks: int) -> dict[str, Any]:
    return small_run(str(lab_file), clients=2, uplinks=uplinks, radio={"attempts": 2})


def test_faults_before_anything_is_sent_cost_nothing(tmp_path: Path, served: EmulatorProcess, lab_file: Path) -> None:
    planned: Faults = {
        1: ("ps", {"lose_rx": MANY_PACKETS}),
        2: ("ps", {"overflow": 1}),
        3: ("client-2", {"lose_tx": 1}),
        4: ("jammer", {"late_tx": 1}),
        5: ("client-1", {"ref_locked": 0}),
    }
    folder = tmp_path / "run"
    with faults("plan", served, planned):
        result = run(sections(lab_file, 6), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, 6)
    assert rows_of(folder) == ["open", *["authorise", "account"] * 6]
    # An overflow before the silence is nobody's loss: every sample has its tick.
    assert [row["postponed"] for row in RunFolder(folder).metrics()] == [1, 0, 1, 1, 1, 0]
    assert_silent(served.uris)


def test_faults_in_the_payload_stay_charged(tmp_path: Path, served: EmulatorProcess, lab_file: Path) -> None:
    """A jammer's burst that did not go out whole is accounted without its noise, whatever was wrong with it."""
    planned: Faults = {
        1: ("client-1", {"lose_tx": 1}),
        2: ("client-2", {"late_tx": 1}),
        3: ("ps", {"lose_rx": MANY_PACKETS}),
        4: ("jammer", {"lose_tx": 1}),
        5: ("jammer", {"late_tx": 1}),
        6: ("client-1", {"ref_locked": 0}),
    }
    folder = tmp_path / "run"
    with faults("exchange", served, planned):
        result = run(sections(lab_file, 6), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, 12)
    rows = ledger_rows(folder)[1:]
    kinds = {uplink: [row["kind"] for row in rows if row["mechanism"]["uplink"] == uplink] for uplink in range(1, 7)}
    assert all(kinds[uplink] == ["authorise", "authorise", "account"] for uplink in (1, 2, 3, 6)), kinds
    for uplink in (4, 5):
        promised, real, *again = [row for row in rows if row["mechanism"]["uplink"] == uplink]
        assert [promised["kind"], real["kind"], *(row["kind"] for row in again)] == ["authorise", "account"] * 2
        assert promised["mechanism"]["alpha_cj"] > 0
        assert real["mechanism"]["alpha_cj"] == 0.0
        assert real["mechanism"]["sigma"] < 0.5 * promised["mechanism"]["sigma"]
    assert_silent(served.uris)


def test_a_box_that_is_switched_off_and_on_again_is_found(
    tmp_path: Path, served: EmulatorProcess, lab_file: Path
) -> None:
    folder = tmp_path / "run"
    with faults("exchange", served, {2: ("client-2", {"vanished": 1})}):
        result = run(sections(lab_file, 3), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, 4)
    assert_silent(served.uris)


def test_a_jammer_that_stays_off_ends_the_run_and_the_others_are_parked(
    tmp_path: Path, served: EmulatorProcess, lab_file: Path
) -> None:
    """It goes once the payload is on its way: whether its noise was there is not known, and so not counted on."""
    folder = tmp_path / "run"
    off = at_receive(lambda uplink: ask(served.uris["jammer"], vanished=1) and None)
    try:
        with before("exchange", 2, off), pytest.raises(HardwareError, match=r"jammer.* cannot be reached"):
            run(sections(lab_file, 3), folder)
        assert rows_of(folder) == ["open", *["authorise", "account"] * 2]
        assert ledger_rows(folder)[-1]["mechanism"]["alpha_cj"] == 0.0
        assert_silent({name: uri for name, uri in served.uris.items() if name != "jammer"})
    finally:
        ask(served.uris["jammer"], vanished=0)
