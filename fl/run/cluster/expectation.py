"""What all machines of a cluster must have in common, so that results do not depend on which of them made what."""

import hashlib
import platform
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from fl.run.config import RunConfig
from fl.startup import PACKAGES as OWN_PACKAGES
from fl.startup import check_one_place
from fl.versions import PACKAGES, package_version
from phy.errors import AirdpError


@dataclass(frozen=True)
class Expected:
    """What a worker must have in common with the machine that asks.

    software: (name, version) pairs. code_sha256: of airdp's sources. parts_sha256: of what `config` is assembled to.
    update_sha256: of what a client makes of that in an epoch.
    """

    software: tuple[tuple[str, str], ...]
    code_sha256: str
    name: str
    config: RunConfig
    parts_sha256: str
    update_sha256: str


def expect(name: str, config: RunConfig) -> Expected:
    """What is found here; raises an `AirdpError` where `config` cannot be run."""
    return Expected(software(), code_sha256(), name, config, *found_sha256(config))


def software() -> tuple[tuple[str, str], ...]:
    """Python and the packages that results or messages depend on."""
    names = [*PACKAGES, "distributed", "cloudpickle", "msgpack"]
    return (("python", platform.python_version()), *((name, package_version(name) or "missing") for name in names))


@cache
def code_sha256() -> str:
    """Of the sources that this process runs: two checkouts may call themselves the same version."""
    return sources_sha256(check_one_place())


def sources_sha256(home: Path) -> str:
    """Of the names and contents of all Python files of airdp's packages below `home`."""
    digest = hashlib.sha256()
    for path in sorted(path for package in OWN_PACKAGES for path in (home / package).rglob("*.py")):
        digest.update(f"{path.relative_to(home).as_posix()}\0{_sha256(path.read_bytes())}\n".encode())
    return digest.hexdigest()


def found_sha256(config: RunConfig) -> tuple[str, str]:
    """Of the data, the clients' sizes, the start model and all inputs, and of one client's update after one epoch.

    The second differs where the same program on the same data rounds otherwise, as processors of two kinds do.
    """
    from fl.learning.workforce import in_order
    from fl.random_streams import Stream, generator
    from fl.run.assemble import assemble

    parts = assemble(config)
    fingerprints = (parts.dataset.fingerprint().encode(), parts.inputs.fingerprint().encode())
    found = (*fingerprints, parts.sizes.tobytes(), parts.start.tobytes())

    def train(client: int) -> bytes:
        rng = generator(config.seed, Stream.LOCAL, 1, client)
        one_epoch = replace(parts.local, settings=parts.local.settings.model_copy(update={"epochs": 1}))
        update = one_epoch.update(parts.start, parts.clients[client], rng, origin="a client")
        return update.values.tobytes()

    (update,) = in_order(train, [int(parts.sizes.argmin())], workers=1)
    return _sha256(b"".join(_sha256(part).encode() for part in found)), _sha256(update)


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def find_fault(expected: Sequence[Expected], probe: Path | None) -> str | None:
    """What is wrong with this worker, None where nothing is. probe: a file that it must see, if any."""
    if probe is not None and not probe.exists():
        return f"does not see {probe.parent}: put --out into a folder that all machines share"
    return next((fault for one in expected if (fault := difference(one)) is not None), None)


def difference(expected: Expected) -> str | None:
    """Where this machine is unlike the one that asks, None where it is not."""
    here = software()
    others = [
        f"{name} {found}, not {wanted}"
        for (name, found), (_, wanted) in zip(here, expected.software, strict=True)
        if found != wanted
    ]
    if others:
        return f"has other software ({', '.join(others)}): install the same everywhere"
    if code_sha256() != expected.code_sha256:
        return "has another state of airdp's sources under the same version: install the same everywhere"
    try:
        parts_sha256, update_sha256 = found_sha256(expected.config)
    except AirdpError as error:
        return f"cannot run point '{expected.name}': {error} (as seen from {Path.cwd()})"
    if parts_sha256 != expected.parts_sha256:
        return f"finds other data, another lab or another input file for point '{expected.name}': give all the same"
    if update_sha256 != expected.update_sha256:
        return f"rounds otherwise at point '{expected.name}': start it on a machine of the workers' kind"
    return None
