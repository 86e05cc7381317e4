"""The bound against Pyro's, against closed forms, and against the traps of mini-batches and scaling."""

import pytest
import torch
from pyro import poutine
from pyro.infer import Trace_ELBO
from pyro.infer.autoguide import AutoDiagonalNormal
from torch import Tensor
from torch.distributions import kl_divergence

from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference.variational.elbo import PathwiseBound, elbo
from bnnzoo.inference.variational.even_noise import Noise
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.testing.targets import linear_gaussian
from tests.helpers.densities import cases

IN_PYRO = [name for name in cases() if name not in {"simplex", "two_sites"}]


@pytest.mark.parametrize("name", IN_PYRO)
def test_guide_has_pyros_bound_at_equal_parameters_and_noise(name: str) -> None:
    model, data = cases()[name]
    density = build_density(model, *data)
    loc = 0.1 * torch.randn(density.num_params)
    scale = 0.1 + 0.2 * torch.rand(density.num_params)
    gaussian = Gaussian(density, FitInfo("iid"), loc, Diagonal(scale))
    pyros = AutoDiagonalNormal(model)
    pyros(*data)
    pyros.loc.data, pyros.scale = loc, scale
    bound = Trace_ELBO(num_particles=4)
    torch.manual_seed(7)
    expected = -bound.loss(model, pyros, *data)
    torch.manual_seed(7)
    torch.testing.assert_close(-bound.loss(model, gaussian.as_guide(), *data), expected, rtol=1e-10, atol=1e-10)
    torch.manual_seed(7)
    noise = _noise_of(pyros, data, loc, scale)
    own = elbo(density, MeanField(), torch.cat([loc, scale.log()]), noise, data, looped=True)
    torch.testing.assert_close(own.detach(), torch.tensor(expected), rtol=1e-10, atol=1e-10)


def _noise_of(guide: AutoDiagonalNormal, data: tuple[Tensor, ...], loc: Tensor, scale: Tensor) -> Tensor:
    """Return the standard normal noise behind four draws of theta by Pyro's guide."""
    draws = [poutine.trace(guide).get_trace(*data).nodes["_AutoDiagonalNormal_latent"]["value"] for _ in range(4)]
    return (torch.stack(draws).detach() - loc) / scale


def test_gradient_of_the_bound_has_the_mean_of_pyros() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    params = torch.randn(6, requires_grad=True, generator=torch.Generator().manual_seed(1))
    noise = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(2))
    (ours,) = torch.autograd.grad(elbo(density, MeanField(), params, noise, target.data), params)
    loc, log_scale = params.chunk(2)
    precision = torch.linalg.inv(target.covariance)
    exact_loc = precision @ (target.mean["w"] - loc)
    exact_scale = 1 - precision.diagonal() * (2 * log_scale).exp()
    exact = torch.cat([exact_loc, exact_scale]).detach()
    assert ((ours - exact).abs() < 0.05 * (1 + exact.abs())).all()


def test_mini_batch_bound_is_unbiased_and_the_divergence_is_not_divided() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    params, noise = torch.randn(6), torch.randn(5, 3)
    x, y = target.data
    batches = [(x[rows], y[rows]) for rows in torch.randperm(40).split(8)]
    mean = torch.stack([elbo(density, MeanField(), params, noise, batch) for batch in batches]).mean()
    torch.testing.assert_close(mean, elbo(density, MeanField(), params, noise, target.data))


def test_bound_is_the_likelihood_less_the_whole_divergence_over_all_sites() -> None:
    model, data = cases()["categorical"]
    density = build_density(model, *data)
    loc, scale = torch.randn(density.num_params), torch.full((density.num_params,), 0.5)
    params = torch.cat([loc, scale.log()])
    noise = Noise((1, 2**13, density.num_params), loc, seed=0)(torch.Generator())[0][0]
    theta = loc + scale * noise
    likelihood = torch.func.vmap(lambda t: density.log_likelihood(t, *data).sum())(theta).mean()
    kl = torch.zeros(())
    for site, sd in zip(density.sites, (1.0, 0.5), strict=True):
        kl += kl_divergence(torch.distributions.Normal(loc[site.span], 0.5), torch.distributions.Normal(0.0, sd)).sum()
    torch.testing.assert_close(elbo(density, MeanField(), params, noise, data), likelihood - kl, rtol=0, atol=0.02)


def test_is_the_mean_over_particles_however_they_are_evaluated() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    params, noise, weight = torch.randn(6), torch.randn(5, 3), torch.tensor(0.3)
    bound = PathwiseBound(density, MeanField())
    each = torch.stack([bound(params, row, target.data, weight, 0.5) for row in noise])
    for looped in (False, True):
        found = elbo(density, MeanField(), params, noise, target.data, weight, 0.5, looped)
        torch.testing.assert_close(found, each.mean())


def test_weight_and_temperature_count_prior_and_entropy() -> None:
    target = linear_gaussian()
    density = build_density(target.model, *target.data)
    params, noise, family = torch.randn(6), torch.randn(3), MeanField()
    theta = family.draw(params, noise)
    likelihood = density.log_likelihood(theta, *target.data).sum()
    divergence = 0.5 * family.log_prob(params, theta) - density.log_prior(theta)
    found = PathwiseBound(density, family)(params, noise, target.data, torch.tensor(0.3), 0.5)
    torch.testing.assert_close(found, likelihood - 0.3 * divergence)
