"""R-hat, effective sample sizes and standard errors of predictions."""

import arviz_stats
import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import convergence, function_space, function_values
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id")


def in_tree(mean):
    return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": (DIMS, mean)})})


def autoregressive(rng, shape, correlation):
    noise = rng.normal(size=shape)
    for t in range(1, shape[1]):
        noise[:, t] = correlation * noise[:, t - 1] + np.sqrt(1 - correlation**2) * noise[:, t]
    return noise


@pytest.mark.parametrize("task", ["regression", "classification"])
def test_conformance(task):
    check_measure(function_space, example_tree(task), uses_chains=True)


def test_independent_draws_are_worth_their_number():
    result = function_space(in_tree(np.random.default_rng(0).normal(size=(4, 500, 5))))
    assert (result["rhat"] < 1.01).all()
    assert (np.abs(result["ess_bulk"] / 2000 - 1) < 0.25).all()
    np.testing.assert_allclose(result["mcse_mean"], 1 / np.sqrt(2000), rtol=0.2)
    np.testing.assert_allclose(result["mcse_sd"], 1 / np.sqrt(2 * 2000), rtol=0.2)  # of a normal sd


def test_standard_errors_are_those_of_replicates():
    """For AR(1) chains the spread of means and sds over replicates is what mcse_mean and mcse_sd say."""
    rng = np.random.default_rng(0)
    draws = autoregressive(rng, (4, 300, 60), 0.7)
    result = function_space(in_tree(draws))
    for name, estimates in {"mcse_mean": draws.mean((0, 1)), "mcse_sd": draws.std((0, 1))}.items():
        assert float(result[name].mean()) == pytest.approx(estimates.std(), rel=4 / np.sqrt(2 * 60))


def test_chains_in_different_functions_are_found_and_relabelled_weights_are_not():
    rng = np.random.default_rng(0)
    weights = rng.normal(1.0, 0.1, size=(2, 300, 2))
    weights[1] = -weights[1, :, ::-1]  # signs flipped and units permuted: f = sum_j w_j^2 is the same function
    assert (convergence(xr.DataArray(weights, dims=(*DIMS[:2], "weight")))["rhat"] > 1.5).all()
    assert (function_space(in_tree((weights**2).sum(-1, keepdims=True)))["rhat"] < 1.02).all()
    apart = rng.normal(size=(2, 300, 1)) + np.array([0.0, 3.0])[:, None, None]
    assert (function_space(in_tree(apart))["rhat"] > 1.5).all()


def test_values_are_arvizs():
    tree = example_tree("regression")
    mean = tree["conditional"]["mean"]
    result = function_space(tree)
    np.testing.assert_array_equal(result["rhat"], arviz_stats.rhat(mean))
    np.testing.assert_array_equal(result["ess_tail"], arviz_stats.ess(mean, method="tail"))


def test_of_two_classes_one_is_kept():
    assert function_values(example_tree("classification", num_classes=2)).sizes["class_id"] == 1
    assert function_values(example_tree("classification", num_classes=3)).sizes["class_id"] == 3


def test_one_chain_has_no_rhat_and_a_constant_prediction_no_diagnostics():
    one = function_space(in_tree(np.random.default_rng(0).normal(size=(1, 100, 2))))
    assert np.isnan(one["rhat"]).all()
    assert np.isfinite(one["ess_bulk"]).all()
    constant = function_space(in_tree(np.ones((2, 100, 1))))
    assert all(np.isnan(values).all() for values in constant.data_vars.values())


@pytest.mark.parametrize("sampling", ["iid", "ensemble"])
def test_rhat_does_not_apply_to_independent_draws(sampling):
    tree = example_tree("regression")
    chains = function_space(tree)
    tree.attrs["sampling"] = sampling
    for independent in (function_space(tree), function_space(tree["conditional"])):
        assert independent.attrs["rhat"] == "does not apply to independent draws"
        assert independent.drop_attrs().identical(chains.drop_vars("rhat").drop_attrs())
    tree.attrs["sampling"] = "mcmc"
    assert function_space(tree).identical(chains)
    assert function_space(tree["conditional"]["mean"]).identical(chains)


def test_chunked_and_unlabelled_rows_are_taken():
    mean = xr.DataArray(np.random.default_rng(0).normal(size=(2, 50, 3)), dims=DIMS)
    xr.testing.assert_allclose(function_space(mean.chunk(draw=10)), function_space(mean))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"at least 4 draws per chain, but there are 3"):
        function_space(in_tree(np.zeros((4, 3, 2))))
    with pytest.raises(ValueError, match=r"no dim 'chain' \(dims: draw, obs_id\): add it, as in array.expand_dims"):
        convergence(xr.DataArray(np.zeros((5, 2)), dims=("draw", "obs_id")))
    with pytest.raises(ValueError, match=r"no group 'conditional' .* 'mean', .* or 'probs'"):
        function_space(xr.DataTree())
