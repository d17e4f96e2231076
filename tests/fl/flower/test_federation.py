"""Flower's own processes run the example: what reaches the server, what is learnt, what is left behind."""

import importlib.util
import json
import shutil
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("flwr", reason="no flwr: pip install 'airdp[flower]'")

from fl import read_ledger
from fl.errors import ConfigError
from fl.flower.federation import Federation, clients_of, deployment, marked, simulation

EXAMPLE = Path(__file__).parents[3] / "examples" / "flower"
WATCHED = '''
"""The example's ServerApp, with somebody who looks at all that clients send."""

import json
from pathlib import Path

from flwr.serverapp import ServerApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from over_the_air.server_app import main

app = ServerApp()


@app.main()
def watched(grid, context):
    pass_on, seen = grid.send_and_receive, Path(context.run_config["seen"])

    def look(messages, *, timeout=None):
        replies = list(pass_on(messages, timeout=timeout))
        with seen.open("a") as file:
            for reply in replies:
                parts = get_all_nested_objects(reply).values()
                said = {
                    "records": {name: type(record).__name__ for name, record in reply.content.items()},
                    "metrics": [dict(record) for record in reply.content.metric_records.values()],
                    "bytes": sum(len(part.deflate()) for part in parts),
                }
                print(json.dumps(said), file=file)
        return replies

    grid.send_and_receive = look
    main(grid, context)
'''
CONFIG = """
[partition]
clients = 2
[model]
hidden = 16
[algorithm]
name = "fedavg"
[power]
channel_epsilon = 8.0
[jammer]
role = "dedicated"
"""


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "start",
    [
        pytest.param(partial(deployment, 2), id="deployment"),
        pytest.param(
            simulation,
            id="simulation",
            marks=pytest.mark.skipif(
                importlib.util.find_spec("ray") is None,
                reason="no ray, for Flower's simulation: pip install 'airdp[flower]'",
            ),
        ),
    ],
)
def test_the_example_learns_and_no_update_reaches_the_server_in_a_message(
    tmp_path: Path, start: Callable[[], AbstractContextManager[Federation]]
) -> None:
    app, seen, out = tmp_path / "app", tmp_path / "seen.jsonl", tmp_path / "out"
    shutil.copytree(EXAMPLE, app)
    (app / "over_the_air" / "watched.py").write_text(WATCHED)
    settings = (app / "pyproject.toml").read_text().replace("server_app:app", "watched:app")
    (app / "pyproject.toml").write_text(f'{settings}seen = "{seen}"\n')
    (tmp_path / "air.toml").write_text(CONFIG)
    changes = [f"airdp-config='{tmp_path / 'air.toml'}' out='{out}' uplinks=1 epochs=2"]
    assert clients_of(app, changes) == 2
    with start() as federation:
        mark = federation.environment["AIRDP_FEDERATION"]
        assert marked(mark)
        federation.run(app, changes, "num-supernodes=2" if start is simulation else "")
    assert not marked(mark)
    replies = [json.loads(line) for line in seen.read_text().splitlines()]
    assert len(replies) == 2
    # 64-16-10: an update has 1210 coordinates, 4840 bytes.
    assert all(reply["records"] == {"metrics": "MetricRecord"} for reply in replies)
    assert all(list(metrics) == ["num-examples"] for reply in replies for metrics in reply["metrics"])
    assert all(reply["bytes"] < 1000 for reply in replies)
    result: dict[str, Any] = json.loads((out / "result.json").read_text())
    assert read_ledger(out / "ledger.jsonl").accounted == result["client_level"]["num_releases"] == 1
    assert result["evaluated"]["1"]["loss"] < result["evaluated"]["0"]["loss"]


def test_a_simulation_without_ray_is_refused_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl.flower.federation.importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"needs the package ray: pip install 'airdp\[flower\]'"), simulation():
        pass


def test_what_is_no_flower_app_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a Flower app"):
        clients_of(tmp_path, [])
    with pytest.raises(ConfigError, match="expected key=value"):
        clients_of(EXAMPLE, ["uplinks 3"])
    assert clients_of(EXAMPLE, []) == 10
    assert clients_of(EXAMPLE, ["airdp-config='loopback' uplinks=3"]) == 5
