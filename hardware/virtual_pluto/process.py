"""Virtual radios in a process of their own, for as long as this one needs them."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hardware.errors import HardwareError
from hardware.virtual_pluto.emulator import IIOD_PORT

_STOP_S = 10.0


@dataclass(frozen=True)
class EmulatorProcess:
    """A process that serves. uris: of the radios, by name."""

    pid: int
    uris: dict[str, str]

    def cpu_s(self) -> float:
        """Processor time that it has used."""
        # The name, second of the fields, may have blanks in it.
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def emulator_process(
    source: str, *, seed: int, port: int = IIOD_PORT, paced: bool = False
) -> Iterator[EmulatorProcess]:
    """Serve the lab that `source` names (see `find_lab`).

    The process ends with the block, and with this process, however that ends.
    """
    command = [sys.executable, "-m", "hardware.virtual_pluto", source, "--seed", str(seed), "--port", str(port)]
    command += ["--exit-with-stdin"] + (["--paced"] if paced else [])
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        if process.stdin is None or process.stdout is None or process.stderr is None:
            raise HardwareError("the virtual radios have no pipes")
        try:
            answer = process.stdout.readline()
            if not answer:
                raise HardwareError(f"the virtual radios did not start: {process.stderr.read().strip()}")
            yield EmulatorProcess(process.pid, json.loads(answer)["uris"])
        finally:
            process.stdin.close()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
