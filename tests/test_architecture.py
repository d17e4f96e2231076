"""The house as docs/architecture.md draws it: rooms that are not crowded, imports without loops, backends at home.

Each check is also shown a small tree that breaks its rule.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from hardware.lab.registry import GROUP, registry
from tests.architecture import (
    crowded_folders,
    cycles,
    mentions,
    merged,
    module_imports,
    packages_without_docstring,
)

ROOT = Path(__file__).parents[1]
PACKAGES = ("phy", "flowgraphs", "hardware", "calibration", "fl")
MOST_MODULES = 15

NAMED_ELSEWHERE = {
    ("flowgraphs/", "gnuradio"): "the package is about GNU Radio: how it is found, installed and started",
    ("fl/bench/", "gnuradio"): "GNU Radio is what the modem and the way of samples are compared with",
    ("fl/bench/", "pluto"): "the emulated Plutos are measured through libiio, as a user of them would",
    ("fl/bench/", "usrp"): "the emulated USRPs are measured through libuhd, as a user of them would",
    ("fl/bench/", "loopback"): "a shipped lab",
    ("fl/cli/labs/flowgraph.py", "gnuradio"): "the editor is GNU Radio's",
    ("fl/cli/labs/flowgraph.py", "pluto"): "what 0 dB means for that device",
    ("fl/run/config/air.py", "loopback"): "the default lab, one that ships",
}
"""Places outside the rooms that speak of a program, a device or a lab with a backend's name, and why."""

Tree = Callable[[dict[str, str]], Path]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    def make(files: dict[str, str]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        return tmp_path

    return make


def test_no_folder_is_crowded() -> None:
    assert crowded_folders(ROOT, (*PACKAGES, "tests"), MOST_MODULES) == {}


def test_a_crowded_folder_is_seen(tree: Tree) -> None:
    modules = {f"house/room/m{number}.py": "" for number in range(4)}
    root = tree({**modules, "house/room/__init__.py": "", "house/__init__.py": "", "house/room/notes.txt": ""})
    assert crowded_folders(root, ["house"], 4) == {}
    assert crowded_folders(root, ["house"], 3) == {"house/room": 4}


def test_every_package_says_what_it_is() -> None:
    assert packages_without_docstring(ROOT, PACKAGES) == []


def test_a_package_that_says_nothing_is_seen(tree: Tree) -> None:
    root = tree({"house/__init__.py": '"""A house."""', "house/quiet/__init__.py": "x = 1", "house/bare/module.py": ""})
    assert packages_without_docstring(root, ["house"]) == ["house/bare", "house/quiet"]


def test_no_modules_import_each_other() -> None:
    graph = module_imports(ROOT, PACKAGES)
    assert "fl.run.runner" in graph["fl.run"]
    assert cycles(graph) == []


def room_of(module: str) -> str:
    """The sub-package that a module is in, as the drawing has them: hardware.virtual, fl.run; or its top."""
    names = module.split(".")
    return ".".join(names[:2]) if (ROOT / Path(*names[:2])).is_dir() else names[0]


def test_no_rooms_need_each_other() -> None:
    assert room_of("hardware.virtual.iiod.session") == room_of("hardware.virtual") == "hardware.virtual"
    assert room_of("fl.errors") == "fl"
    # `fl` itself is the front door: it hands out what rooms have, and no room asks it for that.
    modules = {name: needed for name, needed in module_imports(ROOT, PACKAGES).items() if name != "fl"}
    assert not any("fl" in needed for needed in modules.values())
    graph = merged(modules, room_of)
    assert {"fl.learning", "fl.privacy"} <= graph["fl.run"]
    assert cycles(graph) == []


@pytest.mark.parametrize(
    "back",
    [
        "import house.a",
        "from house import a",
        "from house.a import name",
        "def late():\n    from house.a import name",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from house.a import name",
    ],
    ids=["module", "from its package", "name", "inside a function", "for type checkers"],
)
def test_modules_that_import_each_other_are_seen(tree: Tree, back: str) -> None:
    files = {"house/__init__.py": "", "house/a.py": "import os\nfrom house import b", "house/b.py": "import house.c"}
    root = tree({**files, "house/c.py": back, "house/d.py": "from house import a, b, c"})
    graph = module_imports(root, ["house"])
    assert graph["house.d"] == {"house.a", "house.b", "house.c"}
    assert cycles(graph) == [["house.a", "house.b", "house.c"]]
    (root / "house" / "c.py").write_text("")
    assert cycles(module_imports(root, ["house"])) == []


def test_rooms_that_need_each_other_are_seen_where_no_modules_do(tree: Tree) -> None:
    files = {"house/hall/a.py": "import house.attic.a", "house/hall/b.py": "", "house/attic/a.py": ""}
    root = tree({**files, "house/attic/b.py": "import house.hall.b"})
    graph = module_imports(root, ["house"])
    assert cycles(graph) == []
    assert cycles(merged(graph, lambda name: name.rpartition(".")[0])) == [["house.attic", "house.hall"]]


def rooms() -> list[str]:
    """Folders of the backends that are in this tree."""
    found = [path.parent.relative_to(ROOT).as_posix() + "/" for path in (ROOT / "hardware").rglob("backend.py")]
    assert len(found) >= 4
    return found


def own_backends() -> set[str]:
    """Without those that other installed packages bring."""
    from importlib.metadata import entry_points

    return set(registry().backends) - {point.name for point in entry_points(group=GROUP)}


def test_backends_are_named_in_their_rooms_only() -> None:
    """One backend may build on another; whatever is outside their rooms asks the registry."""
    outside = [
        mention for mention in mentions(ROOT, PACKAGES, own_backends()) if not mention.path.startswith(tuple(rooms()))
    ]
    allowed = {
        place: [mention for mention in outside if mention.path.startswith(place[0]) and mention.name == place[1]]
        for place in NAMED_ELSEWHERE
    }
    assert [mention for mention in outside if not any(mention in found for found in allowed.values())] == []
    assert [place for place, found in allowed.items() if not found] == []


@pytest.mark.parametrize(
    "line",
    [
        'kind = "tin-can"',
        'said = f"a {1} Tin-Can radio"',
        "import hardware.tin_can.driver",
        "from hardware.tin_can import driver",
        "from hardware import tin_can",
        "class TinCanRadio: ...",
        "tin_can_rate_hz = 1",
        "def open_tin_can(): ...",
        "def open(tin_can): ...",
        "open(tin_can=1)",
        "radio.tin_can",
    ],
)
def test_a_backends_name_is_seen(tree: Tree, line: str) -> None:
    root = tree({"house/module.py": f'"""A tin-can."""\n\n{line}\n'})
    assert {(mention.path, mention.line, mention.name) for mention in mentions(root, ["house"], ["tin-can"])} == {
        ("house/module.py", 3, "tin-can")
    }


@pytest.mark.parametrize(
    "line",
    ['"""A tin-can."""', "# a tin-can", 'kind = "tin-cans"', 'kind = "tin"', "tin_canned = 1", "tin, can = 1, 2"],
)
def test_other_words_are_not_a_backends_name(tree: Tree, line: str) -> None:
    root = tree({"house/module.py": f"{line}\n"})
    assert mentions(root, ["house"], ["tin-can"]) == []
