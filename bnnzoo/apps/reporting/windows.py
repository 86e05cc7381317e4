"""The section of a report about a model in use: what ``bnnzoo.monitor`` found, window by window."""

from collections.abc import Mapping

import xarray as xr
from matplotlib.figure import Figure

from bnnzoo.apps.reporting.figures import drawn
from bnnzoo.apps.reporting.page_blocks import Cell, Grid, Section, Sentences
from bnnzoo.apps.reporting.style import MUTED, PALETTE, clean, new_figure
from bnnzoo.plots.windows import STATISTICS, shown_statistics

__all__ = ["window_sections"]

CAPTION = (
    "Statistics of consecutive windows of new rows with their intervals; dashed lines are the values of the reference rows. "
    "Drift shows as intervals that leave the dashed line and stay away from it; single ones do so by chance."
)
SMALL = 0.01  # p-value, before counting how many windows there are
TEST = f"Kolmogorov-Smirnov test, level {SMALL}, Bonferroni"


def window_sections(windows: Mapping[str, xr.Dataset]) -> tuple[Section, ...]:
    """Return a section for each result of :func:`bnnzoo.monitor`.

    Parameters
    ----------
    windows : mapping of str to Dataset
    """
    return tuple(_section(f"Monitoring: {name}" if name else "Monitoring", found) for name, found in windows.items())


def _section(title: str, found: xr.Dataset) -> Section:
    return Section(title, (Sentences((_verdict(found),)), drawn(title, CAPTION, lambda: _figure(found)), _grid(found)))


def _verdict(found: xr.Dataset) -> str:
    """Return how many windows differ from the reference, with their number taken into account."""
    p_values = found["drift_p_value"].to_numpy()
    count = int((p_values < SMALL / len(p_values)).sum())
    if not count:
        return f"No window of {len(p_values)} has other scores than the reference ({TEST})."
    first = int((p_values < SMALL / len(p_values)).argmax())
    return (
        f"{count} of {len(p_values)} windows have other scores than the reference ({TEST}); the "
        f"first is window {first}. The inputs have drifted: look at rows of that window before relying on predictions."
    )


def _figure(found: xr.Dataset) -> Figure:
    names = shown_statistics(found)
    figure, panels = new_figure(len(names), height=2.6)
    for axes, name in zip(panels, names, strict=True):
        x, y = (
            found["window"].to_numpy() if "window" in found.coords else range(found.sizes["window"]),
            found[name].to_numpy(),
        )
        if f"{name}_low" in found:
            low, high = found[f"{name}_low"].to_numpy(), found[f"{name}_high"].to_numpy()
            axes.fill_between(x, low, high, color=PALETTE[0], alpha=0.2, linewidth=0)
        axes.plot(x, y, color=PALETTE[0], marker="o", markersize=3.5, linewidth=1.4)
        if f"reference_{name}" in found:
            axes.axhline(float(found[f"reference_{name}"]), color=MUTED, linewidth=1, linestyle=(0, (4, 3)))
        if name == "drift_p_value":
            axes.set_yscale("log")
            axes.yaxis.set_major_formatter("{x:g}")  # a power of ten would be mathematics, which the style leaves alone
        clean(axes, STATISTICS[name], "window")
    return figure


def _grid(found: xr.Dataset) -> Grid:
    names = ["count", *shown_statistics(found)]
    rows = []
    for i in range(found.sizes["window"]):
        cells = [_cell(name, float(found[name][i])) for name in names]
        rows.append((str(i), *cells))
    note = f"P-values below {SMALL} divided by the number of windows are marked."
    limit = SMALL / max(1, found.sizes["window"])
    marked = tuple(
        tuple(
            Cell(cell, is_warning=True) if name == "drift_p_value" and float(cell) < limit else cell
            for name, cell in zip(["window", *names], row, strict=True)
        )
        for row in rows
    )
    return Grid("", note, ("window", "rows", *(STATISTICS[name] for name in names[1:])), marked)


def _cell(name: str, value: float) -> str:
    return f"{value:.0f}" if name == "count" else f"{value:.3g}"
