"""Kronecker factors against explicit loops over rows, and against the dense curvature where they are exact."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference import MAP, KFACLaplace, Laplace, fit
from bnnzoo.inference.laplace.curvature import MonteCarloFisher, precision
from bnnzoo.inference.laplace.family import LaplaceError
from bnnzoo.inference.laplace.kfac import _kronecker_factors
from bnnzoo.models import likelihoods, mlp, priors, random_module, supervised
from bnnzoo.predictive import predict
from bnnzoo.testing.targets import linear_gaussian

pytest.importorskip("curvlinops")
SHORT = MAP(num_steps=200)
X = torch.randn(12, 3, generator=torch.Generator().manual_seed(1))
CLASSES, REAL = torch.arange(12) % 3, X[:, 0] * X[:, 1]


def test_a_prior_without_curvature_names_a_damping_that_is_not_zero() -> None:
    model = supervised(nn.Linear(3, 1), priors.laplace(1.0), likelihoods.gaussian(scale=0.5))
    with pytest.raises(LaplaceError, match=r"site 'net.weight' at the mode is -?0: add damping=1e-06\."):
        fit(model, KFACLaplace(SHORT), X, REAL)


def test_damping_is_added_to_the_precision_of_sites_outside_of_the_network_too() -> None:
    model = supervised(nn.Linear(3, 1), priors.normal(1.0), likelihoods.gaussian())
    plain, damped = (fit(model, KFACLaplace(SHORT, damping=damping), X, REAL, seed=0) for damping in (0.0, 5.0))
    for site in plain.density.sites:
        left, right = (each.covariance.dense()[site.span, site.span].inverse() for each in (plain, damped))
        torch.testing.assert_close(right, left + 5.0 * torch.eye(len(left)), rtol=1e-6, atol=1e-6)


def test_a_site_without_curvature_is_named_and_damping_helps() -> None:
    linear = supervised(nn.Linear(3, 1), priors.normal(1.0), likelihoods.gaussian(scale=0.5))

    def model(x: torch.Tensor, y: torch.Tensor) -> None:
        pyro.sample("idle", dist.Laplace(torch.tensor(0.0), torch.tensor(1.0)))
        linear(x, y)

    sentence = (
        r"site 'idle' at the mode is not positive: its smallest eigenvalue is -?0\. Give the site a proper prior, or "
        r"add damping=1e-06\.$"
    )
    with pytest.raises(LaplaceError, match=sentence):
        fit(model, KFACLaplace(SHORT), X, REAL)
    assert fit(model, KFACLaplace(SHORT, damping=0.1), X, REAL).covariance.dense().diagonal().isfinite().all()


def test_exact_where_the_model_is_linear() -> None:
    target = linear_gaussian()
    model = supervised(nn.Linear(3, 1, bias=False), priors.normal(1.0), likelihoods.gaussian(scale=target.noise))
    posterior = fit(model, KFACLaplace(), *target.data)
    torch.testing.assert_close(posterior.covariance.dense(), target.covariance, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ["categorical", "bernoulli", "gaussian"])
def test_blocks_equal_explicit_loops_over_rows(kind: str) -> None:
    likelihood = {"categorical": likelihoods.categorical(), "bernoulli": likelihoods.bernoulli()}.get(
        kind, likelihoods.gaussian(scale=0.3)
    )
    num_outputs = 3 if kind == "categorical" else 1
    y = {"categorical": CLASSES, "bernoulli": (CLASSES > 0).double()}.get(kind, REAL)
    net = mlp(3, (4,), num_outputs)
    posterior = fit(supervised(net, priors.normal(0.5), likelihood), KFACLaplace(SHORT), X, y)
    weights = {k.removeprefix("net."): v for k, v in posterior.density.constrain(posterior.loc).items()}
    dense = posterior.covariance.dense()
    for layer in ("0", "2"):
        inputs, gradients = _factors_by_loop(net, weights, layer, kind)
        span = next(s.span for s in posterior.density.sites if s.name == f"net.{layer}.weight")
        expected = torch.linalg.inv(torch.kron(gradients, inputs) + 4 * torch.eye(len(gradients) * len(inputs)))
        torch.testing.assert_close(dense[span, span], expected, rtol=1e-6, atol=1e-8)
        span = next(s.span for s in posterior.density.sites if s.name == f"net.{layer}.bias")
        expected = torch.linalg.inv(gradients + 4 * torch.eye(len(gradients)))
        torch.testing.assert_close(dense[span, span], expected, rtol=1e-6, atol=1e-8)


def _factors_by_loop(net, weights, layer, kind):
    """Sum a a^T / N and J^T F J over rows, one at a time."""
    size = weights[f"{layer}.bias"].numel()
    inputs, gradients = 0.0, torch.zeros(size, size)
    for row in X:
        hidden = torch.tanh(weights["0.weight"] @ row + weights["0.bias"])
        a = row if layer == "0" else hidden

        def output(shift, row=row):
            moved = weights | {f"{layer}.bias": weights[f"{layer}.bias"] + shift}
            return functional_call(net, moved, (row[None],))[0]

        f, jacobian = output(torch.zeros(size)), jacrev(output)(torch.zeros(size))
        p = f.softmax(-1) if kind == "categorical" else torch.sigmoid(f)
        fisher = {"categorical": torch.diag(p) - torch.outer(p, p), "bernoulli": torch.diag(p * (1 - p))}.get(
            kind, torch.eye(1) / 0.3**2
        )
        inputs, gradients = inputs + torch.outer(a, a) / len(X), gradients + jacobian.T @ fisher @ jacobian
    return inputs, gradients


def test_noise_scale_has_the_dense_block() -> None:
    model = supervised(nn.Linear(3, 1), priors.normal(1.0), likelihoods.gaussian())
    kfac, dense = fit(model, KFACLaplace(SHORT), X, REAL), fit(model, Laplace(SHORT, curvature="ggn"), X, REAL)
    place = next(s.span for s in kfac.density.sites if s.name == "sigma").start
    precision = torch.linalg.inv(dense.covariance.dense())
    torch.testing.assert_close(1 / kfac.covariance.diagonal()[place], precision[place, place])


def test_convolutional_network_is_predicted() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(2 * 4, 3))
    images = torch.randn(12, 1, 4, 4)
    posterior = fit(supervised(net, priors.normal(1.0), likelihoods.categorical()), KFACLaplace(SHORT), images, CLASSES)
    probs = predict(posterior, images, num_draws=20)["conditional"]["probs"]
    assert dict(probs.sizes) == {"chain": 1, "draw": 20, "obs_id": 12, "class_id": 3}


def test_refusals() -> None:
    target = linear_gaussian()
    with pytest.raises(ModelError, match="KFACLaplace needs the layers of a network"):
        fit(target.model, KFACLaplace(), *target.data)
    normed = nn.Sequential(nn.Linear(3, 3), nn.LayerNorm(3))
    with pytest.raises(ModelError, match=r"'1.weight' belongs to the LayerNorm layer '1'\. Use DiagonalLaplace"):
        fit(supervised(normed, priors.normal(1.0), likelihoods.categorical()), KFACLaplace(SHORT), X, CLASSES)
    method = KFACLaplace(SHORT)
    object.__setattr__(method, "curvature", "hessian")  # past the annotation, which tests check
    with pytest.raises(ValueError, match=r"KFACLaplace\(curvature='hessian'\): write 'ggn' or 'empirical_fisher' or a"):
        fit(supervised(mlp(3), priors.normal(1.0), likelihoods.gaussian()), method, X, REAL)

    def twice(x, y=None):
        net = random_module("net", mlp_once, priors.normal(1.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal((net(x) + net(-x)).squeeze(-1), 1.0), obs=y)

    mlp_once = mlp(3)
    with pytest.raises(ModelError, match="this one calls it 2 times"):
        fit(twice, KFACLaplace(SHORT), X, REAL)


def test_a_layer_that_is_called_several_times_is_refused() -> None:
    card = bz.zoo.load("recurrent")
    with pytest.raises(
        ModelError, match=r"calls the Linear layer 'input' 8 times, as a recurrent one does\. Use Diagonal"
    ):
        card.fit(KFACLaplace(SHORT))


class Squeezed(nn.Sequential):
    def forward(self, x):
        return super().forward(x).squeeze(-1)


def test_an_output_without_an_axis_of_its_own_has_the_factors_of_one_with_it() -> None:
    layers = nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1)
    net, squeezed = nn.Sequential(*layers), Squeezed(*layers)

    def with_axis(x, y=None):
        mean = random_module("net", net, priors.normal(1.0))(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    def without(x, y=None):
        mean = random_module("net", squeezed, priors.normal(1.0))(x)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, 1.0), obs=y)

    expected, found = (fit(model, KFACLaplace(SHORT), X, REAL) for model in (with_axis, without))
    torch.testing.assert_close(found.draws(50), expected.draws(50))


@pytest.mark.parametrize("curvature", ["ggn", "empirical_fisher"])
@pytest.mark.parametrize("batch", [5, 1024])
def test_factors_of_any_family_equal_explicit_loops(curvature, batch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bnnzoo.inference.laplace.kfac.BATCH", batch)
    counts = (CLASSES + 1).double()
    net = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 1))
    density = build_density(supervised(net, priors.normal(0.5), likelihoods.poisson()), X, counts)
    theta = 0.3 * torch.randn(density.num_params, generator=torch.Generator().manual_seed(2))
    (network,) = density.networks
    factors = _kronecker_factors(density, theta, network, curvature)
    weights = {k.removeprefix("net."): v for k, v in density.constrain(theta).items()}
    hidden = torch.tanh(X @ weights["0.weight"].mT + weights["0.bias"])
    log_rate = (hidden @ weights["2.weight"].mT + weights["2.bias"])[:, 0]
    # of y log(rate) - rate: Fisher information rate, score y - rate
    root = log_rate.exp().sqrt() if curvature == "ggn" else counts - log_rate.exp()
    gradients = root[:, None] * weights["2.weight"] * (1 - hidden**2)
    torch.testing.assert_close(factors["net.0.weight"][0], gradients.mT @ gradients)
    torch.testing.assert_close(factors["net.0.weight"][1], X.mT @ X / 12)
    torch.testing.assert_close(factors["net.2.weight"][1], hidden.mT @ hidden / 12)
    torch.testing.assert_close(factors["net.2.bias"][0], (root**2).sum()[None, None])


@pytest.mark.slow
def test_monte_carlo_fisher_tends_to_the_closed_form() -> None:
    net = nn.Sequential(nn.Linear(3, 2), nn.Tanh(), nn.Linear(2, 3))
    density = build_density(supervised(net, priors.normal(0.5), likelihoods.categorical()), X, CLASSES)
    theta = 0.3 * torch.randn(density.num_params, generator=torch.Generator().manual_seed(2))
    (network,) = density.networks
    exact = _kronecker_factors(density, theta, network, "ggn")
    drawn = _kronecker_factors(density, theta, network, MonteCarloFisher(num_draws=1000))
    for name, (gradients, inputs) in exact.items():
        # squares of scores have relative sd of about 1.5 a draw; 12 rows x 1000 draws
        torch.testing.assert_close(drawn[name][0], gradients, rtol=0.0, atol=0.07 * float(gradients.diagonal().max()))
        if inputs is not None:
            torch.testing.assert_close(drawn[name][1], inputs)


def test_likelihood_without_closed_form_has_the_blocks_of_its_fisher_information() -> None:
    """The bias of the last layer, with which the likelihood's parameters move directly, has the block of the dense GGN."""

    def model(x, y=None):
        logits = random_module("net", net, priors.normal(1.0))(x)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.ZeroInflatedPoisson(logits[:, 0].exp(), gate_logits=logits[:, 1]), obs=y)

    net = mlp(3, (4,), 2)
    density = build_density(model, X, (CLASSES + 1).double())
    theta = 0.3 * torch.randn(density.num_params, generator=torch.Generator().manual_seed(2))
    place = next(s.span for s in density.sites if s.name == "net.2.bias")
    (network,) = density.networks
    found = _kronecker_factors(density, theta, network, "ggn")["net.2.bias"][0]
    index = torch.arange(place.start, place.stop)
    torch.testing.assert_close(found, precision(density, theta, "ggn", index) - torch.eye(2))
