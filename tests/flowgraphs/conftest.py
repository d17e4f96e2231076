"""Fixtures of the flowgraphs' tests: one cache of compiled graphs for all, and addresses that nobody else has."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import zmq

from tests.flowgraphs.streams import Streams


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Nothing is compiled twice, and the user's cache is left alone."""
    before = os.environ.get("XDG_CACHE_HOME")
    folder = tmp_path_factory.mktemp("cache")
    os.environ["XDG_CACHE_HOME"] = str(folder)
    yield folder
    if before is None:
        del os.environ["XDG_CACHE_HOME"]
    else:
        os.environ["XDG_CACHE_HOME"] = before


@pytest.fixture
def streams() -> Iterator[Streams]:
    """ZeroMQ sockets for the ends of a graph. The folder of their addresses is short: such a path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="fg") as folder, zmq.Context() as context:
        made = Streams(Path(folder), context)
        yield made
        made.close()
