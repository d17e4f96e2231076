"""A SuperLink, and SuperNodes where they are wanted, for one run of a Flower app; all of it is gone afterwards.

`flwr run` by itself leaves a SuperLink and what that has started running. Here every process that descends from this
one carries a mark in its environment, and whatever still does at the end is ended.
"""

import importlib.util
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from fl.errors import ConfigError
from hardware.foundation.child_processes import child_environment
from hardware.foundation.scratch import scratch_folder

_MARK = "AIRDP_FEDERATION"
_START_S, _END_S = 120.0, 10.0
INSTALL = "pip install 'airdp[flower]'"
_CONNECTION = "airdp"


@dataclass
class Federation:
    """A SuperLink at `address`. home: Flower's own folder for it, with the logs of all processes."""

    home: Path
    address: str
    environment: Mapping[str, str]
    _started: list[tuple[str, "subprocess.Popen[bytes]"]] = field(default_factory=list)

    def run(self, app: Path, run_config: Sequence[str], federation_config: str = "") -> None:
        """Submit `app`, show what it logs, and wait for its end; `ConfigError` where it did not end well."""
        options = [word for said in run_config for word in ("--run-config", said)]
        options += ["--federation-config", federation_config] if federation_config else []
        self._flwr("run", str(app), _CONNECTION, "--stream", *options)
        listed = self._flwr("list", _CONNECTION, "--format", "json", shown=False)
        status = [str(run.get("status")) for run in json.loads(listed)["runs"]]
        if status != ["finished:completed"]:
            raise ConfigError(f"the Flower run has not ended well ({', '.join(status)}): its log is above")

    def start(self, name: str, command: Sequence[str]) -> None:
        """A server of the federation, which answers this user only; what it says goes into a file."""
        _program(command[0])
        with (self.home / f"{name}.log").open("wb") as said:
            process = subprocess.Popen(
                [sys.executable, "-m", "fl.flower.this_user", *command],
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=subprocess.STDOUT,
                env=dict(self.environment),
                # Ctrl-C is for the one who started it, who ends the rest.
                start_new_session=True,
            )
        self._started.append((name, process))

    def check(self) -> None:
        """`ConfigError` where a process has ended."""
        for name, process in self._started:
            if process.poll() is not None:
                said = (self.home / f"{name}.log").read_text(errors="replace")
                raise ConfigError(f"{name} ended with exit code {process.returncode}: {' '.join(said.split()[-60:])}")

    def _flwr(self, *arguments: str, shown: bool = True) -> str:
        done = subprocess.run(
            [_program("flwr"), *arguments],
            env=dict(self.environment),
            stdin=subprocess.DEVNULL,
            stdout=None if shown else subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            self.check()
            raise ConfigError(f"flwr {arguments[0]} failed with exit code {done.returncode}: its reason is above")
        return done.stdout or ""


@contextmanager
def simulation() -> Iterator[Federation]:
    """A SuperLink that simulates its clients (package ray)."""
    if importlib.util.find_spec("ray") is None:
        raise ConfigError(f"Flower's simulation needs the package ray: {INSTALL}, or use `airdp flower deploy`")
    with _federation("insecure = true") as federation:
        _, port = federation.address.split(":")
        federation.start("superlink", ["flower-superlink", "--insecure", "--simulation", "--port", port])
        _wait_for(federation)
        yield federation


@contextmanager
def deployment(clients: int) -> Iterator[Federation]:
    """A SuperLink, and a SuperNode for each client, connected over TLS with certificates made for the occasion."""
    from fl.flower.certificates import make_certificates

    with _federation('root-certificates = "{home}/authority.pem"') as federation:
        files = make_certificates(federation.home)
        tls = ["--ssl-ca-certfile", files.authority, "--ssl-certfile", files.server, "--ssl-keyfile", files.key]
        secured = [str(word) for word in tls]
        _, port = federation.address.split(":")
        federation.start("superlink", ["flower-superlink", "--port", port, *secured])
        _wait_for(federation)
        for client in range(clients):
            node = ["flower-supernode", "--superlink", federation.address, "--port", str(free_port())]
            who = f"partition-id={client} num-partitions={clients}"
            node += ["--root-certificates", str(files.authority), "--node-config", who]
            federation.start(f"supernode-{client}", [*node, *secured])
        yield federation


@contextmanager
def _federation(connection: str) -> Iterator[Federation]:
    with scratch_folder("flower") as home:
        yield from _federation_at(home, connection)


def _federation_at(home: Path, connection: str) -> Iterator[Federation]:
    mark = secrets.token_hex(16)
    address = f"127.0.0.1:{free_port()}"
    said = f'[superlink]\ndefault = "{_CONNECTION}"\n[superlink.{_CONNECTION}]\naddress = "{address}"\n'
    (home / "config.toml").write_text(said + connection.format(home=home) + "\n", encoding="utf-8")
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "RAY_USAGE_STATS_ENABLED": "0"}
    # Only this user can read a process's environment.
    secret = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    # Flower starts its own programs by name.
    programs = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    # What an app needs is what this environment has; Flower would download it anew for every run.
    here = {"FLWR_HOME": str(home), "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1", "PATH": programs, _MARK: mark}
    federation = Federation(home, address, {**child_environment(), **quiet, **secret, **here})
    try:
        yield federation
    finally:
        end_marked(mark)
        for _, process in federation._started:
            process.wait()


def end_marked(mark: str) -> None:
    """End every process that carries the mark, and wait until none does."""
    deadline = time.monotonic() + _END_S
    while living := marked(mark):
        for process in living:
            try:
                process.terminate() if time.monotonic() < deadline else process.kill()
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(living, timeout=1.0)


def marked(mark: str) -> list[psutil.Process]:
    """Processes of this user that carry the mark; this one is none of them."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get(_MARK) == mark:
                found.append(process)
        except (psutil.AccessDenied, psutil.NoSuchProcess, psutil.ZombieProcess):
            continue
    return found


def clients_of(app: Path, run_config: Sequence[str]) -> int:
    """K of the air's config that a Flower app names (`airdp-config`), as `run_config` changes it."""
    from fl.run.config import resolve_config

    try:
        settings: dict[str, Any] = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
        said = settings["tool"]["flwr"]["app"]["config"]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"{app} is not a Flower app: expected a pyproject.toml with [tool.flwr.app.config]"
        ) from error
    for words in run_config:
        try:
            said = {**said, **tomllib.loads("\n".join(words.split()))}
        except tomllib.TOMLDecodeError as error:
            raise ConfigError(f"--run-config {words}: expected key=value, values as in TOML: {error}") from error
    if "airdp-config" not in said:
        raise ConfigError(f"{app} names no airdp-config: say how many clients there are with --clients")
    return resolve_config(str(said["airdp-config"])).partition.clients


def free_port() -> int:
    """A port of this machine that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _program(name: str) -> str:
    """A program of Flower's, of this environment first."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.exists() else shutil.which(name)
    if found is None:
        raise ConfigError(f"{name} is not installed: {INSTALL}")
    return found


def _wait_for(federation: Federation) -> None:
    """Until the SuperLink listens."""
    host, port = federation.address.split(":")
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        federation.check()
        with socket.socket() as probe:
            probe.settimeout(1.0)
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(0.2)
    raise ConfigError(f"the SuperLink does not listen after {_START_S:g} s: is the machine very busy? Try again")
