"""`airdp bound` on real small runs: what it says follows from the folder, and what it cannot know it refuses."""

import json
import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

import fl.run.figures
from fl.errors import ConfigError, LedgerError, ModelError, RunFolderError
from fl.import_path import trusted_code
from fl.learning.evaluate import evaluate
from fl.learning.model import unflatten_into
from fl.learning.theory.convergence import Form
from fl.learning.theory.curvature import loss_and_gradient
from fl.learning.workforce import single_threaded_torch
from fl.privacy.ledger import Ledger, read_ledger
from fl.run import run
from fl.run.assemble import assemble
from fl.run.bound import (
    GIVEN,
    HESSIAN_STEPS,
    EstimatedConstants,
    bound_of_run,
    estimate_constants,
    premises_not_met,
    record_of_run,
)
from fl.run.config import RunConfig, load_config
from fl.run.folder import RunFolder

Command = Callable[..., Any]
pytestmark = pytest.mark.usefixtures("one_thread", "no_waiting")
SMALL = [
    "data.train_samples=300",
    "partition.clients=4",
    "model.hidden=4",
    "local.epochs=1",
    "local.workers=1",
    "uplink.uplinks=3",
    "privacy.clip_norm=0.5",
]
ALL_GIVEN = {
    "lipschitz": 2.0,
    "dissimilarity": 1.5,
    "strong_convexity": 9.0,
    "step_bound": 0.3,
    "gradient_bound": 0.7,
    "heterogeneity": 0.4,
    "optimum": 0.1,
}


def small_run(folder: Path, *overrides: str, name: str = "quickstart") -> Path:
    with pytest.MonkeyPatch.context() as patch, single_threaded_torch():
        patch.setattr(fl.run.figures, "draw_run", lambda folder: None)
        return run(load_config(name, [*SMALL, *overrides]), folder).out


@pytest.fixture(scope="module")
def shared_run(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """Upcycled-FL with a jammer. Not to be changed: see `own_run`."""
    return RunFolder(small_run(tmp_path_factory.mktemp("bound") / "run"))


@pytest.fixture(scope="module")
def estimated(shared_run: RunFolder) -> EstimatedConstants:
    with single_threaded_torch():
        return estimate_constants(shared_run)


@pytest.fixture
def own_run(shared_run: RunFolder, tmp_path: Path) -> RunFolder:
    """A copy that a test may damage."""
    return RunFolder(Path(shutil.copytree(shared_run.path, tmp_path / "run")))


def accounts(folder: RunFolder) -> list[dict[str, Any]]:
    """Mechanisms of the ledger's account rows, read without the code under test."""
    rows = [json.loads(line) for line in folder.ledger_path.read_text().splitlines()]
    return [row["mechanism"] for row in rows if row["kind"] == "account"]


def model_of(folder: RunFolder) -> NDArray[np.float32]:
    checkpoint = folder.load_checkpoint()
    assert checkpoint is not None
    return checkpoint.model


def test_record_is_the_ledgers(shared_run: RunFolder) -> None:
    record, mechanisms = record_of_run(shared_run), accounts(shared_run)
    tau = 0.5
    assert (record.proximal_mu, record.dimension, record.uplinks) == (0.1, 64 * 4 + 4 + 50, 3)
    np.testing.assert_allclose(record.reuse, 0.1 / (0.1 + 0.15))
    np.testing.assert_allclose(record.gains, [row["received_gains"] for row in mechanisms])
    assert record.gains.min() < 0.99
    # The server multiplies by tau: so does the noise.
    np.testing.assert_allclose(record.noise_std, [tau * m["noise_std_real"] / m["alpha_u"] for m in mechanisms])
    np.testing.assert_allclose(
        record.jammer_std, [tau * m["alpha_cj"] * m["jammer_gain"] / m["alpha_u"] for m in mechanisms]
    )
    assert record.jammer_std.min() > 0
    np.testing.assert_allclose(np.hypot(record.jammer_std, record.noise_std), [tau * m["sigma"] for m in mechanisms])
    sizes = shared_run.read_json("partition.json")["sizes"]
    np.testing.assert_allclose(record.weights, np.array(sizes) / 300)


def test_record_of_a_server_as_printed(shared_run: RunFolder, tmp_path: Path) -> None:
    """`literal`: weights p_i/(tau s_i), and noise without tau."""
    literal = record_of_run(RunFolder(small_run(tmp_path / "run", "power.aggregate=literal")))
    rescaled = record_of_run(shared_run)
    np.testing.assert_allclose(literal.gains, rescaled.gains / 0.5)
    np.testing.assert_allclose(literal.noise_std, rescaled.noise_std / 0.5)
    np.testing.assert_allclose(literal.jammer_std, rescaled.jammer_std / 0.5)


@pytest.mark.parametrize("aggregate", ["rescaled", "literal"])
def test_ideal_uplink_loses_nothing(tmp_path: Path, aggregate: str) -> None:
    folder = RunFolder(small_run(tmp_path / "run", "uplink.kind=ideal", f"power.aggregate={aggregate}"))
    record = record_of_run(folder)
    np.testing.assert_array_equal(record.gains, np.ones((3, 4)))
    assert not record.noise_std.any()
    assert not record.jammer_std.any()


def test_silent_client_has_no_gain(tmp_path: Path) -> None:
    record = record_of_run(RunFolder(small_run(tmp_path / "run", "jammer.role=rotating")))
    np.testing.assert_array_equal(np.argmin(record.gains, axis=1), [0, 1, 2])
    np.testing.assert_array_equal((record.gains == 0).sum(axis=1), 1)


def test_actual_back_off_counts_with_the_mean_received_weight(tmp_path: Path) -> None:
    folder = RunFolder(small_run(tmp_path / "run", "power.backoff=actual", "channel.snr_db=-25"))
    record = record_of_run(folder)
    received = [row["weight_received"] for row in folder.metrics()]
    assert {gain for row in accounts(folder) for gain in row["received_gains"]} == {1.0}
    np.testing.assert_allclose(record.gains, np.repeat(received, 4).reshape(3, 4))
    assert max(received) < 0.99
    assert any("no s_i is on record" in premise for premise in premises_not_met(folder))


def test_step_norm_is_the_length_of_the_first_step(tmp_path: Path) -> None:
    upcycled = RunFolder(small_run(tmp_path / "upcycled", "uplink.stop_after=1"))
    fedprox = RunFolder(small_run(tmp_path / "fedprox", "uplink.stop_after=1", "algorithm.name=fedprox"))
    start = assemble(upcycled.config()).start.astype(np.float64)
    for folder, factor in ((upcycled, 1 + 0.1 / 0.25), (fedprox, 1.0)):
        moved = float(np.linalg.norm(model_of(folder) - start))
        assert folder.metrics()[0]["step_norm"] == pytest.approx(moved / factor, rel=1e-5)
    steps = [row["step_norm"] for row in fedprox.metrics()]
    assert estimate_constants(fedprox).step_bound == max(steps)


def test_folders_without_step_norm_have_the_sum_of_its_parts(own_run: RunFolder) -> None:
    rows = own_run.metrics()
    exact = max(row["step_norm"] for row in rows)
    for row in rows:
        del row["step_norm"]
    own_run.metrics_path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    q = estimate_constants(own_run).step_bound
    assert q == max(row["signal_norm"] + row["noise_norm"] for row in rows)
    assert exact <= q < 2 * exact


def gradients_at(config: RunConfig, vector: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Of each client (K, d), and of all training samples together (d,)."""
    parts = assemble(config)
    own = np.stack([loss_and_gradient(parts.model, vector, data)[1] for data in parts.clients])
    net = parts.model
    unflatten_into(net, vector)
    x = torch.cat([data.x for data in parts.clients])
    y = torch.cat([data.y for data in parts.clients])
    nn.functional.cross_entropy(net(x), y).backward()
    flat = [parameter.grad.numpy().ravel() for parameter in net.parameters() if parameter.grad is not None]
    return own, np.concatenate(flat).astype(np.float64)


def test_estimates_cover_both_ends_of_the_run(shared_run: RunFolder, estimated: EstimatedConstants) -> None:
    constants, config = estimated, shared_run.config()
    parts = assemble(config)
    ends = {"start": parts.start, "checkpoint": model_of(shared_run)}
    for name, vector in ends.items():
        own, whole = gradients_at(config, vector)
        norm = float(np.linalg.norm(whole))
        assert constants.squared_gradients[name] == pytest.approx(norm**2, rel=1e-4)
        assert constants.gradient_bound >= norm * (1 - 1e-5)
        deviations = np.linalg.norm(own - whole, axis=1)
        assert np.all(constants.heterogeneity >= deviations * (1 - 1e-5))
        mean_square = (parts.sizes / parts.sizes.sum()) @ np.square(own).sum(axis=1)
        assert constants.dissimilarity >= math.sqrt(mean_square) / norm * (1 - 1e-5)
    # And they are largest values that were seen, not anything above them.
    assert constants.gradient_bound < 1.5 * math.sqrt(max(constants.squared_gradients.values()))
    assert 1.0 <= constants.dissimilarity < 20
    train = evaluate(parts.model, parts.start, *(torch.cat([getattr(c, k) for c in parts.clients]) for k in "xy"))
    assert constants.start_gap == pytest.approx(train.loss, rel=1e-5)
    assert (constants.points, constants.hessian_points, constants.given) == (7, 3, frozenset())
    assert "true constants may be larger" in constants.caveat


def test_estimated_curvature_is_the_dense_hessians(shared_run: RunFolder, estimated: EstimatedConstants) -> None:
    constants, parts = estimated, assemble(shared_run.config())
    start, last = parts.start, model_of(shared_run)
    extremes = []
    for vector in (start, last, (start + np.float32(0.5) * (last - start)).astype(np.float32)):
        for data in parts.clients:
            net = parts.model
            unflatten_into(net, vector)
            parameters = list(net.parameters())
            loss = nn.functional.cross_entropy(net(data.x), data.y)
            flat = torch.cat([g.flatten() for g in torch.autograd.grad(loss, parameters, create_graph=True)])
            rows = torch.autograd.grad(flat, parameters, torch.eye(flat.numel()), is_grads_batched=True)
            matrix = torch.cat([row.flatten(1) for row in rows], dim=1).double().numpy()
            extremes.append(np.linalg.eigvalsh((matrix + matrix.T) / 2)[[0, -1]])
    low, high = np.min(extremes), np.max(extremes)
    assert constants.smallest_eigenvalue == pytest.approx(low, rel=0.03)
    assert constants.smallest_eigenvalue >= low - 1e-5
    assert constants.lipschitz == pytest.approx(max(abs(low), high), rel=0.03)
    assert constants.lipschitz <= max(abs(low), high) + 1e-5
    assert constants.strong_convexity == pytest.approx(0.1 + constants.smallest_eigenvalue)


def test_estimates_are_the_same_every_time_and_for_any_number_of_workers(own_run: RunFolder) -> None:
    text = own_run.config_path.read_text()
    first = estimate_constants(own_run)
    assert "workers = 1" in text
    own_run.config_path.write_text(text.replace("workers = 1", "workers = 2"))
    second = estimate_constants(own_run)
    for name in ("lipschitz", "dissimilarity", "strong_convexity", "gradient_bound", "start_gap"):
        assert getattr(first, name) == getattr(second, name)
    np.testing.assert_array_equal(first.heterogeneity, second.heterogeneity)


def test_progress_reaches_the_end(shared_run: RunFolder) -> None:
    seen: list[float] = []
    estimate_constants(shared_run, on_progress=seen.append)
    assert np.all(np.diff(seen) > 0)
    assert seen[-1] == pytest.approx(1.0)
    assert len(seen) == 2 * 7 * 4


def test_given_constants_stand(shared_run: RunFolder, estimated: EstimatedConstants) -> None:
    constants = estimate_constants(shared_run, ALL_GIVEN)
    assert set(ALL_GIVEN) == set(GIVEN)
    for name, value in ALL_GIVEN.items():
        if name == "optimum":
            assert constants.start_gap == pytest.approx(estimated.start_gap - value)
        elif name == "heterogeneity":
            np.testing.assert_array_equal(constants.heterogeneity, np.full(4, value))
        else:
            assert getattr(constants, name) == value
    # Nothing that was given is computed in vain.
    assert constants.hessian_points == 0
    assert math.isnan(constants.smallest_eigenvalue)
    assert constants.caveat == "all constants are given"
    one = estimate_constants(shared_run, {"lipschitz": 2.0})
    assert (one.lipschitz, one.hessian_points) == (2.0, 3)
    assert one.strong_convexity == estimated.strong_convexity


def test_unknown_and_impossible_constants_are_refused(shared_run: RunFolder) -> None:
    with pytest.raises(ConfigError, match="no constant 'lipshitz'"):
        estimate_constants(shared_run, {"lipshitz": 1.0})
    with pytest.raises(ConfigError, match="dissimilarity"):
        estimate_constants(shared_run, {"dissimilarity": 0.5})
    # Above the loss at the start: not a smallest value.
    with pytest.raises(ConfigError, match="start gap"):
        estimate_constants(shared_run, {"optimum": 100.0})


def test_bound_of_given_constants_by_hand(shared_run: RunFolder) -> None:
    constants = estimate_constants(shared_run, ALL_GIVEN)
    bound = bound_of_run(shared_run, constants)
    mechanisms, mu, L, B, rho, tau = accounts(shared_run), 0.1, 2.0, 1.5, 9.0, 0.5
    d = model_of(shared_run).size
    weights = np.array(shared_run.read_json("partition.json")["sizes"]) / 300
    assert bound.form is Form.PAPER
    assert bound.c1 == pytest.approx(1 / (2 * mu) - L * B / (mu * rho**2))
    for m, mechanism in enumerate(mechanisms):
        s = 1 / np.array(mechanism["received_gains"])
        # The server rescales: s_i for tau s_i, alpha_u/tau for alpha_u.
        alpha_u = mechanism["alpha_u"] / tau
        reuse = mu / (mu + 0.15)
        c4 = weights @ ((2 * mu * (s - 1) ** 2 + (2 * L - mu) * mu) / (2 * mu**2 * s**2) * (0.4 + 0.7) ** 2)
        assert bound.c2[m] == pytest.approx(reuse * (1 + 2 * L * B * (L + rho) / (mu * rho**2)) * 0.3 * 0.7)
        assert bound.c3[m] == pytest.approx(reuse**2 * L * (1 + (L + rho) ** 2 / (mu * rho**2)) * 0.3**2)
        assert bound.c4[m] == pytest.approx(c4)
        assert bound.c5[m] == pytest.approx(
            L * d / 2 * (mechanism["jammer_gain"] * mechanism["alpha_cj"] / alpha_u) ** 2
        )
        assert bound.c6[m] == pytest.approx(L * d / 2 * (mechanism["noise_std_real"] / alpha_u) ** 2)
    total = (
        constants.start_gap / 3
        + sum(np.mean([bound.c2[m] + bound.c3[m] + bound.c4[m] + bound.c5[m] + bound.c6[m]]) for m in range(3)) / 3
    )
    assert bound.void is None
    assert bound.value == pytest.approx(total / bound.c1)


def test_real_run_of_a_network_is_void_for_want_of_convexity(
    shared_run: RunFolder, estimated: EstimatedConstants
) -> None:
    for form in Form:
        bound = bound_of_run(shared_run, estimated, form)
        assert bound.void is not None
        assert "not strongly convex" in bound.void
        assert bound.mu_needed > 0.1


def test_convex_run_stays_below_its_bound(tmp_path: Path) -> None:
    """Softmax regression on clients that are alike, with mu > 2 L. How tight it is, quadratics show elsewhere."""
    folder = RunFolder(
        small_run(
            tmp_path / "run",
            "model.module='torch.nn:Linear'",
            "model.arguments={in_features=64, out_features=10}",
            "partition.kind=iid",
            "partition.clients=2",
            "algorithm.name=fedprox",
            "algorithm.mu=5.0",
            "local.epochs=6",
            "local.batch_size=150",
            "uplink.kind=ideal",
            "uplink.uplinks=150",
            "privacy.clip_norm=10.0",
        )
    )
    with trusted_code():
        constants = estimate_constants(folder)
    # Shifting all logits changes nothing: the smallest eigenvalue is 0, and Lanczos finds it from above.
    assert -1e-4 < constants.smallest_eigenvalue < 0.1
    bound = bound_of_run(folder, constants, Form.MENDED)
    assert bound.void is None
    assert min(constants.squared_gradients.values()) < bound.value < constants.gradient_bound**2
    assert not bound.vacuous
    assert bound.dominant == "start"
    assert premises_not_met(folder) == (
        "epochs of SGD (6) approach the minimum of g_i, where the theorem's clients are",
    )


def test_fedprox_is_an_analogue_without_upcycling(tmp_path: Path, command: Command) -> None:
    folder = RunFolder(small_run(tmp_path / "run", "algorithm.name=fedprox"))
    bound = bound_of_run(folder, estimate_constants(folder, ALL_GIVEN))
    assert not bound.c2.any()
    assert not bound.c3.any()
    assert bound.void is None
    assert "not proved in the paper" in command("bound", folder.path, "--json").json["holds"]


def test_fedavg_has_no_bound(tmp_path: Path, command: Command) -> None:
    folder = RunFolder(small_run(tmp_path / "run", "algorithm.name=fedavg"))
    said = command("bound", folder.path, "--json").json
    assert said["holds"].startswith("none")
    assert {bound["bound"] for bound in said["bounds"].values()} == {None}
    assert all("mu = 0" in bound["void"] for bound in said["bounds"].values())
    assert command("bound", folder.path).out.count("void: mu = 0") == 2


def test_clients_that_do_not_minimise_have_no_bound(tmp_path: Path) -> None:
    folder = RunFolder(small_run(tmp_path / "run", "local.mode=record"))
    bound = bound_of_run(folder, estimate_constants(folder, ALL_GIVEN))
    assert bound.void is not None
    assert "do not minimise" in bound.void
    assert bound.value == math.inf


def test_premises(shared_run: RunFolder) -> None:
    clipped = sum(row["clipped"] for row in shared_run.metrics())
    said = premises_not_met(shared_run)
    assert any("epochs of SGD (1)" in premise for premise in said)
    assert any("ReLU" in premise for premise in said)
    assert any(f"{clipped} of 12 updates were clipped" in premise for premise in said) is (clipped > 0)
    assert not any("uplinks" in premise for premise in said)


def test_json(shared_run: RunFolder, estimated: EstimatedConstants, command: Command) -> None:
    said, constants = command("bound", shared_run.path, "--json").json, estimated
    assert (said["algorithm"], said["holds"], said["uplinks"], said["clients"]) == ("upcycled", "Theorem 5", 3, 4)
    assert said["constants"]["lipschitz"] == constants.lipschitz
    assert said["constants"]["heterogeneity"] == constants.heterogeneity.tolist()
    assert said["squared_gradients"] == constants.squared_gradients
    assert set(said["bounds"]) == {"paper", "mended"}
    for form in Form:
        bound, expected = said["bounds"][form.value], bound_of_run(shared_run, constants, form)
        assert (bound["void"], bound["dominant"]) == (expected.void, expected.dominant)
        assert (bound["bound"], bound["c1"], bound["terms"]["c2"]) == (None, None, None)
        assert bound["terms"]["c5"] == expected.terms["c5"]
        assert bound["by_uplink"]["c6"] == expected.c6.tolist()
        assert bound["mu_needed"] == expected.mu_needed


def test_options_and_table(shared_run: RunFolder, command: Command) -> None:
    options = [part for name, value in ALL_GIVEN.items() for part in (f"--{name.replace('_', '-')}", value)]
    said = command("bound", shared_run.path, *options, "--json").json
    assert said["given"] == sorted(ALL_GIVEN)
    bound = bound_of_run(shared_run, estimate_constants(shared_run, ALL_GIVEN))
    assert said["bounds"]["paper"]["bound"] == pytest.approx(bound.value)
    text = " ".join(command("bound", shared_run.path, *options).out.split())
    assert f"paper: min E||grad f||^2 <= {bound.value:.4g}" in text
    assert "which is assumed anyway" in text
    assert "all constants are given" in text
    assert "epsilon does not cover" in text
    for symbol in ("C1", "C2", "C3", "C4", "C5", "C6"):
        assert f"│ {symbol} │" in text


def test_table_of_a_void_bound(shared_run: RunFolder, command: Command) -> None:
    outcome = command("bound", shared_run.path)
    text = " ".join(outcome.out.split())
    assert outcome.code == 0
    assert "paper: void: rho =" in text
    assert "mended: void: rho =" in text
    assert "estimated at 7 points, Hessians at 3 of them: the true constants may be larger" in text


@pytest.mark.parametrize("value", ["0", "nan", "many"])
def test_impossible_options_are_refused(shared_run: RunFolder, command: Command, value: str) -> None:
    outcome = command("bound", shared_run.path, "--lipschitz", value)
    assert outcome.code == 2
    assert outcome.err.count("\n") == 1
    assert "lipschitz" in outcome.err


def test_folder_of_no_run(tmp_path: Path, command: Command) -> None:
    for folder in (tmp_path, tmp_path / "missing"):
        outcome = command("bound", folder)
        assert outcome.code == 2
        assert "is not the folder of a run" in outcome.err


def test_run_without_a_finished_uplink(own_run: RunFolder) -> None:
    own_run.checkpoint_path.unlink()
    with pytest.raises(RunFolderError, match=r"no finished uplink.*--resume"):
        estimate_constants(own_run)
    with pytest.raises(RunFolderError, match="no finished uplink"):
        record_of_run(own_run)


def test_run_that_stopped_on_the_way_counts_what_it_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(metrics: Any) -> None:
        if metrics.uplink == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(fl.run.figures, "draw_run", lambda folder: None)
    config = load_config("quickstart", SMALL)
    with pytest.raises(KeyboardInterrupt):
        run(config, tmp_path / "run", on_uplink=stop)
    folder = RunFolder(tmp_path / "run")
    # The third was sent, and the process ended before its checkpoint.
    ledger = Ledger.open(folder.ledger_path)
    ledger.authorise(replace(next(iter(ledger.mechanisms.values())), uplink=3))
    folder.append_metrics({**folder.metrics()[0], "uplink": 3, "step_norm": 1e6})
    assert record_of_run(folder).uplinks == 2
    assert any("2 of 3 uplinks" in premise for premise in premises_not_met(folder))
    constants = estimate_constants(folder)
    assert constants.step_bound < 1e6
    assert len(bound_of_run(folder, constants).c4) == 2


def test_uplink_that_was_sent_twice_counts_as_the_last(own_run: RunFolder) -> None:
    checkpoint = own_run.load_checkpoint()
    assert checkpoint is not None
    ledger = Ledger.open(own_run.ledger_path)
    again = replace(list(ledger.mechanisms.values())[1], noise_std_real=7.0)
    assert again.uplink == 2
    ledger.account(ledger.authorise(again), again)
    own_run.save_checkpoint(replace(checkpoint, ledger_head=ledger.head))
    record = record_of_run(own_run)
    assert record.uplinks == 3
    assert record.noise_std[1] == pytest.approx(0.5 * 7.0 / again.alpha_u)
    assert record.noise_std[0] != record.noise_std[1]


def test_damaged_folders_are_refused(own_run: RunFolder) -> None:
    metrics = own_run.metrics_path.read_text()
    lines = metrics.splitlines(keepends=True)
    row = json.loads(lines[1])
    damages = {
        "".join([lines[0], lines[2]]): "expected one line for each of the 3 uplinks",
        "".join([lines[0], json.dumps({**row, "step_norm": "inf"}) + "\n", lines[2]]): "'step_norm' of uplink 2",
        "".join([lines[0], json.dumps({**row, "step_norm": None}) + "\n", lines[2]]): "'step_norm' of uplink 2",
    }
    for text, message in damages.items():
        own_run.metrics_path.write_text(text)
        with pytest.raises(RunFolderError, match=message):
            estimate_constants(own_run)
    own_run.metrics_path.write_text(metrics)
    own_run.checkpoint_path.write_bytes(b"nothing")
    with pytest.raises(RunFolderError, match="is damaged"):
        estimate_constants(own_run)


def test_other_ledger_is_refused(own_run: RunFolder, tmp_path: Path) -> None:
    other = RunFolder(small_run(tmp_path / "other", "privacy.epsilon=4.0"))
    shutil.copy(other.ledger_path, own_run.ledger_path)
    with pytest.raises(RunFolderError, match="lacks rows that the checkpoint has seen"):
        record_of_run(own_run)
    own_run.ledger_path.write_text("{}\n")
    with pytest.raises(LedgerError):
        record_of_run(own_run)


def test_other_data_and_other_clients_are_refused(own_run: RunFolder) -> None:
    partition = own_run.read_json("partition.json")
    own_run.write_json("partition.json", {**partition, "data_sha256": "0" * 64})
    with pytest.raises(RunFolderError, match="other data"):
        estimate_constants(own_run)
    # What the folder alone can say it still says.
    assert record_of_run(own_run).uplinks == 3
    own_run.write_json("partition.json", {**partition, "sizes": [300]})
    with pytest.raises(RunFolderError, match="other clients"):
        estimate_constants(own_run)


def test_missing_data_is_refused(own_run: RunFolder, command: Command, monkeypatch: pytest.MonkeyPatch) -> None:
    text = own_run.config_path.read_text().replace('set = "digits"', 'set = "emnist"')
    own_run.config_path.write_text(text)
    monkeypatch.setenv("AIRDP_DATA", str(own_run.path / "nowhere"))
    outcome = command("bound", own_run.path)
    assert outcome.code == 2
    assert "nowhere" in outcome.err


def test_other_model_is_refused(own_run: RunFolder) -> None:
    checkpoint = own_run.load_checkpoint()
    assert checkpoint is not None
    own_run.save_checkpoint(replace(checkpoint, model=checkpoint.model[:-1]))
    with pytest.raises(RunFolderError, match="model of shape"):
        estimate_constants(own_run)


def test_model_that_ran_away_is_refused(own_run: RunFolder) -> None:
    checkpoint = own_run.load_checkpoint()
    assert checkpoint is not None
    own_run.save_checkpoint(replace(checkpoint, model=np.full_like(checkpoint.model, 1e30)))
    with pytest.raises(ModelError, match="not finite"):
        estimate_constants(own_run)


def test_nothing_in_the_folder_is_touched(
    shared_run: RunFolder, command: Command, snapshot: Callable[[Path], dict[str, str]]
) -> None:
    before = snapshot(shared_run.path)
    assert command("bound", shared_run.path).code == 0
    assert snapshot(shared_run.path) == before
    assert read_ledger(shared_run.ledger_path).resumes == 0


def test_hessian_steps_are_enough_for_the_shipped_network() -> None:
    """Sixteen products against sixty on the quickstart's own model and one of its clients."""
    from fl.learning.theory.curvature import hessian_extremes

    parts = assemble(load_config("quickstart"))
    few, many = (
        hessian_extremes(parts.model, parts.start, parts.clients[0], np.random.default_rng(1), steps)
        for steps in (HESSIAN_STEPS, 60)
    )
    assert few == pytest.approx(many, rel=0.03)
    assert many[0] <= few[0]
    assert few[1] <= many[1]
