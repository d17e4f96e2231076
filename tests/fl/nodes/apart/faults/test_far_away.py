"""Nodes in network namespaces of their own, with delay and loss between them and the server."""

from pathlib import Path

import pytest

from fl.run import run
from fl.run.course.result import FINISHED
from tests.fl.nodes.apart.faults.far_away import far_away, why_not
from tests.fl.nodes.apart.site import PATIENT, lab_of, sections, site

pytestmark = [
    pytest.mark.usefixtures("no_figures", "one_thread"),
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there are namespaces"),
]


def test_delay_and_loss_change_nothing_about_the_model(tmp_path: Path) -> None:
    """50 ms each way and 1 % of all IP packets lost: what comes out is that of a run in one process, bit for bit."""
    chosen = sections(uplinks=2)
    lab_of(2, tmp_path, changes=PATIENT)
    one_process = {"lab": str(tmp_path / "plain.toml"), "backend": "loopback"}
    alone = run({**chosen, "radio": {**chosen["radio"], **one_process}}, tmp_path / "alone")
    names = ["client-1", "client-2", "jammer"]
    with site(tmp_path, changes=PATIENT) as here, far_away(names, 0.05, 0.01, seed=1) as (lines, carrier):
        here.listen = f"tcp://0.0.0.0:{here.port}"
        for name, line in lines.items():
            here.namespaces[name] = line.namespace
            here.changes[name] = {"server": f"tcp://{line.here}:{here.port}"}
        here.start_all()
        result = here.run(chosen)
        assert (result.status, result.transmissions_charged) == (FINISHED, 2)
        assert result.model_sha256 == alone.model_sha256
    assert carrier.carried > 200
    # Who is lost is drawn from the seed, packet after packet: the 14th, the 92nd, the 180th.
    assert carrier.lost >= 3
