"""Plots of maps, members, modes and pools by their structure, on every backend that is installed."""

import json

import numpy as np
import pytest
import xarray as xr

from bnnzoo.acquisition import bald, select
from bnnzoo.calibration import misclassified
from bnnzoo.diagnostics import compare_posteriors, weight_rhat
from bnnzoo.plots import (
    grid_inputs,
    line_inputs,
    plot_acquisition,
    plot_comparison_forest,
    plot_embedding,
    plot_images,
    plot_members,
    plot_optimisation,
    plot_ranks,
    plot_rhat,
    plot_simplex,
    plot_uncertainty_histogram,
    plot_uncertainty_map,
    plot_weights,
    plot_windows,
)
from bnnzoo.plots.maps import _levels
from bnnzoo.plots.rank_histograms import simultaneous_band
from bnnzoo.testing import example_tree
from bnnzoo.uncertainty import mutual_information, predictive_entropy, total_variance
from bnnzoo.validation import monitor

BACKENDS = ["none", "matplotlib", "bokeh", "plotly"]
CLASSES = {name: example_tree("classification", num_rows=60, seed=seed) for seed, name in enumerate(("nuts", "mfvi"))}
REAL = {name: example_tree("regression", num_rows=36, seed=seed) for seed, name in enumerate(("nuts", "mfvi"))}
X = np.linspace(-1, 1, 36)[::-1]
GRID = grid_inputs((-1, 0), (1, 3), 6)
PLACES = np.random.default_rng(0).normal(size=(60, 2))


def trace(num_steps):
    elbo = -np.exp(-np.ones((2, 1)) * np.arange(num_steps))
    return xr.DataTree.from_dict({"fit_stats": xr.Dataset({"elbo": (("chain", "step"), elbo)})})


TRACES = {"mfvi": trace(12), "full": trace(9)}


def ranks(num_simulations=200, seed=0):
    """Return ranks of three quantities among 19 draws: uniform ones, those of draws too narrow, and those of draws too low."""
    rng = np.random.default_rng(seed)
    shares = np.stack([np.ones(20), np.abs(np.arange(20) - 9.5) + 1, np.arange(20) + 1], 1)
    drawn = [rng.choice(20, num_simulations, p=share / share.sum()) for share in shares.T]
    found = {"b": (("chain", "draw", "i"), np.stack(drawn[:2], 1)[None]), "sigma": (("chain", "draw"), drawn[2][None])}
    tree = xr.DataTree.from_dict({"prior_sbc": xr.Dataset(found)})
    tree.attrs["num_draws"] = 19
    return tree


def chains():
    """Return a tree with weights of one hidden layer, whose chains have their units in different orders."""
    tree, rng = REAL["nuts"].copy(), np.random.default_rng(0)
    units = rng.normal([-2.0, 0.0, 2.0], 0.1, (2, 30, 3))
    units[1] = units[1, :, ::-1]
    weights = {
        "a": (("chain", "draw", "unit", "i"), units[..., None]),
        "b": (("chain", "draw", "o", "u"), units[:, :, None] + 5),
    }
    tree["weights"] = xr.DataTree(xr.Dataset(weights))
    tree.attrs["layers"] = json.dumps([[{"weight": "a", "activation": "tanh"}, {"weight": "b"}]])
    return tree


IMAGES = np.random.default_rng(0).normal(size=(60, 5, 4))
PLOTS = {
    "images": (lambda **kw: plot_images(CLASSES["nuts"], IMAGES, num_images=2, **kw), {"image", "title"}),
    "windows": (
        lambda **kw: plot_windows(windows(), statistics=["unusual", "accuracy"], **kw),
        {"line", "points", "band", "ref_line", "title"},
    ),
    "optimisation": (lambda **kw: plot_optimisation(TRACES, **kw), {"line"}),
    "histogram": (lambda **kw: plot_uncertainty_histogram(CLASSES, **kw), {"line", "title"}),
    "in and out": (lambda **kw: plot_uncertainty_histogram(CLASSES["nuts"], CLASSES["mfvi"], **kw), {"line"}),
    "map": (lambda **kw: plot_uncertainty_map(REAL, GRID, observed=GRID[:3], **kw), {"map", "observed", "title"}),
    "simplex": (
        lambda **kw: plot_simplex(CLASSES["nuts"], [0, 5], **kw),
        {"points", "mean", "edge", "contour", "title"},
    ),
    "members": (
        lambda **kw: plot_members(REAL["nuts"], X, observed=(X, X), **kw),
        {"mean", "band", "observed", "title"},
    ),
    "forest": (
        lambda **kw: plot_comparison_forest(compare_posteriors(REAL, reference="nuts"), **kw),
        {"interval", "points", "floor", "floor_points", "limit", "title"},
    ),
    "ranks": (lambda **kw: plot_ranks(ranks(), **kw), {"line", "band", "ref_line", "title"}),
    "rhat": (lambda **kw: plot_rhat(chains(), **kw), {"line", "ref_line"}),
    "weights": (lambda **kw: plot_weights({"nuts": chains(), "mfvi": chains()}, **kw), {"points", "ref_line"}),
    "embedding": (lambda **kw: plot_embedding(PLACES, mutual_information(CLASSES["nuts"]), **kw), {"points"}),
    "acquisition": (lambda **kw: plot_acquisition(scores(), **({"batch_size": 5} | kw)), {"line", "points"}),
}


def windows():
    return {name: monitor(CLASSES[name], CLASSES["mfvi"], num_windows=3) for name in CLASSES}


def scores():
    return {"BALD": bald(CLASSES["nuts"]), "entropy": predictive_entropy(CLASSES["nuts"])}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PLOTS)
def test_what_is_drawn(name, backend):
    pytest.importorskip(f"arviz_plots.backend.{backend}", reason=f"needs {backend}")
    plot, visuals = PLOTS[name]
    labels = set() if name == "images" else {"xlabel", "ylabel"}
    assert visuals | labels <= set(plot(backend=backend).viz.children)


@pytest.mark.parametrize("name", PLOTS)
def test_everything_can_be_left_out(name):
    plot, visuals = PLOTS[name]
    drawn = plot(backend="none", visuals=dict.fromkeys([*visuals, "xlabel"], False)).viz.children
    assert not visuals & set(drawn)
    assert "xlabel" not in drawn


@pytest.mark.parametrize("name", ["optimisation", "rhat", "acquisition", "forest"])
def test_a_legend_names_what_is_drawn(name):
    plot, _ = PLOTS[name]
    figure = plot(backend="matplotlib").viz["figure"].item()
    named = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    expected = {
        "optimisation": {*TRACES},
        "rhat": {"predictions", "weights", "weights, matched"},
        "acquisition": {"BALD", "entropy"},
        "forest": {"mfvi"},
    }
    assert expected[name] <= named


def lines(plot, name):
    return [a.get_xydata() for a in next(iter(plot.viz[name].data_vars.values())).values.ravel()]


def test_restarts_are_lines_of_one_trace():
    drawn = lines(plot_optimisation(TRACES["mfvi"], backend="matplotlib"), "line")[0]
    assert int(np.isnan(drawn[:, 1]).sum()) == 2
    np.testing.assert_allclose(drawn[:12, 1], TRACES["mfvi"]["fit_stats"]["elbo"][0])


def test_histograms_have_area_one():
    drawn = lines(plot_uncertainty_histogram(CLASSES["nuts"], num_bins=7, backend="matplotlib"), "line")
    wrong = misclassified(CLASSES["nuts"])
    for outline, rows in zip(drawn, (~wrong, wrong), strict=True):
        assert np.trapezoid(outline[:, 1], outline[:, 0]) == pytest.approx(1.0)
        entropy = predictive_entropy(CLASSES["nuts"])[rows]
        inside = (outline[:, 0] >= float(entropy.min()) - 0.3) & (outline[:, 0] <= float(entropy.max()) + 0.3)
        assert outline[~inside, 1].sum() == 0.0


def drawn(plot, name):
    return next(iter(plot.viz[name].data_vars.values())).values.ravel()


def test_the_most_uncertain_images_come_first_with_their_entropy():
    plot = plot_images(CLASSES["nuts"], IMAGES, num_images=3, backend="matplotlib")
    entropy = predictive_entropy(CLASSES["nuts"])
    order = np.argsort(-entropy.values)[:3]
    scaled = (IMAGES - IMAGES.min()) / np.ptp(IMAGES)
    for artist, title, row in zip(drawn(plot, "image"), drawn(plot, "title"), order, strict=True):
        np.testing.assert_allclose(artist.get_array(), scaled[row])
        assert title.get_text().endswith(f"{entropy.values[row]:.2f} nats")
    wrong = misclassified(CLASSES["nuts"]).values[order]
    assert [", is " in title.get_text() for title in drawn(plot, "title")] == wrong.tolist()


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(60, 3, 5, 4), (60, 5, 4, 3), (60, 1, 5, 4)])
def test_images_may_have_colours(backend, shape):
    pytest.importorskip(f"arviz_plots.backend.{backend}", reason=f"needs {backend}")
    images = np.random.default_rng(0).random(shape)
    assert drawn(plot_images(CLASSES["nuts"], images, rows=[7, -1], backend=backend), "image").size == 2


def test_windows_are_those_of_monitor():
    found = windows()
    plot = plot_windows(found, backend="matplotlib")
    assert plot.viz["line"]["curve"].dims == ("model", "statistic")
    unusual = plot.viz["line"]["curve"].sel(model="mfvi", statistic="unusual").item()
    np.testing.assert_allclose(unusual.get_ydata(), found["mfvi"]["unusual"])
    level = plot.viz["ref_line"]["curve"].sel(model="mfvi", statistic="unusual").item()
    np.testing.assert_allclose(level.get_ydata(), 0.05)


@pytest.mark.parametrize("backend", BACKENDS)
def test_maps_have_a_scale_of_their_colours(backend):
    pytest.importorskip(f"arviz_plots.backend.{backend}", reason=f"needs {backend}")
    plots = [
        plot_uncertainty_map(REAL["nuts"], GRID, parts=["total"], visuals={"scale": scale}, backend=backend)
        for scale in (False, True)
    ]
    without, with_scale = (number_of_scales(plot, backend) for plot in plots)
    assert (without, with_scale) == (0, 1)


def test_scales_of_plotly_lie_between_their_panel_and_the_next():
    pytest.importorskip("arviz_plots.backend.plotly", reason="needs plotly")
    figure = plot_uncertainty_map(REAL, GRID, backend="plotly").viz["figure"].item()
    for trace in (trace for trace in figure.data if trace.type == "contour"):
        number = trace.xaxis[1:]
        left, right = figure.layout[f"xaxis{number}"].domain
        assert trace.colorbar.x == right
        starts = [figure.layout[name].domain[0] for name in figure.layout if str(name).startswith("xaxis")]
        following = min([start for start in starts if start > right], default=1.05)
        assert following - right > 0.2 * (right - left)
    texts = [axis.title.text for axis in figure.select_yaxes()]
    assert [text for text in texts if text] == ["second input"] * 2
    assert [axis.title.text for axis in figure.select_xaxes() if axis.title.text] == ["first input"] * 4


def number_of_scales(plot, backend):
    figure = plot.viz["figure"].item()
    target = plot.viz["plot"].values.ravel()[0]
    if backend == "none":
        return sum(part["function"] == "colour_scale" for part in target)
    if backend == "matplotlib":
        return len(figure.axes) - 1
    if backend == "plotly":
        return sum(bool(trace.showscale) for trace in figure.data if trace.type == "contour")
    return sum(type(part).__name__ == "ContourColorBar" for part in target.right)


def test_a_map_does_not_depend_on_the_order_of_rows():
    order = np.random.default_rng(0).permutation(36)
    tree = REAL["nuts"].map_over_datasets(lambda data: data.isel(obs_id=order) if "obs_id" in data.dims else data)
    maps = []
    for one, x in ((REAL["nuts"], GRID), (tree, GRID[order])):
        plot = plot_uncertainty_map(one, x, parts=["total"], backend="none", plot_collection=None)
        maps.append(next(iter(plot.viz["map"].data_vars.values())).values.ravel()[0])
    np.testing.assert_allclose(maps[0]["density"], maps[1]["density"])
    expected = total_variance(REAL["nuts"]).values.reshape(6, 6)  # [y, x], and the backends take [x, y]
    np.testing.assert_allclose(np.asarray(maps[0]["density"]), expected.T)


def test_members_and_chains_have_panels():
    tree = REAL["nuts"].isel(chain=[0], draw=slice(4))
    tree.attrs["sampling"] = "ensemble"
    assert plot_members(tree, X, backend="none").viz["mean"]["curve"].sizes["model"] == 5
    plot = plot_members(REAL["nuts"], X, backend="matplotlib")
    mean = REAL["nuts"]["conditional"]["mean"]
    drawn = lines(plot, "mean")
    np.testing.assert_allclose(drawn[0][:, 1], mean.mean(("chain", "draw"))[::-1])
    np.testing.assert_allclose(drawn[2][:, 1], mean[1].mean("draw")[::-1])


def test_curves_are_those_of_the_measures():
    tree = chains()
    drawn = lines(plot_rhat(tree, backend="matplotlib"), "line")[1]
    np.testing.assert_allclose(drawn[~np.isnan(drawn).any(1), 0], np.sort(weight_rhat(tree)["raw"]))
    curve = lines(plot_acquisition(bald(CLASSES["nuts"]), backend="matplotlib"), "line")[0]
    expected = np.sort(bald(CLASSES["nuts"]))[::-1]
    np.testing.assert_allclose(curve[:, 1], expected / expected[0])
    marked = PLOTS["acquisition"][0](backend="matplotlib", batch_size=3).viz["points"]
    artists = next(iter(marked.data_vars.values())).values.ravel()
    entropy = predictive_entropy(CLASSES["nuts"])
    drawn = artists[1].get_offsets()[:, 1]
    np.testing.assert_allclose(drawn, entropy.values[select(entropy, 3)] / entropy.values.max())


def test_helpers_for_inputs():
    assert GRID.shape == (36, 2)
    inputs, places = line_inputs([0, 0, 0], [2, 0, 4], 5, extend=0.5)
    np.testing.assert_allclose(inputs, places[:, None] * np.array([2, 0, 4]))
    assert places[[0, -1]].tolist() == [-0.5, 1.5]


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"The inputs are no grid: 36 values of the first"):
        plot_uncertainty_map(REAL["nuts"], np.random.default_rng(0).normal(size=(36, 2)), backend="none")
    with pytest.raises(ValueError, match=r"x has shape \(2, 2\), but there are 36 predictions"):
        plot_uncertainty_map(REAL["nuts"], GRID[:2], backend="none")
    with pytest.raises(ValueError, match="parts names 'entropy': write some of prediction, total"):
        plot_uncertainty_map(REAL["nuts"], GRID, parts=["entropy"], backend="none")
    with pytest.raises(ValueError, match="The tree 'prediction' has no trace loss"):
        plot_optimisation(TRACES["mfvi"], statistic="loss", backend="none")
    with pytest.raises(ValueError, match="outside has the names prediction, but data has nuts, mfvi"):
        plot_uncertainty_histogram(CLASSES, CLASSES["nuts"], backend="none")
    with pytest.raises(ValueError, match="three classes, but there are 4"):
        plot_simplex(example_tree("classification", num_classes=4), backend="none")
    with pytest.raises(ValueError, match="There are 3 inputs x, but predictions of shape"):
        plot_members(REAL["nuts"], X[:3], backend="none")
    with pytest.raises(ValueError, match="no distance with a floor"):
        plot_comparison_forest(xr.Dataset(), backend="none")
    with pytest.raises(ValueError, match="compares two methods, but there are 1"):
        plot_weights({"nuts": chains()}, backend="none")
    with pytest.raises(ValueError, match="The tree 'nuts' has no group 'weights'"):
        plot_weights(REAL, backend="none")
    with pytest.raises(ValueError, match=r"The embedding has shape \(60, 3\)"):
        plot_embedding(np.zeros((60, 3)), misclassified(CLASSES["nuts"]), backend="none")
    with pytest.raises(ValueError, match="'bald' has scores of shape"):
        plot_acquisition(bald(CLASSES["nuts"]), X, backend="none")


def test_bad_images_and_windows_are_named():
    tree = CLASSES["nuts"]
    with pytest.raises(ValueError, match="There are 3 images, but 60 predictions: pass one image for each"):
        plot_images(tree, IMAGES[:3], backend="none")
    with pytest.raises(ValueError, match=r"images have shape \(60, 20\): write \[obs_id, height, width\]"):
        plot_images(tree, IMAGES.reshape(60, 20), backend="none")
    with pytest.raises(ValueError, match="rows names 99, but there are 60 observations: write positions"):
        plot_images(tree, IMAGES, rows=[0, 99], backend="none")
    with pytest.raises(ValueError, match="num_images=0: write a positive number"):
        plot_images(tree, IMAGES, num_images=0, backend="none")
    with pytest.raises(ValueError, match="statistics names 'coverage': write some of unusual, drift_p_value"):
        plot_windows(windows(), statistics=["coverage"], backend="none")
    with pytest.raises(ValueError, match=r"There is no statistic to plot: pass what bnnzoo.monitor returns"):
        plot_windows(xr.Dataset({"other": ("window", [1.0])}), backend="none")


def test_a_row_that_is_not_there_has_no_simplex():
    with pytest.raises(ValueError, match="rows names 99, but there are 60 observations: write positions"):
        plot_simplex(CLASSES["nuts"], rows=[0, 99], backend="none")


def test_sizes_of_points_are_areas_and_the_lowest_value_of_a_map_is_filled() -> None:
    tree = example_tree("classification")
    sizes = {}
    for backend in ("matplotlib", "bokeh"):
        mean = plot_simplex(tree, rows=[0], backend=backend).viz["mean"].to_dataset()["curve"].to_numpy().ravel()[0]
        sizes[backend] = float(mean.get_sizes()[0]) if backend == "matplotlib" else float(mean.glyph.size)
    assert sizes["bokeh"] ** 2 == pytest.approx(sizes["matplotlib"])
    values = np.arange(3.0)
    assert _levels(values)[0] < 0.0
    assert _levels(values)[-1] == 2.0


@pytest.mark.parametrize(("number", "num_bins", "prob"), [(500, 10, 0.95), (200, 20, 0.9), (40, 4, 0.99)])
def test_the_band_of_ranks_holds_whole_histograms_with_its_probability(number, num_bins, prob):
    """Counts are whole numbers, so that it may hold more: the next narrower band holds less."""
    low, high = simultaneous_band(number, num_bins, prob)
    counts = np.random.default_rng(1).multinomial(number, np.full(num_bins, 1 / num_bins), size=20_000)
    held = ((counts >= low) & (counts <= high)).all(1).mean()
    narrower = ((counts >= low + 1) & (counts <= high - 1)).all(1).mean()
    assert held >= prob - 3 * (prob * (1 - prob) / 4000) ** 0.5
    assert narrower < prob


def test_ranks_that_are_not_uniform_leave_the_band():
    drawn = plot_ranks(ranks(1000), num_bins=10, backend="matplotlib").viz
    low, high = simultaneous_band(1000, 10, 0.95)
    heights = {name: lines_of(drawn, name) for name in ("b[0]", "b[1]", "sigma")}
    inside = {name: bool(((low <= bars * 100) & (bars * 100 <= high)).all()) for name, bars in heights.items()}
    assert inside == {"b[0]": True, "b[1]": False, "sigma": False}
    assert heights["b[1]"][[0, -1]].min() > heights["b[1]"][4:6].max()
    assert (np.diff(heights["sigma"]) > 0).mean() > 0.8


def lines_of(viz, quantity):
    """Return the heights of the bars of one panel."""
    artist = viz["line"]["curve"].sel(model=quantity).item()
    return artist.get_ydata()[1:-1:2]


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"var_names": ["b", "tau"]}, r"The tree has no ranks of tau; it has those of b\[0\], b\[1\], sigma\."),
        ({"prob": 95}, r"plot_ranks\(prob=95\): write a probability between 0 and 1, such as 0\.95\."),
        ({"num_bins": 1}, r"plot_ranks\(num_bins=1\): write 2 or more\."),
    ],
)
def test_ranks_that_cannot_be_drawn(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        plot_ranks(ranks(), backend="none", **call)
    with pytest.raises(ValueError, match=r"plot_ranks takes the ranks that sbc returned, but the tree has neither"):
        plot_ranks(REAL["nuts"], backend="none")


def test_quantities_are_chosen_by_name():
    chosen = plot_ranks(ranks(), var_names="b", backend="none").viz["line"]["curve"]
    assert chosen["model"].values.tolist() == ["b[0]", "b[1]"]
