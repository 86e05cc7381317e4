"""Estimators of scikit-learn: its own checks, what they predict, copies and refusals."""

import pickle

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import PolynomialFeatures
from sklearn.utils.estimator_checks import check_estimator

import bnnzoo as bz
from bnnzoo.sklearn import BNNClassifier, BNNRegressor
from bnnzoo.testing import linear_gaussian

SHORT = bz.MAP(num_steps=100, polish_steps=50)
X = np.random.RandomState(0).randn(60, 2)
LINE = 3 * X[:, 0] - X[:, 1] + 100.0
SIDES = np.where(LINE > 100, "up", "down")


@pytest.fixture(scope="module")
def regressor() -> BNNRegressor:
    torch.set_default_dtype(torch.float64)
    noise = np.random.RandomState(1).randn(60)
    return BNNRegressor(bz.Laplace(SHORT), hidden=(), num_draws=400).fit(X, LINE + noise)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # scikit-learn fits to a few rows of nothing
@pytest.mark.parametrize("kind", [BNNRegressor, BNNClassifier])
def test_scikit_learns_own_checks(kind: type) -> None:
    found = check_estimator(kind(SHORT, hidden=(8,)), on_skip=None)
    assert len(found) > 40


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("kind", [BNNRegressor, BNNClassifier])
def test_parameters_are_kept_as_they_are(kind: type) -> None:
    estimator = kind(SHORT, hidden=[3], activation="relu", num_draws=7)
    copy = clone(estimator)
    assert copy.get_params() == estimator.get_params() and copy.method == SHORT
    with pytest.raises(NotFittedError):
        estimator.predict(X)


def test_predictions_are_in_units_of_the_target(regressor: BNNRegressor) -> None:
    mean, sd = regressor.predict(X, return_std=True)
    assert np.corrcoef(mean, LINE)[0, 1] > 0.99 and abs(mean.mean() - 100) < 1
    assert 0.7 < sd.mean() < 1.4  # noise of standard deviation 1, and what a line of three numbers leaves open
    quantiles = regressor.predict_quantiles(X, (0.1, 0.5, 0.9))
    assert quantiles.shape == (60, 3) and (np.diff(quantiles, axis=1) > 0).all()
    assert quantiles[:, 1] == pytest.approx(mean, abs=0.5)
    covered = ((quantiles[:, 0] < LINE) & (quantiles[:, 2] > LINE)).mean()
    assert covered > 0.9  # of the line without noise


def test_the_tree_is_that_of_the_fit(regressor: BNNRegressor) -> None:
    tree = regressor.tree_
    assert tree["posterior_predictive"]["y"].sizes["obs_id"] == 60
    observed = tree["observed_data"]["y"].to_numpy() * regressor.y_scale_ + regressor.y_loc_
    assert observed.mean() == pytest.approx(LINE.mean(), abs=0.5)


def test_a_copy_by_pickle_predicts_the_same(regressor: BNNRegressor) -> None:
    copy = pickle.loads(pickle.dumps(regressor))
    np.testing.assert_array_equal(copy.predict(X), regressor.predict(X))
    np.testing.assert_array_equal(copy.predict_quantiles(X), regressor.predict_quantiles(X))


def test_the_posterior_is_that_of_fit() -> None:
    target = linear_gaussian()
    x, y = (value.numpy() for value in target.data)
    method = bz.Laplace(SHORT)
    fixed = bz.likelihoods.gaussian(scale=0.5)
    estimator = BNNRegressor(method, hidden=(), likelihood=fixed, standardize=False, random_state=3).fit(x, y)
    model = bz.models.supervised(bz.models.mlp(3, ()), bz.priors.fan_in(), fixed)
    posterior = bz.fit(model, method, x, y, seed=3, progress=False)
    torch.testing.assert_close(estimator.posterior_.loc, posterior.loc)


def test_classes_have_their_labels_in_pipelines_and_folds() -> None:
    pipeline = make_pipeline(PolynomialFeatures(1, include_bias=False), BNNClassifier(SHORT, hidden=()))
    assert cross_val_score(pipeline, X, SIDES, cv=2).min() > 0.8
    fitted = pipeline.fit(X, SIDES)
    probs = fitted.predict_proba(X)
    assert probs.sum(1) == pytest.approx(np.ones(60)) and list(fitted.classes_) == ["down", "up"]
    assert (fitted.predict(X) == fitted.classes_[probs.argmax(1)]).all()


def test_refusals(regressor: BNNRegressor) -> None:
    with pytest.raises(ValueError, match=r"quantiles has 1.5: write numbers between 0 and 1"):
        regressor.predict_quantiles(X, (0.5, 1.5))
    with pytest.raises(ValueError, match=r"BNNRegressor needs two rows or more, and the data have 1 sample"):
        BNNRegressor(SHORT).fit(X[:1], LINE[:1])
    with pytest.raises(ValueError, match=r"BNNClassifier needs two classes or more, and y has 1 class: 'up'"):
        BNNClassifier(SHORT).fit(X, np.repeat("up", 60))


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_constant_columns_become_zero_and_keep_their_type(kind: type) -> None:
    constant = np.column_stack([X, np.full(60, 7.1)]).astype(kind)
    fitted = BNNRegressor(SHORT, hidden=()).fit(constant, LINE)
    inputs = fitted._train[0]
    assert inputs.dtype == kind
    np.testing.assert_allclose(inputs[:, 2], 0.0, atol=1e-5)
    np.testing.assert_allclose(inputs[:, :2].std(0), 1.0, rtol=1e-5)
    assert np.isfinite(fitted.predict(constant)).all()


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_without_standardisation_inputs_are_as_given() -> None:
    fitted = BNNRegressor(SHORT, hidden=(), standardize=False).fit(X, LINE)
    np.testing.assert_array_equal(fitted._train[0], X)
