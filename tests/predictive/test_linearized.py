"""Predictions linearised at the mode against closed forms and against the linear model they come from."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch.func import jacrev
from torch.fx.experimental.proxy_tensor import make_fx

import bnnzoo as bz
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.model.outputs import linearized
from bnnzoo.inference import MAP, Laplace, MeanFieldVI, fit
from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.predictive.linearized import function_moments, row_density
from bnnzoo.testing.targets import linear_gaussian
from tests.helpers.densities import cases

SHORT = MAP(num_steps=200)
READABLE = ["regression", "categorical", "heteroscedastic", "hierarchical", "bernoulli", "poisson", "masked_and_scaled"]


def test_function_moments_are_exact_on_a_linear_model() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, Laplace(), *target.data)
    x = torch.randn(6, 3)
    mean, covariance = function_moments(posterior, x)
    exact_mean, exact_variance = target.predictive(x)
    torch.testing.assert_close(mean[:, 0], exact_mean, rtol=1e-6, atol=1e-6)
    variance = covariance[:, 0, :, 0].diagonal() + target.noise**2
    torch.testing.assert_close(variance, exact_variance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "name", [n if i < 3 else pytest.param(n, marks=pytest.mark.slow) for i, n in enumerate(READABLE)]
)
def test_linearised_density_agrees_with_the_model_at_the_anchor(name: str) -> None:
    model, data = cases()[name]
    posterior = fit(model, Laplace(SHORT, integrate=False), *data)
    density, anchor = posterior.density, posterior.loc
    line = linearized(density, anchor)
    torch.testing.assert_close(line.log_joint(anchor, *data), density.log_joint(anchor, *data))
    for key, value in density.conditional(anchor, *data).items():
        torch.testing.assert_close(line.conditional(anchor, *data)[key], value)


def test_outputs_are_linear_in_theta() -> None:
    model, (x, y) = cases()["heteroscedastic"]
    posterior = fit(model, Laplace(SHORT), x, y)
    line = linearized(posterior.density, posterior.loc)
    step = torch.randn_like(posterior.loc)

    def outputs(theta):
        found = line.conditional(theta, x)
        return torch.stack([found["mean"], found["variance"].log() / 2])

    here, there = outputs(posterior.loc + step), outputs(posterior.loc - 2 * step)
    torch.testing.assert_close((2 * here + there) / 3, outputs(posterior.loc), rtol=1e-8, atol=1e-8)
    jacobian = jacrev(lambda t: posterior.density.conditional(t, x)["mean"])(posterior.loc)
    torch.testing.assert_close(here[0], outputs(posterior.loc)[0] + jacobian @ step, rtol=1e-8, atol=1e-8)


def test_draws_of_the_linearised_function_have_its_moments() -> None:
    model, (x, y) = cases()["regression"]
    posterior = fit(model, Laplace(SHORT), x, y)
    tree = predict(posterior, x, num_draws=4000)
    draws = tree["conditional"]["mean"].to_numpy()[0]
    mean, covariance = function_moments(posterior, x)
    sd = covariance[:, 0, :, 0].diagonal().sqrt().numpy()
    assert (np.abs(draws.mean(0) - mean[:, 0].numpy()) < 5 * sd / 4000**0.5).all()
    assert (np.abs(draws.std(0) / sd - 1) < 5 / 8000**0.5).all()


def test_gauss_newton_posteriors_are_linearised_unless_told_otherwise() -> None:
    model, data = cases()["categorical"]
    posterior = fit(model, Laplace(SHORT), *data)
    auto, yes, no = (
        posterior_predictive(posterior, *data, num_draws=50, linearized=wanted)["conditional"]["probs"].to_numpy()
        for wanted in ("auto", True, False)
    )
    np.testing.assert_array_equal(auto, yes)
    assert np.abs(auto - no).max() > 0.01


@pytest.mark.parametrize("method", [MeanFieldVI(num_steps=20, num_averaged=5), Laplace(SHORT, curvature="hessian")])
def test_other_posteriors_are_not(method) -> None:
    model, data = cases()["bernoulli"]
    posterior = fit(model, method, *data)
    auto, no = (
        posterior_predictive(posterior, *data, num_draws=20, linearized=w)["conditional"]["probs"]
        for w in ("auto", False)
    )
    np.testing.assert_array_equal(auto.to_numpy(), no.to_numpy())


def test_refusals() -> None:
    model, data = cases()["regression"]
    with pytest.raises(ValueError, match="posterior of MAP is not Gaussian"):
        predict(fit(model, SHORT, *data), *data, linearized=True)

    def with_a_factor(y):
        mean = pyro.sample("mean", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("obs", dist.Normal(mean, 1.0), obs=y)
            pyro.factor("more", -(mean**2) * y**2)

    y = torch.randn(20)
    with pytest.raises(ValueError, match=r"pyro.factor site 'more', which has no family\. Leave linearized out"):
        predict(fit(with_a_factor, Laplace(SHORT, curvature="hessian"), y), y, linearized=True)


@pytest.mark.parametrize(
    ("distribution", "fisher"),
    [
        (torch.distributions.Normal(1.0, 2.0), [0.25, 2.0]),
        (torch.distributions.LogNormal(1.0, 2.0), [0.25, 2.0]),
        (torch.distributions.Laplace(1.0, 2.0), [0.25, 1.0]),
        (torch.distributions.StudentT(4.0, 1.0, 2.0), [5 / 28, 8 / 7]),
        (torch.distributions.Bernoulli(0.25), [0.1875]),
        (torch.distributions.Binomial(3, torch.tensor(0.25)), [0.5625]),
        (torch.distributions.Poisson(3.0), [3.0]),
        (torch.distributions.Exponential(3.0), [1.0]),
    ],
)
def test_fisher_information_of_each_family(distribution, fisher) -> None:
    found = read(distribution.expand([1]))
    rebuilt = found.build(found.coordinates)
    value = distribution.sample()
    torch.testing.assert_close(rebuilt.log_prob(value), distribution.log_prob(value).expand(1))
    torch.testing.assert_close(torch.stack([root[0, 0, 0] ** 2 for root in found.roots]), torch.tensor(fisher))
    # and by the variance of the score
    y = distribution.sample((200_000,))
    for place, expected in enumerate(fisher):
        z = [block[:1].detach().expand(200_000, -1).clone().requires_grad_() for block in found.coordinates]
        score = torch.autograd.grad(found.build(tuple(z)).log_prob(y).sum(), z[place])[0]
        square = score[:, 0].detach() ** 2
        assert abs(square.mean() - expected) <= 5 * square.std() / 200_000**0.5


def test_a_likelihood_that_validates_can_be_traced() -> None:
    """Pyro validates distributions by default, which branches on values: a graph cannot."""
    x = torch.linspace(-1.0, 1.0, 12)[:, None]
    y = (x[:, 0] > 0).long()
    net = bz.models.mlp(1, (3,), 2)

    def model(x, y=None):
        logits = bz.random_module("net", net, bz.priors.fan_in())(x)
        with pyro.plate("data", len(x)):
            return pyro.sample("y", dist.Categorical(logits=logits), obs=y)

    posterior = bz.fit(model, bz.Laplace(), x, y, seed=0, progress=False)
    density = row_density(posterior, True)
    theta = posterior.draws(5)[0]

    def log_density(point: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return density.observed_nodes(point, x, label)["y"]["fn"].log_prob(label)

    graph = make_fx(log_density, tracing_mode="real")(theta[0], y)
    torch.testing.assert_close(graph(theta[1], 1 - y), log_density(theta[1], 1 - y))
