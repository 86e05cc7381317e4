"""Missing, censored and factored outcomes: what is masked, what is predicted, what is refused."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.program.sites import ModelWarning

GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(60, 2, generator=GENERATOR)
TIMES = torch.distributions.Exponential(torch.exp(X[:, 0])).mean + 0.1 * torch.rand(60, generator=GENERATOR)
CENSORED = torch.arange(60) % 3 == 0
LAPLACE = bz.Laplace(bz.MAP(num_steps=200))
HESSIAN = bz.Laplace(bz.MAP(num_steps=200), curvature="hessian")


def slope() -> Tensor:
    return pyro.sample("slope", dist.Normal(torch.zeros(2), 1.0).to_event(1))


def masked(x, y=None, seen=True):
    f = x @ slope()
    with pyro.plate("data", len(x)), pyro.poutine.mask(mask=seen):
        pyro.sample("y", dist.Normal(f, 0.5), obs=y)


def survival(x, t=None, censored=None):
    rate = torch.exp(x @ slope())
    with pyro.plate("data", len(x)):
        with pyro.poutine.mask(mask=True if censored is None else ~censored):
            pyro.sample("t", dist.Exponential(rate), obs=t)
        if censored is not None:
            pyro.factor("censored", torch.where(censored, -rate * t, 0.0))


def factored(x, t=None):
    rate = torch.exp(x @ slope())
    with pyro.plate("data", len(x)):
        if t is not None:
            pyro.factor("log_density", rate.log() - rate * t)


def test_masked_outcomes_give_the_posterior_of_the_others_and_are_predicted() -> None:
    y = torch.where(CENSORED, 1e6, X[:, 0])
    found = bz.fit(masked, LAPLACE, X, y.where(~CENSORED, torch.zeros(())), ~CENSORED)
    others = bz.fit(masked, LAPLACE, X[~CENSORED], X[~CENSORED, 0])
    torch.testing.assert_close(found.loc, others.loc)
    tree = bz.posterior_predictive(found, X, y.where(~CENSORED, torch.zeros(())), ~CENSORED)
    assert bz.diagnostics.loo(tree).n_data_points == int((~CENSORED).sum())
    mean = bz.predict(found, X)["conditional"]["mean"].mean(("chain", "draw"))
    np.testing.assert_allclose(mean, X @ found.loc, atol=0.05)


def test_a_factor_that_exists_only_given_data_is_left_out_of_predictions() -> None:
    posterior = bz.fit(survival, HESSIAN, X, TIMES, CENSORED)
    new = bz.predict(posterior, X[:7])
    assert new["predictions"]["t"].sizes["obs_id"] == 7
    assert "predictions_log_likelihood" not in new.children
    both = bz.predict(posterior, X, TIMES, CENSORED)["predictions_log_likelihood"]
    assert (both["t"].values[..., CENSORED.numpy()] == 0).all()
    assert (both["censored"].values[..., CENSORED.numpy()] < 0).all()
    assert bz.diagnostics.loo(bz.posterior_predictive(posterior, X, TIMES, CENSORED)).n_data_points == 60


def test_a_likelihood_of_factors_has_log_likelihoods_and_no_predictions() -> None:
    posterior = bz.fit(factored, HESSIAN, X, TIMES)
    tree = bz.posterior_predictive(posterior, X, TIMES, num_draws=150)
    theta = posterior.draws(150, posterior.info.seed)[0]
    expected = torch.stack([posterior.density.log_likelihood(each, X, TIMES) for each in theta])
    np.testing.assert_allclose(tree["log_likelihood"]["log_density"][0], expected)
    assert "posterior_predictive" not in tree.children
    with pytest.raises(
        ValueError, match=r"predict has no outcome to draw: .* pyro\.factor site 'log_density'.*mask=seen"
    ):
        bz.predict(posterior, X)


def test_a_factor_outside_of_a_plate_is_pointed_out() -> None:
    def model(x, t):
        rate = torch.exp(x @ slope())
        pyro.factor("all", (rate.log() - rate * t).sum())

    with pytest.warns(
        ModelWarning, match=r"pyro\.factor site 'all' is outside of a plate.*Write it inside pyro\.plate"
    ):
        bz.fit(model, bz.MAP(num_steps=3), X, TIMES)
