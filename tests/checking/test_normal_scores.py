"""Scores of observations are standard normal if the model is right, whatever its likelihood."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from scipy.stats import kstest
from torch import Tensor

import bnnzoo as bz
from bnnzoo.checking.normal_scores import Scores, scores_of
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.program.numerics import NumericalFailure

ROWS = 400
RATES = torch.linspace(0.2, 6.0, ROWS)
ODDS = torch.linspace(-2.0, 2.0, ROWS)
LIKELIHOODS = {
    "normal": lambda: dist.Normal(RATES, 0.5 * RATES),
    "student": lambda: dist.StudentT(2.0, RATES, 1.0),
    "gamma": lambda: dist.Gamma(RATES, 2.0),
    "poisson": lambda: dist.Poisson(RATES),
    "counts": lambda: dist.GammaPoisson(RATES, 1.0),
    "binomial": lambda: dist.Binomial(5, logits=ODDS),
    "truth": lambda: dist.Bernoulli(logits=ODDS),
    "two classes": lambda: dist.Categorical(logits=torch.stack([torch.zeros(ROWS), ODDS], -1)),
    "mixture": lambda: dist.MixtureSameFamily(
        dist.Categorical(torch.ones(ROWS, 2)), dist.Normal(torch.stack([-RATES, RATES], -1), 0.3)
    ),
    "transformed": lambda: dist.LogNormal(ODDS, 0.7),
}


def density_of(make: object, y: torch.Tensor) -> tuple[LogDensity, torch.Tensor]:
    def model(y: torch.Tensor) -> None:
        pyro.sample("unused", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", make(), obs=y)

    return build_density(model, y), torch.zeros(30, 1)


def scored(make: object, y: torch.Tensor, seed: int = 0) -> list[Scores]:
    return scores_of(*density_of(make, y), seed)


@pytest.mark.parametrize("name", LIKELIHOODS)
def test_scores_are_standard_normal(name: str) -> None:
    make = LIKELIHOODS[name]
    torch.manual_seed(3)
    (found,) = scored(make, make().sample())
    assert found.location.shape == (20, ROWS)
    assert kstest(found.location[0], "norm").pvalue > 1e-3
    assert kstest(found.spread[0], "norm").pvalue > 1e-3
    assert found.is_binary == (name in ("truth", "two classes"))


@pytest.mark.parametrize("name", ["normal", "gamma", "poisson"])
def test_observations_that_are_too_large_have_large_scores(name: str) -> None:
    make = LIKELIHOODS[name]
    torch.manual_seed(3)
    (found,) = scored(make, 3 * make().sample() + 3)
    assert found.location.mean() > 1.0
    assert found.ends[1].max() < 0.05


def test_one_draw_of_a_posterior_leaves_scores_normal() -> None:
    """Over the prior, data and a draw from the posterior are distributed as data and parameters are (Johnson 2007)."""
    rng, found = np.random.default_rng(0), []
    for _ in range(150):
        y = rng.normal() + rng.normal(size=8)
        spread = 1 / np.sqrt(9)
        theta = y.sum() / 9 + spread * rng.normal(size=2)
        found.append(scored_at(y, theta))
    means = np.array([each.mean() for each in found]) * np.sqrt(8)
    assert abs(means.mean()) < 4 / np.sqrt(150)
    assert abs(means.var() - 1) < 4 * np.sqrt(2 / 150)


def scored_at(y: np.ndarray, theta: np.ndarray) -> np.ndarray:
    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    density = build_density(model, torch.from_numpy(y))
    (found,) = scores_of(density, torch.from_numpy(theta)[:, None], int(1e6 * theta[0]) % 9999)
    return found.location[0]


def test_joint_normal_vectors_are_scored_by_what_is_new_in_each_value() -> None:
    covariance = torch.tensor([[1.0, 0.9], [0.9, 1.0]]).double()

    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.MultivariateNormal(mu * torch.ones(2).double(), covariance), obs=y)

    torch.manual_seed(0)
    y = dist.MultivariateNormal(torch.zeros(2).double(), covariance).sample((200,))
    (found,) = scores_of(build_density(model, y), torch.zeros(5, 1).double(), 0)
    assert found.rows.tolist() == np.repeat(np.arange(200), 2).tolist()
    assert found.num_rows == 200
    pairs = found.location[0].reshape(200, 2)
    assert kstest(pairs.ravel(), "norm").pvalue > 1e-3
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.3


def test_each_of_several_classes_is_a_truth_value() -> None:
    def model(y: torch.Tensor) -> None:
        probs = pyro.sample("p", dist.Dirichlet(torch.ones(3)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Categorical(probs), obs=y)

    y = torch.arange(60) % 3
    found = scores_of(build_density(model, y), torch.zeros(5, 2), 0)
    assert [each.name for each in found] == ["y[0]", "y[1]", "y[2]"]
    assert all(each.is_binary and each.observed.sum() == 20 for each in found)


def test_masked_observations_are_left_out() -> None:
    seen = torch.arange(50) % 5 > 0

    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)), pyro.poutine.mask(mask=seen):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    (found,) = scores_of(build_density(model, torch.randn(50)), torch.zeros(5, 1), 0)
    assert found.rows.tolist() == seen.nonzero()[:, 0].tolist()
    assert found.num_rows == 50


def test_discrete_latent_variables_are_drawn_with_the_observations() -> None:
    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(torch.tensor([-3.0, 3.0]), 0.1).to_event(1))
        with pyro.plate("rows", len(y)):
            z = pyro.sample("z", dist.Categorical(torch.ones(2)), infer={"enumerate": "parallel"})
            pyro.sample("y", dist.Normal(mu[z], 1.0), obs=y)

    torch.manual_seed(1)
    y = 3.0 * (2 * torch.randint(0, 2, (80,)) - 1) + torch.randn(80)
    posterior = bz.fit(model, bz.Laplace(), y, progress=False)
    (found,) = scores_of(posterior.density, posterior.draws(10).flatten(0, 1), 0)
    assert found.location.shape == (8, 80)
    assert kstest(found.location[0], "norm").pvalue > 1e-3


def test_rows_that_share_a_discrete_state_are_not_scored() -> None:
    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
        z = pyro.sample("z", dist.Categorical(torch.ones(2)), infer={"enumerate": "parallel"})
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu + 3.0 * z, 1.0), obs=y)

    y = torch.randn(20, generator=torch.Generator().manual_seed(0))
    found = bz.check(model, y, method=bz.Laplace())
    assert len(found.asked) == 0
    assert found.skipped[0] == (
        "the observations of y, which is a single value or depends on discrete states that tie its rows."
    )


def test_rows_of_joint_normal_vectors_may_be_masked() -> None:
    seen = torch.arange(40) % 4 > 0

    def model(y: torch.Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(y)), pyro.poutine.mask(mask=seen):
            pyro.sample("y", dist.MultivariateNormal(mu * torch.ones(2), torch.eye(2)), obs=y)

    y = torch.randn(40, 2, generator=torch.Generator().manual_seed(0))
    (found,) = scores_of(build_density(model, y), torch.zeros(5, 1), 0)
    assert found.rows.tolist() == [row for row in range(40) if row % 4 for _ in range(2)]
    assert found.num_rows == 40


def test_the_global_stream_of_random_numbers_is_left_alone() -> None:
    before = torch.get_rng_state()
    make = LIKELIHOODS["poisson"]
    y = torch.ones(ROWS)
    scored(make, y)
    assert torch.equal(torch.get_rng_state(), before)


def test_draws_at_which_the_model_has_no_value_say_nothing() -> None:
    def model(y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 0.1))
        factor = torch.linalg.cholesky(torch.eye(2) + z * (1 - torch.eye(2)))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(z, factor[1, 1]), obs=y)

    density = build_density(model, torch.linspace(-1, 1, 9))
    theta = torch.tensor([[0.1], [3.0], [-0.2], [0.3]])
    (some,), (alone,) = scores_of(density, theta, 0), scores_of(density, theta[[0, 2, 3]], 0)
    np.testing.assert_array_equal(some.location, alone.location)
    with pytest.raises(NumericalFailure, match="after site 'z' it fails with _LinAlgError"):
        scores_of(density, theta[[1, 1]], 0)
