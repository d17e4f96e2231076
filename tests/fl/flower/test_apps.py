"""Strategy and mod with Flower's own messages: what leaves a client, and that learning is what it is in a run."""

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="no flwr: pip install 'airdp[flower]'")

from flwr.app import ArrayRecord, Context, Message, MessageType, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

from fl import flatten, read_ledger, unflatten_into
from fl.errors import ConfigError, ModelError, PrivacyError
from fl.flower.air import Air
from fl.flower.mod import over_the_air
from fl.flower.strategy import OverTheAir
from fl.flower.vectors import to_arrays, to_vector
from fl.learning.model import model_at
from fl.random_streams import Stream, generator
from fl.run import run
from fl.run.config import parse_config
from fl.run.learner import make_learner
from tests.fl.flower.here import GridHere, air_here, context

SYMBOL: dict[str, Any] = {
    "uplink": {"kind": "symbol", "uplinks": 3},
    "partition": {"clients": 3},
    "model": {"hidden": 8},
    "local": {"epochs": 3},
    "power": {"channel_epsilon": 8.0},
    "jammer": {"role": "dedicated"},
}
IDEAL = {**SYMBOL, "uplink": {"kind": "ideal", "uplinks": 3}, "algorithm": {"name": "fedavg"}}
START = ArrayRecord(
    {"w": ArrayRecord([np.zeros((4, 5), np.float32)])["0"], "b": ArrayRecord([np.ones(5, np.float32)])["0"]}
)


def training_app(
    shift: float = 0.1, *, metrics: dict[str, Any] | None = None, mods: Any = (over_the_air,)
) -> ClientApp:
    """Adds `shift` times its number + 1 to every coordinate, and says more than it may."""
    app = ClientApp(mods=list(mods))

    @app.train()
    def train(message: Message, held: Context) -> Message:
        arrays = message.content["arrays"]
        trained = to_vector(arrays) + np.float32(shift * (held.node_config.get("partition-id", 0) + 1))
        said = MetricRecord({"num-examples": 10, **(metrics or {})})
        content = RecordDict({"arrays": to_arrays(trained, arrays), "metrics": said})
        return Message(content, reply_to=message)

    @app.evaluate()
    def evaluate(message: Message, held: Context) -> Message:
        return Message(RecordDict({"metrics": MetricRecord({"loss": 0.5})}), reply_to=message)

    @app.query()
    def fail(message: Message, held: Context) -> Message:
        raise ValueError("sample 17 is a nine")

    return app


@pytest.fixture
def air(tmp_path: Path) -> Any:
    with air_here(IDEAL, tmp_path) as opened:
        yield opened


def grid_of(app: ClientApp, air: Air) -> GridHere:
    return GridHere(app, [context(client, air.place) for client in range(3)])


def sent_bytes(content: RecordDict) -> bytes:
    """All that would leave for the SuperLink but for the message's own number and time."""
    return b"".join(part.deflate() for _, part in sorted(get_all_nested_objects(content).items()))


def test_a_reply_has_the_number_of_examples_and_nothing_else(air: Air) -> None:
    app = training_app(metrics={"train_loss": 0.25, "gradient": [1.0, 2.0]})
    grid = grid_of(app, air)
    result = OverTheAir(air).start(grid, START, num_rounds=2)
    assert len(grid.replies) == 6
    for reply in grid.replies:
        assert dict(reply.content) == {"metrics": MetricRecord({"num-examples": 10})}
    # Coordinates were moved by 0.1, 0.2 and 0.3, which is clipped to norm 1 where it is longer: 5 of it in the mean.
    moved = to_vector(result.arrays) - to_vector(START)
    expected = sum(min(0.1 * k, 1 / np.sqrt(25)) for k in (1, 2, 3)) / 3
    np.testing.assert_allclose(moved, 2 * expected, rtol=1e-5)
    assert read_ledger(air.ledger_path).authorised == 2


def test_the_bytes_of_a_reply_do_not_depend_on_data(tmp_path: Path) -> None:
    said = []
    for shift in (0.1, -7.0):
        folder = tmp_path / str(shift)
        folder.mkdir()
        with air_here(IDEAL, folder) as air:
            grid = grid_of(training_app(shift, metrics={"train_loss": shift}), air)
            OverTheAir(air).start(grid, START, num_rounds=1)
            said.append([sent_bytes(reply.content) for reply in grid.replies])
    assert said[0] == said[1]


def test_without_the_mod_the_server_refuses_what_came_in_clear(air: Air) -> None:
    """The interception finds an update where there is one."""
    grid = grid_of(training_app(mods=()), air)
    with pytest.raises(PrivacyError, match="has sent arrays to the server: its ClientApp lacks the mod"):
        OverTheAir(air).start(grid, START, num_rounds=1)
    assert not air.ledger_path.exists()


def asked(kind: str) -> Message:
    return Message(RecordDict({"arrays": START}), message_type=kind, dst_node_id=1)


def test_nothing_else_about_data_leaves_either(air: Air, caplog: pytest.LogCaptureFixture) -> None:
    app = training_app()
    with pytest.raises(PrivacyError, match="has metrics: what a client says about its data is covered by no epsilon"):
        app(asked(MessageType.EVALUATE), context(0, air.place))
    with caplog.at_level(logging.ERROR):
        failed = app(asked(MessageType.QUERY), context(0, air.place))
    assert failed.has_error()
    assert "nine" not in str(failed.error.reason)
    assert "nine" in caplog.text


def test_a_round_that_lacks_a_client_sends_nothing_and_the_next_one_goes_on(air: Air) -> None:
    app, broken = training_app(), training_app(shift=float("nan"))

    class Once(GridHere):
        def send_and_receive(self, messages: Any, *, timeout: float | None = None) -> Any:
            given = list(messages)
            first = bool(given) and not self.replies
            self.app = broken if first else app
            return super().send_and_receive(given)

    grid = Once(app, [context(client, air.place) for client in range(3)])
    result = OverTheAir(air).start(grid, START, num_rounds=2)
    assert sorted(result.train_metrics_clientapp) == [2]
    assert read_ledger(air.ledger_path).authorised == 1


@pytest.mark.parametrize(
    ("held", "message"),
    [({}, "no whole number partition-id"), ({"partition-id": 0, "airdp-node": "/nowhere"}, "there is no air node")],
)
def test_a_client_that_is_not_set_up_says_why_in_its_own_log(
    air: Air, held: dict[str, Any], message: str, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = Context(
        run_id=1, node_id=1, node_config=held, state=RecordDict(), run_config={"airdp-node": str(air.place)}
    )
    with caplog.at_level(logging.ERROR):
        assert training_app()(asked(MessageType.TRAIN), wrong).has_error()
    assert message in caplog.text


def test_buffers_do_not_travel() -> None:
    with pytest.raises(ModelError, match=r"n \(int64\).*nn.GroupNorm"):
        to_vector(ArrayRecord({"n": ArrayRecord([np.zeros(1, np.int64)])["0"]}))
    np.testing.assert_array_equal(to_vector(to_arrays(to_vector(START) * 2, START)), to_vector(START) * 2)


def test_as_many_nodes_as_clients(air: Air, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fl.flower.strategy._CLIENTS_S", 0.0)
    grid = GridHere(training_app(), [context(client, air.place) for client in range(2)])
    with pytest.raises(ConfigError, match="2 SuperNodes are there: expected 3"):
        OverTheAir(air).start(grid, START, num_rounds=1)


@pytest.mark.parametrize("seed", [1, 2])
def test_learning_is_what_it_is_in_a_run(tmp_path: Path, seed: int) -> None:
    """Same config, same seed: the same noise, and updates that differ by rounding (w + u) - w only."""
    config = parse_config({**SYMBOL, "seed": seed})
    whole = run(config, tmp_path / "run")
    learner = make_learner(config)
    app = ClientApp(mods=[over_the_air])

    @app.train()
    def train(message: Message, held: Context) -> Message:
        net, said, client = model_at(learner.model, learner.start), message.content, held.node_config["partition-id"]
        net.load_state_dict(said["arrays"].to_torch_state_dict())
        before = flatten(net)
        rng = generator(config.seed, Stream.LOCAL, int(said["config"]["server-round"]), client)
        made = learner.local.update(before, learner.clients[client], rng, origin="x")
        unflatten_into(net, before + made.values)
        content = {
            "arrays": ArrayRecord(net.state_dict()),
            "metrics": MetricRecord({"num-examples": len(learner.clients[client].y)}),
        }
        return Message(RecordDict(content), reply_to=message)

    with air_here(config, tmp_path) as air:
        start = ArrayRecord(model_at(learner.model, learner.start).state_dict())
        result = OverTheAir(air).start(grid_of(app, air), start, num_rounds=3)
        flower = to_vector(result.arrays)
    assert result.train_metrics_clientapp[3]["epsilon"] == pytest.approx(whole.history["epsilon"][-1], rel=1e-9)
    rows, same = (read_ledger(tmp_path / name / "ledger.jsonl").mechanisms for name in ("out", "run"))
    assert rows == same
    # Rounding to float32 once more in each of three steps, of coordinates below 1, and what training makes of it.
    np.testing.assert_allclose(flower, flatten(whole.model), atol=1e-4)
    assert np.abs(flower - learner.start).max() > 0.01
