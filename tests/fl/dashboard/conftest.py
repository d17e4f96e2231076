"""A finished radio run that the tests of the page share."""

from pathlib import Path

import pytest

from fl.learning.workforce import single_threaded_torch
from fl.run import run
from tests.fl.nodes.small_runs import small_run

UPLINKS = 5


@pytest.fixture(scope="package")
def radio_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dashboard") / "run"
    with single_threaded_torch():
        run(small_run("loopback", clients=5, uplinks=UPLINKS), folder)
    return folder
