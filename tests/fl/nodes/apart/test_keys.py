import stat
from pathlib import Path
from typing import Any

import pytest

from fl.errors import ConfigError
from fl.nodes.apart.keys import load_keys, load_public, make_keys, public_keys


def test_a_pair_reads_back_and_its_secret_is_its_owners(tmp_path: Path) -> None:
    made = make_keys(tmp_path / "keys", "client-1")
    assert load_keys(tmp_path / "keys", "client-1") == made
    assert load_public(tmp_path / "keys", "client-1") == made.public
    assert public_keys(tmp_path / "keys") == {made.public: "client-1"}
    assert stat.S_IMODE((tmp_path / "keys" / "client-1.key_secret").stat().st_mode) == 0o600
    assert made.secret.decode() not in repr(made)


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o620])
def test_a_secret_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    make_keys(tmp_path, "jammer")
    (tmp_path / "jammer.key_secret").chmod(mode)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_keys(tmp_path, "jammer")


def test_a_key_is_not_overwritten(tmp_path: Path) -> None:
    before = make_keys(tmp_path, "ps")
    with pytest.raises(ConfigError, match="exists already"):
        make_keys(tmp_path, "ps")
    assert load_keys(tmp_path, "ps") == before


@pytest.mark.parametrize("name", ["", "../ps", "a b", ".key", "x" * 65, "a/b"])
def test_names_that_are_no_names_are_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be the name"):
        make_keys(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_nobody_is_two_nodes(tmp_path: Path) -> None:
    make_keys(tmp_path, "one")
    (tmp_path / "two.key").write_text((tmp_path / "one.key").read_text())
    with pytest.raises(ConfigError, match="the same key"):
        public_keys(tmp_path)


@pytest.mark.parametrize("content", ["", "metadata\n", 'curve\n    public-key = "short"\n', "\0\0\0"])
def test_a_file_that_is_no_key_is_refused(tmp_path: Path, content: str) -> None:
    (tmp_path / "ps.key").write_text(content)
    with pytest.raises(ConfigError, match="is not a key"):
        load_public(tmp_path, "ps")


def test_the_command_makes_and_lists_keys(tmp_path: Path, command: Any) -> None:
    keys = tmp_path / "keys"
    made = command("keys", "new", "ps", "client-1", "--keys", keys)
    assert (made.code, made.err) == (0, "")
    (keys / "client-1.key_secret").rename(tmp_path / "elsewhere")
    listed = command("keys", "list", "--keys", keys, "--json").json["keys"]
    assert [(one["name"], one["secret_here"]) for one in listed] == [("client-1", False), ("ps", True)]
    assert {one["public"].encode() for one in listed} == set(public_keys(keys))
    text = command("keys", "list", "--keys", keys)
    assert "client-1: " in text.out
    assert "public key only" in text.out
    assert load_keys(keys, "ps").secret.decode() not in made.out + text.out
    (keys / "ps.key_secret").chmod(0o640)
    refused = command("keys", "list", "--keys", keys)
    assert (refused.code, "chmod 600" in refused.err) == (2, True)
    assert command("keys", "new", "--keys", keys).code == 2
