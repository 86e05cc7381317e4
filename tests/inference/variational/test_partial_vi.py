"""VI on top of a point: against the exact posterior of a linear last layer given the layers below."""

import json
from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.inference import MAP, SVI, FullRankVI, Laplace, LastLayerVI, MeanFieldVI, SubsetVI, fit
from bnnzoo.testing import linear_gaussian

NOISE = 0.4
NET = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1, bias=False))
BELOW = MAP(num_steps=200)


def network_model(x: Tensor, y: Tensor | None = None) -> None:
    f = bz.random_module("net", NET, bz.priors.normal(1.0))(x).squeeze(-1)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(f, NOISE), obs=y)


def data() -> tuple[Tensor, Tensor]:
    x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    return x, torch.sin(2 * x[:, 0]) + x[:, 1]


def exact_given_below(posterior: Gaussian) -> tuple[Tensor, Tensor]:
    """Return mean and precision of the last layer's weights, with those below where they are."""
    x, y = data()
    values = posterior.density.constrain(posterior.loc)
    features = torch.tanh(x @ values["net.0.weight"].T + values["net.0.bias"])
    precision = features.T @ features / NOISE**2 + torch.eye(4)
    return torch.linalg.solve(precision, features.T @ y / NOISE**2), precision


def test_full_rank_on_top_is_the_exact_conditional_posterior() -> None:
    posterior = fit(network_model, LastLayerVI(BELOW, FullRankVI(num_steps=500)), *data())
    index = posterior.covariance.index
    mean, precision = exact_given_below(posterior)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert ((posterior.loc[index] - mean).abs() < 0.03 * sd).all()
    error = (posterior.covariance.dense()[index][:, index] - torch.linalg.inv(precision)) / torch.outer(sd, sd)
    assert error.abs().max() < 0.03
    # the layers below do not move, in no draw
    fixed = torch.ones(posterior.density.num_params, dtype=torch.bool).index_fill(0, index, False)
    below = fit(network_model, BELOW, *data()).theta[0, 0]
    assert torch.equal(posterior.draws(7)[..., fixed], below[fixed].expand(1, 7, -1))


@pytest.mark.slow
def test_mean_field_on_top_of_laplace_in_restarts() -> None:
    method = LastLayerVI(Laplace(BELOW), MeanFieldVI(num_steps=500, num_restarts=2))
    posterior = fit(network_model, method, *data())
    assert isinstance(posterior, Mixture)
    assert posterior.draws(5).shape == (2, 5, posterior.density.num_params)
    first = posterior.components[0]
    _, precision = exact_given_below(first)
    torch.testing.assert_close(first.covariance.covariance.diagonal(), 1 / precision.diagonal(), rtol=0.05, atol=0)
    tree = bz.posterior_predictive(posterior, *data(), num_draws=20)
    assert tree["sample_stats"]["log_q"].shape == (2, 20)
    assert json.loads(tree.attrs["config"])["below"]["method"] == "Laplace"
    assert posterior.info.num_gradients > 500 * 2 * 8


def test_subset_of_all_sites_is_the_method_itself() -> None:
    target = linear_gaussian()
    vi = MeanFieldVI(num_steps=60, init_scale=0.1)
    below = MAP(init=target.mean["w"][None], num_steps=0, polish_steps=0)
    whole = fit(target.model, replace(vi, init=target.mean["w"][None]), *target.data)
    subset = fit(target.model, SubsetVI(("w",), below, vi), *target.data)
    torch.testing.assert_close(subset.loc, whole.loc)
    torch.testing.assert_close(subset.covariance.dense(), whole.covariance.dense())


def test_says_what_is_wrong() -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=r"SubsetVI\(vi=SVI\(\)\): write MeanFieldVI\(\), LowRankVI\(\) or FullRankVI"):
        fit(target.model, SubsetVI(vi=SVI()), *target.data)
    with pytest.raises(ValueError, match="SubsetVI starts where the method below ends: leave init out of MeanFieldVI"):
        fit(target.model, SubsetVI(vi=MeanFieldVI(init=MAP())), *target.data)
    with pytest.raises(ValueError, match="SubsetVI draws its weights once for all rows: leave estimator"):
        fit(target.model, SubsetVI(vi=MeanFieldVI(closed_form_kl=True)), *target.data)
    with pytest.raises(ValueError, match="random_module"):
        fit(target.model, LastLayerVI(), *target.data)
