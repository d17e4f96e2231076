"""Runs over flowgraphs: they agree with the loopback, and flowgraphs that die or freeze cost what they must."""

import signal
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2

from fl.experiment import run
from fl.experiment.folder import RunFolder
from fl.experiment.runner import FINISHED
from fl.nodes.radio_uplink import RadioUplink
from fl.privacy.ledger import read_ledger
from hardware.lab import find_lab
from tests.fl.nodes.small_runs import PLUTO_UPLINKS, before, error_db, pluto_run, rows_of
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
    """Same lab, same fading: the error of the aggregates within 1 dB, the noise within its interval.

    The jammer's noise comes from the system and differs from run to run: the power over three uplinks scatters by
    0.16 dB, so that 1 dB is six times that, and refuses a wrong scale.
    """
    blocks, bins = 64, 192
    sections = pluto_run(lab_file, radio={"quiet_samples": blocks * 256})
    errors_db: dict[str, float] = {}
    for backend in ("gnuradio", "loopback"):
        result = run({**sections, "radio": {**sections["radio"], "backend": backend}}, tmp_path / backend)
        assert (result.status, result.transmissions_charged) == (FINISHED, PLUTO_UPLINKS)
        folder = RunFolder(tmp_path / backend)
        errors_db[backend] = error_db(tmp_path / backend)
        truth = find_lab(lab_file).medium.noise_var_complex / 2
        low, high = chi2.ppf([1e-7, 1 - 1e-7], 2 * blocks * bins) / (2 * blocks * bins)
        for uplink in range(1, PLUTO_UPLINKS + 1):
            with np.load(folder.snapshot_path(uplink)) as snapshot:
                measured = float(np.mean(snapshot["noise_var_real_per_bin"]))
            assert low * truth < measured < high * truth
        assert high < 1.05
    assert errors_db["gnuradio"] == pytest.approx(errors_db["loopback"], abs=1.0)


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

    def inject(uplink: RadioUplink) -> None:
        receive = uplink.server.receive

        def kill_and_receive(start_sample: int) -> object:
            uplink.server.receive = receive  # type: ignore[method-assign]
            to_flowgraph("air", signal.SIGKILL)(uplink)
            return receive(start_sample)

        uplink.server.receive = kill_and_receive  # type: ignore[assignment,method-assign]

    with before("exchange", 2, inject):
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
