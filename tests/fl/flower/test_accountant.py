"""The ledger as Flower's accountant: the same epsilon as a run states, and as Flower's own accountant finds."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flwr", reason="no flwr: pip install 'airdp[flower]'")

from flwr.supercore.privacy_accounting import GaussianPrivacyEvent, PrivacyAccountant
from flwr.supercore.privacy_accounting.rdp_accountant import RdpAccountant

from fl import open_uplink
from fl.errors import LedgerError, PrivacyError
from fl.flower.accountant import LedgerAccountant
from fl.privacy.sensitivity import Label

SIZES = [30, 20, 10]
# Noise that makes epsilon at the level of clients a number that one can look at.
SYMBOL: dict[str, Any] = {
    "uplink": {"kind": "symbol", "uplinks": 4},
    "privacy": {"epsilon": 0.3, "neighbours": "zero-out"},
    "jammer": {"role": "dedicated"},
}


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Label, float]]:
    """A ledger of three uplinks, and the exact epsilon under each label as the air states it."""
    folder = tmp_path_factory.mktemp("sent") / "out"
    with open_uplink(SYMBOL, sizes=SIZES, coordinates=40, out=folder) as air:
        for seed in range(3):
            rng = np.random.default_rng(seed)
            air.send([rng.standard_normal(40).astype(np.float32) for _ in SIZES])
        return folder / "ledger.jsonl", {said.label: said.epsilon["exact"] for said in air.privacy}


def test_it_is_what_the_air_states_for_clients(sent: tuple[Path, dict[Label, float]]) -> None:
    ledger, stated = sent
    accountant: PrivacyAccountant = LedgerAccountant(ledger)
    delta = accountant.config.target_delta
    spent = accountant.get_privacy_spent()
    assert spent.epsilon == pytest.approx(stated[Label.CLIENT], rel=1e-9)
    assert (spent.delta, spent.num_releases) == (delta, 3)
    assert accountant.get_delta(spent.epsilon) == pytest.approx(delta, rel=1e-6)
    assert accountant.config.population_size == 3


def test_flowers_own_accountant_agrees(sent: tuple[Path, dict[Label, float]]) -> None:
    """Renyi accounting is an upper bound that is a few percent above the exact value; half the noise is far beyond."""
    ours = LedgerAccountant(sent[0])
    ratio = math.sqrt(2 * ours._spent()[0] / 3)
    theirs = RdpAccountant(ours.config)
    theirs.compose(GaussianPrivacyEvent(1 / ratio, 3, 3), 3)
    epsilon = ours.get_epsilon(1e-5)
    assert epsilon <= theirs.get_epsilon(1e-5) < 1.2 * epsilon
    wrong = RdpAccountant(ours.config)
    wrong.compose(GaussianPrivacyEvent(0.5 / ratio, 3, 3), 3)
    assert wrong.get_epsilon(1e-5) > 1.5 * epsilon


def test_what_else_is_released_adds_up_and_is_kept(sent: tuple[Path, dict[Label, float]]) -> None:
    accountant = LedgerAccountant(sent[0])
    before, event = accountant.get_epsilon(1e-5), GaussianPrivacyEvent(2.0, 3, 3)
    accountant.compose(event, 2)
    after = accountant.get_epsilon(1e-5)
    assert after > before
    assert accountant.num_releases == 5
    again = LedgerAccountant(sent[0])
    again.load_state_dict(accountant.state_dict())
    assert again.get_epsilon(1e-5) == after
    assert again.num_releases == 5


def test_it_says_beforehand_what_would_be_too_much(sent: tuple[Path, dict[Label, float]]) -> None:
    accountant, event = LedgerAccountant(sent[0]), GaussianPrivacyEvent(2.0, 3, 3)
    accountant.compose(event)
    limit = accountant.get_epsilon(accountant.config.target_delta)
    again = LedgerAccountant(sent[0], max_epsilon=limit)
    assert not again.would_exceed(event, limit * (1 + 1e-9))
    assert again.would_exceed(event, count=2)
    assert again.num_releases == 3
    with pytest.raises(PrivacyError, match="needs a limit"):
        accountant.would_exceed(event)


def test_a_ledger_that_was_cut_is_noticed(sent: tuple[Path, dict[Label, float]], tmp_path: Path) -> None:
    state = LedgerAccountant(sent[0]).state_dict()
    cut = tmp_path / "ledger.jsonl"
    cut.write_bytes(b"".join(sent[0].read_bytes().splitlines(keepends=True)[:-2]))
    with pytest.raises(LedgerError, match="it was cut or replaced"):
        LedgerAccountant(cut).load_state_dict(state)


@pytest.mark.parametrize("composed", [[[0.0, 1]], [[math.nan, 1]], [[1.0, 0]], [[1.0]], None, "x"])
def test_a_state_that_is_none_is_refused(sent: tuple[Path, dict[Label, float]], composed: Any) -> None:
    accountant = LedgerAccountant(sent[0])
    with pytest.raises(PrivacyError):
        accountant.load_state_dict({**accountant.state_dict(), "composed": composed})
