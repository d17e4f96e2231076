"""The mark of tests that need UHD: its Python module and the programs of uhd-host."""

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

EXAMPLES = Path("/usr/libexec/uhd/examples")

needs_uhd = pytest.mark.skipif(
    find_spec("uhd") is None or shutil.which("uhd_usrp_probe") is None,
    reason="UHD is not installed: apt-get install --no-install-recommends python3-uhd uhd-host",
)
