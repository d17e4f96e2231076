"""Pictures of a radio run's last uplink, those of `airdp inspect`, as a page shows them."""

import matplotlib

from fl.errors import RunFolderError
from fl.inspect.channels import channel_figure
from fl.inspect.error_budget import budget_figure
from fl.inspect.spectrum import spectrum_figure
from fl.inspect.view import UplinkView, read_round, rounds_with_snapshot
from fl.report.curves import Panel, Picture, figure_file
from fl.report.inline_svg import inline_svg
from fl.report.sources import Study
from fl.run.config import UplinkKind

_PICTURES = {
    "spectrum": (spectrum_figure, "What the server received: its spectrum, in silence and with everybody sending."),
    "channel": (channel_figure, "The channels as the server sounded them, by subcarrier."),
    "error-budget": (budget_figure, "Where the error of the received sum comes from."),
}
"""Without the constellation, whose thousands of dots would be most of the page."""


def draw_radio(study: Study, key: str) -> list[Picture]:
    """Of the last uplink of the first curve's first trial, where that went over radios and kept a snapshot.

    key: unique among the studies of a page.
    """
    trial = study.filled[0].trials[0]
    if trial.config.uplink.kind is not UplinkKind.RADIO or not rounds_with_snapshot(trial.folder):
        return []
    try:
        view = read_round(trial.folder)
    except RunFolderError:
        # `airdp inspect` says what is wrong with it; curves and privacy do not depend on it.
        return []
    of = f" of {study.filled[0].name}, trial {trial.number}" if study.is_sweep else ""
    where = f"Uplink {view.uplink}{of}."
    return [_picture(name, view, f"{caption} {where}", key) for name, (_, caption) in _PICTURES.items()]


def _picture(name: str, view: UplinkView, caption: str, key: str) -> Picture:
    draw, _ = _PICTURES[name]
    with matplotlib.rc_context({"pdf.fonttype": 42, "svg.fonttype": "none", "svg.hashsalt": f"{key}-{name}"}):
        figure = draw(view)
        svg = inline_svg(figure_file(figure, "svg"), prefix=f"{key}-{name}", description=caption)
        files = {suffix: figure_file(figure, suffix) for suffix in ("png", "pdf")}
    return Picture(name, caption, (Panel("", svg),), files, wide=True)
