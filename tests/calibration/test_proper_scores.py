"""Scores against independent implementations, their splits, and that they are proper."""

import numpy as np
import pytest
import sklearn.metrics
import xarray as xr

from bnnzoo.calibration import brier, brier_split, nll, nll_of_probs
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id", "class_id")


def of(probs, labels):
    """Label probabilities [rows, classes] as those of a single draw, and labels."""
    return xr.DataArray(np.asarray(probs)[None, None], dims=DIMS), xr.DataArray(np.asarray(labels), dims="obs_id")


def simulated(rows=500, classes=4, seed=0):
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(classes), rows)
    labels = (probs.cumsum(-1) < rng.random((rows, 1))).sum(-1)
    return probs, labels


@pytest.mark.parametrize("measure", [nll_of_probs, brier, brier_split])
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_against_scikit_learn():
    probs, labels = simulated()
    one_hot = np.eye(4)[labels]
    assert float(nll_of_probs(*of(probs, labels)).mean()) == pytest.approx(
        sklearn.metrics.log_loss(labels, probs), abs=1e-9
    )
    expected = sum(sklearn.metrics.brier_score_loss(one_hot[:, k], probs[:, k]) for k in range(4))
    assert float(brier(*of(probs, labels)).mean()) == pytest.approx(expected, abs=1e-9)


def test_nll_averages_densities_over_draws():
    """Against a loop, and against the trap of a Gaussian fitted to the draws."""
    rng = np.random.default_rng(0)
    loc, y = rng.normal(0, 3, (2, 10, 5)), rng.normal(size=5)
    log_density = -0.5 * (y - loc) ** 2 - 0.5 * np.log(2 * np.pi)
    group = xr.Dataset({"y": (DIMS[:3], log_density)})
    for name in ("log_likelihood", "predictions_log_likelihood"):
        found = nll(xr.DataTree.from_dict({name: group}))
        for row in range(5):
            density = sum(np.exp(log_density[c, s, row]) for c in range(2) for s in range(10)) / 20
            assert float(found[row]) == pytest.approx(-np.log(density))
    variance = loc.var((0, 1)) + 1
    moment_matched = 0.5 * (y - loc.mean((0, 1))) ** 2 / variance + 0.5 * np.log(2 * np.pi * variance)
    assert np.abs(found - moment_matched).max() > 0.1


def test_nll_does_not_underflow():
    group = xr.Dataset({"y": (DIMS[:3], np.full((1, 4, 2), -2000.0))})
    np.testing.assert_allclose(nll(xr.DataTree.from_dict({"log_likelihood": group})), 2000.0)


def test_probability_zero_is_infinitely_bad():
    assert np.isinf(nll_of_probs(*of([[1.0, 0.0]], [1])))


def test_murphys_parts_add_up_and_mean_what_they_say():
    probs, labels = simulated(20_000)
    split = brier_split(*of(probs, labels), num_bins=20)
    total = split["reliability"] - split["resolution"] + split["uncertainty"] + split["within"]
    assert float(total) == pytest.approx(float(split["brier"]))
    assert abs(float(split["within"])) < 0.003
    assert float(split["reliability"]) < 0.005  # the simulated probabilities are true
    climate = np.broadcast_to(np.bincount(labels) / len(labels), probs.shape)
    blunt = brier_split(*of(climate, labels))
    assert float(blunt["resolution"]) == pytest.approx(0.0, abs=1e-12)
    assert float(blunt["uncertainty"]) == pytest.approx(float(blunt["brier"]))


@pytest.mark.parametrize("score", [nll_of_probs, brier])
def test_the_true_distribution_scores_best(score):
    """Paired differences to wrong probabilities are positive by many standard errors."""
    probs, labels = simulated(4000)
    truth = score(*of(probs, labels))
    sharper, flatter = probs**1.5, probs**0.6
    shifted = probs + 0.15 * np.roll(probs, 1, axis=-1)
    for wrong in (sharper, flatter, shifted):
        difference = score(*of(wrong / wrong.sum(-1, keepdims=True), labels)) - truth
        assert float(difference.mean() / difference.std()) * np.sqrt(4000) > 3


def test_bad_input_is_named():
    probs, labels = of([[0.5, 0.5]], [2])
    for score in (nll_of_probs, brier):
        with pytest.raises(ValueError, match="Observation 0 has label 2, which is not one of the classes 0, 1"):
            score(probs, labels)
        with pytest.raises(ValueError, match="There are no observations"):
            score(probs)
    with pytest.raises(ValueError, match=r"neither 'predictions_log_likelihood' .* \(groups: none\): make it with"):
        nll(xr.DataTree())
    two = xr.Dataset({name: (DIMS[:3], np.zeros((1, 1, 1))) for name in ("a", "b")})
    with pytest.raises(ValueError, match="'log_likelihood' has sites a, b instead of one"):
        nll(xr.DataTree.from_dict({"log_likelihood": two}))
    with pytest.raises(ValueError, match="num_bins=0: write a positive number"):
        brier_split(probs, labels, num_bins=0)
