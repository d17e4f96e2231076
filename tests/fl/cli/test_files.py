"""Files to begin with, their schema, completion; the version and bare help."""

import json
import re
import shutil
import subprocess
import tomllib
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fl.cli.main import COMMANDS, main
from fl.run.config import load_config, parse_config, shipped_configs
from hardware.lab.file import load_lab, shipped_labs


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_the_version_and_bare_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out.startswith("airdp ")
    shown = said(capsys)
    assert all(name in shown for name in COMMANDS)


@pytest.mark.parametrize("name", ["quickstart", "loopback", "emnist"])
def test_a_new_config_is_the_shipped_one_with_its_keys_explained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.toml"
    assert f"airdp run {path}" in said(capsys, "init", "config", str(path), "--from", name).replace("\n", "")
    assert load_config(str(path)) == load_config(name)
    assert "# Learning rate.\nlr = 0.05\n" in path.read_text()
    assert main(["init", "config", str(path)]) == 2
    assert "exists" in capsys.readouterr().err
    assert parse_config(tomllib.loads(said(capsys, "configs", name))) == load_config(name)


@pytest.mark.parametrize("name", shipped_labs())
def test_a_new_lab_is_the_shipped_one_with_its_keys_explained(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, shipped = tmp_path / "lab.toml", shipped_labs()[name]
    said(capsys, "init", "lab", str(path), "--from", name)
    assert tomllib.loads(path.read_text()) == tomllib.loads(shipped.read_text())
    assert load_lab(path).to_tables() == load_lab(shipped).to_tables()
    lines = path.read_text().splitlines()
    assert set(shipped.read_text().splitlines()) <= set(lines)
    # What it leaves out is there too; what it says more than once is explained once.
    assert lines[lines.index("# timeout_s = 5.0") - 1].startswith("# Seconds after which a radio that has not answered")
    assert sum(line.startswith("# Different for every radio") for line in lines) == 1


def test_every_key_of_a_file_to_begin_with_is_explained(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path = tmp_path / "lab.toml"
    said(capsys, "init", "lab", str(path))
    for text in (said(capsys, "configs", "quickstart"), path.read_text().partition('\n[[radio]]\nname = "client"')[0]):
        lines = text.splitlines()
        bare = [line for before, line in pairwise(lines) if re.match(r"\w+ = ", line) and not before.startswith("# ")]
        assert bare == []


@pytest.mark.parametrize(
    ("kind", "files", "wrong"),
    [
        ("config", shipped_configs(), {"local": {"epochs": "many"}}),
        ("config", shipped_configs(), {"locl": {}}),
        ("lab", shipped_labs(), {"lab": {"sample_rate_hz": "fast"}}),
    ],
)
def test_the_schema_takes_what_ships_and_refuses_what_is_wrong(
    kind: str, files: dict[str, Path], wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    schema = json.loads(said(capsys, "schema", kind))
    jsonschema.Draft202012Validator.check_schema(schema)
    for path in files.values():
        jsonschema.validate(tomllib.loads(path.read_text()), schema)
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(wrong, schema)
    assert "description" in json.dumps(schema)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["airdp", "rep"], {"reproduce", "replay", "report"}),
        (["airdp", "run", "quick"], {"quickstart"}),
        (["airdp", "run", "--dry"], {"--dry-run"}),
        (["airdp", "calibrate", "loopback-h"], {"loopback-harsh"}),
    ],
)
def test_bash_completes(words: list[str], expected: set[str], capsys: pytest.CaptureFixture[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("no bash")
    script = said(capsys, "completion", "bash")
    asked = f"COMP_WORDS=({' '.join(words)}); COMP_CWORD={len(words) - 1}; _airdp; echo ${{COMPREPLY[@]}}"
    done = subprocess.run([bash, "-c", f"{script}\n{asked}"], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) == expected


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_other_shells_get_every_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    script = said(capsys, "completion", shell)
    assert all(name in script for name in COMMANDS)
