"""Every kind of fault, through a proxy between the sockets, by signals and in the nodes; `soak` goes on with them.

What must never be raises on the way: a row that is lost, a burst without one, an account below what was sent, a liar
whom nobody sees, an end without a reason, a stand-still.
"""

from pathlib import Path

import pytest

from tests.fl.nodes.apart.faults.soak import UPLINKS, soaking

pytestmark = [pytest.mark.usefixtures("no_figures", "one_thread"), pytest.mark.timeout(900)]

TRIES = 6
"""A fault may not come to pass: nothing was said to a node whose messages are late, say."""


def test_every_kind_of_fault(tmp_path: Path) -> None:
    with soaking(tmp_path, seed=5) as soak:
        soak.start()
        for kind in soak.faults():
            assert any(soak.inject(kind) for _ in range(TRIES)), kind
        soak.finish()
        said = soak.said()
    assert said["liars_seen"] == said["by_kind"]["a client that lies"] >= 1
    assert said["runs_finished"] >= 1
    assert said["uplinks_finished"] == UPLINKS * said["runs_finished"]
    assert 0 < said["bursts_of_clients"] <= 2 * said["transmissions_charged"]
