"""Plots by their structure: what is drawn, from which numbers, on every backend that is installed."""

import numpy as np
import pytest

from bnnzoo.calibration import coverage_curve, reliability_curve, risk_coverage_curve
from bnnzoo.diagnostics import compare_posteriors
from bnnzoo.plots import (
    plot_coverage,
    plot_function,
    plot_posterior_comparison,
    plot_reliability,
    plot_risk_coverage,
)
from bnnzoo.testing import example_tree

BACKENDS = ["none", "matplotlib", "bokeh", "plotly"]
CLASSES = {name: example_tree("classification", num_rows=60, seed=seed) for seed, name in enumerate(("nuts", "mfvi"))}
REAL = {name: example_tree("regression", num_rows=30, seed=seed) for seed, name in enumerate(("nuts", "mfvi"))}
X = np.linspace(-1, 1, 30)[::-1]

PLOTS = {
    "reliability": (lambda **kw: plot_reliability(CLASSES, **kw), {"line", "points", "ref_line"}),
    "coverage": (lambda **kw: plot_coverage(REAL, **kw), {"line", "band", "ref_line"}),
    "risk_coverage": (lambda **kw: plot_risk_coverage(CLASSES, **kw), {"line", "oracle"}),
    "function": (lambda **kw: plot_function(REAL, X, observed=(X, X), **kw), {"mean", "total_band", "title"}),
    "comparison": (
        lambda **kw: plot_posterior_comparison(compare_posteriors(REAL, reference="nuts"), **kw),
        {"line", "floor"},
    ),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLOTS)
def test_what_is_drawn(name, backend):
    pytest.importorskip(f"arviz_plots.backend.{backend}", reason=f"needs {backend}")
    plot, visuals = PLOTS[name]
    drawn = set(plot(backend=backend).viz.children)
    assert visuals | {"xlabel", "ylabel"} <= drawn


@pytest.mark.parametrize("name", PLOTS)
def test_everything_can_be_left_out(name):
    plot, visuals = PLOTS[name]
    for visual in visuals:
        assert visual not in plot(backend="none", visuals={visual: False}).viz.children


@pytest.mark.parametrize("name", PLOTS)
def test_settings_reach_the_picture(name):
    plot, _ = PLOTS[name]
    line = "mean" if name == "function" else "line"
    found = plot(backend="matplotlib", visuals={line: {"linewidth": 7}}).viz[line]
    artists = next(iter(found.data_vars.values())).values.ravel()
    assert [artist.get_linewidth() for artist in artists] == [7] * len(artists)


def lines(plot, name):
    return [a.get_xydata() for a in next(iter(plot.viz[name].data_vars.values())).values.ravel()]


def test_curves_are_those_of_the_measures():
    curve = reliability_curve(CLASSES["mfvi"], num_bins=10)
    drawn = lines(plot_reliability(CLASSES, backend="matplotlib"), "line")[1]
    np.testing.assert_allclose(drawn[~np.isnan(drawn).any(1), 1], curve["frequency"])
    coverage = lines(plot_coverage(REAL, backend="matplotlib"), "line")[0]
    np.testing.assert_allclose(coverage[:, 1], coverage_curve(REAL["nuts"])["coverage"])
    uncertainty = CLASSES["nuts"]["conditional"]["probs"][0, 0, :, 0]
    drawn = lines(
        plot_risk_coverage(
            CLASSES["nuts"], uncertainty=lambda _: uncertainty, loss=lambda _: uncertainty**2, backend="matplotlib"
        ),
        "line",
    )[0]
    np.testing.assert_allclose(drawn[:, 1], risk_coverage_curve(uncertainty, uncertainty**2)["risk"])


def test_rows_are_sorted_by_their_input():
    drawn = lines(plot_function(REAL, X, backend="matplotlib"), "mean")[0]
    assert (np.diff(drawn[:, 0]) > 0).all()
    mean = REAL["nuts"]["conditional"]["mean"].mean(("chain", "draw")).values
    np.testing.assert_allclose(drawn[:, 1], mean[::-1])


def test_models_have_colors_of_their_own():
    found = plot_reliability(CLASSES, backend="matplotlib").viz["line"]
    colors = [artist.get_color() for artist in next(iter(found.data_vars.values())).values.ravel()]
    assert len(set(colors)) == 2


def test_a_collection_is_drawn_into():
    collection = plot_coverage(REAL, backend="none")
    assert plot_coverage(REAL, plot_collection=collection, visuals={"band": False}) is collection


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"There are 3 inputs x, but predictions with sizes {'obs_id': 30}"):
        plot_function(REAL, [1, 2, 3], backend="none")
    comparison = compare_posteriors(REAL, reference="nuts")
    with pytest.raises(
        ValueError, match=r"No distance 'sd_ratio' with a floor .* it has mean_difference, log_sd_ratio"
    ):
        plot_posterior_comparison(comparison, distance="sd_ratio", backend="none")
