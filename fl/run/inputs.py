"""What a run rests on besides its config: its lab, and files of which the content counts, not the name.

They are kept in the run folder and compared when the run goes on: with another noise level, other gains or other code
behind the same name it would be another run. A folder that should hold them and does not is refused as well. It was
made before airdp kept them, nobody can tell what it was run with, and its ledger would go on as if that were known.
"""

import hashlib
import inspect
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tomli_w
from torch import nn

from calibration.record import read_record
from fl.errors import ConfigError, RunFolderError
from fl.import_path import import_object
from fl.run.config import TORCHVISION, Fading, RunConfig, UplinkKind
from fl.run.folder import RunFolder
from hardware.foundation.arrays import MOST_BYTES
from hardware.foundation.documents import DocumentError, read_bounded, read_toml
from hardware.foundation.durable import write_atomically
from hardware.foundation.tables import differing_keys
from hardware.lab.file import find_lab
from hardware.lab.model import Lab

LAB, INPUTS, CALIBRATION = "lab.toml", "inputs.json", "calibration.json"


@dataclass(frozen=True)
class Inputs:
    """lab: as resolved, None where no radio is used. calibration: content of the record's file, where one is used.

    sha256: of each file that counts, by the key that names it.
    """

    lab: Lab | None
    calibration: bytes | None
    sha256: Mapping[str, str]

    def keep(self, folder: RunFolder) -> None:
        """Write them into a new run folder."""
        if self.lab is not None:
            write_atomically(folder.path / LAB, self._lab_toml().encode())
        if self.calibration is not None:
            write_atomically(folder.path / CALIBRATION, self.calibration)
        folder.write_json(INPUTS, {"sha256": dict(self.sha256)})

    def require_same(self, folder: RunFolder) -> None:
        """Raise `RunFolderError` that names what is not as it was when the folder's run was started."""
        if self.lab is not None:
            others = differing_keys(*map(_comparable, (_read_lab(folder.path / LAB), tomllib.loads(self._lab_toml()))))
            if others:
                raise RunFolderError(
                    f"{folder.path} was run in another lab ({self.lab.source} differs in {', '.join(others)}): restore "
                    f"the lab as {folder.path / LAB} has it, or choose another folder with --out"
                )
        others = differing_keys(self._kept_sha256(folder), self.sha256)
        if others:
            raise RunFolderError(
                f"{folder.path} was run with another content of {', '.join(others)}: restore it, or choose another "
                "folder with --out"
            )

    def fingerprint(self) -> str:
        """sha256 of all of it, the same wherever files lie."""
        return _sha256(json.dumps([self._lab_toml(), dict(self.sha256)], sort_keys=True).encode())

    def _lab_toml(self) -> str:
        return tomli_w.dumps({} if self.lab is None else self.lab.to_tables())

    def _kept_sha256(self, folder: RunFolder) -> Mapping[str, Any]:
        path = folder.path / INPUTS
        if not path.exists():
            if self.sha256:
                raise _not_kept(path)
            return {}
        kept = folder.read_json(INPUTS)
        if not (isinstance(kept, dict) and isinstance(kept.get("sha256"), dict)):
            raise RunFolderError(f"{path} is damaged: restore it, or start anew elsewhere")
        return dict(kept["sha256"])


def gather(config: RunConfig, model: nn.Module | None) -> Inputs:
    """The inputs of a run of `config`, whose model is `model`; None where learning is not the config's business."""
    sha256: dict[str, str] = {}
    if config.uplink.kind is UplinkKind.SYMBOL and config.channel.fading is Fading.FILE:
        sha256["channel.path"] = _sha256(_content("channel.path", Path(config.channel.path)))
    if model is not None and config.model.module:
        sha256["model.module"] = _sha256(_content("model.module", _source_of("model.module", type(model))))
    for key, path in ({} if model is None else _own_code(config)).items():
        sha256[key] = _sha256(_content(key, _source_of(key, import_object(key, path))))
    calibration = read_record(Path(config.radio.calibration)) if config.radio.calibration else None
    if calibration is not None:
        sha256["radio.calibration"] = _sha256(calibration)
    return Inputs(resolved_lab(config), calibration, sha256)


def resolved_lab(config: RunConfig) -> Lab | None:
    """The lab of a run over radios, on the backend that the config asks for."""
    if config.uplink.kind is not UplinkKind.RADIO:
        return None
    return find_lab(config.radio.lab, config.radio.backend)


def _own_code(config: RunConfig) -> dict[str, str]:
    """Import paths of the user's own, besides the model's, by their keys."""
    named = {
        "data.set": "" if config.data.set.startswith(TORCHVISION) else config.data.set,
        "algorithm.name": config.algorithm.name,
        "local.loss": config.local.loss,
        "local.optimiser": config.local.optimiser,
    }
    return {key: str(path) for key, path in named.items() if ":" in path}


def _source_of(key: str, code: Any) -> Path:
    """The file that a class or function is defined in."""
    try:
        return Path(inspect.getfile(code))
    except (OSError, TypeError) as error:
        name = getattr(code, "__name__", type(code).__name__)
        raise ConfigError(f"{key}: {name} is defined in no file: put it into a module") from error


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _content(key: str, path: Path) -> bytes:
    try:
        return read_bounded(path, MOST_BYTES)
    except FileNotFoundError as error:
        raise ConfigError(f"{key}: {path} does not exist") from error
    except OSError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error.strerror}") from error
    except DocumentError as error:
        raise ConfigError(f"{key}: {path} cannot be read: {error}") from error


def _read_lab(path: Path) -> dict[str, Any]:
    try:
        return read_toml(path)
    except FileNotFoundError as error:
        raise _not_kept(path) from error
    except (OSError, ValueError) as error:
        raise RunFolderError(f"{path} is damaged: {error}; restore it, or start anew elsewhere") from error


def _comparable(lab: dict[str, Any]) -> dict[str, Any]:
    """Without addresses: a radio that is reached elsewhere, after a restart say, is the same one."""
    radios = lab.get("radio")
    if not (isinstance(radios, list) and all(isinstance(radio, dict) for radio in radios)):
        return lab
    return {**lab, "radio": [{key: value for key, value in radio.items() if key != "address"} for radio in radios]}


def _not_kept(path: Path) -> RunFolderError:
    return RunFolderError(
        f"{path} is missing, so that nobody can tell what the run was made with: an earlier version of airdp, which "
        "versions.json names, can go on with it; or choose another folder with --out"
    )
