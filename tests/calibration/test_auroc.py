"""Detection statistics against scikit-learn and counting, and their intervals."""

import numpy as np
import pytest
import sklearn.metrics
import xarray as xr

from bnnzoo.calibration import aupr, auroc, fpr_at_95, misclassified, versus
from bnnzoo.testing import check_measure, example_tree


def gaussian(rng, rows=200, distance=1.0):
    score, target = versus(
        xr.DataArray(rng.normal(size=rows), dims="obs_id"), xr.DataArray(rng.normal(distance, size=rows), dims="obs_id")
    )
    return score, target


def test_against_counting_and_scikit_learn():
    score, target = gaussian(np.random.default_rng(0), 60)
    positive, negative = score.values[target.values], score.values[~target.values]
    pairs = np.mean([p > n for p in positive for n in negative])
    assert float(auroc(score, target, num_resamples=10)["value"]) == pytest.approx(pairs)
    expected = sklearn.metrics.average_precision_score(target, score)
    assert float(aupr(score, target, num_resamples=10)["value"]) == pytest.approx(expected)
    threshold = np.sort(positive)[::-1][int(np.ceil(0.95 * 60)) - 1]
    found = float(fpr_at_95(score, target, num_resamples=10)["value"])
    assert found == pytest.approx((negative >= threshold).mean())


@pytest.mark.parametrize("statistic", [auroc, aupr, fpr_at_95])
def test_limits(statistic):
    score, target = versus(xr.DataArray([0.0, 1.0], dims="obs_id"), xr.DataArray([2.0, 3.0], dims="obs_id"))
    perfect = 0.0 if statistic is fpr_at_95 else 1.0
    assert float(statistic(score, target, num_resamples=10)["value"]) == perfect
    same = xr.zeros_like(score)
    chance = {auroc: 0.5, aupr: 0.5, fpr_at_95: 1.0}[statistic]
    assert float(statistic(same, target, num_resamples=10)["value"]) == chance


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    """The area of two Gaussians a distance of 1 apart is Phi(1 / sqrt 2) = 0.7602."""
    rng = np.random.default_rng(0)
    intervals = [auroc(*gaussian(rng, 100), num_resamples=60, level=0.8, seed=seed) for seed in range(20)]
    inside = sum(bool(i["low"] <= 0.7602499) and bool(i["high"] >= 0.7602499) for i in intervals)
    assert inside >= 10  # of binomial(20, 0.8): 3.4 standard errors below its mean


def test_misclassified():
    tree = example_tree("classification")
    check_measure(misclassified, tree)
    expected = tree["conditional"]["probs"].mean(("chain", "draw")).argmax("class_id")
    assert (misclassified(tree).values == (expected != tree["predictions_observed_data"]["y"]).values).all()


def test_bad_input_is_named():
    score = xr.DataArray([0.0, 1.0], dims="obs_id")
    with pytest.raises(ValueError, match=r"No observation has a positive \(True\) target"):
        auroc(score, score > 5)
    with pytest.raises(ValueError, match=r"No observation has a negative \(False\) target"):
        aupr(score, score < 5)
    with pytest.raises(ValueError, match="There are 1 values of target along 'obs_id' for 2 rows of the scores"):
        auroc(score, score[:1] > 0)
    with pytest.raises(ValueError, match="Scores must be finite, but that of observation 1 is not"):
        auroc(score.where(score < 0.5), score > 0.5)
    with pytest.raises(ValueError, match=r"^num_resamples=0: write a positive number\.$"):
        fpr_at_95(score, score > 0.5, num_resamples=0)
