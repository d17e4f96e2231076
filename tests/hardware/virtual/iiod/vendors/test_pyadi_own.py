"""pyadi-iio's own tests for the Pluto, unmodified, against a virtual one.

Of its source archives 0.0.4 is the last that holds them whole: test_pluto.py (6) and test_pluto_attr.py (7). The set-up
fetches it. They run twice: with the library of that archive, and with the one that is installed. The tests want a Pluto
that is found by itself and a cable from its TX to its RX: a plugin names the virtual one, whose leakage is the cable.
Later tests are in no archive: see test_pyadi_suite.py.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.virtual.iiod.emulator import Emulator
from tests.conftest import COUNTED
from tests.hardware.virtual.iiod.raw_client import make_lab

ARCHIVE = Path(sys.prefix) / "share" / "pyadi-iio-0.0.4.tar.gz"
pytestmark = [
    pytest.mark.skipif(
        shutil.which("iio_info") is None,
        reason="libiio is missing: apt-get install --no-install-recommends libiio-utils libiio0",
    ),
    pytest.mark.skipif(
        not ARCHIVE.exists(),
        reason=f"no {ARCHIVE.name}: pip download --no-deps --no-binary :all: -d {ARCHIVE.parent} pyadi-iio==0.0.4",
    ),
]
FILES = ("test_pluto.py", "test_pluto_attr.py")
CASES = 13
OTHER_WORDS = "testPlutoCyclicBuffersException"
"""Asks for the spelling of an exception that later versions of the library spell otherwise (with fewer blanks)."""
PLUGIN = """
import os

import adi
import iio


class Pluto(adi.Pluto):
    def __init__(self, uri=""):
        super().__init__(uri or os.environ["PLUTO_URI"])


adi.Pluto = Pluto
iio.scan_contexts = lambda: {os.environ["PLUTO_URI"]: "PlutoSDR"}
"""


def unpack(folder: Path) -> None:
    """The library to `library`, the tests to `tests`: beside them it would be taken for the installed one."""
    with tarfile.open(ARCHIVE) as archive:
        for member in archive.getmembers():
            parts = Path(member.name).parts[1:]
            content = archive.extractfile(member) if member.isfile() else None
            if content is None or not parts or parts[0] not in ("adi", "test") or ".." in parts:
                continue
            place = folder.joinpath("tests" if parts[0] == "test" else "library/adi", *parts[1:])
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content.read())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("library", ["its own", "installed"])
def test_its_own_tests_pass(tmp_path: Path, library: str, record_property: Callable[[str, object], None]) -> None:
    unpack(tmp_path)
    (tmp_path / "tests" / "virtual_pluto.py").write_text(PLUGIN)
    options = [*FILES, "-q", "-p", "virtual_pluto", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", "."]
    skipped = [] if library == "its own" else ["-k", f"not {OTHER_WORDS}"]
    paths = [str(tmp_path / "tests"), *([str(tmp_path / "library")] if library == "its own" else [])]
    with Emulator(make_lab(1, leakage_db=-30.0, noise_var_complex=1e-7), seed=1) as emulator:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *skipped],
            cwd=tmp_path / "tests",
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "PLUTO_URI": emulator.uris["client-1"]},
            capture_output=True,
            text=True,
            check=False,
        )
    passed = re.search(r"(\d+) passed", done.stdout)
    assert done.returncode == 0, done.stdout[-3000:]
    assert passed is not None
    assert int(passed[1]) == CASES - len(skipped) // 2
    record_property(f"{COUNTED}pyadi-iio's own tests for the Pluto, {library} library", int(passed[1]))
