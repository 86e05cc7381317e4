"""Chains of networks are judged by their functions, and unadjusted ones by short chains with an acceptance step."""

import re
import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.fit_warnings import BiasedDrawsWarning, ChainsApartWarning, FewEffectiveDrawsWarning, Trouble
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws, Gaussian
from bnnzoo.core.verdict.verdict import troubles
from bnnzoo.inference import Laplace
from bnnzoo.models import likelihoods

C, S = 4, 500


@pytest.fixture(scope="module")
def line() -> Gaussian:
    """The exact posterior of a straight line, a network without hidden units."""
    generator = torch.Generator().manual_seed(3)
    x = 4 * torch.rand(40, 1, generator=generator) - 2
    y = x[:, 0] + 0.2 * torch.randn(40, generator=generator)
    net = bz.models.mlp(1, ())
    model = bz.models.supervised(net, bz.priors.fan_in(2.0), likelihoods.gaussian(scale=0.2))
    posterior = bz.fit(model, Laplace(), x, y, seed=0, progress=False)
    assert isinstance(posterior, Gaussian)
    return posterior


def chains_of(exact: Gaussian, theta: Tensor, unadjusted: bool = False, **config: float) -> Draws:
    """Draws [C, S, P] as of a sampler; their log density says nothing."""
    lp = torch.randn(theta.shape[:2], generator=torch.Generator().manual_seed(5))
    info = FitInfo("mcmc", sample_stats={"lp": lp}, unadjusted=unadjusted, config=config)
    return Draws(exact.density, info, theta)


def independent(exact: Gaussian) -> Tensor:
    return exact.draws(C * S)[0].unflatten(0, (C, S))


def only(posterior: Draws) -> Trouble:
    (found,) = troubles(posterior)
    return found


def test_right_draws_are_quiet(line: Gaussian) -> None:
    for unadjusted in (False, True):
        assert troubles(chains_of(line, independent(line), unadjusted)) == []


def test_functions_that_disagree_between_chains_are_told(line: Gaussian) -> None:
    theta = independent(line)
    apart = theta + theta.flatten(0, 1).std(0) * torch.tensor([0.0, 0.0, 0.0, 1.5])[:, None, None]
    found = only(chains_of(line, apart))
    assert found.kind is ChainsApartWarning
    assert re.match(r"The chains disagree: R-hat of the expected outcome at observation \d+ is 1\.[1-9]", found.message)


def test_functions_worth_few_draws_are_told(line: Gaussian) -> None:
    """Ten draws, each twenty-five times, in both halves of all chains, which so agree."""
    ten = independent(line)[:1, :10].repeat_interleave(25, 1)
    found = only(chains_of(line, ten.repeat(C, 2, 1)))
    assert found.kind is FewEffectiveDrawsWarning
    assert re.match(
        r"The 2000 draws of the expected outcome at observation \d+ are worth \d\d independent", found.message
    )
    assert "Write a larger num_draws (now 500 for each of 4 chains)" in found.message


@pytest.mark.parametrize(("scale", "shift"), [(1.6, 0.0), (0.6, 0.0), (1.0, 0.7)])
def test_a_bias_is_told_of_unadjusted_samplers_only(line: Gaussian, scale: float, shift: float) -> None:
    theta = independent(line)
    centre, sd = theta.mean((0, 1)), theta.flatten(0, 1).std(0)
    biased = centre + scale * (theta - centre) + shift * sd
    assert troubles(chains_of(line, biased)) == []
    found = only(chains_of(line, biased, unadjusted=True, variance_bias=0.025))
    assert found.kind is BiasedDrawsWarning
    what = "mean" if shift else "standard deviation"
    assert re.search(rf"its {what} of the expected outcome at observation \d+ is", found.message)
    assert "write a smaller variance_bias (now 0.025) or a larger batch_size" in found.message
    assert troubles(chains_of(line, biased, unadjusted=True, temperature=0.5)) == []


def test_models_without_networks_are_judged_by_their_sites() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 10.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    exact = bz.fit(model, Laplace(), torch.zeros(25, dtype=torch.float64), progress=False, dtype=torch.float64)
    theta = independent(exact)
    found = only(chains_of(exact, 2.0 * theta, unadjusted=True))
    assert "its standard deviation of 'mu' is" in found.message and "write a smaller step_size or" in found.message
    assert troubles(chains_of(exact, theta, unadjusted=True)) == []


@pytest.mark.parametrize(
    ("method", "kinds"),
    [
        (bz.SGHMC(), set()),
        (bz.MCLMC(), set()),
        (bz.SGLD(step_size=1.8, num_draws=2000), {BiasedDrawsWarning}),
    ],
    ids=["SGHMC", "MCLMC", "SGLD"],
)
def test_fits_of_unadjusted_samplers(line: Gaussian, method: bz.core.method.Method, kinds: set[type]) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        posterior = bz.fit(line.density.model, method, *line.density.data, seed=0, progress=False)
    assert posterior.info.unadjusted
    assert {each.category for each in caught} == kinds
