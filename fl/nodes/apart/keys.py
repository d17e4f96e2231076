"""CURVE keys: who may be which node.

A key pair is two files, NAME.key (public) and NAME.key_secret, which only its owner may read. A folder with the public
keys of a lab's nodes is the list of those that are let in; identity is the key, and its name the file's.
"""

import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import zmq
import zmq.auth

from fl.errors import ConfigError

PUBLIC, SECRET = ".key", ".key_secret"
_NAME = re.compile(r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")


@dataclass(frozen=True)
class KeyPair:
    """name: whose they are. Both in Z85, as ZeroMQ takes them."""

    name: str
    public: bytes
    secret: bytes

    def __repr__(self) -> str:
        """Without the secret: keys get into logs through their owners' reprs."""
        return f"KeyPair({self.name!r}, public={self.public!r})"


def make_keys(folder: Path, name: str) -> KeyPair:
    """A new pair in `folder`, which is made where it is missing. One that exists is not overwritten."""
    if not _NAME.match(name):
        raise ConfigError(f"'{name}' cannot be the name of a key: expected letters, digits, - and _")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    for ending in (PUBLIC, SECRET):
        if (folder / f"{name}{ending}").exists():
            raise ConfigError(f"{folder / name}{ending} exists already: remove it first, or choose another name")
    public, secret = zmq.curve_keypair()
    # Made with its mode, because a key that others could read for a moment is known to them.
    descriptor = os.open(folder / f"{name}{SECRET}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(_certificate(public, secret))
    (folder / f"{name}{PUBLIC}").write_text(_certificate(public), encoding="ascii")
    return KeyPair(name, public, secret)


def _certificate(public: bytes, secret: bytes | None = None) -> str:
    lines = ["metadata", "curve", f'    public-key = "{public.decode()}"']
    if secret is not None:
        lines.append(f'    secret-key = "{secret.decode()}"')
    return "\n".join(lines) + "\n"


def load_keys(folder: Path, name: str) -> KeyPair:
    """The pair of `name`. A secret key that anybody but its owner can read is refused."""
    path = folder / f"{name}{SECRET}"
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise ConfigError(f"no secret key {path}: make one with `airdp keys new {name} --keys {folder}`") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigError(f"{path} can be read by others (mode {stat.S_IMODE(mode):03o}): chmod 600 {path}")
    public, secret = _loaded(path)
    if secret is None:
        raise ConfigError(f"{path} holds no secret key: make a new pair")
    return KeyPair(name, public, secret)


def load_public(folder: Path, name: str) -> bytes:
    """The public key of `name`."""
    path = folder / f"{name}{PUBLIC}"
    if not path.is_file():
        raise ConfigError(f"no public key {path}: copy it from the machine on which it was made")
    return _loaded(path)[0]


def public_keys(folder: Path) -> Mapping[bytes, str]:
    """Name of each public key in `folder`. Two names for one key are refused: nobody is two nodes."""
    names: dict[bytes, str] = {}
    for path in sorted(folder.glob(f"*{PUBLIC}")):
        key = _loaded(path)[0]
        if key in names:
            raise ConfigError(f"{path} and {names[key]}{PUBLIC} hold the same key: each node has its own")
        names[key] = path.name.removesuffix(PUBLIC)
    return names


def _loaded(path: Path) -> tuple[bytes, bytes | None]:
    try:
        public, secret = zmq.auth.load_certificate(path)
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not a key: {error}") from error
    if len(public) != 40 or (secret is not None and len(secret) != 40):
        raise ConfigError(f"{path} is not a key: expected 40 characters of Z85")
    return public, secret
