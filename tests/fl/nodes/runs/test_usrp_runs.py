"""Runs over virtual USRPs: they agree with the loopback, and every fault costs what it must and no more.

AIRDP_USRP_FAULTS=all also lets each kind of box freeze and vanish, in the sounding and in the payload: libuhd waits for
10 s each time.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tomli_w

import hardware.virtual.process
from fl.nodes.link import InProcessLink
from fl.nodes.messages import HearSoundings, Receive, Sound, Transmit
from fl.nodes.radio_uplink import RadioUplink
from fl.run import run
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab, parse_lab
from hardware.radio.errors import HardwareError
from hardware.virtual.process import EmulatorProcess, emulator_process
from hardware.virtual.usrp2.side_channel import ask
from tests.fl.nodes.small_runs import assert_like_the_loopback, at_receive, before, ledger_rows, rows_of, small_run
from tests.hardware.usrps import BACKEND, assert_silent
from tests.uhd_needed import needs_uhd

pytestmark = [needs_uhd, pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")]

TICKS_PER_SAMPLE = 25
"""At the lab's 4 MS/s."""
INSIDE = 500
"""Samples from the beginning of a burst, or of what is received, to where something happens."""
EVERYTHING = os.environ.get("AIRDP_USRP_FAULTS") == "all"


def test_the_same_run_as_over_the_loopback(tmp_path: Path) -> None:
    # The whole [medium] section's noise, and the converter's steps of 1/8191.
    noise_var_real = medium_of(find_lab(BACKEND)).noise_var_complex / 2 + (1 / 8191) ** 2 / 12
    assert_like_the_loopback(BACKEND, BACKEND, noise_var_real, tmp_path)


def test_each_uplink_of_the_shipped_run_agrees_with_the_loopback(tmp_path: Path) -> None:
    """The power of the noise of 14,710 coordinates scatters by 0.05 dB, half of it alike in both, and gains add 0.02:
    the difference of two scatters by 0.06 dB. Noise that is wrong by a tenth differs by 0.4 dB and more.

    What is charged follows from measured noise and gains, which scatter by 0.1 % over these uplinks.
    """
    rows = {}
    for backend in (BACKEND, "loopback"):
        folder = tmp_path / backend
        result = run(BACKEND, folder, overrides={"uplink.uplinks": 3, "radio.backend": backend})
        assert result.status == FINISHED
        rows[backend] = RunFolder(folder).metrics()
    for virtual, simulated in zip(*rows.values(), strict=True):
        both_db = [row["diagnostics"]["nmse_db"] for row in (virtual, simulated)]
        assert both_db[0] == pytest.approx(both_db[1], abs=0.3)
        assert virtual["epsilon"] == pytest.approx(simulated["epsilon"], rel=5e-3)
        assert (virtual["postponed"], simulated["postponed"]) == (0, 0)


@dataclass(frozen=True)
class Fault:
    """orders: to the box of a radio. early: before anything is handed to the boxes; otherwise at a tick of a burst."""

    box: str
    orders: Mapping[str, int]
    early: bool = False


FAULTS = {
    "lost packets": Fault("ps", {"lose_rx": 2}),
    "overflow": Fault("ps", {"overflow": 1}),
    "broken chain": Fault("ps", {"break_chain": 1}),
    "late client": Fault("client-2", {"late_tx": 1}, early=True),
    "late jammer": Fault("jammer", {"late_tx": 1}, early=True),
    "underflow of a client": Fault("client-1", {"starve": 1}),
    "underflow of the jammer": Fault("jammer", {"starve": 1}),
    "sequence error of a client": Fault("client-1", {"lose_tx": 1}, early=True),
    "sequence error of the jammer": Fault("jammer", {"lose_tx": 1}, early=True),
    "reference lost": Fault("client-1", {"ref_locked": 0}, early=True),
    "oscillator out of lock": Fault("client-2", {"lo_locked": 0}, early=True),
}
SLOW_FAULTS = {
    f"{box} {what}": Fault(box, {what: 1}) for what in ("frozen", "vanished") for box in ("ps", "client-1", "jammer")
}
SOME_FAULTS = FAULTS | (SLOW_FAULTS if EVERYTHING else {})
WITH_JAMMER = ["authorise", "account"]
HEALED = {"ref_locked": 1, "lo_locked": 1, "frozen": 0, "vanished": 0}


@pytest.fixture(scope="module")
def tables() -> dict[str, Any]:
    """A lab of two clients, a jammer and a server."""
    found = find_lab(BACKEND).to_tables()
    found["lab"]["timeout_s"] = 4.0
    found["radio"] = [radio for radio in found["radio"] if radio["name"] != "client-3"]
    return found


@pytest.fixture(scope="module")
def served(tables: dict[str, Any]) -> Iterator[EmulatorProcess]:
    with emulator_process(BACKEND, parse_lab(tables), seed=1) as process:
        yield process


@pytest.fixture(scope="module")
def lab_file(
    tables: dict[str, Any], served: EmulatorProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Path]:
    """Runs find the boxes that are served already."""
    file = tmp_path_factory.mktemp("lab") / "lab.toml"
    file.write_text(tomli_w.dumps(tables))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hardware.virtual.process, "emulator_process", lambda *_, **__: nullcontext(served))
        yield file


@contextmanager
def faults(when: str, served: EmulatorProcess, planned: Mapping[int, Fault]) -> Iterator[None]:
    """Let something happen in the first sounding or payload of uplinks, and be over before the second."""
    current, starts = [0], dict[str, int]()
    waiting = dict(planned)
    method, received = ("plan", HearSoundings) if when == "sounding" else ("exchange", Receive)
    original: Callable[..., Any] = getattr(RadioUplink, method)
    asked: Callable[..., Any] = InProcessLink.ask

    def begun(self: RadioUplink, uplink: Any, *arguments: Any) -> Any:
        current[0] = uplink if isinstance(uplink, int) else uplink.uplink
        if current[0] in waiting and waiting[current[0]].early:
            fault = waiting.pop(current[0])
            ask(served.uris[fault.box], **fault.orders)
        return original(self, uplink, *arguments)

    def told(self: InProcessLink, node: str, message: Any) -> Any:
        if isinstance(message, Sound | Transmit | received):
            starts[node] = message.start_sample
        if isinstance(message, received) and current[0] in waiting:
            fault = waiting.pop(current[0])
            ask(served.uris[fault.box], at=(starts[fault.box] + INSIDE) * TICKS_PER_SAMPLE, **fault.orders)
        return asked(self, node, message)

    def healed(self: RadioUplink, uplink: int, attempt: int = 0) -> Any:
        if attempt and uplink in planned:
            fault = planned[uplink]
            ask(served.uris[fault.box], **{key: value for key, value in HEALED.items() if key in fault.orders})
        return plan(self, uplink, attempt)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RadioUplink, method, begun)
        plan: Callable[..., Any] = RadioUplink.plan
        patch.setattr(RadioUplink, "plan", healed)
        patch.setattr(InProcessLink, "ask", told)
        yield
    assert not waiting


def sections(lab_file: Path, uplinks: int) -> dict[str, Any]:
    return small_run(str(lab_file), clients=2, uplinks=uplinks, radio={"attempts": 2})


@dataclass(frozen=True)
class Outcome:
    """when: "sounding" or "payload". rows: of the ledger, by uplink. postponed: soundings in vain, by uplink."""

    when: str
    rows: dict[int, list[dict[str, Any]]]
    postponed: dict[int, int]

    def kinds(self, uplink: int) -> list[str]:
        return [row["kind"] for row in self.rows[uplink]]


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    """Of one run with all faults in the soundings and of one in the payloads: opening boxes takes seconds."""
    return {}


@pytest.fixture
def outcome(
    request: pytest.FixtureRequest,
    outcomes: dict[str, Outcome],
    served: EmulatorProcess,
    lab_file: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Outcome:
    """Of the run with faults where the parameter says."""
    when: str = request.param
    if when not in outcomes:
        folder = tmp_path_factory.mktemp(when) / "run"
        planned = dict(enumerate(SOME_FAULTS.values(), start=1))
        with faults(when, served, planned):
            result = run(sections(lab_file, len(planned) + 1), folder)
        assert result.status == FINISHED
        assert_silent(served.uris)
        rows = ledger_rows(folder)[1:]
        outcomes[when] = Outcome(
            when,
            {n: [row for row in rows if row["mechanism"]["uplink"] == n] for n in range(1, len(planned) + 2)},
            {number: row["postponed"] for number, row in enumerate(RunFolder(folder).metrics(), start=1)},
        )
    return outcomes[when]


@pytest.mark.parametrize("outcome", ["sounding"], indirect=True)
@pytest.mark.parametrize("number", range(1, len(FAULTS) + 1), ids=FAULTS)
def test_a_fault_before_anything_is_sent_costs_nothing(outcome: Outcome, number: int) -> None:
    assert outcome.kinds(number) == WITH_JAMMER
    assert outcome.postponed[number] == 1


@pytest.mark.parametrize("outcome", ["payload"], indirect=True)
@pytest.mark.parametrize("number", range(1, len(FAULTS) + 1), ids=FAULTS)
def test_a_fault_in_the_payload_stays_charged(outcome: Outcome, number: int) -> None:
    """A jammer's burst that did not go out whole is accounted without its noise, whatever was wrong with it."""
    rows = outcome.rows[number]
    if FAULTS[list(FAULTS)[number - 1]].box == "jammer":
        assert outcome.kinds(number) == WITH_JAMMER * 2
        promised, real = rows[:2]
        assert promised["mechanism"]["alpha_cj"] > 0
        assert real["mechanism"]["alpha_cj"] == 0.0
        assert real["mechanism"]["sigma"] < 0.5 * promised["mechanism"]["sigma"]
    else:
        assert outcome.kinds(number) == ["authorise", *WITH_JAMMER]
    assert rows[-1]["mechanism"]["alpha_cj"] > 0


@pytest.mark.parametrize("outcome", ["sounding", "payload"], indirect=True)
def test_an_uplink_after_all_faults_is_as_any(outcome: Outcome) -> None:
    last = max(outcome.rows)
    assert (outcome.kinds(last), outcome.postponed[last]) == (WITH_JAMMER, 0)


@pytest.mark.skipif(not EVERYTHING, reason="takes minutes: AIRDP_USRP_FAULTS=all")
@pytest.mark.parametrize("outcome", ["sounding", "payload"], indirect=True)
@pytest.mark.parametrize("number", range(len(FAULTS) + 1, len(FAULTS) + len(SLOW_FAULTS) + 1), ids=SLOW_FAULTS)
def test_a_box_that_goes_and_comes_again(outcome: Outcome, number: int) -> None:
    """Whatever was authorised stays charged, and noise counts only where the jammer's box has confirmed it."""
    assert outcome.kinds(number) in (WITH_JAMMER, ["authorise", *WITH_JAMMER], WITH_JAMMER * 2)
    if outcome.when == "payload":
        assert len(outcome.rows[number]) > 2
    box = SLOW_FAULTS[list(SLOW_FAULTS)[number - len(FAULTS) - 1]].box
    accounts = [row["mechanism"]["alpha_cj"] for row in outcome.rows[number] if row["kind"] == "account"]
    assert accounts[-1] > 0
    assert not any(accounts[:-1])
    if box == "jammer" and outcome.when == "payload":
        assert len(accounts) == 2


def test_a_box_that_is_switched_off_and_on_again_is_found(
    tmp_path: Path, served: EmulatorProcess, lab_file: Path
) -> None:
    folder = tmp_path / "run"
    with faults("payload", served, {2: Fault("client-2", {"vanished": 1}, early=True)}):
        result = run(sections(lab_file, 3), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, 4)
    assert_silent(served.uris)


def test_a_jammer_that_stays_off_ends_the_run_and_the_others_are_parked(
    tmp_path: Path, served: EmulatorProcess, lab_file: Path
) -> None:
    """It goes once the payload is on its way: whether its noise was there is not known, and so not counted on."""
    folder = tmp_path / "run"

    def switch_off(_: RadioUplink) -> None:
        ask(served.uris["jammer"], vanished=1)

    off = at_receive(switch_off)
    try:
        with before("exchange", 2, off), pytest.raises(HardwareError, match=r"jammer.* cannot be reached"):
            run(sections(lab_file, 3), folder)
        assert rows_of(folder) == ["open", *["authorise", "account"] * 2]
        assert ledger_rows(folder)[-1]["mechanism"]["alpha_cj"] == 0.0
        assert_silent({name: uri for name, uri in served.uris.items() if name != "jammer"})
    finally:
        ask(served.uris["jammer"], vanished=0)
