"""The pictures of one radio uplink, drawn from the run's folder alone.

`draw_round` makes one PNG for each entry of `PICTURES` from what `fl.inspect.view` read. Powers are
relative to full scale (|x| = 1). Frequencies count from the carrier, times from the first sample of the silence in
which noise was measured.
"""

from collections.abc import Callable
from pathlib import Path

from matplotlib.figure import Figure

from calibration.plots import save_figure
from fl.errors import RunFolderError
from fl.inspect.aggregate import aggregate_figure
from fl.inspect.channels import channel_figure
from fl.inspect.error_budget import budget_figure
from fl.inspect.phase_error import phase_figure
from fl.inspect.spectrum import spectrum_figure
from fl.inspect.timeline import timeline_figure
from fl.inspect.view import UplinkView

PICTURES: dict[str, Callable[[UplinkView], Figure]] = {
    "spectrum": spectrum_figure,
    "constellation": aggregate_figure,
    "channel": channel_figure,
    "timeline": timeline_figure,
    "error_budget": budget_figure,
    "phase_error": phase_figure,
}


def draw_round(view: UplinkView, folder: Path) -> dict[str, Path]:
    """Write every picture into `folder`, which is made where it is missing; returns their paths by name."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        paths = {name: folder / f"{name}.png" for name in PICTURES}
        for name, draw in PICTURES.items():
            save_figure(draw(view), paths[name])
    except OSError as error:
        raise RunFolderError(f"cannot write to {folder}: {error.strerror}; choose a folder with --out") from error
    return paths
