"""Clusters of Dask's own commands, and certificates for them."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil  # type: ignore[import-untyped]

from tests.conftest import REPOSITORY

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(REPOSITORY)}


def make_certificates(folder: Path) -> Path:
    """As docs/security.md has it: one certificate, which is its own authority."""
    made = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=airdp", "-days", "1"]
    subprocess.run(
        ["openssl", *made, "-keyout", folder / "key.pem", "-out", folder / "cert.pem"], check=True, capture_output=True
    )
    (folder / "ca.pem").write_bytes((folder / "cert.pem").read_bytes())
    return folder


def gone(processes: list[psutil.Process]) -> bool:
    _, alive = psutil.wait_procs(processes, timeout=10)
    return not alive


@contextmanager
def dask(*arguments: str, folder: Path) -> Iterator[psutil.Process]:
    """A command of Dask's, as one starts it on the machines of a cluster."""
    with (folder / f"{arguments[0]}-{time.monotonic_ns()}.log").open("wb") as log:
        process = psutil.Popen(
            [sys.executable, "-m", "dask", *arguments, "--no-dashboard"],
            stdout=log,
            stderr=log,
            cwd=folder,
            env=ENVIRONMENT,
        )
    children: list[psutil.Process] = []
    try:
        yield process
    finally:
        if process.poll() is None:
            children = process.children(recursive=True)
            process.kill()
        process.wait()
        assert gone(children)
