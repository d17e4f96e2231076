"""However a program ends, its transmitters are left parked and without a buffer, and the interpreter ends in peace."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.hardware.exits import EXITS, leave
from tests.hardware.plutos import Bench


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    made = Bench(tmp_path_factory.mktemp("bench"))
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize(("way", "number", "code"), EXITS)
def test_every_exit(bench: Bench, tmp_path: Path, way: str, number: signal.Signals | None, code: int) -> None:
    leave(tmp_path, bench.lab_file, way, number, code)
    bench.assert_silent()
