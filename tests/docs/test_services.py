"""The examples of services in docs/ start what there is: their commands are read by the command line itself."""

import argparse
import configparser
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from fl.cli.experiments import run
from fl.cli.nodes import node

SERVICES = Path(__file__).parents[2] / "docs" / "services"
COMPOSE: dict[str, Any] = yaml.safe_load((SERVICES / "compose.yaml").read_text())["services"]


def parsed(words: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(exit_on_error=False)
    {"node": node, "run": run}[words[0]].add_arguments(parser)
    return parser.parse_args(words[1:])


@pytest.mark.parametrize("name", COMPOSE)
def test_a_containers_command_is_one(name: str) -> None:
    service = COMPOSE[name]
    options = parsed(service["command"])
    assert getattr(options, "name", "server") == name
    mounted = {volume.split(":")[1].rpartition("/")[2] for volume in service["volumes"]}
    # Its own secret key, and nobody else's.
    secrets = {file for file in mounted if file.endswith(".key_secret")}
    assert secrets == {f"{'ps' if name == 'server' else name}.key_secret"}
    assert "ps.key" in mounted
    if name == "server":
        assert {f"{other}.key" for other in COMPOSE if other != "server"} <= mounted


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_understands_the_unit(tmp_path: Path) -> None:
    """All but where airdp is installed, which is not where the example says."""
    unit = tmp_path / "airdp-node@.service"
    text = (SERVICES / unit.name).read_text()
    unit.write_text(text.replace("/opt/airdp/.venv/bin/airdp", sys.executable))
    verified = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    unit.write_text(text.replace("RestartPreventExitStatus=2", "RestartPreventExitStatus=two"))
    again = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert "Failed to parse value, ignoring: two" in again.stderr


def test_the_units_command_is_one() -> None:
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(SERVICES / "airdp-node@.service")
    command = unit["Service"]["ExecStart"].split()
    assert command[0].endswith("/airdp")
    filled = {"${ROLE}": "client", "%i": "client-1", "${SERVER}": "tcp://10.0.0.1:5757", "state/%i": "state/client-1"}
    words = [filled.get(word, word) for word in command[1:] if word != "$OPTIONS"]
    options = parsed([*words, "--data", "own.npz", "--budget-epsilon", "8"])
    assert (options.role, options.name, options.server) == ("client", "client-1", "tcp://10.0.0.1:5757")
