"""Runs over flowgraphs: they agree with the loopback, and flowgraphs that die or freeze cost what they must."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.replay import replay
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab
from tests.fl.nodes.small_runs import PLUTO_UPLINKS, assert_like_the_loopback, at_receive, before, pluto_run, rows_of
from tests.gnuradio_needed import needs_gnuradio
from tests.hardware.flowgraph_labs import process_of

pytestmark = [needs_gnuradio, pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")]


@pytest.fixture
def lab_file(tmp_path: Path) -> str:
    """The shipped lab, which waits for less long and publishes nothing at a fixed address."""
    text = Path(find_lab("gnuradio").source).read_text()
    file = tmp_path / "lab.toml"
    changed = text.replace('clock = "shared"', 'clock = "shared"\ntimeout_s = 2.0')
    file.write_text(changed.replace('monitor = "tcp://127.0.0.1:5702"', ""))
    return str(file)


def test_the_same_run_as_over_the_loopback(tmp_path: Path, lab_file: str) -> None:
    assert_like_the_loopback(lab_file, "gnuradio", medium_of(find_lab(lab_file)).noise_var_complex / 2, tmp_path)


def to_flowgraph(name: str, number: signal.Signals) -> Callable[[RadioUplink], None]:
    return lambda uplink: process_of(uplink.lab, name).send_signal(number)


@pytest.mark.parametrize("name", ["client-2", "air"])
def test_a_flowgraph_that_dies_before_anything_is_sent_costs_nothing(tmp_path: Path, lab_file: str, name: str) -> None:
    folder = tmp_path / "run"
    with before("plan", 2, to_flowgraph(name, signal.SIGKILL)):
        result = run(pluto_run(lab_file), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
    assert rows_of(folder) == ["open", *["authorise", "account"] * PLUTO_UPLINKS]


def test_a_flowgraph_that_dies_during_the_payload_is_charged_without_the_jammer(tmp_path: Path, lab_file: str) -> None:
    """Whether the noise went out with it is not known any more, so it is not counted on; the uplink is sent again."""
    folder = tmp_path / "run"
    with before("exchange", 2, at_receive(to_flowgraph("air", signal.SIGKILL))):
        result = run(pluto_run(lab_file), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS + 1)
    mechanisms = read_ledger(folder / "ledger.jsonl").mechanisms
    assert [mechanism.alpha_cj > 0 for mechanism in mechanisms] == [True, False, True, True]


def test_a_flowgraph_that_freezes_is_started_anew(tmp_path: Path, lab_file: str) -> None:
    folder = tmp_path / "run"
    with before("plan", 2, to_flowgraph("client-1", signal.SIGSTOP)):
        result = run(pluto_run(lab_file), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
    assert sum(row["postponed"] for row in RunFolder(folder).metrics()) == 1


def test_what_was_received_can_be_replayed(tmp_path: Path, lab_file: str) -> None:
    run(pluto_run(lab_file, radio={"record": "all"}), tmp_path / "run")
    played = replay(RunFolder(tmp_path / "run"))
    assert [one for attempt in played.attempts for one in attempt.found] == []
    assert played.model
