"""One run whose clients train on a cluster of Dask's own commands: the same bits as here, whatever dies."""

import socket
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from distributed import Client

from fl.cluster.access import Access
from fl.errors import ClusterError, ConfigError
from fl.privacy.ledger import read_ledger
from fl.run import run
from fl.run.config import load_config
from fl.run.course.metrics import UplinkMetrics
from tests.conftest import Outcome
from tests.dask_commands import dask, make_certificates
from tests.fl.cli.test_bad_input import assert_refused

# Most of the time goes into starting Python with PyTorch in each process, which takes long on a busy machine.
pytestmark = [pytest.mark.timeout(300), pytest.mark.usefixtures("no_figures", "one_thread")]
CONFIG: dict[str, Any] = {
    "name": "spread",
    "data": {"train_samples": 600},
    "partition": {"clients": 12},
    "model": {"hidden": 16},
    "local": {"epochs": 2},
    "uplink": {"uplinks": 6},
}


def test_clients_on_a_cluster_over_tls_that_loses_a_machine_and_then_its_scheduler(tmp_path: Path) -> None:
    tls = tmp_path / "tls"
    tls.mkdir()
    make_certificates(tls)
    files = [f"--tls-{option}={tls / name}" for option, name in _FILES.items()]
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"tls://127.0.0.1:{free.getsockname()[1]}"
    access = Access(address, tls)
    with ExitStack() as stack:
        scheduler = ("scheduler", "--host", address, "--dashboard-address", "127.0.0.1:0", *files)
        chief = stack.enter_context(dask(*scheduler, folder=tmp_path))
        worker = ("worker", address, "--nthreads", "1", "--local-directory", str(tmp_path), "--host", "127.0.0.1")
        stack.enter_context(dask(*worker, *files, folder=tmp_path))
        # As a machine that is switched off: no nanny starts it again.
        machine = stack.enter_context(dask(*worker, "--no-nanny", *files, folder=tmp_path))
        with Client(address, timeout=240, set_as_default=False, security=access.security()) as client:
            client.wait_for_workers(2, timeout=240)

        def lose(who: psutil.Process, uplink: int) -> Callable[[UplinkMetrics], None]:
            return lambda metrics: who.kill() if metrics.uplink == uplink else None

        there = {**CONFIG, "local": {**CONFIG["local"], "workers": address}}
        spread = run(there, tmp_path / "spread", access=access, on_uplink=lose(machine, 2))
        here = run(CONFIG, tmp_path / "here")
        assert spread.model_sha256 == here.model_sha256
        assert (spread.uplinks, spread.transmissions_charged) == (6, 6)
        with pytest.raises(ClusterError, match="connection to the cluster was lost in uplink 4"):
            run(there, tmp_path / "cut", access=access, on_uplink=lose(chief, 3))
    # Its clients train here from then on: who trains is no part of what a run is.
    assert run(CONFIG, tmp_path / "cut", resume=True).model_sha256 == here.model_sha256
    assert read_ledger(tmp_path / "cut" / "ledger.jsonl").authorised <= 7


_FILES = {"ca-file": "ca.pem", "cert": "cert.pem", "key": "key.pem"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--set", "local.workers=tcp://127.0.0.1:1"], ("without TLS", "--insecure")),
        (["--set", "local.workers=tls://127.0.0.1:1"], ("'tls://127.0.0.1:1' asks for certificates: give --tls DIR",)),
        (["--set", "local.workers=127.0.0.1:1"], ("local.workers",)),
        (["--tls", "."], ("--tls is for local.workers",)),
        (["--insecure"], ("--insecure is for local.workers",)),
    ],
)
def test_what_is_refused_leaves_nothing(
    command: Callable[..., Outcome], tiny_file: Path, tmp_path: Path, arguments: list[str], words: tuple[str, ...]
) -> None:
    outcome = command("run", tiny_file, "--out", tmp_path / "out", *arguments)
    assert_refused(outcome, *words)
    assert not (tmp_path / "out").exists()


def test_canaries_stay_here(tiny_file: Path) -> None:
    keys = ["local.mode='record'", "audit.canaries=8", "local.workers='tls://127.0.0.1:1'"]
    with pytest.raises(ConfigError, match=r"set local\.workers to a number"):
        load_config(str(tiny_file), keys)
