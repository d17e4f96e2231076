"""A loop of one's own through the public API: the same air and the same ledger as a run's."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fl import flatten, open_uplink, read_ledger, unflatten_into
from fl.cli.main import main
from fl.dashboard.follow import Followed
from fl.errors import ConfigError, ModelError, PrivacyError, RunFolderError
from fl.privacy.clipping import mean_of_clipped
from fl.random_streams import Stream, generator
from fl.run import run
from fl.run.assemble import assemble
from fl.run.config import parse_config, resolve_config
from fl.run.folder import RunFolder

SIZES = [30, 20, 10]
SYMBOL: dict[str, Any] = {"uplink": {"kind": "symbol", "uplinks": 3}, "privacy": {"clip_norm": 1.0}}


def updates(seed: int, coordinates: int = 40) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(coordinates).astype(np.float32) for _ in SIZES]


def test_the_weighted_mean_of_the_clipped_updates_arrives(tmp_path: Path) -> None:
    given = updates(1)
    with open_uplink({"uplink": {"kind": "ideal"}}, sizes=SIZES, coordinates=40, out=tmp_path / "a") as air:
        received = air.send(given).values
        assert math.isinf(air.epsilon)
    clipped = [u * min(1.0, 1.0 / float(np.linalg.norm(u))) for u in given]
    expected = sum(u * (n / 60) for u, n in zip(clipped, SIZES, strict=True))
    np.testing.assert_allclose(received, expected, atol=1e-6)


def test_a_loop_that_does_what_a_run_does_gets_what_a_run_gets(tmp_path: Path) -> None:
    """The same config, data and clients: the same model to the bit, the same epsilon, the same rows of the ledger."""
    sections = {
        **SYMBOL,
        "partition": {"clients": 3},
        "model": {"hidden": 4},
        "local": {"epochs": 1},
        "algorithm": {"name": "fedavg"},
    }
    config = parse_config(sections)
    result = run(config, tmp_path / "run")
    parts = assemble(config)
    w = parts.start
    with open_uplink(config, sizes=parts.sizes.tolist(), coordinates=w.size, out=tmp_path / "loop") as air:
        while air.remaining:
            number = 4 - air.remaining

            def update(client: int, w: np.ndarray = w, number: int = number) -> Any:
                rng = generator(config.seed, Stream.LOCAL, number, client)
                return parts.local.update(w, parts.clients[client], rng, origin="x")

            w = w + air.send(update).values
        np.testing.assert_array_equal(w, flatten(result.model))
        assert air.privacy == result.privacy
    loop, whole = (read_ledger(tmp_path / name / "ledger.jsonl") for name in ("loop", "run"))
    assert loop.mechanisms == whole.mechanisms


def test_the_ledger_is_ahead_and_goes_on_when_the_loop_is_resumed(tmp_path: Path) -> None:
    place = {"sizes": SIZES, "coordinates": 40, "out": tmp_path / "loop"}
    with open_uplink(SYMBOL, **place) as air:
        air.send([torch.from_numpy(u) for u in updates(1)])
        spent = air.epsilon
    with pytest.raises(RunFolderError, match="resume=True"), open_uplink(SYMBOL, **place):
        pass
    with open_uplink(SYMBOL, resume=True, **place) as air:
        assert air.epsilon == pytest.approx(spent)
        assert air.remaining == 2
        air.send(updates(2))
        assert air.epsilon > spent
    assert [m.uplink for m in read_ledger(tmp_path / "loop" / "ledger.jsonl").mechanisms] == [1, 2]


def test_nothing_is_sent_beyond_the_budget_or_the_uplinks_that_noise_is_sized_for(tmp_path: Path) -> None:
    tight = {**SYMBOL, "privacy": {"epsilon": 5.0, "budget_epsilon": 3.5}}
    with open_uplink(tight, sizes=SIZES, coordinates=40, out=tmp_path / "tight") as air:
        air.send(updates(1))
        with pytest.raises(PrivacyError, match=r"would exceed privacy\.budget_epsilon = 3.5.*nothing was sent"):
            air.send(updates(2))
        assert air.epsilon <= 3.5
    with open_uplink(SYMBOL, sizes=SIZES, coordinates=40, out=tmp_path / "full") as air:
        for seed in range(3):
            air.send(updates(seed))
        with pytest.raises(PrivacyError, match="one more than noise is sized for"):
            air.send(updates(4))
        assert air.ledger.authorised == 3


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: updates(1)[:2], "2 updates for 3 clients"),
        (lambda: [*updates(1)[:2], np.full(40, np.nan, np.float32)], "client 2's update has 40 NaN"),
        (lambda: updates(1, coordinates=41), r"shape \(41,\): expected \(40,\)"),
        (lambda: None, "updates are a NoneType: expected one for each client"),
        (lambda: [*updates(1)[:2], np.full(40, 1j)], "client 2's update holds complex128: expected real numbers"),
        (lambda: [*updates(1)[:2], ["a"] * 40], "client 2's update holds <U1: expected real numbers"),
        (lambda: [*updates(1)[:2], [[1.0], [1.0, 2.0]]], "client 2's update is no array of numbers"),
        (lambda: dict(enumerate(updates(1)[:2])), "2 updates for 3 clients"),
    ],
)
def test_updates_that_do_not_fit_are_not_sent(tmp_path: Path, wrong: Any, message: str) -> None:
    with open_uplink(SYMBOL, sizes=SIZES, coordinates=40, out=tmp_path / "loop") as air:
        with pytest.raises(PrivacyError, match=message):
            air.send(wrong())
        assert air.ledger.mechanisms == {}


def test_updates_by_number_and_of_a_generator_are_in_order(tmp_path: Path) -> None:
    given = updates(1)
    received = []
    for name, held in (("a", given), ("b", {2: given[2], 0: given[0], 1: given[1]}), ("c", iter(given))):
        with open_uplink(
            {"uplink": {"kind": "ideal"}}, sizes=np.array(SIZES), coordinates=40, out=tmp_path / name
        ) as air:
            received.append(air.send(held).values)
    assert (received[0] == received[1]).all()
    assert (received[0] == received[2]).all()


@pytest.mark.parametrize(("sizes", "coordinates"), [([1.5, 2, 2], 4), ([0, 1], 4), ([], 4), (3, 4), ([1, 2], 4.0)])
def test_sizes_are_whole_numbers(tmp_path: Path, sizes: Any, coordinates: Any) -> None:
    """They weigh the clients: one that was rounded would weigh them otherwise than it says."""
    with (
        pytest.raises(PrivacyError, match="expected whole numbers above 0"),
        open_uplink(SYMBOL, sizes=sizes, coordinates=coordinates, out=tmp_path / "loop"),
    ):
        pass
    assert not (tmp_path / "loop").exists()


def test_nothing_is_sent_after_the_block(tmp_path: Path) -> None:
    with open_uplink(SYMBOL, sizes=SIZES, coordinates=40, out=tmp_path / "loop") as air:
        pass
    with pytest.raises(PrivacyError, match="this air is closed, and nothing was sent"):
        air.send(updates(1))


@pytest.mark.parametrize(
    ("config", "overrides", "message"),
    [
        (3, None, "the config is a int: expected a shipped name"),
        ("quickstart", ["uplink.uplinks=3"], "overrides are a list: expected a mapping"),
        ("quickstart", {3: 3}, "unknown key '3'"),
    ],
)
def test_what_is_no_config_is_refused(config: Any, overrides: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        resolve_config(config, overrides)


def test_numbers_of_numpy_and_paths_are_taken_as_values() -> None:
    overrides = {"uplink.uplinks": np.int64(7), "privacy.epsilon": np.float32(0.5), "data.path": Path("a") / "b"}
    made = resolve_config({"data": {"set": "npz"}}, overrides)
    assert (made.uplink.uplinks, made.privacy.epsilon, made.data.path) == (7, 0.5, "a/b")


def test_a_vector_that_does_not_fit_a_model_changes_nothing() -> None:
    net = torch.nn.Linear(2, 2)
    before = flatten(net)
    with pytest.raises(ModelError, match=r"shape \(5,\) does not fit a model of 6"):
        unflatten_into(net, np.zeros(5, np.float32))
    assert (flatten(net) == before).all()
    unflatten_into(net, torch.arange(6.0))
    assert flatten(net).tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]


def test_records_are_claimed_only_for_terms_that_were_clipped(tmp_path: Path) -> None:
    record = {**SYMBOL, "local": {"mode": "record"}}
    with open_uplink(record, sizes=SIZES, coordinates=40, out=tmp_path / "loop") as air:
        with pytest.raises(PrivacyError, match="mean_of_clipped"):
            air.send(updates(1))
        small = [u / (2 * np.linalg.norm(u)) for u in updates(1)]
        air.send([mean_of_clipped(u.astype(np.float32), n, 1.0) for u, n in zip(small, SIZES, strict=True)])
        assert air.privacy[0].label == "record"
        assert math.isfinite(air.epsilon)


def test_the_live_page_shows_a_loop_as_it_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "loop"
    few = {"uplink.uplinks": 2, "radio.first_quiet_samples": 2**17}
    followed, seen = Followed(RunFolder(out)), []
    with open_uplink("loopback", sizes=[30] * 5, coordinates=40, out=out, overrides=few) as air:
        while air.remaining:
            air.send(lambda client: np.full(40, 0.01 * client, np.float32))
            followed.update()
            frame = followed.news({})
            assert (frame["run"]["status"], frame["run"]["problems"]) == ("running", [])
            assert frame["privacy"]["statements"][0]["epsilon"]["paper"] == pytest.approx(air.epsilon)
            seen.append((frame["run"]["done"], frame["radio"]["uplink"], len(frame["waterfalls"]), len(frame["noise"])))
    assert seen == [(1, 1, 1, 1), (2, 2, 2, 2)]
    followed.update()
    assert followed.news({})["run"]["status"] == "stopped"
    # It is no run, and whoever wants one is told what this is.
    for command in ("report", "inspect"):
        assert main([command, str(out)]) == 2
        assert "of a loop that keeps no metrics here" in capsys.readouterr().err


def test_a_run_takes_overrides_shows_itself_and_may_be_called_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    changes = {"uplink.uplinks": 2, "local.epochs": 1, "model": {"hidden": 4}}
    first, second = (run("quickstart", overrides=changes) for _ in range(2))
    assert first.out != second.out
    assert first.model_sha256 == second.model_sha256
    assert first.history["uplink"].tolist() == [1, 2]
    assert first.history["accuracy"][-1] == first.accuracy
    assert first.history["epsilon"][-1] > first.history["epsilon"][0]
    logits = first.model(torch.zeros(1, 64))
    assert logits.shape == (1, 10)
    shown = first._repr_html_()
    assert f"{100 * first.accuracy:.2f} %" in shown
    assert "infinite (paper), infinite (exact)" in shown.split("ε, record")[1]
    assert "ε, client" in shown
    assert "ε, paper-claim" in shown
    assert "data:image/png;base64," in shown
    again = run("quickstart", first.out, overrides=changes, resume=True)
    assert again.model_sha256 == first.model_sha256
