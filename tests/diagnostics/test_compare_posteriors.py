"""Distances in function space: known values, floors, and what is refused."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.diagnostics import compare_posteriors

ROWS = 40


def in_tree(values, name="mean"):
    dims = ("chain", "draw", "obs_id", "class_id")[: values.ndim]
    return xr.DataTree.from_dict({"conditional": xr.Dataset({name: (dims, values)})})


def gaussian(seed, loc=0.0, scale=1.0, shape=(4, 250, ROWS)):
    return in_tree(np.random.default_rng(seed).normal(loc, scale, shape))


def test_the_same_distribution_stays_at_its_floor():
    result = compare_posteriors({"nuts": gaussian(0), "again": gaussian(1)}, reference="nuts")
    for name in ("mean_difference", "log_sd_ratio", "wasserstein"):
        ratio = float(result[name].mean() / result[f"{name}_floor"].mean())
        assert 0.7 < ratio < 1.3, name


def test_known_distances():
    """W1 of Gaussians with equal means is |sd1 - sd2| sqrt(2 / pi), of shifted ones the shift."""
    trees = {"nuts": gaussian(0), "narrow": gaussian(1, scale=0.3), "shifted": gaussian(2, loc=2.0)}
    means = compare_posteriors(trees, reference="nuts").mean("obs_id")
    narrow, shifted = means.sel(model="narrow"), means.sel(model="shifted")
    assert float(narrow["sd_ratio"]) == pytest.approx(0.3, rel=0.05)
    assert float(narrow["log_sd_ratio"]) == pytest.approx(-np.log(0.3), rel=0.05)
    assert float(narrow["wasserstein"]) == pytest.approx(0.7 * np.sqrt(2 / np.pi), rel=0.1)
    assert float(shifted["mean_difference"]) == pytest.approx(2.0, rel=0.05)
    assert float(shifted["wasserstein"]) == pytest.approx(2.0, rel=0.05)
    assert (means["wasserstein"] > 4 * means["wasserstein_floor"]).all()


def test_wasserstein_is_scipys():
    a, b = gaussian(0, shape=(1, 50, 2)), gaussian(1, 1.0, shape=(1, 50, 2))
    result = compare_posteriors({"a": a, "b": b}, reference="a", replicate=gaussian(3, shape=(1, 50, 2)))
    one, two = (tree["conditional"]["mean"].values[0, :, 0] for tree in (a, b))
    third = gaussian(3, shape=(1, 50, 2))["conditional"]["mean"].values[0, :, 0]
    both = [scipy.stats.wasserstein_distance(two, other) / one.std() for other in (one, third)]
    assert float(result["wasserstein"][0, 0]) == pytest.approx(np.mean(both))
    floor = scipy.stats.wasserstein_distance(one, third) / one.std()
    assert float(result["wasserstein_floor"][0, 0]) == pytest.approx(floor)


def test_disagreeing_chains_of_the_reference_raise_the_floor():
    values = np.random.default_rng(0).normal(size=(2, 200, ROWS))
    values[1] += 3.0
    result = compare_posteriors({"nuts": in_tree(values), "mfvi": gaussian(1)}, reference="nuts")
    assert float(result["mean_difference_floor"].mean()) > 1.5


def test_class_probabilities():
    rng = np.random.default_rng(0)
    near = in_tree(rng.dirichlet([8.0, 1.0, 1.0], (2, 300, ROWS)), "probs")
    same = in_tree(rng.dirichlet([8.0, 1.0, 1.0], (1, 300, ROWS)), "probs")
    other = in_tree(rng.dirichlet([1.0, 8.0, 1.0], (1, 300, ROWS)), "probs")
    result = compare_posteriors({"nuts": near, "same": same, "other": other}, reference="nuts").mean("obs_id")
    assert float(result["total_variation"].sel(model="other")) == pytest.approx(0.7, abs=0.02)
    assert result["disagreement"].values.tolist() == [0.0, 1.0]
    assert (result["wasserstein"] >= result["total_variation"] - 1e-12).all()
    ratio = result["wasserstein"] / result["wasserstein_floor"]
    assert 0.7 < float(ratio.sel(model="same")) < 1.3
    assert float(ratio.sel(model="other")) > 10


def test_two_classes_and_few_draws():
    rng = np.random.default_rng(0)
    trees = {
        "nuts": in_tree(rng.dirichlet([2.0, 1.0], (4, 100, 3)), "probs"),
        "ensemble": in_tree(rng.dirichlet([2.0, 1.0], (1, 5, 3)), "probs"),
    }
    result = compare_posteriors(trees, reference="nuts")
    assert result["total_variation"].dims == ("model", "obs_id")
    assert np.isfinite(result.to_array()).all()


def test_a_constant_reference_has_no_scale():
    result = compare_posteriors({"a": in_tree(np.ones((2, 10, 1))), "b": gaussian(0, shape=(2, 10, 1))}, reference="a")
    assert not np.isfinite(result["mean_difference"]).any()


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"'hmc' is not one of the trees \(nuts\)"):
        compare_posteriors({"nuts": gaussian(0)}, reference="hmc")
    with pytest.raises(ValueError, match="only the reference 'nuts'"):
        compare_posteriors({"nuts": gaussian(0)}, reference="nuts")
    with pytest.raises(ValueError, match=r"'b' and the reference 'a' predict different observations .*'obs_id': 3"):
        compare_posteriors({"a": gaussian(0), "b": gaussian(0, shape=(1, 9, 3))}, reference="a")
    with pytest.raises(ValueError, match=r"compare_posteriors \('map'\) compares draws"):
        compare_posteriors({"a": gaussian(0), "map": gaussian(0, shape=(1, 1, ROWS))}, reference="a")


def of_rows(seed, x, labels=None, dtype=float, group="predictions_constant_data"):
    """Return a tree of three chains that holds its inputs."""
    x = np.asarray(x, dtype)
    tree = gaussian(seed, shape=(3, 20, len(x)))
    tree[group] = xr.DataTree(xr.Dataset({"x": (("obs_id", "x_dim_0"), x)}))
    labelled = {} if labels is None else {"obs_id": labels}
    return tree.map_over_datasets(lambda d: d.assign_coords(labelled) if "obs_id" in d.dims else d)


X = np.random.default_rng(3).normal(size=(ROWS, 2))


def test_predictions_for_other_inputs_are_refused():
    trees = {
        "nuts": of_rows(0, X),
        "single": of_rows(1, X, dtype=np.float32),
        "train": of_rows(2, X, group="constant_data"),
    }
    compare_posteriors(trees | {"no inputs": gaussian(0)}, reference="nuts")
    one_off = X.copy()
    one_off[3, 1] += 0.01
    for other in (one_off, X[:, :1], -X):
        with pytest.raises(
            ValueError, match=r"'mfvi' and the reference 'nuts' predict for different inputs 'x'.*: predict"
        ):
            compare_posteriors(trees | {"mfvi": of_rows(1, other)}, reference="nuts")
    with pytest.raises(
        ValueError, match="'replicate of nuts' and the reference 'nuts' predict for different inputs 'x'"
    ):
        compare_posteriors(trees, reference="nuts", replicate=of_rows(1, one_off))


def test_arguments_that_belong_to_no_row_may_differ():
    trees = {"nuts": of_rows(0, X), "other prior": of_rows(1, X)}
    for scale, tree in enumerate(trees.values()):
        tree["predictions_constant_data/scale"] = float(scale)
    assert len(compare_posteriors(trees, reference="nuts")["model"]) == 1


def test_rows_of_other_labels_are_refused():
    names = [f"row {i}" for i in range(ROWS)]
    trees = {"nuts": of_rows(0, X, names), "same": of_rows(1, X, names), "unlabelled": of_rows(1, X)}
    assert compare_posteriors(trees, reference="nuts")["obs_id"].values.tolist() == names
    sentence = (
        r"'mfvi' .* 'nuts' predict different observations \(the label at position 0 of 'obs_id' is row 39 and row 0\)"
    )
    with pytest.raises(ValueError, match=sentence):
        compare_posteriors(trees | {"mfvi": of_rows(1, X, names[::-1])}, reference="nuts")
    with pytest.raises(
        ValueError, match=r"'mfvi' .* predict different observations \(\{'obs_id': 1\} and \{'obs_id': 40\}\)"
    ):
        compare_posteriors(trees | {"mfvi": of_rows(1, X[:1])}, reference="nuts")


def test_distances_print_as_a_table_of_averages() -> None:
    found = compare_posteriors({"nuts": gaussian(0), "narrow": gaussian(1, scale=0.3)}, reference="nuts")
    table = found.table()
    assert table.columns.tolist()[:2] == ["mean_difference", "mean_difference_limit"]
    assert table.loc["narrow", "wasserstein"] == pytest.approx(float(found["wasserstein"].mean()))
    assert repr(found).startswith("Distances from nuts, averages over rows\n")
    assert repr(found).endswith(table.round(3).T.to_string())
    assert "<summary>row by row</summary>" in found._repr_html_()
    assert "<xarray.PosteriorDistances>" in repr(found.mean("model"))
    assert "xr-wrap" in found.mean("model")._repr_html_()
