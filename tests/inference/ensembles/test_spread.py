"""Members of ensembles without a network: far from a mode, at one mode, and draws where the model is linear."""

import warnings

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.fit_warnings import NotConvergedWarning, TooNarrowWarning
from bnnzoo.core.model.density import build_density
from bnnzoo.inference.ensembles.spread import warn_of_spread
from bnnzoo.testing import linear_gaussian

HEIGHTS = 154 + 8 * torch.randn(100, generator=torch.Generator().manual_seed(0)).double()


def heights(y: Tensor) -> None:
    mu, sigma = pyro.sample("mu", dist.Normal(178.0, 20.0)), pyro.sample("sigma", dist.Uniform(0.0, 50.0))
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(mu, sigma), obs=y)


def test_members_that_did_not_arrive_are_told() -> None:
    with pytest.warns(
        NotConvergedWarning, match=r"the best of them is about \d+ posterior standard deviations away.*MAP"
    ):
        bz.fit(heights, bz.DeepEnsemble(2, num_steps=500), HEIGHTS, progress=False)


def test_a_noise_scale_of_anchored_members_is_told() -> None:
    with pytest.warns(
        TooNarrowWarning, match=r"over members 'sigma' varies by 0\.\d+ of its posterior standard deviation"
    ):
        bz.fit(heights, bz.DeepEnsemble(anchored=True, num_steps=500), HEIGHTS, progress=False)


def test_members_at_one_mode_are_told() -> None:
    target = linear_gaussian()
    with pytest.warns(TooNarrowWarning, match="A model without a network has few modes"):
        bz.fit(target.model, bz.DeepEnsemble(), *target.data, progress=False)


def test_draws_from_the_posterior_are_not() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data, dtype=torch.float64)
    mean = target.mean["w"].double()
    root = torch.linalg.cholesky(target.covariance.double())
    for seed in range(200):
        draws = torch.randn(5, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            warn_of_spread(density, mean + draws @ root.mT)
