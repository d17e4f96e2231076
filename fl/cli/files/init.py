"""Write a config or a lab file to begin with, every key with its meaning. FROM is a shipped one (`airdp configs`)."""

import argparse
from pathlib import Path

from fl.cli.output import RESULTS, print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare options."""
    parser.add_argument("kind", choices=["config", "lab"], help="what to write")
    parser.add_argument("path", type=Path, metavar="PATH", help="the new file; one that exists is not overwritten")
    parser.add_argument("--from", dest="source", metavar="FROM", help="shipped one to begin with")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of text")


def call(options: argparse.Namespace) -> int:
    """Write, and say what to do next."""
    from fl.errors import ConfigError
    from hardware.foundation.durable import write_atomically

    if options.path.exists():
        raise ConfigError(f"{options.path} exists: give the name of a new file")
    if not options.path.parent.is_dir():
        raise ConfigError(f"{options.path.parent} is not a folder: make it first")
    if options.kind == "config":
        text, following = _config(options.source or "quickstart"), f"airdp run {options.path}"
    else:
        text, following = _lab(options.source), f"airdp calibrate {options.path}"
    write_atomically(options.path, text.encode())
    if options.json:
        print_json({"path": str(options.path), "next": following})
    else:
        RESULTS.print(f"wrote {options.path}; next: {following}", soft_wrap=True)
    return 0


def _config(source: str) -> str:
    from fl.run.config import load_config
    from hardware.foundation.commented import commented_toml

    return "\n".join(commented_toml(load_config(source))) + "\n"


def _lab(source: str | None) -> str:
    """A shipped lab, that of a config without one where none is named, with what it leaves out as comments."""
    from fl.run.config import RadioConfig
    from hardware.foundation.commented import annotated_toml
    from hardware.lab.file import find_lab, lab_file_model

    text = Path(find_lab(source or RadioConfig().lab, "").source).read_text(encoding="utf-8")
    return "\n".join(annotated_toml(text, lab_file_model())) + "\n"
