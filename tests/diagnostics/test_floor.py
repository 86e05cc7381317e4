"""How often two sets of draws from one distribution lie within the Monte Carlo floor, and a mean-field Gaussian outside it.

A run is simulated by exact draws of a linear model's posterior in four chains: a converged sampler gives the same, but for
autocorrelation. "Within" is what reports mark: a mean over rows of at most twice the floor's.
"""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import compare_posteriors

DISTANCES = ("mean_difference", "log_sd_ratio", "wasserstein")
NUM_COMPARISONS, INPUTS = 200, 10


def tree(rng, x, root):
    """Return draws of f = x w with w ~ N(0, root root^T)."""
    weights = rng.normal(size=(4, 60, x.shape[1])) @ root.T
    return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": (("chain", "draw", "obs_id"), weights @ x.T)})})


def is_within(found, name):
    return bool(found[name].mean() <= 2 * found[f"{name}_floor"].mean())


@pytest.fixture(scope="module")
def comparisons():
    rng = np.random.default_rng(0)
    found = []
    for _ in range(NUM_COMPARISONS):
        x, root = rng.normal(size=(25, INPUTS)), np.eye(INPUTS)
        found.append(compare_posteriors({"one": tree(rng, x, root), "other": tree(rng, x, root)}, reference="one"))
    return found


@pytest.mark.parametrize("name", DISTANCES)
def test_independent_runs_lie_within_the_floor(comparisons, name):
    assert np.mean([is_within(found, name) for found in comparisons]) >= 0.95


@pytest.mark.parametrize("name", DISTANCES)
def test_identical_trees_lie_below_the_floor(name):
    rng = np.random.default_rng(1)
    one = tree(rng, rng.normal(size=(25, INPUTS)), np.eye(INPUTS))
    found = compare_posteriors({"one": one, "same": one}, reference="one")
    assert found[name].mean() < found[f"{name}_floor"].mean()


def test_mean_field_on_a_correlated_gaussian_lies_outside():
    """The best Gaussian with independent components has variances 1 / diag(precision): too narrow in every direction but one."""
    rng = np.random.default_rng(2)
    covariance = 0.95 * np.ones((INPUTS, INPUTS)) + 0.05 * np.eye(INPUTS)
    narrow = np.diag(np.linalg.inv(covariance).diagonal() ** -0.5)
    outside = 0
    for _ in range(20):
        x = np.abs(rng.normal(size=(25, INPUTS)))  # rows along the long axis
        trees = {"nuts": tree(rng, x, np.linalg.cholesky(covariance)), "mean field": tree(rng, x, narrow)}
        found = compare_posteriors(trees, reference="nuts")
        outside += not is_within(found, "log_sd_ratio") and not is_within(found, "wasserstein")
    assert outside == 20
