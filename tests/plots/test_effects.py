"""Plots of effects by their structure, on every backend that is installed."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.plots import plot_comparisons, plot_predictions, plot_slopes

BACKENDS = ["none", "matplotlib", "bokeh", "plotly"]


def tree(kind: str, **coords: list[object]) -> xr.DataTree:
    size = len(next(iter(coords.values())))
    draws = np.random.default_rng(0).normal(np.arange(size), 0.1, (2, 50, size))
    named = {name: ("effect", values) for name, values in coords.items()}
    return xr.DataTree.from_dict({kind: xr.Dataset({"estimate": (("chain", "draw", "effect"), draws)}, named)})


CURVES = tree("predictions", dose=[*range(9), *range(9)], sex=["f"] * 9 + ["m"] * 9)
LEVELS = tree("slopes", arm=["a", "b", "c", "a", "b", "c"], sex=["f"] * 3 + ["m"] * 3)
ROWS = tree("comparisons", term=["dose", "arm", "arm"], contrast=["+1", "b - a", "c - a"])

PLOTS = {
    "curve": (
        lambda **kw: plot_predictions(CURVES, "dose", "sex", observed=([1, 2], [3, 4]), **kw),
        {"line", "band", "observed"},
    ),
    "levels": (lambda **kw: plot_slopes(LEVELS, "arm", "sex", **kw), {"points", "interval", "ref_line", "ticks"}),
    "forest": (lambda **kw: plot_comparisons(ROWS, **kw), {"points", "interval", "ref_line", "ticks"}),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLOTS)
def test_what_is_drawn(name: str, backend: str) -> None:
    pytest.importorskip(f"arviz_plots.backend.{backend}", reason=f"needs {backend}")
    plot, visuals = PLOTS[name]
    drawn = set(plot(backend=backend).viz.children)
    assert (visuals - {"ticks"}) | {"xlabel", "ylabel"} <= drawn
    for visual in visuals:
        assert visual not in plot(backend="none", visuals={visual: False}).viz.children


def test_curves_are_medians_and_bands_are_intervals() -> None:
    plot = plot_predictions(CURVES, "dose", "sex", prob=0.5, backend="matplotlib")
    draws = CURVES["predictions"]["estimate"].to_numpy().reshape(-1, 18)
    lines = [artist.get_xydata() for artist in next(iter(plot.viz["line"].data_vars.values())).values.ravel()]
    np.testing.assert_allclose(lines[1][:, 1], np.median(draws[:, 9:], 0))
    assert [label.get_text() for label in plot.viz["figure"].item().legends[0].get_texts()] == ["f", "m"]


def test_effects_with_equal_values_are_averaged() -> None:
    plot = plot_predictions(CURVES, "dose", backend="matplotlib")
    draws = CURVES["predictions"]["estimate"].to_numpy().reshape(-1, 18)
    (line,) = next(iter(plot.viz["line"].data_vars.values())).values.ravel()[None]
    expected = np.median((draws[:, :9] + draws[:, 9:]) / 2, 0)
    np.testing.assert_allclose(line.item().get_ydata() if hasattr(line, "item") else line.get_ydata(), expected)


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(ValueError, match="no variable 'age'; they have dose, sex"):
        plot_predictions(CURVES, "age", backend="none")
    with pytest.raises(ValueError, match="holds no effects"):
        plot_slopes(xr.DataTree(), "dose", backend="none")
    with pytest.raises(ValueError, match="between 0 and 1"):
        plot_slopes(CURVES, "dose", prob=1.0, backend="none")
