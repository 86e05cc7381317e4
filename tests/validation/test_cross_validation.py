"""Cross-validation by refitting, against the closed form of a linear model."""

from concurrent.futures import ThreadPoolExecutor

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact_linear import ExactLinear

TARGET = linear_gaussian(num_data=12, num_inputs=2)
assert ExactLinear().noise == TARGET.noise
X, Y = (value.double() for value in TARGET.data)
NUM_DRAWS = 4000
OPTIONS = {"num_draws": NUM_DRAWS, "dtype": torch.float64}


def log_predictive(kept, rows):
    """Return the exact log density of each row given those kept."""
    precision = torch.eye(2, dtype=torch.float64) + X[kept].T @ X[kept] / TARGET.noise**2
    covariance = torch.linalg.inv(precision)
    mean = covariance @ X[kept].T @ Y[kept] / TARGET.noise**2
    scale = ((X[rows] @ covariance * X[rows]).sum(-1) + TARGET.noise**2).sqrt()
    return torch.distributions.Normal(X[rows] @ mean, scale).log_prob(Y[rows]).numpy()


def without(rows):
    return [row for row in range(len(Y)) if row not in rows]


def within_monte_carlo_error(found, expected):
    # the log of a mean of NUM_DRAWS likelihoods, whose coefficient of variation is below 2 here
    return np.abs(found - expected).max() < 5 * 2 / NUM_DRAWS**0.5


def test_folds_are_predicted_by_the_exact_posterior_of_the_others():
    folds = np.arange(12) % 3
    found = bz.validation.kfold(TARGET.model, ExactLinear(), X, Y, folds=folds, **OPTIONS)
    expected = np.empty(12)
    for fold in range(3):
        rows = np.flatnonzero(folds == fold).tolist()
        expected[rows] = log_predictive(without(rows), rows)
    assert within_monte_carlo_error(found.elpd_i.to_numpy(), expected)
    assert found.elpd == pytest.approx(found.elpd_i.sum().item())


def test_results_go_into_compare():
    narrow = bz.validation.kfold(TARGET.model, bz.MAP(num_steps=50), X, Y, num_folds=3, dtype=torch.float64)
    exact = bz.validation.kfold(TARGET.model, ExactLinear(), X, Y, num_folds=3, **OPTIONS)
    table = az.compare({"MAP": narrow, "exact": exact})
    assert set(table.index) == {"MAP", "exact"}


def test_the_executor_does_not_change_the_result():
    call = {"num_folds": 3, "num_draws": 50, "dtype": torch.float64}
    here = bz.validation.kfold(TARGET.model, ExactLinear(), X, Y, **call)
    with ThreadPoolExecutor(2) as executor:
        there = bz.validation.kfold(TARGET.model, ExactLinear(), X, Y, executor=executor, **call)
    assert np.array_equal(here.elpd_i, there.elpd_i)


def test_refitted_rows_are_exact():
    found = bz.validation.reloo(TARGET.model, ExactLinear(), X, Y, k_threshold=-np.inf, **OPTIONS)
    expected = np.array([log_predictive(without([row]), [row])[0] for row in range(12)])
    assert within_monte_carlo_error(found.elpd_i.to_numpy(), expected)
    assert (found.pareto_k == 0).all()


def test_rows_with_good_weights_are_not_refitted():
    found = bz.validation.reloo(TARGET.model, ExactLinear(), X, Y, **OPTIONS)
    tree = bz.posterior_predictive(
        bz.fit(TARGET.model, ExactLinear(), X, Y, dtype=torch.float64), X, Y, num_draws=NUM_DRAWS
    )
    plain = bz.diagnostics.loo(tree)
    assert (found.pareto_k < 0.7).all()
    assert np.allclose(found.elpd_i, plain.elpd_i)


def test_the_future_is_predicted_from_the_past():
    found = bz.validation.leave_future_out(
        TARGET.model, ExactLinear(), X, Y, min_observations=9, forecast_horizon=2, **OPTIONS
    )
    assert found.elpd_i["obs_id"].to_numpy().tolist() == [9, 10]
    for start, value in zip((9, 10), found.elpd_i.to_numpy(), strict=True):
        first = log_predictive(list(range(start)), [start])[0]
        second = log_predictive(list(range(start + 1)), [start + 1])[0]
        assert within_monte_carlo_error(value, first + second)


@pytest.mark.parametrize(
    ("function", "settings"),
    [
        (bz.validation.kfold, {"num_folds": 3}),
        (bz.validation.reloo, {"k_threshold": -1.0}),
        (bz.validation.leave_future_out, {"min_observations": 9}),
    ],
)
def test_data_may_be_given_by_name(function, settings):
    given = {**settings, "num_draws": 50, "dtype": torch.float64}
    by_place = function(TARGET.model, ExactLinear(), X, Y, **given)
    for data in ({"x": X, "y": Y}, {"y": Y, "x": X}):
        assert np.array_equal(function(TARGET.model, ExactLinear(), **data, **given).elpd_i, by_place.elpd_i)
    assert np.array_equal(function(TARGET.model, ExactLinear(), X, y=Y, **given).elpd_i, by_place.elpd_i)


def test_reweighted_forecasts_agree_with_refits():
    past = {"min_observations": 8, **OPTIONS}
    exact = bz.validation.leave_future_out(TARGET.model, ExactLinear(), X, Y, **past)
    approx = bz.validation.leave_future_out(TARGET.model, ExactLinear(), X, Y, estimator="approx", **past)
    assert within_monte_carlo_error(approx.elpd_i.to_numpy(), exact.elpd_i.to_numpy())


def test_groups_stay_together_and_classes_are_spread():
    groups = np.repeat(np.arange(4), 3)
    for way in ("group_by", "stratify_by"):
        found = bz.validation.kfold(
            TARGET.model, ExactLinear(), X, Y, num_folds=3, num_draws=10, **{way: groups}, dtype=torch.float64
        )
        assert np.isfinite(found.elpd_i).all()


def test_several_outputs_count_as_one_observation():
    y = torch.stack([Y, -Y], -1)

    def model(x, y=None):
        w = pyro.sample("w", dist.Normal(torch.zeros(2, 2).to(x), 1.0).to_event(2))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 0.5).to_event(1), obs=y)

    found = bz.validation.kfold(model, bz.Laplace(), X, y, num_folds=2, num_draws=20, dtype=torch.float64)
    assert found.n_data_points == 12


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        ({"num_folds": 1}, "num_folds=1; write a number between 2 and the number of observations, 12"),
        ({"num_folds": 13}, "num_folds=13; write a number between 2"),
        ({"num_folds": "3"}, "num_folds='3'; write a number between 2"),
        ({"folds": [0, 1]}, r"folds has shape \(2,\); write one entry for each of the 12 observations"),
        ({"folds": [1] * 12}, "folds has the same entry for every observation"),
        (
            {"folds": np.arange(12) % 2, "group_by": np.arange(12)},
            "folds and group_by divide the rows in different ways",
        ),
    ],
)
def test_bad_folds_are_refused(call, sentence):
    with pytest.raises(ValueError, match=sentence):
        bz.validation.kfold(TARGET.model, bz.MAP(num_steps=2), X, Y, dtype=torch.float64, **call)


@pytest.mark.filterwarnings("ignore:Site 'y' is one observation")
def test_a_likelihood_without_rows_is_refused():
    def model(y):
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu.expand(len(y)), 1.0).to_event(1), obs=y)

    with pytest.raises(ValueError, match="Site 'y' is one observation without rows, so none can be left out"):
        bz.validation.kfold(model, bz.Laplace(), Y, num_folds=2, num_draws=10, dtype=torch.float64)


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match=r"leave_future_out\(estimator='psis'\): write 'exact' or 'approx'"):
        bz.validation.leave_future_out(TARGET.model, ExactLinear(), X, Y, min_observations=8, estimator="psis")


def test_that_a_method_only_approximates_is_said_of_the_fit_to_all_rows_and_not_of_each_refit():
    def model(x, y):
        b = pyro.sample("b", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(x @ b, 0.3), obs=y)

    generator = torch.Generator().manual_seed(0)
    z, first, noise = torch.randn(3, 40, generator=generator)
    x, y = torch.stack([z + 0.1 * first, z], 1), z + 0.3 * noise
    with pytest.warns(bz.inference.ParetoKWarning, match=r"standard deviation of 'b'\[\d\] is 0\.2") as caught:
        bz.validation.kfold(model, bz.MeanFieldVI(), x, y, num_folds=4)
    assert len(caught) == 1
    hardly_moving = bz.NUTS(num_warmup=5, num_draws=500, max_tree_depth=1, step_size=0.001)
    with pytest.warns(bz.inference.FitWarning) as caught:
        bz.validation.kfold(model, hardly_moving, x, y, num_folds=4)
    assert len(caught) >= 5
