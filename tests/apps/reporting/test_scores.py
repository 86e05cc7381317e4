"""Scores against independent implementations and closed forms."""

import numpy as np
import pytest
import scoringrules
from scipy.stats import norm
from sklearn.metrics import accuracy_score, brier_score_loss, log_loss, root_mean_squared_error

from bnnzoo.apps.reporting.scores import (
    CLASSIFICATION,
    REGRESSION,
    ScoreColumn,
    accuracy,
    brier,
    class_probabilities,
    coverage,
    crps,
    draws_of,
    interval,
    log_density,
    mean_log_density,
    observed,
    rmse,
)
from tests.helpers.trees import held_out


@pytest.fixture
def real():
    return held_out("regression")


@pytest.fixture
def classes():
    return held_out("classification")


def test_crps_is_that_of_scoringrules(real):
    expected = scoringrules.crps_ensemble(observed(real), draws_of(real), m_axis=0, estimator="fair").mean()
    assert np.isclose(crps(real), expected, rtol=1e-10)


def test_rmse_is_that_of_scikit_learn(real):
    mean = real["conditional"]["mean"].mean(("chain", "draw"))
    assert np.isclose(rmse(real), root_mean_squared_error(observed(real), mean))


def test_log_density_averages_densities_not_their_logarithms(real):
    means = real["conditional"]["mean"].to_numpy().reshape(-1, 24)
    expected = np.log(norm.pdf(observed(real), means).mean(0))
    assert np.allclose(log_density(real), expected)
    assert np.isclose(mean_log_density(real), expected.mean())


def test_coverage_counts_rows_inside_their_interval(real):
    lower, upper = interval(real)
    inside = [low <= y <= high for low, y, high in zip(lower, observed(real), upper, strict=True)]
    assert coverage(real) == np.mean(inside)
    assert np.allclose((draws_of(real) < lower).mean(0), 0.05, atol=0.01)


def test_class_scores_are_those_of_scikit_learn(classes):
    probs, y = class_probabilities(classes), observed(classes)
    assert accuracy(classes) == accuracy_score(y, probs.argmax(-1))
    assert np.isclose(mean_log_density(classes), -log_loss(y, probs, labels=[0, 1, 2]))
    assert np.isclose(brier(classes), brier_score_loss(y, probs, labels=[0, 1, 2], scale_by_half=False))


@pytest.mark.parametrize(("better", "winner"), [("higher", "b"), ("lower", "a"), ("nominal", "c")])
def test_the_best_method_depends_on_the_score(better, winner):
    score = ScoreColumn("s", rmse, better, "a sentence", nominal=0.9)
    assert score.best({"a": 0.1, "b": 2.0, "c": 0.8}) == winner


@pytest.mark.parametrize("score", [*REGRESSION, *CLASSIFICATION], ids=lambda score: score.label)
def test_every_score_explains_itself(score):
    assert score.explanation.endswith(".")
    assert score.better in ("higher", "lower", "nominal")


def test_few_draws_stand_for_the_whole_of_their_likelihood():
    tree = held_out("regression").isel(chain=[0], draw=[0])
    mean = tree["conditional"]["mean"].to_numpy()[0, 0]
    lower, upper = interval(tree)
    assert np.allclose([lower, upper], [mean - 1.6449, mean + 1.6449], atol=0.01)
    assert np.isclose(crps(tree), scoringrules.crps_normal(observed(tree), mean, 1.0).mean(), atol=2e-3)
