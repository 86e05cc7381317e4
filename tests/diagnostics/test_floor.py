"""How often two sets of draws from one distribution lie within the limit, and a mean-field Gaussian outside it.

A run is simulated by draws of a linear model's posterior: of one direction, along which all rows move together, or of one for
each row. Draws are independent, or autoregressive with the effective sample size of a sampler that mixes slowly.
"""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.diagnostics import compare_posteriors
from bnnzoo.diagnostics import split_distances as split_distances_module
from bnnzoo.diagnostics.split_distances import class_distances, split_distances

DISTANCES = ("mean_difference", "log_sd_ratio", "wasserstein")
NUM_COMPARISONS, ROWS = 200, 12


def tree(rng, x, root, shape=(4, 60), correlation=0.0):
    """Return draws of f = x w with w ~ N(0, root root^T), autoregressive within chains."""
    noise = rng.normal(size=(shape[1], shape[0], x.shape[1]))
    weights = noise.copy()
    for t in range(1, shape[1]):
        weights[t] = correlation * weights[t - 1] + np.sqrt(1 - correlation**2) * noise[t]
    values = weights.transpose(1, 0, 2) @ root.T @ x.T
    return xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": (("chain", "draw", "obs_id"), values)})})


def fraction_within(seed, directions, shape, correlation):
    rng = np.random.default_rng(seed)
    within = np.zeros(len(DISTANCES))
    for _ in range(NUM_COMPARISONS):
        x = np.eye(ROWS) if directions == ROWS else rng.normal(size=(ROWS, directions))
        one, other = (tree(rng, x, np.eye(directions), shape, correlation) for _ in range(2))
        found = compare_posteriors({"one": one, "other": other}, reference="one")
        within += [is_within(found, name) for name in DISTANCES]
    return within / NUM_COMPARISONS


def is_within(found, name):
    return bool(found[name].mean() <= found[f"{name}_limit"])


# independent draws, and draws with effective sample sizes of some 40
RUNS = [((4, 60), 0.0), ((1, 240), 0.0), ((2, 120), 0.0), ((4, 100), 0.8), ((1, 400), 0.8)]
CASES = [(shape, correlation, directions) for shape, correlation in RUNS for directions in (1, 3, ROWS)]


@pytest.mark.parametrize(
    ("shape", "correlation", "directions"),
    [CASES[0], *(pytest.param(*case, marks=pytest.mark.slow) for case in CASES[1:])],
)
def test_independent_runs_lie_within_the_limit(shape, correlation, directions):
    assert (fraction_within(0, directions, shape, correlation) >= 0.95).all()


def test_the_limit_is_close_to_the_floor_where_rows_move_independently():
    rng = np.random.default_rng(1)
    found = {}
    for directions in (1, 40):
        x = np.eye(40) if directions == 40 else np.ones((40, 1))
        trees = {name: tree(rng, x, np.eye(directions), (4, 250)) for name in ("one", "other")}
        found[directions] = compare_posteriors(trees, reference="one")
    for name in DISTANCES:
        assert found[40][f"{name}_limit"].item() < 1.5 * found[40][f"{name}_floor"].mean().item(), name
        wider = 1.2 if name == "wasserstein" else 1.5  # whose quantiles are closer to its mean
        assert found[1][f"{name}_limit"].item() > wider * found[40][f"{name}_limit"].item(), name


def test_the_limit_of_the_mean_of_one_direction_is_that_of_a_gaussian():
    """Halves of n draws have means that differ by a Gaussian with variance 2 / n: 95% are below 1.96 sds."""
    limits = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        trees = {name: tree(rng, np.ones((3, 1)), np.eye(1), (4, 250)) for name in ("one", "other")}
        limits.append(compare_posteriors(trees, reference="one")["mean_difference_limit"].item())
    exact = 1.96 * np.sqrt(2 / 500)
    assert np.median(limits) == pytest.approx(exact, rel=0.25)
    assert min(limits) > 0.6 * exact


def test_disagreeing_chains_raise_the_limit():
    rng = np.random.default_rng(0)
    one, other = (tree(rng, np.ones((3, 1)), np.eye(1), (2, 100)) for _ in range(2))
    one["conditional"]["mean"][:] += np.array([0.0, 3.0])[:, None, None]
    found = compare_posteriors({"one": one, "other": other}, reference="one")
    assert found["mean_difference_limit"].item() > 1.5


def test_a_replicate_enters_the_limit():
    rng = np.random.default_rng(0)
    one, other, again = (tree(rng, np.ones((3, 1)), np.eye(1), (1, 200)) for _ in range(3))
    again["conditional"]["mean"][:] += 5.0
    found = compare_posteriors({"one": one, "other": other}, reference="one", replicate=again)
    assert found["mean_difference_limit"].item() >= float(found["mean_difference_floor"].mean()) > 4.0


def test_classes_have_limits_and_constants_have_none():
    rng = np.random.default_rng(0)
    probs = xr.DataArray(rng.dirichlet([4.0, 2.0, 1.0], (4, 50, 9)), dims=("chain", "draw", "obs_id", "class_id"))
    trees = {
        name: xr.DataTree.from_dict({"conditional": xr.Dataset({"probs": probs.roll(draw=shift)})})
        for name, shift in {"one": 0, "other": 7}.items()
    }
    found = compare_posteriors(trees, reference="one")
    for name in ("total_variation", "disagreement", "wasserstein"):
        assert found[name].mean() <= found[f"{name}_limit"].squeeze()
    flat = tree(rng, np.zeros((3, 1)), np.eye(1))
    assert np.isnan(compare_posteriors({"one": flat, "other": flat}, reference="one")["wasserstein_limit"]).all()


@pytest.mark.parametrize("name", DISTANCES)
def test_identical_trees_lie_below_the_floor(name):
    rng = np.random.default_rng(1)
    one = tree(rng, rng.normal(size=(25, 10)), np.eye(10))
    found = compare_posteriors({"one": one, "same": one}, reference="one")
    assert found[name].mean() < found[f"{name}_floor"].mean() <= found[f"{name}_limit"].squeeze()


def test_mean_field_on_a_correlated_gaussian_lies_outside():
    """The best Gaussian with independent components has variances 1 / diag(precision): too narrow in every direction but one."""
    rng = np.random.default_rng(2)
    covariance = 0.95 * np.ones((10, 10)) + 0.05 * np.eye(10)
    narrow = np.diag(np.linalg.inv(covariance).diagonal() ** -0.5)
    outside = 0
    for _ in range(20):
        x = np.abs(rng.normal(size=(25, 10)))  # rows along the long axis
        trees = {"nuts": tree(rng, x, np.linalg.cholesky(covariance)), "mean field": tree(rng, x, narrow)}
        found = compare_posteriors(trees, reference="nuts")
        outside += not is_within(found, "log_sd_ratio") and not is_within(found, "wasserstein")
    assert outside == 20


def test_wasserstein_of_many_columns_is_that_of_sorted_draws(monkeypatch):
    monkeypatch.setattr("bnnzoo.diagnostics.split_distances.MAX_NUMBERS", 50)
    pool = np.random.default_rng(0).normal(size=(20, 3, 7))
    splits = [(np.arange(10), np.arange(10, 20)), (np.array([3, 5]), np.array([19, 0]))]
    found = split_distances(pool, splits, np.ones((3, 7)))["wasserstein"]
    for (one, other), values in zip(splits, found, strict=True):
        exact = np.abs(np.sort(pool[one], axis=0) - np.sort(pool[other], axis=0)).mean(0)
        np.testing.assert_allclose(values, exact, rtol=1e-12)


def classes(rng, x, shape=(4, 50)):
    """Return draws of the probability of two classes, of a logistic regression whose rows move together."""
    slopes = rng.normal([1.0, -0.5, 0.3], 0.05, size=(*shape, 3))
    second = 1 / (1 + np.exp(-(slopes @ x.T)))
    probs = np.stack([1 - second, second], -1)
    return xr.DataTree.from_dict(
        {"conditional": xr.Dataset({"probs": (("chain", "draw", "obs_id", "class_id"), probs)})}
    )


@pytest.mark.parametrize("num_comparisons", [8, pytest.param(100, marks=pytest.mark.slow)])
def test_disagreements_in_a_few_of_thousands_of_rows_are_within_the_limit(num_comparisons):
    beyond = 0
    for seed in range(num_comparisons):
        rng = np.random.default_rng(seed)
        x = rng.normal(size=(3000, 3))
        found = compare_posteriors({"one": classes(rng, x), "other": classes(rng, x)}, reference="one")
        assert (found["disagreement_limit"] >= found["disagreement_floor"].mean()).all()
        assert 0 < found["disagreement_limit"] < 0.02
        beyond += not is_within(found, "disagreement")
    assert beyond <= 0.05 * num_comparisons


def test_averages_of_many_rows_are_compared_in_parts(monkeypatch):
    probs = np.random.default_rng(0).dirichlet(np.ones(3), size=(40, 30))
    splits = [(np.arange(20), np.arange(20, 40)), (np.arange(0, 40, 2), np.arange(1, 40, 2))]
    whole = class_distances(probs, splits)
    one, other = probs[::2].mean(0), probs[1::2].mean(0)
    assert np.allclose(whole["total_variation"][1], 0.5 * np.abs(one - other).sum(-1))
    assert (whole["disagreement"][1] == (one.argmax(-1) != other.argmax(-1))).all()
    monkeypatch.setattr(split_distances_module, "MAX_NUMBERS", 50)
    for name, values in class_distances(probs, splits).items():
        assert np.allclose(values, whole[name])
