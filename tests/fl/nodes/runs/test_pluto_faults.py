"""Plutos that die or freeze in the middle of a run: a typed error in time, an honest ledger, and a way on."""

import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from hardware.lab.file import find_lab
from hardware.lab.opened import open_lab
from hardware.radio.errors import HardwareError, RadioTimeoutError
from tests.fl.nodes.small_runs import PLUTO_UPLINKS, at_receive, before, pluto_run, rows_of
from tests.hardware.plutos import Bench

pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    """One for each test, to be broken."""
    made = Bench(tmp_path, timeout_s=1.0)
    made.start()
    yield made
    made.stop()


def dying(bench: Bench) -> Callable[[RadioUplink], None]:
    """Let the radios die while the server waits for the payload."""
    return at_receive(lambda uplink: bench.signal(signal.SIGKILL))


def test_radios_that_die_end_the_run_which_goes_on_later(tmp_path: Path, bench: Bench) -> None:
    """Whether the jammer's noise went out is not known any more, so it is not counted on."""
    folder = tmp_path / "run"
    started = time.monotonic()
    with before("exchange", 2, dying(bench)), pytest.raises(HardwareError, match=r"cannot be reached|connection broke"):
        run(pluto_run(str(bench.lab_file)), folder)
    assert time.monotonic() - started < 30
    assert rows_of(folder) == ["open", *["authorise", "account"] * 2]
    assert [mechanism.alpha_cj > 0 for mechanism in read_ledger(folder / "ledger.jsonl").mechanisms] == [True, False]
    bench.stop()
    bench.start()
    result = run(pluto_run(str(bench.lab_file)), folder, resume=True)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS + 1)
    bench.assert_silent()


def test_radios_that_freeze_for_a_while_are_found_again(tmp_path: Path, bench: Bench) -> None:
    """Longer than every time-out: the sounding fails and is done anew once they answer."""
    folder = tmp_path / "run"
    thaw = threading.Timer(3.0, lambda: bench.signal(signal.SIGCONT))

    def freeze(uplink: RadioUplink) -> None:
        bench.signal(signal.SIGSTOP)
        thaw.start()

    with before("plan", 2, freeze):
        result = run(pluto_run(str(bench.lab_file)), folder)
    thaw.join()
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
    assert [row["postponed"] for row in RunFolder(folder).metrics()] == [0, 1, 0]
    bench.assert_silent()


def freeze_and_receive(bench: Bench) -> None:
    with open_lab(find_lab(str(bench.lab_file)), 1) as lab:
        lab.ready()
        bench.signal(signal.SIGSTOP)
        lab.ps.receive(100_000, lab.ps.now())


def test_radios_that_stay_frozen_end_everything_in_time(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    """And it is said that they could not be parked; what they were sending ends with its connection."""
    started = time.monotonic()
    with pytest.raises(RadioTimeoutError, match="no answer for"):
        freeze_and_receive(bench)
    # One time-out to notice, one to try to park, and libiio's own of 5 s to reach them again; all at once.
    assert time.monotonic() - started < 20
    assert "client-1 may not be parked, switch it off" in caplog.text
    bench.signal(signal.SIGCONT)
    with open_lab(find_lab(str(bench.lab_file)), 1) as lab:
        lab.ready()
    bench.assert_silent()
