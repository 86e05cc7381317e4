"""Rows that count by weights of their own (``poutine.scale``), and observed sites with different numbers of rows."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro import poutine
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import ObjectiveInputs, log_joint_objective
from bnnzoo.inference.variational.mean_field_bound import gaussian_sites
from bnnzoo.testing import check_model

X = torch.linspace(-1, 1, 30, dtype=torch.float64)
Y = 1.5 * X + X.mul(20).sin()
WEIGHTS = torch.linspace(0.1, 2.0, 30, dtype=torch.float64)
COUNTS, MEASURED = torch.tensor([3.0, 5.0, 4.0, 6.0]), torch.tensor([3.5, 4.5])


def weighted(x: Tensor, weights: Tensor, y: Tensor | None = None) -> None:
    a = pyro.sample("a", dist.Normal(torch.zeros(()), 1.0))
    with pyro.plate("inputs", 2), poutine.scale(scale=torch.tensor([1.0, 3.0])):
        b = pyro.sample("b", dist.Normal(torch.zeros(()), 1.0))
    with pyro.plate("data", len(x)), poutine.scale(scale=weights):
        pyro.sample("y", dist.Normal(a + b.sum() * x, 1.0), obs=y)


def precision_of_weighted() -> Tensor:
    design = torch.stack([torch.ones_like(X), X, X], 1)
    return design.mT @ (WEIGHTS[:, None] * design) + torch.tensor([1.0, 1.0, 3.0]).diag()


def two_outcomes(counts: Tensor, measured: Tensor) -> None:
    level = pyro.sample("level", dist.Normal(torch.tensor(0.0), 1.0))
    with pyro.plate("counted", len(counts)):
        pyro.sample("y", dist.Poisson(level.exp()), obs=counts)
    with pyro.plate("measured", len(measured)):
        pyro.sample("z", dist.Normal(level, 2.0), obs=measured)


def test_weighted_rows_are_those_of_pyro() -> None:
    check_model(weighted, X, WEIGHTS, Y)


def test_laplace_of_weighted_rows_is_exact() -> None:
    posterior = bz.fit(weighted, bz.Laplace(), X, WEIGHTS, Y, progress=False)
    design = torch.stack([torch.ones_like(X), X, X], 1)
    mean = torch.linalg.solve(precision_of_weighted(), design.mT @ (WEIGHTS * Y))
    torch.testing.assert_close(posterior.loc, mean, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.dense(), precision_of_weighted().inverse(), rtol=1e-6, atol=1e-6)


def test_the_tree_has_weighted_log_likelihoods_and_unweighted_moments() -> None:
    posterior = bz.fit(weighted, bz.Laplace(), X, WEIGHTS, Y, progress=False)
    tree = bz.posterior_predictive(posterior, X, WEIGHTS, Y)
    mean = torch.tensor(tree["conditional"]["mean"].to_numpy())
    expected = WEIGHTS * dist.Normal(mean, 1.0).log_prob(Y)
    torch.testing.assert_close(torch.tensor(tree["log_likelihood"]["y"].to_numpy()), expected)


def test_one_scale_of_all_rows_is_no_weight() -> None:
    def tempered(x: Tensor, y: Tensor | None = None) -> None:
        a = pyro.sample("a", dist.Normal(torch.zeros(()), 1.0))
        with pyro.plate("data", len(x)), poutine.scale(scale=torch.tensor(0.5)):
            pyro.sample("y", dist.Normal(a * x, 1.0), obs=y)

    density, theta = build_density(tempered, X, Y), torch.tensor([0.3])
    pointwise = dist.Normal(0.3 * X, 1.0).log_prob(Y)
    torch.testing.assert_close(density.log_likelihood(theta, X, Y), pointwise)
    torch.testing.assert_close(density.log_joint(theta, X, Y), density.log_prior(theta) + 0.5 * pointwise.sum())


def test_member_weights_come_on_top_of_them() -> None:
    density = build_density(weighted, X, WEIGHTS, Y)
    theta, twice = torch.tensor([0.3, -0.2, 0.5]), torch.full((30,), 2.0)
    found = log_joint_objective(density).alone(
        theta, ObjectiveInputs((), (), (), StepBatch(density.data, (None,) * 3, twice))
    )
    likelihood = density.log_joint(theta, *density.data) - density.log_prior(theta)
    torch.testing.assert_close(found, density.log_prior(theta) + 2 * likelihood)


def test_priors_that_are_weighted_entry_by_entry_are_not_in_closed_form() -> None:
    assert [site.name for site in gaussian_sites(build_density(weighted, X, WEIGHTS, Y))] == ["a"]


def test_laplace_takes_sites_of_different_lengths() -> None:
    posterior = bz.fit(two_outcomes, bz.Laplace(), COUNTS, MEASURED, progress=False)
    rate = posterior.loc.exp()
    score = COUNTS.sum() - 4 * rate + (MEASURED - posterior.loc).sum() / 4 - posterior.loc
    torch.testing.assert_close(score, torch.zeros(1), rtol=0, atol=1e-6)
    torch.testing.assert_close(posterior.covariance.dense(), (1 / (1 + 4 * rate + 2 / 4))[None], rtol=1e-6, atol=0)


def test_a_tree_refuses_sites_of_different_lengths() -> None:
    posterior = bz.fit(two_outcomes, bz.Laplace(), COUNTS, MEASURED, progress=False)
    with pytest.raises(
        ValueError, match=r"different numbers of observations \('y' 4, 'z' 2\).*Observe them at one site"
    ):
        bz.predict(posterior, COUNTS, MEASURED)
