"""`airdp reproduce`: what it refuses before anything runs, and that the shipped experiments are what they claim."""

import json
from pathlib import Path

import pytest

from fl.cli.experiments.reproduce import EXPERIMENTS
from fl.cli.main import main
from fl.privacy.accountant import epsilon_paper
from fl.run.config import AlgorithmName
from fl.sweep.plan import load_plan
from fl.uplink.jammer import JammerRole
from fl.uplink.modes import PowerControl


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nojammer"], "did you mean 'no-jammer'"),
        (["iid", "--trials", "0"], "--trials is 0"),
        (["iid", "--quick", "--jobs", "0"], "--jobs is 0"),
        (["no-jammer"], "AIRDP_DATA"),
    ],
)
def test_what_cannot_run_is_refused_before_anything_is_written(
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AIRDP_DATA", str(tmp_path / "nothing"))
    out = tmp_path / "out"
    assert main(["reproduce", *arguments, "--out", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_a_folder_of_another_grid_stops_all_experiments(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The last experiment's folder is looked at before the first one runs."""
    held = tmp_path / "iid"
    held.mkdir()
    (held / "sweep.json").write_text(json.dumps(load_plan("no-jammer-quick").to_json()), encoding="utf-8")
    assert main(["reproduce", "--quick", "--resume", "--out", str(tmp_path)]) == 2
    assert "another grid" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["iid"]


@pytest.mark.parametrize("suffix", ["", "-quick"])
def test_experiments_are_the_papers(suffix: str) -> None:
    plans = {name: load_plan(name + suffix) for name in EXPERIMENTS}
    without, jammed, iid = (plans[name] for name in EXPERIMENTS)
    assert [point.config.algorithm.name for point in without.points] == [
        AlgorithmName.UPCYCLED,
        AlgorithmName.FEDPROX,
        AlgorithmName.FEDAVG,
        AlgorithmName.FEDAVG,
    ]
    assert [point.config.power.control for point in without.points] == 3 * [PowerControl.ADAPTIVE] + [
        PowerControl.LIU_SIMEONE
    ]
    assert {point.claims for point in without.points} == {((6.52, 1e-5), (4.4, 0.01))}
    assert len(jammed.points) == 9
    for point in jammed.points:
        ((epsilon, delta),) = point.claims
        assert (point.config.privacy.epsilon, point.config.privacy.delta) == (epsilon, delta)
        assert (point.config.jammer.role, point.config.jammer.factor) == (JammerRole.DEDICATED, 7.0)
    assert {point.claims[0][0] for point in jammed.points} == {1.0, 0.5, 0.1}
    assert {(point.config.privacy.epsilon, point.config.privacy.delta) for point in iid.points} == {(0.15, 0.01)}
    for plan in (without, iid):
        assert {point.config.jammer.role for point in plan.points} == {JammerRole.NONE}


def test_full_experiments_have_the_papers_size() -> None:
    for name in EXPERIMENTS:
        plan = load_plan(name)
        assert plan.trials == 10
        for point in plan.points:
            config = point.config
            assert (config.partition.clients, config.uplink.uplinks, config.channel.snr_db) == (50, 80, 1.0)


def test_both_claims_of_the_first_experiment_are_one_noise() -> None:
    """(6.52, 1e-5) and (4.4, 0.01) within 0.5 %: S = 0.73. Another epsilon would not fit both."""
    ((epsilon, delta), (other, other_delta)) = load_plan("no-jammer").points[0].claims
    grid = [k / 10_000 for k in range(1, 20_000)]
    loss = min(grid, key=lambda value: abs(epsilon_paper(value, delta) - epsilon))
    assert epsilon_paper(loss, other_delta) == pytest.approx(other, rel=0.005)
    assert epsilon_paper(1.03 * loss, other_delta) != pytest.approx(other, rel=0.005)


def test_a_small_reproduction_gives_report_and_sweep(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    smaller = ["--set", "partition.clients=5", "--set", "uplink.uplinks=2", "--set", "local.epochs=1"]
    few = ["--trials", "1", "--jobs", "1", *smaller]
    assert main(["reproduce", "iid", "--quick", *few, "--out", str(tmp_path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    page = Path(said["report"]).read_text(encoding="utf-8")
    assert load_plan("iid-quick").title in page
    assert said["sweeps"] == [str(tmp_path / "iid")]
