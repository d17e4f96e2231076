"""Confidence is chosen from delta, and what is chosen by hand is charged."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ConfigError
from fl.privacy.accountant import Accountant
from fl.privacy.conditions import JammerTrust, View
from fl.privacy.ledger import read_ledger
from fl.privacy.statement import state_privacy
from fl.run.assemble import privacy_target
from fl.run.config import RunConfig, parse_config
from fl.run.delta_split import split_delta
from tests.fl.nodes.small_runs import run, small_run

RADIO: dict[str, Any] = {"uplink": {"kind": "radio", "uplinks": 30}, "partition": {"clients": 5}}
Command = Callable[..., Any]


def sections_of(**changes: Any) -> dict[str, Any]:
    return small_run("loopback", clients=5, uplinks=4, **changes)


def config_of(**sections: Any) -> RunConfig:
    return parse_config({**RADIO, **sections})


@pytest.mark.parametrize(
    ("sections", "bounds"),
    [
        # The noise, within the band and everywhere; gain, image and linearity of five clients; a jammer's gain and
        # image; and its linearity, by a calibration.
        ({}, 17),
        ({"jammer": {"role": "dedicated"}}, 19),
        ({"jammer": {"role": "dedicated"}, "radio": {"calibration": "lab.json"}}, 20),
    ],
)
def test_all_bounds_of_all_uplinks_fail_with_the_share(sections: dict[str, Any], bounds: int) -> None:
    split = split_delta(config_of(**sections))
    assert split.bounds == pytest.approx(1e-6)
    assert split.mechanism + split.bounds == pytest.approx(split.total) == 1e-5
    assert split.confidence is not None
    assert 30 * bounds * (1.0 - split.confidence) == pytest.approx(1e-6, rel=1e-6)
    wide = split_delta(config_of(**sections, privacy={"bounds_share": 0.5}))
    assert wide.bounds == pytest.approx(5e-6)


def test_noise_is_sized_for_the_mechanisms_part() -> None:
    config = config_of()
    assert privacy_target(config, 5.0).delta == pytest.approx(9e-6)
    assert privacy_target(RunConfig(), 5.0).delta == 1e-5


def test_nothing_is_set_aside_where_nothing_is_measured() -> None:
    split = split_delta(RunConfig())
    assert (split.bounds, split.confidence, split.mechanism) == (0.0, None, 1e-5)


def test_a_confidence_by_hand_is_charged_as_it_is() -> None:
    split = split_delta(config_of(radio={"confidence": 0.999}))
    assert split.bounds == pytest.approx(30 * 17 * 1e-3)
    assert split.confidence == 0.999


def test_a_delta_that_no_measurement_reaches_is_refused() -> None:
    with pytest.raises(ConfigError, match="no measurement is that certain"):
        split_delta(config_of(privacy={"delta": 1e-12}))


@pytest.mark.usefixtures("no_figures")
def test_a_run_charges_its_bounds_and_meets_its_target(tmp_path: Path, command: Command) -> None:
    """Four uplinks over radios: each is charged with its own bounds, a tenth of delta in all. Ledger and result say so,
    and epsilon stays within the target at the whole delta."""
    result = run(sections_of(), tmp_path / "run")
    said, header = result.privacy[0], read_ledger(tmp_path / "run" / "ledger.jsonl").header
    assert said.delta_bounds == pytest.approx(1e-6)
    assert set(said.bounds or ()) == {
        "noise",
        "client gains",
        "client images",
        "jammer gain",
        "jammer image",
        "linearity",
        "rounding",
    }
    target = RunConfig().privacy.epsilon
    assert said.epsilon[Accountant.PAPER] <= target * (1 + 1e-9)
    assert (header.view, header.jammer, header.delta_bounds) == (
        View.SAMPLES,
        JammerTrust.DEDICATED,
        pytest.approx(1e-6),
    )
    done = command("ledger", tmp_path / "run", "--json").json
    assert done["delta_split"] == result.to_json()["delta_split"] == said.to_json()["delta_split"]
    assert done["header"]["confidence"] == header.confidence
    shown = command("ledger", tmp_path / "run").out
    for part in (
        "view samples",
        "measured bounds",
        "confidence of each measured bound",
        "server: trusted",
        "jammer: a",
    ):
        assert part in shown.replace("\n", " ")


@pytest.mark.usefixtures("no_figures")
def test_a_low_confidence_is_seen_and_claims_nothing(tmp_path: Path, command: Command) -> None:
    result = run(sections_of(radio={"confidence": 0.999}), tmp_path / "run")
    assert result.to_json()["epsilon"] == {"paper": "inf", "exact": "inf"}
    assert "leaves nothing of delta" in result.privacy[0].reason
    assert result.to_json()["confidence"] < 0.98
    contents = read_ledger(tmp_path / "run" / "ledger.jsonl")
    assert contents.header.confidence == 0.999
    again = state_privacy(
        contents.mechanisms,
        contents.header.sizes_array,
        label=contents.header.label,
        neighbours=contents.header.neighbours,
        delta=0.5,
    )
    assert again.epsilon[Accountant.EXACT] < 10


@pytest.mark.usefixtures("no_figures")
def test_the_other_view_is_never_claimed_under_its_name(tmp_path: Path, command: Command) -> None:
    """The uplink `symbol` has cells and no samples; one over radios is accounted for both."""
    sections = sections_of()
    run(sections, tmp_path / "radio")
    both = [command("ledger", tmp_path / "radio", "--view", view, "--json").json for view in ("cells", "samples")]
    assert both[0]["epsilon"] == both[1]["epsilon"]
    run({**sections, "uplink": {**sections["uplink"], "kind": "symbol"}}, tmp_path / "run")
    weak = command("ledger", tmp_path / "run", "--view", "cells", "--json").json
    strong = command("ledger", tmp_path / "run", "--view", "samples", "--json").json
    assert (weak["view"], strong["view"]) == ("cells", "samples")
    assert isinstance(weak["epsilon"]["exact"], float)
    assert strong["epsilon"]["exact"] == "inf"
    assert "accounted for the view cells only" in strong["infinite_because"]
