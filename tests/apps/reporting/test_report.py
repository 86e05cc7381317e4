"""``bnnzoo.report``: pages of any trees, what they need, and what is refused."""

import html
import json
import re

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

import bnnzoo as bz
from bnnzoo import inference
from bnnzoo.apps.reporting import pages
from bnnzoo.apps.reporting.gather import gather
from bnnzoo.apps.reporting.report_findings import missing
from bnnzoo.apps.reporting.report_verdicts import verdict
from bnnzoo.apps.reporting.scores import can_be_drawn, coverage, draws_of, interval, is_gaussian
from bnnzoo.apps.reporting.sections import code, model_blocks, window_sections
from bnnzoo.apps.reporting.tables import columns, data_grid, distance_grid, method_grid, rows, uncertainty_grid
from bnnzoo.inference.config import config_of
from bnnzoo.predictive import datatree
from bnnzoo.testing import example_tree, linear_gaussian
from tests.helpers.exact import exact_posterior
from tests.helpers.trees import ATTRIBUTES, comparison, held_out

DRAWS = ("chain", "draw")


def regrouped(tree, **changes):
    """Return a tree with some groups replaced, and those that are None left out."""
    groups = {str(name): group.to_dataset() for name, group in tree.children.items()} | changes
    found = xr.DataTree.from_dict({name: group for name, group in groups.items() if group is not None})
    found.attrs = dict(tree.attrs)
    return found


def foreign():
    """The tree of a regression as PyMC makes it, predictions of new rows included."""
    rng = np.random.default_rng(0)
    mean = rng.normal(size=(2, 40, 12))
    y = rng.normal(size=12)
    draw = (*DRAWS, "y_dim_0")
    groups = {
        "posterior": xr.Dataset(
            {"sigma": (DRAWS, rng.gamma(9.0, 0.1, (2, 40))), "beta": ((*DRAWS, "k"), mean[..., :2])}
        ),
        "sample_stats": xr.Dataset({"diverging": (DRAWS, np.zeros((2, 40), bool)), "lp": (DRAWS, mean.sum(-1))}),
        "log_likelihood": xr.Dataset({"y": (draw, norm.logpdf(y, mean))}),
        "posterior_predictive": xr.Dataset({"y": (draw, rng.normal(mean))}),
        "observed_data": xr.Dataset({"y": ("y_dim_0", y)}),
        "constant_data": xr.Dataset({"x": (("row", "column"), rng.normal(size=(12, 2)))}),
    }
    tree = xr.DataTree.from_dict(groups)
    tree["posterior"].attrs = {"inference_library": "pymc", "inference_library_version": "6.4", "sampling_time": 3.0}
    return tree, mean, y


def ensemble(observed=True):
    """Five members of one's own, without draws of y."""
    rng = np.random.default_rng(1)
    shape = (1, 5, 12)
    moments = {"mean": rng.normal(size=shape), "variance": rng.gamma(3.0, 0.3, shape)}
    groups = {"conditional": xr.Dataset({name: ((*DRAWS, "obs_id"), v) for name, v in moments.items()})}
    if observed:
        groups["predictions_observed_data"] = xr.Dataset({"y": ("obs_id", rng.normal(size=12))})
    return xr.DataTree.from_dict(groups)


def test_a_tree_of_another_library_is_scored_as_it_is():
    tree, mean, y = foreign()
    results = gather({"pymc": tree}, {}, None)
    (one,) = results.fitted
    assert (results.rows, results.target, results.classes) == ("training", "y", ())
    assert one.is_chain
    expected = np.log(np.exp(norm.logpdf(y, mean)).mean((0, 1))).mean()
    assert one.scores["log density"] == pytest.approx(expected)
    assert one.worst_rhat == pytest.approx(
        float(bz.diagnostics.convergence(tree["posterior"]["beta"])["rhat"].max()), abs=0.2
    )
    assert dict(zip(method_grid(results).columns, method_grid(results).rows[0], strict=True))["made by"] == "pymc 6.4"
    (sentence,) = missing(results)
    assert sentence.startswith("pymc has no group conditional (no split into aleatoric and epistemic uncertainty")
    assert [row[0] for row in data_grid(results).rows] == ["y", "x[0]", "x[1]"]


def test_moments_that_were_added_are_used():
    tree, mean, _ = foreign()
    moments = {"mean": mean, "variance": np.ones_like(mean)}
    tree["conditional"] = xr.DataTree(xr.Dataset({name: ((*DRAWS, "y_dim_0"), v) for name, v in moments.items()}))
    results = gather({"pymc": tree}, {}, None)
    assert missing(results) == ()
    cells = dict(zip(uncertainty_grid(results).columns, uncertainty_grid(results).rows[0], strict=True))
    assert float(cells["aleatoric"]) == pytest.approx(1.0)
    assert float(cells["epistemic"]) == pytest.approx(mean.var((0, 1)).mean(), rel=1e-3)


def test_gradients_of_draws_are_shown_beside_all():
    attributes = {
        "NUTS": {"num_gradients_of_draws": 800},
        "Laplace": {"sampling": "iid"},
        "unknown": {"num_gradients": None, "sampling": "iid"},
    }
    trees = {name: held_out("regression") for name in attributes}
    for name, tree in trees.items():
        tree.attrs = {key: value for key, value in (ATTRIBUTES | attributes[name]).items() if value is not None}
    results = gather(trees, {}, None)
    place = method_grid(results).columns.index("gradients")
    assert [row[place] for row in method_grid(results).rows] == ["1,200 (800)", "1,200", "–"]
    place = [label for label, _ in columns(results)].index("gradients")
    assert [cells[place].text for _, cells in rows(results)] == ["1,200 (800)", "1,200", "–"]


def test_an_ensemble_of_ones_own_has_gaussian_draws():
    tree = ensemble()
    results = gather({"mine": tree}, {}, None)
    (one,) = results.fitted
    assert can_be_drawn(one.test)
    assert np.isnan(one.scores["log density"])
    moments = tree["conditional"].to_dataset()
    total = float((moments["variance"].mean(DRAWS) + moments["mean"].var(DRAWS)).mean())
    assert draws_of(one.test).var(0).mean() == pytest.approx(total, rel=0.02)
    assert "no group predictions_log_likelihood (no log density)" in missing(results)[0]


def test_intervals_of_several_hundred_draws_cover():
    rng = np.random.default_rng(0)
    mean, y = 0.1 * rng.normal(size=(1, 300, 1000)), rng.normal(size=1000)
    moments = {"mean": mean, "variance": np.ones_like(mean), "entropy": np.full_like(mean, norm.entropy())}
    groups = {
        "predictions": datatree.by_row({"y": rng.normal(mean)}),
        "predictions_observed_data": datatree.by_row({"y": y}, draws=False),
        "conditional": datatree.conditional(moments),
    }
    tree = datatree.from_groups(groups, {})
    error = np.sqrt(0.9 * 0.1 / 1000)
    assert abs(coverage(tree) - 0.9) < 4 * error


def test_counts_are_not_replaced_by_a_gaussian():
    rate = np.full((1, 20, 3), 0.5)
    draws = np.random.default_rng(0).poisson(rate)
    moments = {"mean": rate, "variance": rate, "entropy": np.full_like(rate, 0.9)}
    groups = {"predictions": datatree.by_row({"y": draws}), "conditional": datatree.conditional(moments)}
    tree = datatree.from_groups(groups, {})
    assert not is_gaussian(tree)
    assert (interval(tree)[0] >= 0).all()


def test_labels_of_classes_are_found_whatever_they_are():
    tree = example_tree("classification", num_rows=30)
    codes = tree["predictions_observed_data"]["y"]
    names = np.array(["cat", "dog", "owl"])
    labelled = regrouped(
        tree,
        conditional=tree["conditional"].to_dataset().assign_coords(class_id=names),
        predictions_observed_data=xr.Dataset({"y": ("obs_id", names[codes.to_numpy()])}),
    )
    both = gather({"codes": tree}, {}, None), gather({"names": labelled}, {}, None)
    assert both[1].classes == ("cat", "dog", "owl")
    assert both[0].fitted[0].scores == both[1].fitted[0].scores


def test_outputs_of_a_row_are_observations_and_missing_ones_are_left_out():
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=(2, 30, 5, 2)), rng.normal(size=(5, 2))
    y[1, 0] = np.nan
    groups = {
        "conditional": datatree.conditional({"mean": mean, "variance": np.ones_like(mean)}),
        "predictions_observed_data": datatree.by_row({"y": y}, draws=False),
    }
    results = gather({"two": datatree.from_groups(groups, {"sampling": "mcmc"})}, {}, None)
    seen = np.isfinite(y)
    expected = np.sqrt(np.mean((mean.mean((0, 1))[seen] - y[seen]) ** 2))
    assert results.fitted[0].scores["RMSE"] == pytest.approx(expected)
    assert results.notes == ("1 of 10 observations are missing (NaN) and left out.",)


def test_one_of_several_sites_is_chosen():
    tree = example_tree("regression")
    groups = ("predictions", "predictions_observed_data")
    both = {group: xr.Dataset({"a": tree[group]["y"], "b": tree[group]["y"] + 1}) for group in groups}
    moments = tree["conditional"].to_dataset()
    both["conditional"] = moments.rename({name: f"a.{name}" for name in moments})
    several = regrouped(tree, **both)
    with pytest.raises(ValueError, match=r"'m' predicts several sites \(a, b\): choose one, as in site='a'"):
        gather({"m": several}, {}, None)
    with pytest.raises(ValueError, match="'m' has no observed site 'c': write site= one of a, b"):
        gather({"m": several}, {}, "c")
    chosen, alone = gather({"m": several}, {}, "a"), gather({"m": tree}, {}, None)
    assert chosen.fitted[0].scores == pytest.approx(alone.fitted[0].scores, nan_ok=True)


def test_the_reference_comes_first_and_files_of_compare_are_taken():
    test = held_out("regression")
    saved = xr.DataTree.from_dict({f"held_out/{name}": group.to_dataset() for name, group in test.children.items()})
    saved.attrs = dict(test.attrs)
    assert gather({"nuts": saved}, {}, None).fitted[0].scores == gather({"nuts": test}, {}, None).fitted[0].scores


def test_other_rows_and_classes_are_refused():
    tree, classes = example_tree("regression"), example_tree("classification")
    other = example_tree("regression", num_rows=5)
    with pytest.raises(ValueError, match=r"'b' and the reference 'a' predict different observations"):
        gather({"a": tree, "b": other}, {}, None)
    with pytest.raises(
        ValueError, match="'b' predicts new rows and 'a' the training data: pass predictions of the same rows"
    ):
        gather({"a": foreign()[0], "b": tree}, {}, None)
    with pytest.raises(ValueError, match="'b' has class probabilities and 'a' has none"):
        gather({"a": tree, "b": classes}, {}, None)
    with pytest.raises(ValueError, match="'b' and 'a' have different observations of the same rows"):
        gather({"a": tree, "b": example_tree("regression", seed=1)}, {}, None)
    with pytest.raises(ValueError, match=r"'a' predicts nothing \(groups: posterior\)"):
        gather({"a": xr.DataTree.from_dict({"posterior": xr.Dataset({"s": (DRAWS, np.zeros((1, 3)))})})}, {}, None)
    shorter = regrouped(tree, predictions=tree["predictions"].to_dataset().isel(obs_id=slice(3)))
    with pytest.raises(
        ValueError, match="The groups 'predictions' and 'predictions_observed_data' of 'a' are about 3 and 7"
    ):
        gather({"a": shorter}, {}, None)
    words = regrouped(tree, predictions_observed_data=xr.Dataset({"y": ("obs_id", ["a"] * 7)}))
    with pytest.raises(ValueError, match="The observations of 'a' are not numbers"):
        gather({"a": words}, {}, None)


TREE = ensemble(observed=False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ({"trees": TREE}, 'trees is a single tree: name it, as in {"nuts": tree}'),
        ({"trees": [TREE]}, "trees is of type list: pass trees by name"),
        ({"trees": {}}, "trees is empty: pass at least one tree"),
        ({"trees": {1: TREE}}, "trees has the key 1: name each tree by a text"),
        ({"trees": {"a": 3}}, "trees holds no tree under 'a', but a int: pass what bnnzoo.predict returns"),
        ({"reference": "b"}, "reference='b' is not one of the trees: write one of a"),
        ({"train": {"b": TREE}}, "train has a tree named 'b', but trees have a: use the same names"),
        ({"train": TREE}, "train is a single tree"),
        ({"posterior": 3}, "posterior is of type int: pass what bnnzoo.fit returns"),
        ({"windows": xr.Dataset()}, "windows holds a Dataset without drift_p_value"),
        ({"path": "."}, "is a folder: add the name of a file, as in "),
        ({"path": "nowhere/report.html"}, "There is no folder .* for 'report.html'; create it first"),
    ],
)
def test_arguments_are_refused_in_one_sentence(arguments, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises((TypeError, ValueError, OSError), match=sentence):
        bz.report(**{"trees": {"a": TREE}, "path": "report.html"} | arguments)
    assert not list(tmp_path.iterdir())


def test_a_page_is_written_whole_or_not_at_all(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    path.write_text("the old one")

    def fail(self, target):
        raise OSError("the disk is full")

    monkeypatch.setattr("pathlib.Path.replace", fail)
    monkeypatch.setattr("bnnzoo.apps.reporting.pages.pictures", lambda *_: [])
    with pytest.raises(OSError, match="the disk is full"):
        bz.report({"a": TREE}, path)
    assert [each.read_text() for each in tmp_path.iterdir()] == ["the old one"]
    monkeypatch.undo()
    monkeypatch.setattr(pages, "pictures", lambda *_: [])
    assert bz.report({"a": TREE}, path, title="<Mine>") == path
    page = path.read_text()
    assert "&lt;Mine&gt;" in page
    assert "a has no group predictions_observed_data (no scores and no calibration)" in page
    assert not re.search(r"(src|href|srcset)=\"(?!data:|#)|https?://(?!www.w3.org)", page)


METHODS = [getattr(inference, name) for name in inference.__all__]


@pytest.mark.parametrize("kind", [kind for kind in METHODS if hasattr(kind, "needs")], ids=lambda kind: kind.__name__)
def test_code_makes_the_method_again(kind):
    try:
        method = kind()
    except TypeError:
        pytest.skip("has settings without a default")
    result = comparison("regression")
    config = json.dumps(config_of(method))
    result.fitted[0].test.attrs |= {"inference_method": kind.__name__, "config": config, "seed": 3}
    script = code(result)
    (call,) = re.findall(r"bz\.fit\(model, (.*), x, y, seed=3\)", script)
    assert eval(call, {"bz": bz}) == method
    compile(script, "script", "exec")


def test_code_repeats_settings_that_are_no_defaults():
    method = bz.Laplace(map=bz.MAP(num_steps=7, num_members=2))
    result = comparison("regression")
    result.fitted[0].test.attrs |= {"inference_method": "Laplace", "config": json.dumps(config_of(method))}
    script = code(result)
    (call,) = re.findall(r"bz\.fit\(model, (.*), x, y, seed=0\)", script)
    assert eval(call, {"bz": bz}) == method
    assert "# mfvi: made by other means" in script


@pytest.mark.parametrize(
    ("sampling", "sentence"),
    [
        ("mcmc", "a: Markov chains. a has not fully converged: the R-hat of a prediction is "),
        (
            "iid",
            "a: independent draws of an approximation, to which R-hat does not apply. Its density is not in the tree",
        ),
        ("ensemble", "a: members of an ensemble: no diagnostic of convergence applies"),
        ("stacked", "a: draws of unknown origin"),
    ],
)
def test_verdicts_depend_on_what_draws_are(sampling, sentence):
    tree = held_out("regression")
    tree.attrs = ATTRIBUTES | {"sampling": sampling}
    assert verdict(gather({"a": tree}, {}, None).fitted[0]).startswith(sentence)


def test_the_sites_of_a_model_have_their_distributions():
    target = linear_gaussian(num_inputs=2)
    posterior = exact_posterior(target)
    blocks = model_blocks(gather({"a": held_out("regression")}, {}, None).fitted[0], posterior)
    rows = {row[0]: row[1:] for row in blocks[0].rows}
    assert rows["w"][:3] == ("latent", "Normal(loc=0, scale=1)", "2")
    assert rows["y"][0] == "observed"


def test_drift_is_named_with_its_first_window(monkeypatch):
    monkeypatch.setattr("bnnzoo.apps.reporting.sections.drawn", lambda *_: None)
    reference, new = (example_tree("regression", num_rows=400, seed=seed) for seed in (0, 1))
    (calm,) = window_sections({"": bz.monitor(reference, new, num_windows=4)})
    assert calm.blocks[0].texts[0].startswith("No window of 4 has other scores than the reference")
    far = new["conditional"].to_dataset().copy(deep=True)
    far["mean"][..., 200:] *= 3.0
    (drifted,) = window_sections({"now": bz.monitor(reference, regrouped(new, conditional=far), num_windows=4)})
    assert drifted.title == "Monitoring: now"
    assert "2 of 4 windows have other scores than the reference" in drifted.blocks[0].texts[0]
    assert "the first is window 2" in drifted.blocks[0].texts[0]


def test_verdicts_are_on_the_page_and_in_what_report_returns(tmp_path):
    tree = example_tree("regression", num_chains=2, num_draws=100)
    moments = tree["conditional"].to_dataset()
    shifted = regrouped(tree, conditional=moments.assign(mean=moments["mean"] + 5.0))
    for each in (tree, shifted):
        each.attrs["sampling"] = "iid"
    written = bz.report({"a": tree, "b": shifted, "c": tree}, tmp_path / "report.html")
    expected = bz.diagnostics.verdicts({"a": tree, "b": shifted, "c": tree}, "a")
    assert [each.method for each in written.verdicts] == ["b", "c"]
    assert [each.opening for each in written.verdicts] == [each.opening for each in expected.values()]
    page = html.unescape(written.read_text())
    assert all(each.paragraph(score=False) in page for each in written.verdicts)


def test_distances_stand_beside_their_floors():
    tree = example_tree("regression", num_draws=100)
    moments = tree["conditional"].to_dataset()
    shifted = regrouped(tree, conditional=moments.assign(mean=moments["mean"] + 5.0))
    found = bz.diagnostics.compare_posteriors({"a": tree, "b": shifted}, "a")
    (row,) = distance_grid(found).rows
    assert row[0] == "b"
    assert row[1].is_warning
    assert not row[2].is_warning
    assert (
        row[1].text
        == f"{float(found['mean_difference'].mean()):.3g} (floor {float(found['mean_difference_floor'].mean()):.3g})"
    )


def test_what_calibration_by_simulations_found_is_part_of_the_verdicts(tmp_path):
    trees = {name: example_tree("regression", num_chains=2, num_draws=50) for name in ("nuts", "vi")}
    rng = np.random.default_rng(0)
    # of 200 simulations whose truths all lie in the outer quarters of the draws: too narrow
    places = np.where(rng.random(200) < 0.5, rng.random(200) / 4, 1 - rng.random(200) / 4)
    sigma = (DRAWS, np.floor(places * 100).astype(int)[None])
    ranks = xr.DataTree.from_dict({"prior_sbc": xr.Dataset({"sigma": sigma})})
    ranks.attrs["num_draws"] = 99
    for found in (ranks, bz.validation.sbc_verdict(ranks)):
        written = bz.report(trees, tmp_path / "report.html", reference="nuts", calibration={"vi": found})
        (said,) = (each for each in written.verdicts[0].evidence if "data sets that the model makes" in each)
        assert said.startswith("Over data sets that the model makes, its draws are too narrow for sigma")
        assert html.escape(said) in written.read_text()
    with pytest.raises(ValueError, match=r"calibration\['hmc'\] is of no method that is compared with nuts \(vi\)"):
        bz.report(trees, tmp_path / "report.html", reference="nuts", calibration={"hmc": ranks})
    with pytest.raises(ValueError, match=r"calibration\['nuts'\] is of no method"):
        bz.report({"nuts": trees["nuts"]}, tmp_path / "report.html", calibration={"nuts": ranks})


def test_draws_without_predictions_are_refused(tmp_path):
    tree = example_tree("regression", num_chains=2, num_draws=10)
    conditional = tree["conditional"].to_dataset().copy(deep=True)
    for array in conditional.data_vars.values():
        array[{"chain": 1, "draw": 3}] = np.nan
    with pytest.raises(ValueError, match=r"1 of 20 draws of 'mine' hold NaN in '\w+'.* fit with dtype=torch\.float64"):
        bz.report({"mine": regrouped(tree, conditional=conditional)}, tmp_path / "report.html")
    assert not list(tmp_path.iterdir())
    conditional = tree["conditional"].to_dataset().copy(deep=True)
    conditional["mean"][{"obs_id": 2}] = np.nan  # a row without a prediction is no draw without one
    assert bz.report({"mine": regrouped(tree, conditional=conditional)}, tmp_path / "report.html").exists()


def test_the_engine_of_each_fit_is_shown_and_why_it_fell_back():
    reasons = "native code: Cannot: <sort>"
    attributes = {"NUTS": {"engine": "native"}, "MAP": {"engine": "graph", "engine_reasons": reasons}, "pymc": {}}
    trees = {name: held_out("regression") for name in attributes}
    for name, tree in trees.items():
        tree.attrs = ATTRIBUTES | attributes[name]
    grid = method_grid(gather(trees, {}, None))
    assert [row[grid.columns.index("engine")] for row in grid.rows] == ["native", "graph", "–"]
    assert grid.note.endswith(f" MAP ran no faster because of {reasons}.") and "NUTS ran" not in grid.note
