"""From folders to files: everything is made in memory first, so that what fails leaves nothing behind."""

import os
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from fl.errors import RunFolderError
from fl.report.curves import draw_study
from fl.report.page import Chapter, render
from fl.report.radio import draw_radio
from fl.report.sources import Study, read_studies
from fl.report.summary import Summary, summarise_study
from fl.versions import package_version
from hardware.foundation.durable import write_atomically


@dataclass(frozen=True)
class Report:
    """A page and the files that go beside it, by their path relative to the page's folder."""

    page: str
    files: dict[str, bytes]
    summaries: tuple[Summary, ...]

    def write(self, out: Path) -> list[Path]:
        """Put everything in place, the page last, each file all at once; returns the paths, the page first."""
        try:
            paths = []
            for name, content in self.files.items():
                path = out.parent / name
                if path.parent.is_symlink():
                    raise RunFolderError(
                        f"{path.parent} is a link, which may lead anywhere: remove it, or choose another file with "
                        "--out"
                    )
                path.parent.mkdir(parents=True, exist_ok=True)
                write_atomically(path, content)
                paths.append(path)
            out.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(out, self.page.encode())
        except OSError as error:
            raise RunFolderError(f"cannot write {out}: {error.strerror}; choose another file with --out") from error
        return [out, *paths]


def build_report(
    folders: Sequence[Path],
    out: Path,
    *,
    bound: bool = True,
    speed: bool = False,
    on_progress: Callable[[str, float], None] = lambda curve, done: None,
) -> Report:
    """Read, evaluate, draw and render; touches no file. out: where the page will lie, after which figures are named.

    bound: with the convergence bound, which needs the data and some seconds of each curve. on_progress: called with a
    curve's name and the fraction of its bound that is done. speed: measure this machine, which must be the one that the
    trials ran on to mean something; without it the same folders make the same page.
    """
    _check_place(out)
    studies = read_studies(folders)
    sgemm = _sgemm() if speed else None
    chapters: list[Chapter] = []
    files: dict[str, bytes] = {}
    for key, study in zip(_keys(studies), studies, strict=True):
        pictures = [*draw_study(study, key), *draw_radio(study, key)]
        links = {}
        for picture in pictures:
            names = {suffix: f"{out.stem}-files/{key}-{picture.name}.{suffix}" for suffix in picture.files}
            files.update({names[suffix]: content for suffix, content in picture.files.items()})
            links[picture.name] = [(suffix.upper(), name) for suffix, name in names.items()]
        chapters.append(
            Chapter(key, summarise_study(study, on_progress if bound else None, sgemm), tuple(pictures), links)
        )
    page = render(chapters, package_version("airdp") or "unknown")
    return Report(page, files, tuple(chapter.summary for chapter in chapters))


def _sgemm() -> float:
    from fl.run.arithmetic import sgemm_flops_per_second

    return sgemm_flops_per_second(time.thread_time)


def _check_place(out: Path) -> None:
    """Refuse now what could not be written at the end."""
    if out.is_dir():
        raise RunFolderError(f"{out} is a folder: give the name of a file with --out")
    if out.exists() and not out.is_file():
        raise RunFolderError(f"{out} is not a file, and is not replaced by one: choose another --out")
    parent = next(path for path in out.absolute().parents if path.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK):
        raise RunFolderError(f"cannot write {out}: {parent} is no folder that can be written to; choose another --out")


def _keys(studies: Sequence[Study]) -> list[str]:
    """A name for each study that is unique, in addresses and in file names."""
    keys: list[str] = []
    for study in studies:
        plain = re.sub(r"[^a-z0-9]+", "-", study.name.lower()).strip("-") or "study"
        key, number = plain, 2
        while key in keys:
            key, number = f"{plain}-{number}", number + 1
        keys.append(key)
    return keys


def write_report(
    folders: Sequence[Path],
    out: Path,
    *,
    bound: bool = True,
    speed: bool = False,
    on_progress: Callable[[str, float], None] = lambda curve, done: None,
) -> Path:
    """Write the page about `folders` (sweeps or runs) to `out`, and its figures beside it; returns `out`."""
    build_report(folders, out, bound=bound, speed=speed, on_progress=on_progress).write(out)
    return out
