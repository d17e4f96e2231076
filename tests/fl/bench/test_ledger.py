"""The ledger that the benchmark opens is one as a run writes it."""

from pathlib import Path

import pytest

from fl.bench import ledger as bench
from fl.privacy import ledger_mark
from fl.privacy.ledger import Ledger, read_ledger


def test_it_is_verified_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "ledger.jsonl"
    bench.write_ledger(path, 7, 3)
    contents = read_ledger(path)
    assert (contents.authorised, contents.accounted) == (7, 7)
    with Ledger.open(path) as opened:
        assert opened.authorised == 7
        assert opened.unaccounted == 0


def test_what_is_measured_has_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench, "UPLINKS", 60)
    monkeypatch.setattr(ledger_mark, "EVERY_ROWS", 50)
    monkeypatch.setattr(bench, "_APPENDS", 3)
    made = bench.ledger(1)
    assert {"row_ms_after_10", "row_ms_after_60"} <= set(made.facts)
    assert made.ours_s > 0.0
    assert made.reference_s > 0.0
