"""Where an air node is found: a folder that only its user can enter, with a socket and two tokens in it."""

import os
import secrets
import stat
import tempfile
from pathlib import Path

from fl.errors import ConfigError

SOCKET = "socket"
CLIENTS, SERVER = "client.token", "server.token"
"""Files with what a request must carry: the first lets hand in updates, the second begin rounds and take sums."""
_LONGEST_PATH = 107
"""Bytes of a Unix socket's path on Linux."""


def default_place(run: int) -> Path:
    """Of the node for Flower's run `run`, as all of this user's processes on this machine find it."""
    return Path(tempfile.gettempdir()) / f"airdp-{os.getuid()}-{run}"


def make_place(place: Path) -> None:
    """Make the folder, for this user alone, with new tokens. One that is there already is refused."""
    if len(os.fsencode(place / SOCKET)) > _LONGEST_PATH:
        raise ConfigError(
            f"{place} is too long for a Unix socket ({_LONGEST_PATH} bytes with '/{SOCKET}'): choose a shorter folder "
            "(key airdp-node, or TMPDIR)"
        )
    try:
        place.mkdir(mode=0o700)
    except FileExistsError as error:
        raise ConfigError(
            f"{place} is there already: another air node uses it, or left it behind; remove it"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot make {place} for an air node: {error.strerror}") from error
    place.chmod(0o700)
    for name in (CLIENTS, SERVER):
        descriptor = os.open(place / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(32))


def checked_place(place: Path) -> Path:
    """`place` if it is a folder of this user's that nobody else can enter; `ConfigError` where it is not.

    Who handed an update to a folder of somebody else's making would hand it to them.
    """
    try:
        found = place.lstat()
    except FileNotFoundError as error:
        raise ConfigError(
            f"there is no air node at {place}: it is started by the ServerApp (fl.flower.air.open_air) on this "
            "machine; where it is elsewhere, name its folder as airdp-node in the node's or the run's config"
        ) from error
    except OSError as error:
        raise ConfigError(f"cannot look at {place}: {error.strerror}") from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(
            f"{place} is not a folder that this user alone can enter (mode 700): no update is given to it"
        )
    return place


def read_token(place: Path, name: str) -> str:
    """What a request must carry."""
    try:
        return (checked_place(place) / name).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {place / name}: {error}") from error


def remove_place(place: Path) -> None:
    """Remove what `make_place` and a node have made there, and nothing else."""
    for name in (SOCKET, CLIENTS, SERVER, "config.toml", "stderr"):
        (place / name).unlink(missing_ok=True)
    place.rmdir()
