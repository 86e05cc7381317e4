"""Expected logits and their spread, against plain loops and in the limits."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import logit_disagreement, max_expected_logit, mutual_information

DIMS = ("chain", "draw", "obs_id", "class_id")


@pytest.mark.parametrize("measure", [max_expected_logit, logit_disagreement])
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_against_plain_loops():
    tree = example_tree("classification", num_chains=2, num_draws=6)
    draws = tree["conditional"]["probs"].values.reshape(12, 7, 3)
    for row in range(7):
        logits = np.array([np.log(each) - np.mean(np.log(each)) for each in draws[:, row]])
        assert float(max_expected_logit(tree)[row]) == pytest.approx(max(logits.mean(0)))
        weights = logits.max(1) / logits.max(1).sum()
        assert float(logit_disagreement(tree)[row]) == pytest.approx(12 * sum(weights**2) - 1)


def test_they_are_those_of_the_logits_of_a_network_whatever_is_added_to_all_classes():
    logits = np.random.default_rng(0).normal(0.0, 2.0, (2, 50, 4, 5))
    logits -= logits.mean(-1, keepdims=True)
    shifted = np.exp(logits + np.linspace(-3, 3, 50)[:, None, None])
    probs = xr.DataArray(shifted / shifted.sum(-1, keepdims=True), dims=DIMS)
    np.testing.assert_allclose(max_expected_logit(probs), logits.mean((0, 1)).max(-1))
    largest = logits.reshape(100, 4, 5).max(-1)
    np.testing.assert_allclose(logit_disagreement(probs), largest.var(0) / largest.mean(0) ** 2)


def test_draws_that_are_certain_of_one_class_to_different_degrees_disagree_in_their_logits_alone():
    certain = np.array([1 - 1e-6, 1 - 1e-12])
    probs = xr.DataArray(np.stack([certain, 1 - certain], -1)[None, :, None], dims=DIMS)
    assert float(mutual_information(probs)[0]) < 1e-5
    assert float(logit_disagreement(probs)[0]) == pytest.approx(1 / 9, rel=1e-3)


@pytest.mark.parametrize("precision", [np.float32, np.float64])
def test_probabilities_that_underflow_are_finite_and_the_same_in_both_precisions(precision):
    probs = xr.DataArray(np.array([[[[1.0, 0.0]], [[0.5, 0.5]]]], dtype=precision), dims=DIMS)
    half = -np.log(np.finfo(np.float32).tiny) / 2
    assert float(max_expected_logit(probs)[0]) == pytest.approx(half / 2)
    assert float(logit_disagreement(probs)[0]) == pytest.approx(1.0)


def test_classes_that_are_equally_likely_in_all_draws_have_no_disagreement_but_lost_draws_have_none_at_all():
    probs = xr.DataArray(np.full((1, 3, 2, 2), 0.5), dims=DIMS)
    assert float(max_expected_logit(probs)[0]) == float(logit_disagreement(probs)[0]) == 0.0
    lost = probs.assign_coords(obs_id=[0, 1]).where(lambda each: each.obs_id != 1)
    assert np.isnan(float(logit_disagreement(lost)[1]))
