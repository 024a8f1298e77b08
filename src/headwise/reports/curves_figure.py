"""How training went: a panel for every number that was logged, a line in it for every model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headwise.errors import InputError
from headwise.reports.files import house_style
from headwise.reports.lines import style_of
from headwise.reports.panels import panels, plain

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TITLE = "Training curves"
COLUMNS = 3
PANEL = (3.4, 2.5)
MOST_MARKS = 25  # lines of more points have no marks
GUIDE = "guide:"

Series = Mapping[str, Any]


def build_curves(series: Sequence[Series], names: Mapping[str, str], *, title: str = TITLE) -> Figure:
    """The figure, not yet written.

    Args:
        series: {model, group, name, kind, x, y}, as `training_curves` gives them.
        names: what to call each model, in the order of the legend.
        title: stands above all panels; "" for none.
    """
    if not series:
        raise InputError("nothing was logged, so there is no curve to draw: train with steps, and training.log_every.")
    unknown = [each["model"] for each in series if each["model"] not in names]
    if unknown:
        raise InputError(f"there is no name for the model {unknown[0]!r}: expected one of {', '.join(names)}.")
    by_panel: dict[str, list[Series]] = {}
    for each in sorted(series, key=_group):
        by_panel.setdefault(panel_title(each), []).append(each)
    with house_style():
        figure, axes = panels(len(by_panel), COLUMNS, PANEL, title)
        for panel, (name, found) in zip(axes, by_panel.items(), strict=True):
            _draw(panel, name, found, list(names))
        lines = {line.get_gid(): line for panel in axes for line in panel.get_lines()}
        if len(names) > 1:
            shown = [model for model in names if model in lines]
            legend = figure.legend(
                [lines[model] for model in shown],
                [plain(names[model], 40) for model in shown],
                loc="outside lower center",
                ncols=min(4, len(shown)),
                frameon=False,
            )
            for text in legend.get_texts():
                text.set_parse_math(False)
    return figure


def panel_title(series: Series) -> str:
    """What a panel shows: of guides also whether it is weighted, or a share of the gradient."""
    if series["group"].startswith(GUIDE):
        ending = {"raw": "", "weighted": ", weighted", "share": ", gradient share"}[series["kind"]]
        return f"guide {series['name']}{ending}"
    return f"{series['name']} on validation" if series["group"] == "validation" else str(series["name"])


def _group(series: Series) -> int:
    """Losses, then scores, then guides."""
    return {"loss": 0, "validation": 1}.get(series["group"], 2)


def _draw(panel: Axes, name: str, found: Sequence[Series], models: Sequence[str]) -> None:
    for each in found:
        style = style_of(models.index(each["model"])) | {"markersize": 3}
        if len(each["x"]) > MOST_MARKS:
            style |= {"marker": "", "linewidth": 1.1}
        panel.plot(each["x"], each["y"], gid=each["model"], **style)
    panel.set_title(plain(name, 40), parse_math=False)
    panel.set_xlabel("step")
    panel.locator_params(axis="x", integer=True, nbins=6)
    panel.spines[["top", "right"]].set_visible(False)
    panel.grid(color="#e4e4e4", linewidth=0.5)
    panel.set_axisbelow(True)
    panel.tick_params(length=2, width=0.6, labelsize=8)
