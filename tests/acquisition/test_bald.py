"""Scores of single observations and batches against brute force."""

from itertools import product

import numpy as np
import pytest
import xarray as xr
from scipy.stats import norm

from bnnzoo.acquisition import bald, batch_bald, least_confidence, select, smallest_margin
from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import gaussian_mixture_entropy, margin, max_probability, mutual_information

DIMS = ("chain", "draw", "obs_id", "class_id")


def pool(draws=6, rows=5, classes=3, seed=0):
    return xr.DataArray(np.random.default_rng(seed).dirichlet(np.full(classes, 0.5), (1, draws, rows)), dims=DIMS)


def joint_information(probs, rows):
    """I[y_rows; theta] by listing all labels."""
    joint, conditional = 0.0, 0.0
    for labels in product(range(probs.shape[-1]), repeat=len(rows)):
        given = np.prod([probs[:, row, label] for row, label in zip(rows, labels, strict=True)], axis=0)
        joint -= given.mean() * np.log(given.mean())
        conditional -= (given * np.log(given)).mean()
    return joint - conditional


@pytest.mark.parametrize("measure", [bald, least_confidence, smallest_margin])
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_scores_are_the_uncertainties_of_the_same_meaning():
    tree = example_tree("classification")
    np.testing.assert_allclose(bald(tree), mutual_information(tree))
    np.testing.assert_allclose(least_confidence(tree), 1 - max_probability(tree))
    np.testing.assert_allclose(smallest_margin(tree), 1 - margin(tree))


def test_information_about_real_targets():
    tree = example_tree("regression")
    np.testing.assert_allclose(bald(tree), gaussian_mixture_entropy(tree)["epistemic"], atol=1e-4)
    modes = xr.DataArray([[[-50.0], [50.0]]], dims=DIMS[:3])
    group = xr.Dataset({"mean": modes, "variance": xr.ones_like(modes)})
    for noise in ("gaussian", "laplace"):  # one bit, whatever the noise: which of two modes far apart
        assert float(bald(group, noise=noise)[0]) == pytest.approx(np.log(2), abs=1e-4)
    with pytest.raises(ValueError, match=r"noise='poisson': write 'gaussian' or 'laplace'"):
        bald(group, noise="poisson")


@pytest.mark.parametrize("ratio", [0.1, 1.0, 5.0])
def test_information_about_a_gaussian_mean_is_in_closed_form(ratio):
    """y = f + noise with f ~ N(0, r^2) and unit noise: I = log(1 + r^2) / 2."""
    draws = ratio * norm.ppf((np.arange(2000) + 0.5) / 2000)
    mean = xr.DataArray(draws[None, :, None], dims=DIMS[:3])
    found = bald(xr.Dataset({"mean": mean, "variance": xr.ones_like(mean)}))
    assert float(found[0]) == pytest.approx(0.5 * np.log1p(ratio**2), rel=0.01)


def test_select_takes_the_best_first():
    assert select(xr.DataArray([0.2, 0.9, 0.9, 0.1], dims="obs_id"), 3).tolist() == [1, 2, 0]


def test_a_batch_is_chosen_greedily_by_joint_information():
    probs = pool()
    chosen = batch_bald(probs, 3)
    taken = []
    for step in range(3):
        scores = {row: joint_information(probs.values[0], [*taken, row]) for row in range(5) if row not in taken}
        taken.append(max(scores, key=scores.get))
        assert chosen.positions[step] == taken[-1]
        assert chosen.information[step] == pytest.approx(scores[taken[-1]], abs=1e-10)


def test_one_of_two_copies_is_enough():
    """Labels without noise: a copy tells nothing new, and single scores cannot see that."""
    one_hot = np.eye(2)
    same, other = [0, 0, 1, 1], [0, 1, 0, 1]
    probs = np.stack([one_hot[same], one_hot[same], 0.98 * one_hot[other] + 0.01], axis=1)
    array = xr.DataArray(probs[None], dims=DIMS)
    assert select(bald(array), 2).tolist() == [0, 1]
    assert batch_bald(array, 2).positions.tolist() == [0, 2]


def test_drawn_labels_estimate_the_listed_ones():
    probs = pool(draws=8, rows=6, seed=1)
    exact = batch_bald(probs, 4)
    drawn = [batch_bald(probs, 4, num_configurations=60, seed=seed).information for seed in range(30)]
    first = np.array(drawn)[:, 3]
    assert abs(first.mean() - exact.information[3]) < 5 * first.std() / np.sqrt(30) + 0.03
    np.testing.assert_allclose(np.array(drawn)[:, :2], np.broadcast_to(exact.information[:2], (30, 2)))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="batch_size=9, but the pool has 5 observations"):
        batch_bald(pool(), 9)
    with pytest.raises(ValueError, match="batch_size=0"):
        select(bald(pool()), 0)
    with pytest.raises(ValueError, match="batch_bald compares draws"):
        batch_bald(pool(draws=1), 2)
