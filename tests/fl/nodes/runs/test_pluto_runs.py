"""Runs over emulated Plutos: they agree with the loopback, and lost buffers cost what they must and no more."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from fl.nodes.radio_uplink import RadioUplink
from fl.run import run
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder
from fl.run.replay import replay
from hardware.air.settings import medium_of
from hardware.lab.file import find_lab
from hardware.loopback.radio import LoopbackRadio
from hardware.pluto.radio import PlutoRadio
from hardware.radio.errors import LateError
from tests.fl.nodes.small_runs import PLUTO_UPLINKS, assert_like_the_loopback, before, ledger_rows, pluto_run, rows_of
from tests.hardware.plutos import Bench

pytestmark = pytest.mark.usefixtures("no_figures", "no_waiting", "one_thread")


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"))
    made.start()
    yield made
    made.stop()


def test_the_same_run_as_over_the_loopback(tmp_path: Path) -> None:
    # The whole [medium] section's noise, and the converter's steps of 1/2047.
    noise_var_real = medium_of(find_lab("pluto-virtual")).noise_var_complex / 2 + (1 / 2047) ** 2 / 12
    assert_like_the_loopback("pluto-virtual", "pluto-virtual", noise_var_real, tmp_path)


def drop(radio: str, direction: str) -> Callable[[RadioUplink], None]:
    def inject(uplink: RadioUplink) -> None:
        pluto = uplink.lab.radios[radio]
        assert isinstance(pluto, PlutoRadio)
        pluto.context.write_debug(f"airdp_drop_{direction}_buffers", "1")

    return inject


def drop_once_placed(radio: str) -> Callable[[RadioUplink], None]:
    """Lose a block of `radio` after its burst was placed: noticed earlier, a loss keeps it from sending at all."""

    def inject(uplink: RadioUplink) -> None:
        pluto = uplink.lab.radios[radio]
        assert isinstance(pluto, PlutoRadio)
        send = pluto._send

        def place(samples: NDArray[np.complex64], start_sample: int) -> None:
            send(samples, start_sample)
            pluto._send = send  # type: ignore[method-assign]
            drop(radio, "tx")(uplink)

        pluto._send = place  # type: ignore[method-assign]

    return inject


@pytest.mark.parametrize("lost", [("ps", "rx"), ("client-2", "tx"), ("jammer", "tx")], ids=lambda lost: lost[0])
def test_a_buffer_lost_before_anything_is_sent_costs_nothing(
    tmp_path: Path, bench: Bench, lost: tuple[str, str]
) -> None:
    """A transmitter loses a part of its sounding: what is lost before, while nobody sounds, postpones nothing."""
    radio, direction = lost
    folder = tmp_path / "run"
    with before("plan", 2, drop(radio, direction) if direction == "rx" else drop_once_placed(radio)):
        result = run(pluto_run(str(bench.lab_file)), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
    assert rows_of(folder) == ["open", *["authorise", "account"] * PLUTO_UPLINKS]
    assert [row["postponed"] for row in RunFolder(folder).metrics()] == [0, 1, 0]
    bench.assert_silent()


def test_clients_that_have_not_begun_do_not_begin_after_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last client is late: what the others were to send is called back, the jammer's noise is not."""
    withdrawn: list[str] = []
    monkeypatch.setattr(LoopbackRadio, "withdraw", lambda radio: withdrawn.append(radio.name))

    def late(uplink: RadioUplink) -> None:
        radio = uplink.lab.radios["client-3"]
        assert isinstance(radio, LoopbackRadio)
        radio.fail_next("transmit", LateError("late"))

    sections = pluto_run("pluto-virtual")
    with before("exchange", 2, late):
        result = run({**sections, "radio": {**sections["radio"], "backend": "loopback"}}, tmp_path / "run")
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS + 1)
    assert withdrawn == ["client-1", "client-2", "client-3"]


def test_a_client_that_is_cut_short_sends_again(tmp_path: Path, bench: Bench) -> None:
    folder = tmp_path / "run"
    with before("exchange", 2, drop("client-2", "tx")):
        result = run(pluto_run(str(bench.lab_file)), folder)
    assert (result.status, result.uplinks, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS, PLUTO_UPLINKS + 1)
    assert rows_of(folder) == ["open", *["authorise", "account"], "authorise", *["authorise", "account"] * 2]
    bench.assert_silent()


def test_a_jammer_that_is_cut_short_is_charged_as_if_it_had_sent_nothing(tmp_path: Path, bench: Bench) -> None:
    """Its noise was promised in the ledger and did not go out whole: the uplink is accounted for without it."""
    folder = tmp_path / "run"
    with before("exchange", 2, drop_once_placed("jammer")):
        result = run(pluto_run(str(bench.lab_file)), folder)
    assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS + 1)
    assert rows_of(folder) == ["open", *["authorise", "account"] * (PLUTO_UPLINKS + 1)]
    rows = ledger_rows(folder)
    promised, real = rows[3]["mechanism"], rows[4]["mechanism"]
    assert promised["uplink"] == real["uplink"] == 2
    assert promised["alpha_cj"] > 0
    assert real["alpha_cj"] == 0.0
    assert real["sigma"] == pytest.approx(promised["noise_std_real"] / promised["alpha_u"])
    assert real["sigma"] < 0.5 * promised["sigma"]
    bench.assert_silent()


@pytest.mark.parametrize("record", ["all", "last"])
def test_what_was_received_can_be_replayed(tmp_path: Path, record: str) -> None:
    """With a lost buffer on the way, and a server that remembers the noise of earlier uplinks."""
    folder = tmp_path / "run"
    with before("plan", 2, drop("ps", "rx")):
        run(pluto_run("pluto-virtual", radio={"record": record}), folder)
    played = replay(RunFolder(folder))
    assert [one for attempt in played.attempts for one in attempt.found] == []
    assert played.model is (True if record == "all" else None)
    assert replay(RunFolder(folder), uplink=PLUTO_UPLINKS).same
