"""Sweeps that the tests of the report share: made once, not to be changed. A test that must change one copies it."""

from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def algorithms(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three algorithms, three trials."""
    from tests.fl.report.report_material import algorithms_sweep

    return algorithms_sweep(tmp_path_factory.mktemp("report") / "algorithms")


@pytest.fixture(scope="session")
def jammer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A jammer with a factor, two axes, two trials."""
    from tests.fl.report.report_material import jammer_sweep

    return jammer_sweep(tmp_path_factory.mktemp("report") / "jammer")
