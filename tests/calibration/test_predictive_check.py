"""Posterior predictive checks against tail probabilities that are known."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.calibration import predictive_check
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id")


def replicates(rows=20, draws=2000, seed=0):
    return xr.DataArray(np.random.default_rng(seed).normal(size=(2, draws, rows)), dims=DIMS)


@pytest.mark.parametrize("shift", [0.0, 0.4])
def test_p_value_is_the_tail_probability(shift):
    y = xr.DataArray(np.linspace(-1, 1, 20) + shift, dims="obs_id")
    check = predictive_check(replicates(), {"mean": np.mean, "max": np.max}, y).sel(statistic="mean")
    expected = scipy.stats.norm.sf(shift * np.sqrt(20))
    assert abs(float(check["p_value"]) - expected) < 4 * float(check["mcse"])
    assert float(check["mcse"]) == pytest.approx(np.sqrt(expected * (1 - expected) / 4000), rel=0.2)
    np.testing.assert_allclose(check["low"], scipy.stats.norm.ppf(0.025) / np.sqrt(20), atol=0.03)


def test_a_feature_that_the_model_cannot_produce():
    y = xr.DataArray(np.append(np.zeros(19), 40.0), dims="obs_id")
    check = predictive_check(replicates(draws=100), y=y)
    assert float(check["p_value"].sel(statistic="max")) == 0.0 == float(check["mcse"].sel(statistic="max"))


def test_half_of_the_ties_count():
    counts = xr.DataArray([[[0, 1], [1, 1], [0, 0], [1, 0]]], dims=DIMS)
    check = predictive_check(counts, {"sum": np.sum}, xr.DataArray([0, 1], dims="obs_id"))
    assert check["p_value"].values.tolist() == [0.5]


def test_trees_of_training_data_and_of_new_data():
    tree = example_tree("regression")
    names = {"predictions": "posterior_predictive", "predictions_observed_data": "observed_data"}
    train = xr.DataTree.from_dict({names[n]: g.to_dataset() for n, g in tree.children.items() if n in names})
    xr.testing.assert_identical(predictive_check(tree), predictive_check(train))
    check_measure(predictive_check, tree, uses_chains=True)


def test_bad_input_is_named():
    tree = example_tree("regression")
    with pytest.raises(
        ValueError, match=r"The statistic 'log' of the observations is \[.*\], but must be one finite number"
    ):
        predictive_check(tree, {"log": lambda y: np.abs(y)})
    with pytest.raises(ValueError, match="There are no statistics"):
        predictive_check(tree, {})
    with pytest.raises(ValueError, match="There are no observations"):
        predictive_check(tree["predictions"].to_dataset())


def test_statistics_without_names_are_refused():
    with pytest.raises(TypeError, match=r"statistics='mean': write functions of y by name"):
        predictive_check(example_tree("regression"), "mean")
