"""Runs whose clients and jammer are processes of their own, over a served air."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ConfigError, RunFolderError
from fl.nodes.apart.comparison import compare
from fl.nodes.apart.keys import make_keys
from fl.nodes.apart.own_budget import Budget
from fl.privacy.ledger import read_ledger
from fl.processes.node import run_node
from fl.processes.settings import NodeSettings
from fl.run import run
from fl.run.course.metrics import UplinkMetrics
from fl.run.course.result import FINISHED
from fl.run.folder import RunFolder, locked
from fl.run.replay import replay
from hardware.lab.model import Role
from tests.conftest import Outcome
from tests.fl.nodes.apart.site import PATIENT, SERVED, Site, lab_of, sections, site
from tests.fl.nodes.small_runs import rows_of

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(300)]


def assert_all_charged(here: Site, out: str = "run") -> None:
    """Everything that a client has sent is in the server's ledger, and counts there for no less than it was."""
    server = read_ledger(here.folder / out / "ledger.jsonl")
    assert len(here.states()) == len(here.lab.clients)
    for found in compare(here.folder / out / "ledger.jsonl", here.states()):
        assert not found.under_counted
        assert found.sent <= server.authorised


def test_the_model_is_that_of_a_run_in_one_process_bit_for_bit(tmp_path: Path, command: Any) -> None:
    chosen = sections()
    lab_of(2, tmp_path, changes=PATIENT)
    one_process = {"lab": str(tmp_path / "plain.toml"), "backend": "loopback"}
    alone = run({**chosen, "radio": {**chosen["radio"], **one_process}}, tmp_path / "alone")
    with site(tmp_path, changes=PATIENT) as here:
        here.start_all()
        result = here.run(sections(radio={"record": "all"}))
        assert (result.status, result.transmissions_charged) == (FINISHED, 3)
        assert result.model_sha256 == alone.model_sha256
        # Bounds are computed in double precision by each process for itself.
        for accountant, epsilon in alone.privacy[0].epsilon.items():
            assert result.privacy[0].epsilon[accountant] == pytest.approx(epsilon, rel=1e-9)
        assert_all_charged(here)
        for process in here.processes.values():
            process.join(100)
            assert process.exitcode == 0
        for folder in here.states():
            own = read_ledger(folder / "ledger.jsonl")
            assert (own.authorised, own.accounted) == (3, 3)
        against = [part for folder in here.states() for part in ("--against", str(folder))]
        said: Outcome = command("ledger", str(tmp_path / "run"), "--json", *against)
        assert said.code == 0
        compared = json.loads(said.out)["against"]
        assert [one["client"] for one in compared] == [0, 1]
        assert all(one["own_loss"] == pytest.approx(one["server_loss"]) for one in compared)
    # What the server's radio received is kept, and says the same once more without any node.
    played = replay(RunFolder(tmp_path / "run"))
    assert (len(played.attempts), played.same, played.model) == (3, True, True)


def test_two_processes_do_not_share_a_state(tmp_path: Path) -> None:
    lab = lab_of(2, tmp_path)
    for name in ("ps", "client-1"):
        make_keys(tmp_path / "keys", name)
    (tmp_path / "state").mkdir()
    settings = NodeSettings(
        lab, "client-1", Role.CLIENT, "tcp://127.0.0.1:1", tmp_path / "keys", tmp_path / "state", give_up_s=5.0
    )
    with locked(RunFolder(tmp_path / "state")), pytest.raises(RunFolderError, match="another process"):
        run_node(settings)


def test_what_others_send_cannot_be_recorded(tmp_path: Path) -> None:
    with site(tmp_path) as here, pytest.raises(ConfigError, match="need all nodes in one process"):
        here.run(sections(radio={"record": "all", "record_sent": True}))


def test_a_client_that_is_killed_and_comes_back_is_part_of_the_run_again(tmp_path: Path) -> None:
    with site(tmp_path, changes=PATIENT) as here:
        here.start_all()
        killed: list[str] = []

        def kill(metrics: UplinkMetrics) -> None:
            if metrics.uplink == 1:
                here.signal("client-2", signal.SIGKILL)
                here.processes["client-2"].join()
                here.start("client-2")
                killed.append("client-2")

        result = here.run(sections(), on_uplink=kill)
        assert killed
        assert (result.status, result.uplinks) == (FINISHED, 3)
        assert_all_charged(here)


def test_a_server_that_ends_is_waited_for_and_the_run_goes_on(tmp_path: Path) -> None:
    class CrashError(BaseException):
        pass

    def crash(metrics: UplinkMetrics) -> None:
        if metrics.uplink == 1:
            raise CrashError

    with site(tmp_path, changes=PATIENT) as here:
        # Clients that are told to leave would end: this server goes without a word.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("fl.nodes.apart.uplink.ApartUplink.leave", lambda self: None)
            here.start_all()
            with pytest.raises(CrashError):
                here.run(sections(), on_uplink=crash)
        result = here.run(sections(), resume=True)
        assert (result.status, result.uplinks) == (FINISHED, 3)
        assert rows_of(tmp_path / "run").count("authorise") == 3
        assert_all_charged(here)


def test_a_client_refuses_beyond_its_own_budget(tmp_path: Path) -> None:
    with site(tmp_path, changes=PATIENT) as here:
        here.changes["client-1"] = {"budget": Budget(1e-3)}
        here.start_all()
        with pytest.raises(Exception, match="above its budget"):
            here.run(sections())
        own = {path.parent.name: read_ledger(path / "ledger.jsonl").authorised for path in here.states()}
        assert own["client-1"] == 0


def test_code_that_the_servers_config_names_is_not_imported(tmp_path: Path) -> None:
    with site(tmp_path, changes=PATIENT) as here:
        here.start_all()
        with pytest.raises(ConfigError, match="names code to import"):
            here.run(sections(model={"module": "torch.nn:Identity"}))


def test_the_served_air_is_a_backend_like_others(tmp_path: Path) -> None:
    chosen = sections(clients=5)
    models = [
        run({**chosen, "radio": {**chosen["radio"], "backend": backend}}, tmp_path / backend).model_sha256
        for backend in ("loopback", SERVED)
    ]
    assert models[0] == models[1]
