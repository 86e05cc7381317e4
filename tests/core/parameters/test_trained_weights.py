"""Starting points from networks that were trained elsewhere."""

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.parameters.trained_weights import with_weights
from bnnzoo.core.program.sites import ModelError
from bnnzoo.models import likelihoods, priors, supervised

X = torch.linspace(-2.0, 2.0, 30)[:, None]
Y = torch.sin(X[:, 0])


def network(*, frozen=False, width=3):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(1, width), nn.BatchNorm1d(width), nn.Tanh(), nn.Linear(width, 1)).eval()
    net[0].requires_grad_(not frozen)
    return net


def density_of(net):
    return build_density(supervised(net, priors.normal(1.0), likelihoods.gaussian()), X, Y)


@pytest.mark.parametrize("frozen", [False, True])
def test_weights_take_the_place_of_those_of_the_start(frozen):
    net = network(frozen=frozen)
    density = density_of(net)
    start = density.init(2, seed=0)
    found = with_weights(density, start, net.state_dict())
    values = density.constrain(found)
    torch.testing.assert_close(values["sigma"], density.constrain(start)["sigma"])
    for name, value in net.named_parameters():
        if value.requires_grad:
            torch.testing.assert_close(values[f"net.{name}"], value.detach().expand(2, *value.shape))
    with torch.no_grad():
        torch.testing.assert_close(density.conditional(found[0], X)["mean"], net(X).squeeze(-1))


@pytest.mark.parametrize("given", [lambda net: net, lambda net: net.state_dict()])
def test_a_fit_without_steps_keeps_the_weights(given):
    net = network()
    method = bz.MAP(init=given(net), num_steps=0, polish_steps=0)
    posterior = bz.fit(supervised(net, priors.normal(1.0), likelihoods.gaussian(0.1)), method, X, Y, progress=False)
    with torch.no_grad():
        torch.testing.assert_close(posterior.density.conditional(posterior.theta[0, 0], X)["mean"], net(X).squeeze(-1))


def no_network(y):
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(pyro.sample("mean", dist.Normal(0.0, 1.0)), 1.0), obs=y)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda w: {k: v for k, v in w.items() if k != "0.bias"},
            r"init has no '0.bias', but has '0.weight', .*: pass net.state_dict\(\)",
        ),
        (
            lambda w: {**w, "4.weight": w["0.weight"]},
            "init has '4.weight', but the network of the model has '0.weight', '0.bias'",
        ),
        (
            lambda _: network(width=4).state_dict(),
            r"init has '0.weight' of shape \(4, 1\), but the network of the model has \(3, 1\)",
        ),
    ],
)
def test_weights_of_another_network_are_refused(change, message):
    density = density_of(network())
    with pytest.raises(ValueError, match=message) as caught:
        with_weights(density, density.init(1, seed=0), change(network().state_dict()))
    assert "\n" not in str(caught.value)


def test_a_model_without_a_network_takes_no_weights():
    with pytest.raises(ModelError, match="init has the weights of a network, but this model has no networks: build"):
        bz.fit(no_network, bz.MAP(init=network()), Y, progress=False)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.FitWarning")
def test_posteriors_around_a_trained_network():
    torch.manual_seed(0)
    net, y = bz.models.mlp(1, (10,)), Y + 0.1 * torch.randn(30)
    optimiser = torch.optim.Adam(net.parameters(), lr=0.02)
    for _ in range(400):
        optimiser.zero_grad()
        (net(X).squeeze(-1) - y).square().mean().backward()
        optimiser.step()
    model, trained = supervised(net, priors.normal(1.0), likelihoods.gaussian()), bz.MAP(init=net, num_steps=0)
    for method in (
        bz.LastLayerLaplace(map=trained),
        bz.KFACLaplace(map=trained),
        bz.SWAG(init=trained, num_steps=200, learning_rate=1e-5),
    ):
        posterior = bz.fit(model, method, X, y, progress=False)
        mean = bz.predict(posterior, X, num_draws=100)["conditional"]["mean"].mean(("chain", "draw")).to_numpy()
        assert abs(mean - Y.numpy()).max() < 0.3
    best = bz.maximise_evidence(
        lambda scale: supervised(net, priors.normal(scale), likelihoods.gaussian(0.1)),
        bz.LastLayerLaplace(map=trained),
        X,
        y,
        start={"scale": 1.0},
        max_fits=8,
        tolerance=0.5,
    )
    assert 0.1 < best.values["scale"] < 10.0
