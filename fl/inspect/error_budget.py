"""Where the error of the sum comes from."""

from typing import Any

from matplotlib.figure import Figure

from fl.inspect.panels import BLACK, GREY, empty_panels, legend_below, number, set_title
from fl.inspect.view import CAUSES, INTENDED, UplinkView
from fl.run.figures import BLUE, ORANGE, RED
from phy.units import power_ratio_to_db


def budget_figure(view: UplinkView) -> Figure:
    """Error energy by cause: blue is the noise that privacy needs, orange what the radios add to it."""
    parts = view.parts
    causes = sorted((cause for cause in CAUSES if cause != "other"), key=lambda cause: -parts[cause])
    causes.append("other")
    figure, (panel,) = empty_panels(8.0, 4.2)
    values_db = {cause: power_ratio_to_db(abs(parts[cause])) for cause in causes}
    top = max(view.nmse_db, view.thermal_db, *values_db.values())
    # Parts below a millionth of the largest are written, not drawn: nobody needs them to scale.
    floor = max(top - 60.0, min(value for value in values_db.values() if value > top - 60.0) - 5.0)
    names = dict(CAUSES)
    for row, cause in enumerate(causes):
        value, negative = values_db[cause], parts[cause] < 0
        colour = BLUE if cause in INTENDED else GREY if cause == "other" else ORANGE
        filled: dict[str, Any] = (
            {"color": "none", "edgecolor": colour, "hatch": "///"} if negative else {"color": colour}
        )
        panel.barh(row, max(value - floor, 0.0), left=floor, height=0.6, **filled)
        text = f"{number(value)} dB" if value > floor else "negligible" if parts[cause] else "none"
        panel.text(1.01, row, text, transform=panel.get_yaxis_transform(), va="center", fontsize="small")
        if negative:
            names[cause] = "explained too much"
    label = f"measured NMSE: {number(view.nmse_db, 2)} dB"
    panel.axvline(view.nmse_db, color=RED, linewidth=3.0, alpha=0.6, label=label)
    label = f"thermal floor: {number(view.thermal_db, 2)} dB"
    panel.axvline(view.thermal_db, color=BLACK, linewidth=1.2, linestyle=":", label=label)
    if parts["jammer"] > 0:
        label = f"with the jammer: {number(view.noise_db, 2)} dB"
        panel.axvline(view.noise_db, color=BLACK, linewidth=1.2, linestyle="--", label=label)
    panel.set_yticks(range(len(causes)), [names[cause] for cause in causes])
    panel.invert_yaxis()
    panel.grid(visible=False, axis="y")
    panel.set(xlim=(floor, top + 0.06 * (top - floor)), xlabel="error energy relative to the exact weighted sum in dB")
    set_title(figure, view, "where the aggregate's error comes from")
    legend_below(figure, 3)
    return figure
