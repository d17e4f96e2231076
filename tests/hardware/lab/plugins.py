"""Packages with backends, installed into a folder of their own."""

import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from hardware.lab.registry import GROUP, registry

CABLE = Path(__file__).parent / "plugin" / "cable_radios"


def install(folder: Path, distribution: str, backends: Mapping[str, str], **modules: str) -> None:
    """What pip leaves behind of a package with these entry points. modules: their source, by name."""
    info = folder / f"{distribution.replace('-', '_')}-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n")
    lines = [f"[{GROUP}]", *(f"{name} = {value}" for name, value in backends.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    for name, source in modules.items():
        (folder / f"{name}.py").write_text(source)


def install_cable(folder: Path) -> Path:
    install(folder, "cable-radios", {"cable": "cable_radios.backend:BACKEND"})
    shutil.copytree(CABLE, folder / CABLE.name, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


@contextmanager
def on_the_path(folder: Path) -> Iterator[None]:
    """What is installed in `folder` is found here, and nothing of it is left afterwards."""
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    registry.cache_clear()
    try:
        yield
    finally:
        sys.path.remove(str(folder))
        registry.cache_clear()
        for name in set(sys.modules) - before:
            if str(folder) in (getattr(sys.modules[name], "__file__", None) or ""):
                del sys.modules[name]
