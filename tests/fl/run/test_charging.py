"""What a run says that it has spent, while it goes on and when it has ended: one number."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl.privacy.conditions import View
from fl.privacy.ledger import Ledger
from fl.privacy.mechanism import RoundMechanism, SigmaOrigin
from fl.run.charging import ChargedUplink, ledger_header
from fl.run.config import parse_config
from tests.fl.privacy.mechanisms import without_jammer

SIZES = np.array([100, 300])
NOTHING: Any = None


def uplink_of(sigma: float) -> RoundMechanism:
    """A record's ratio is 1/(400 sigma), and a step of a converter may add ten times as much."""
    plain = without_jammer((1.0, 1.0), sigma, SigmaOrigin.MEASURED, record_bounded=True)
    return replace(plain, view=View.SAMPLES, bounds=(("noise", 1e-9),), rounding=10.0 / 400.0)


@pytest.mark.parametrize(("ratio", "whole"), [(0.5, False), (3.0, True)])
def test_epsilon_in_a_run_is_that_of_its_statement(tmp_path: Path, ratio: float, whole: bool) -> None:
    """Four uplinks: mu of 1, where dither is counted on, and of 6, epsilon 43, where it is not: 66 then."""
    config = parse_config(
        {
            "uplink": {"kind": "radio", "uplinks": 4},
            "local": {"mode": "record"},
            "partition": {"clients": 2},
            "privacy": {"budget_epsilon": 100.0, "clip_norm": 1.0},
        },
        "test",
    )
    mechanism = uplink_of(1.0 / (400.0 * ratio))
    with Ledger.create(tmp_path / "ledger.jsonl", ledger_header(config, SIZES, View.SAMPLES)) as ledger:
        air = ChargedUplink(NOTHING, ledger, NOTHING, config, SIZES)
        for _ in range(3):
            ledger.account(ledger.authorise(mechanism), mechanism)
        spent, planned = air.epsilon(), air.epsilon(mechanism)
        assert spent == pytest.approx(air.statements()[0].epsilon[config.privacy.accountant], rel=1e-12)
        assert air.exceeds_budget(mechanism) == whole
        ledger.authorise(mechanism)
        assert planned == pytest.approx(air.statements()[0].epsilon[config.privacy.accountant], rel=1e-12)
    smooth = replace(mechanism, rounding=0.0).losses(SIZES, config.label, config.privacy.neighbours).max()
    assert air.statements()[0].mu == pytest.approx(np.sqrt(2 * 4 * smooth) * (11.0 if whole else 1.0), rel=1e-4)
