"""Estimators of the mean-field bound: equal means, less noise, and the divergence in closed form."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn
from torch.distributions import Normal, kl_divergence

import bnnzoo as bz
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import MeanFieldVI, fit
from bnnzoo.inference.variational.elbo import PathwiseBound
from bnnzoo.inference.variational.mean_field_bound import MeanFieldBound, gaussian_sites
from bnnzoo.inference.variational.mean_field_vi import MeanField
from bnnzoo.inference.variational.noisy_layers import noisy_layers
from bnnzoo.testing import linear_gaussian, linear_network
from bnnzoo.testing.isolation import leaves_no_trace

NUM_NOISES = 1500
MLP = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))
CONV = nn.Sequential(nn.Conv2d(2, 3, 3), nn.Tanh(), nn.Flatten(), nn.Linear(12, 1, bias=False))


def model_of(net: nn.Module, *, knows_noise: bool = True):
    def model(x: Tensor, y: Tensor | None = None) -> None:
        sigma = 0.5 if knows_noise else pyro.sample("sigma", dist.LogNormal(0.0, 0.3))
        f = bz.random_module("net", net, bz.priors.normal(0.8))(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, sigma), obs=y)

    return model


def case(name: str, *, knows_noise: bool = True) -> tuple[LogDensity, Tensor]:
    """Return a density of 32 rows and parameters of q for it."""
    generator = torch.Generator().manual_seed(0)
    net, shape = (MLP, (32, 3)) if name == "mlp" else (CONV, (32, 2, 4, 4))
    x, y = torch.randn(shape, generator=generator), torch.randn(32, generator=generator)
    density = build_density(model_of(net, knows_noise=knows_noise), x, y)
    loc = 0.4 * torch.randn(density.num_params, generator=generator)
    log_scale = -2.0 + 0.3 * torch.randn(density.num_params, generator=generator)
    return density, torch.cat([loc, log_scale])


def gradients(bound, params: Tensor, num_extra: int, batch, seed: int = 1) -> tuple[Tensor, Tensor]:
    """Return the estimates ``[S]`` of the bound and ``[S, Q]`` of its gradient for many noises."""
    noise = torch.randn(NUM_NOISES, len(params) // 2 + num_extra, generator=torch.Generator().manual_seed(seed))

    def term(params: Tensor, row: Tensor) -> Tensor:
        return bound(params, row, batch, None, 1.0)

    gradient, value = torch.func.vmap(torch.func.grad_and_value(term), in_dims=(None, 0))(params, noise)
    return value, gradient


@pytest.mark.parametrize("rows", [32, 16], ids=["all_rows", "mini_batch"])
@pytest.mark.parametrize(
    ("net", "estimator"), [("mlp", "local"), ("mlp", "flipout"), ("conv", "local"), ("conv", "flipout")]
)
def test_estimators_have_the_same_mean_and_less_noise(net: str, estimator, rows: int) -> None:
    density, params = case(net)
    batch = tuple(part[:rows] for part in density.data)
    layers = noisy_layers(density, estimator, batch)
    assert [layer.path for layer in layers] == (["0", "2"] if net == "mlp" else ["0", "3"])
    assert [layer.is_local for layer in layers] == [estimator == "local" and net == "mlp", estimator == "local"]
    by_rows = MeanFieldBound(density, layers, gaussian_sites(density))
    shared = gradients(PathwiseBound(density, MeanField()), params, 0, batch)
    noisy = gradients(by_rows, params, by_rows.num_extra, batch, seed=2)
    for ours, theirs in zip(noisy, shared, strict=True):
        mcse = ((ours.var(0) + theirs.var(0)) / NUM_NOISES).sqrt()
        assert ((ours.mean(0) - theirs.mean(0)).abs() < 5 * mcse).all()
    # In a convolution all positions of a row share the weights, and that noise remains.
    share = 0.4 if net == "mlp" else 0.7
    assert noisy[1].var(0).sum() < share * shared[1].var(0).sum()


def test_divergence_in_closed_form_is_that_of_torch_over_all_weights() -> None:
    density, params = case("mlp")
    loc, scale = params.chunk(2)[0], params.chunk(2)[1].exp()
    expected = kl_divergence(Normal(loc, scale), Normal(0.0, 0.8)).sum()
    bound = MeanFieldBound(density, (), gaussian_sites(density))
    for noise in torch.randn(3, density.num_params):
        likelihood = density.log_likelihood(loc + scale * noise, *density.data).sum()
        found = likelihood - bound(params, noise, density.data)
        torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_sites_with_another_prior_keep_their_draws() -> None:
    density, params = case("mlp", knows_noise=False)
    closed = gaussian_sites(density)
    assert {site.name for site in closed} == {site.name for site in density.sites if site.is_weight}
    path = gradients(PathwiseBound(density, MeanField()), params, 0, density.data)
    ours = gradients(MeanFieldBound(density, (), closed), params, 0, density.data)
    for one, other in zip(path, ours, strict=True):
        mcse = ((one - other).var(0) / NUM_NOISES).sqrt()
        assert ((one.mean(0) - other.mean(0)).abs() < 5 * mcse + 1e-12).all()


def test_prior_whose_scale_is_latent_has_its_expected_divergence() -> None:
    def model() -> None:
        tau = pyro.sample("tau", dist.LogNormal(0.0, 0.5))
        pyro.sample("w", dist.Normal(torch.zeros(4), tau).to_event(1))

    density = build_density(model)
    params = torch.randn(10) * 0.3
    (site,) = gaussian_sites(density)
    noise = torch.randn(5)
    loc, scale = params[:5], params[5:].exp()
    theta = loc + scale * noise
    tau, own = theta[:1], slice(1, 5)
    expected = -kl_divergence(Normal(loc[own], scale[own]), Normal(0.0, tau.exp())).sum()
    expected += Normal(0.0, 0.5).log_prob(tau).sum() - Normal(loc[:1], scale[:1]).log_prob(tau).sum()
    torch.testing.assert_close(MeanFieldBound(density, (), (site,))(params, noise, ()), expected)


def test_divergence_in_closed_form_takes_noise_out_of_the_bound() -> None:
    density, params = case("mlp")
    params = params - torch.tensor([0.0, 1.0]).repeat_interleave(density.num_params)  # narrower, for less of the other
    sampled, _ = gradients(PathwiseBound(density, MeanField()), params, 0, density.data)
    closed, _ = gradients(MeanFieldBound(density, (), gaussian_sites(density)), params, 0, density.data)
    mcse = ((sampled - closed).var() / NUM_NOISES).sqrt()
    assert (sampled.mean() - closed.mean()).abs() < 5 * mcse
    assert closed.var() < 0.9 * sampled.var()  # the likelihood's noise remains


def test_annealing_and_temperature_count_the_divergence_once() -> None:
    density, params = case("mlp", knows_noise=False)
    noise = torch.randn(density.num_params)
    plain = PathwiseBound(density, MeanField())
    same = MeanFieldBound(density, (), ())  # nothing in closed form: the estimates agree draw by draw
    for weight, temperature in ((None, 1.0), (torch.tensor(0.3), 1.0), (torch.tensor(0.3), 0.5), (None, 2.0)):
        arguments = (params, noise, density.data, weight, temperature)
        torch.testing.assert_close(same(*arguments), plain(*arguments))


@pytest.mark.parametrize("estimator", ["local", "flipout"])
def test_fit_recovers_a_linear_gaussian_model(estimator) -> None:
    target = linear_network(correlation=0.4)
    method = MeanFieldVI(num_steps=400, estimator=estimator)
    with leaves_no_trace("MeanFieldVI"):
        posterior = fit(target.model, method, *target.data)
    sd = target.sd["net.weight"].flatten()
    assert ((posterior.loc - target.mean["net.weight"].flatten()).abs() < 0.1 * sd).all()
    assert ((posterior.covariance.diagonal() / target.mean_field_sd() ** 2 - 1).abs() < 0.1).all()
    short = MeanFieldVI(num_steps=5, estimator=estimator, batch_size=20)
    first, second = (fit(target.model, short, *target.data, seed=3).draws() for _ in range(2))
    assert torch.equal(first, second)


def test_what_cannot_have_noise_by_rows_keeps_one_draw() -> None:
    shared = nn.Linear(3, 3)
    net = nn.Sequential(shared, nn.Tanh(), shared, nn.Linear(3, 1))
    x, y = torch.randn(6, 3), torch.randn(6)
    density = build_density(model_of(net), x, y)
    assert [layer.path for layer in noisy_layers(density, "local", (x, y))] == ["3"]
    frozen = nn.Linear(3, 1)
    frozen.bias.requires_grad_(False)
    (layer,) = noisy_layers(build_density(model_of(frozen), x, y), "flipout", (x, y))
    assert layer.bias is None
    values = torch.zeros(4)
    out = layer.output(frozen, x, values, values, values, torch.randn(layer.noise_size))
    torch.testing.assert_close(out, frozen.bias.expand(6, 1))


def test_says_what_is_wrong() -> None:
    target = linear_gaussian()
    with pytest.raises(
        ModelError, match=r"estimator='flipout' needs linear or convolutional layers .* \(latent sites: w\)"
    ):
        fit(target.model, MeanFieldVI(estimator="flipout"), *target.data)
    method = MeanFieldVI()
    object.__setattr__(method, "estimator", "local_reparam")  # past the annotation, which tests check
    with pytest.raises(
        ValueError, match=r"MeanFieldVI\(estimator='local_reparam'\): write 'shared', 'local' or 'flipout'"
    ):
        fit(target.model, method, *target.data)
