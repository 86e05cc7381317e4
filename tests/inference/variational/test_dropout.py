"""Dropout as a distribution over weights: against networks with dropout layers, exact expectations and closed forms."""

import math
from itertools import product

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import nn
from torch.nn import functional

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.variational.hidden_units import dropped, hidden_units
from bnnzoo.testing import dropout_network

X = torch.randn(7, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X[:, 0]


def model_of(net, prior=None, likelihood=None):
    return bz.models.supervised(net, prior or bz.priors.normal(0.7), likelihood or bz.likelihoods.gaussian(0.5))


def density_of(net, x=X, y=Y, prior=None):
    return build_density(model_of(net, prior), x, y, dtype=torch.float64)


def units_of(net, *, given=False, x=X, y=Y):
    return hidden_units(density_of(net, x, y), given=given, method="MCDropout")


def fitted(net, method, **settings):
    return bz.fit(model_of(net), method, X, Y, dtype=torch.float64, progress=False, **settings)


def bound_of(method, density):
    hidden = method.hidden_units(density)
    family = method.family(hidden, torch.empty(0, dtype=density.dtype))
    return family, method.bound(density, family)


def test_dropout_layers_of_a_network_say_which_units_are_dropped_and_how_often():
    net = nn.Sequential(nn.Dropout(0.1), nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    posterior = fitted(net, bz.MCDropout(num_steps=2))
    assert posterior.info.config["rates"] == {"net.0": 0.1, "net.3": 0.3}
    assert posterior.rates.tolist() == pytest.approx([0.1] * 2 + [0.3] * 4)
    weight = posterior.density.constrain(posterior.draws(200)[0])["net.4.weight"][:, 0]
    kept = posterior.density.constrain(posterior.loc)["net.4.weight"][0] / 0.7
    assert ((weight == 0) | torch.isclose(weight, kept)).all()
    assert 0.2 < float((weight == 0).double().mean()) < 0.4
    biases = posterior.density.constrain(posterior.draws(5)[0])["net.1.bias"]
    assert torch.equal(biases, biases[:1].expand_as(biases))


def test_a_rate_replaces_those_of_the_dropout_layers():
    net = nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Tanh(), nn.Linear(4, 1))
    assert fitted(net, bz.MCDropout(0.2, num_steps=2)).info.config["rates"] == {"net.1": 0.2}


def test_without_dropout_layers_the_inputs_of_all_layers_but_the_first_are_dropped():
    found = units_of(bz.models.mlp(2, (3, 4)), given=True)
    assert [(place.name, place.count) for place in found.places] == [("net.2", 3), ("net.4", 4)]
    sites = {site.name: found.units[0, site.span] for site in density_of(bz.models.mlp(2, (3, 4))).sites}
    assert sites["net.2.weight"].tolist() == [0, 1, 2] * 4
    for free in ("net.0.weight", "net.0.bias", "net.2.bias", "net.4.bias"):
        assert (sites[free] == 7).all()


IMAGES = torch.randn(5, 1, 6, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
CONVNET = nn.Sequential(
    nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout2d(0.2), nn.MaxPool2d(2), nn.Conv2d(4, 6, 2, groups=2), nn.Dropout2d(0.3),
    nn.Flatten(), nn.Tanh(), nn.Dropout(0.4), nn.Linear(6, 1),
)  # fmt: skip
NETWORKS = {
    "before the next layer": (nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1)), X),
    "after a layer": (nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Tanh(), nn.Linear(4, 1)), X),
    "in place": (nn.Sequential(nn.Linear(2, 4), nn.ReLU(inplace=True), nn.Dropout(0.3), nn.Linear(4, 1)), X),
    "one for all": (nn.Sequential(nn.Linear(2, 4), nn.Tanh(), shared := nn.Dropout(0.3), nn.Linear(4, 3), nn.Tanh(), shared,
                                  nn.Linear(3, 1)), X),
    "convolutions": (CONVNET, IMAGES),
    "flattened channels": (nn.Sequential(nn.Conv2d(1, 3, 5), nn.Dropout(0.2), nn.Flatten(), nn.Linear(12, 1)), IMAGES),
}  # fmt: skip


@pytest.mark.parametrize("name", NETWORKS)
def test_masks_of_weights_are_masks_in_the_dropout_layers(name):
    net, x = NETWORKS[name]
    density = density_of(net, x, x.flatten(1)[:, 0])
    hidden = hidden_units(density, given=False, method="MCDropout")
    generator = torch.Generator().manual_seed(2)
    theta = torch.randn(density.num_params, generator=generator, dtype=torch.float64)
    factors = (torch.rand(sum(hidden.counts), generator=generator, dtype=torch.float64) > 0.3) / 0.7
    padded = torch.cat([factors, factors.new_ones(1)])
    expected = density.conditional(theta * padded[hidden.units].prod(0), x)["mean"]
    with dropped(hidden, factors):
        found = density.conditional(theta, x)["mean"]
    assert torch.allclose(found, expected, rtol=1e-10)
    assert not torch.allclose(found, density.conditional(theta, x)["mean"])


def test_whole_channels_are_dropped():
    found = units_of(NETWORKS["flattened channels"][0], x=IMAGES, y=IMAGES[:, 0, 0, 0])
    assert found.counts == [3]
    given = nn.Sequential(nn.Conv2d(1, 3, 5), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1))
    assert units_of(given, given=True, x=IMAGES, y=IMAGES[:, 0, 0, 0]).counts == [3]


def test_two_heads_share_the_units_below_them():
    class Heads(nn.Module):
        def __init__(self):
            super().__init__()
            self.body, self.drop = nn.Linear(2, 3), nn.Dropout(0.4)
            self.loc, self.scale = nn.Linear(3, 1), nn.Linear(3, 1)

        def forward(self, x):
            h = self.drop(self.body(x).tanh())
            return self.loc(h) + self.scale(h)

    found = units_of(Heads())
    assert found.counts == [3]
    assert int((found.units[0] < 3).sum()) == 6


def test_a_linear_model_has_the_mean_and_the_variance_of_the_closed_form():
    # f = sum_k w_k h_k z_k / (1 - p): mean w h, variance p / (1 - p) times the sum of the squares of w_k h_k.
    rate, net = 0.3, nn.Sequential(nn.Linear(2, 4, bias=False), nn.Linear(4, 1, bias=False))
    posterior = fitted(net, bz.MCDropout(rate, num_steps=100))
    values = posterior.density.constrain(posterior.loc)
    terms = X @ values["net.0.weight"].T * values["net.1.weight"][0]
    f = torch.from_numpy(bz.predict(posterior, X, num_draws=20_000)["conditional"]["mean"].to_numpy())[0]
    variance = rate / (1 - rate) * (terms**2).sum(1)
    error = (f.mean(0) - terms.sum(1)) / (variance / len(f)).sqrt()
    assert error.abs().max() < 4
    squares = (f - terms.sum(1)) ** 2
    assert ((squares.mean(0) - variance) / (squares.std(0) / math.sqrt(len(f)))).abs().max() < 4


def test_the_optimum_of_a_linear_model_is_that_of_the_closed_form():
    target = dropout_network(rate=0.4)
    posterior = bz.fit(target.model, bz.MCDropout(), *target.data, dtype=torch.float64, progress=False)
    expected = target.mean["net.1.weight"][0].double()
    assert torch.allclose(posterior.loc, expected, rtol=1e-3)


@pytest.mark.parametrize("prior", [bz.priors.normal(0.7), bz.priors.laplace(0.7)], ids=["normal", "laplace"])
def test_the_bound_is_the_expected_log_density_over_all_masks(prior):
    net = nn.Sequential(nn.Linear(2, 3), nn.Dropout(0.2), nn.Tanh(), nn.Dropout(0.3), nn.Linear(3, 1))
    density = density_of(net, prior=prior)
    family, bound = bound_of(bz.MCDropout(), density)
    params = torch.randn(density.num_params, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rates = torch.tensor([0.2] * 3 + [0.3] * 3, dtype=torch.float64)
    estimate, expected, decay = 0.0, 0.0, 0.0
    for bits in product([0.0, 1.0], repeat=6):
        z = torch.tensor(bits, dtype=torch.float64)
        prob = float(torch.where(z == 1, rates, 1 - rates).prod())
        theta = family.draw(params, 20 * z - 10)
        estimate += prob * float(bound(params, 20 * z - 10, density.data))
        expected += prob * float(density.log_joint(theta, *density.data))
        half = bound(params, 20 * z - 10, density.data, weight=torch.tensor(0.5, dtype=torch.float64))
        decay += prob * float(half - density.log_joint(theta, *density.data) + 0.5 * density.log_prior(theta))
    assert estimate == pytest.approx(expected, rel=1e-10)
    assert decay == pytest.approx(0, abs=1e-8)  # half of the prior is left out, whether it is computed or drawn


def test_a_gaussian_prior_is_the_weight_decay_of_the_paper():
    """Minus the bound has sum w^2 / (2 s^2 (1 - p)) for dropped weights, that is p_keep l^2 / 2 ||M||^2 with M = w / p_keep."""
    density = density_of(nn.Sequential(nn.Dropout(0.2), nn.Linear(2, 1, bias=False)))
    _, bound = bound_of(bz.MCDropout(), density)
    loc = torch.tensor([0.6, -0.4], dtype=torch.float64)
    noise = torch.zeros(2, dtype=torch.float64)
    theta = loc / 0.8
    prior = bound(loc, noise, density.data) - (density.log_joint(theta, *density.data) - density.log_prior(theta))
    constant = 2 * (0.5 * math.log(2 * math.pi) + math.log(0.7))
    assert float(prior) == pytest.approx(-float((loc**2).sum()) / (2 * 0.7**2 * 0.8) - constant, rel=1e-10)


def test_concrete_dropout_adds_the_entropy_of_the_masks_once_a_unit():
    density = density_of(nn.Sequential(nn.Linear(2, 4), nn.Dropout(0.3), nn.Linear(4, 1)))
    family, _ = bound_of(bz.ConcreteDropout(init_rate=0.3), density)
    entropy = family.entropy(family.start(torch.zeros(density.num_params, dtype=torch.float64), 1.0))
    assert float(entropy) == pytest.approx(-4 * (0.3 * math.log(0.3) + 0.7 * math.log(0.7)), rel=1e-10)


def test_concrete_dropout_learns_the_best_rate_of_a_linear_model():
    target = dropout_network(rate=None, noise=5.0)
    ratio = (target.sd["net.1.weight"] / target.mean["net.1.weight"])[0, 0]
    best = float(1 - 1 / (1 + ratio**2))
    posterior = bz.fit(
        target.model, bz.ConcreteDropout(relaxation=0.05), *target.data, dtype=torch.float64, progress=False
    )
    assert posterior.info.config["rates"]["net.0"] == pytest.approx(best, abs=0.01)


def test_relaxed_masks_drop_as_often_as_the_rate_says():
    density = density_of(bz.models.mlp(2, (3,)))
    family, _ = bound_of(bz.ConcreteDropout(init_rate=0.3, relaxation=1e-4), density)
    params = family.start(torch.ones(density.num_params, dtype=torch.float64), 1.0)
    noise = torch.randn(20_000, 3, generator=torch.Generator().manual_seed(4), dtype=torch.float64)
    weights = torch.func.vmap(lambda row: family.draw(params, row))(noise)[:, 9:12]
    share = (weights < 0.5).double().mean(0)
    assert ((share - 0.3) / math.sqrt(0.3 * 0.7 / 20_000)).abs().max() < 4


def test_mini_batches_and_restarts():
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    posterior = fitted(net, bz.MCDropout(num_steps=5, num_restarts=2, batch_size=3))
    assert posterior.draws(6).shape[:2] == (2, 6)
    assert posterior.log_prob(posterior.draws(6)) is None
    learned = fitted(net, bz.ConcreteDropout(num_steps=5, num_restarts=2, kl_annealing=0.2))
    assert len(learned.info.config["rates"]["net.2"]) == 2
    assert posterior.info.fit_stats["loss"].shape == (2, 5)
    values = learned.as_guide()(X, Y)
    assert values["net.0.weight"].shape == (4, 2)


def test_a_posterior_with_atoms_says_so():
    net = nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Dropout(0.3), nn.Linear(4, 1))
    posterior = fitted(net, bz.MCDropout(num_steps=5))
    assert posterior.log_prob(posterior.loc) is None
    assert "4 units, 16 atoms" in repr(posterior)
    tree = bz.posterior_predictive(posterior, X, Y, num_draws=30)
    assert tree.attrs["has_atoms"] == "yes" and "log_q" not in tree["sample_stats"]
    with pytest.raises(ValueError, match=r"those of MCDropout have none: they are point masses.*held-out log scores"):
        bz.diagnostics.loo(tree)
    with pytest.raises(ValueError, match="draws of MCDropout have none: they are point masses"):
        bz.diagnostics.psis(tree)


class Skip(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.drop, self.last = nn.Linear(2, 3), nn.Dropout(0.4), nn.Linear(3, 3)

    def forward(self, x):
        h = self.drop(self.first(x).tanh())
        return (self.last(h) + h).sum(1, keepdim=True)


@pytest.mark.parametrize(
    ("net", "method", "message"),
    [
        (nn.Linear(2, 1), bz.MCDropout(0.1), "MCDropout drops hidden units, and network 'net' has none: no layer"),
        (nn.Linear(2, 1), bz.ConcreteDropout(), "ConcreteDropout drops hidden units, and network 'net' has none"),
        (bz.models.mlp(2, (3,)), bz.MCDropout(), r"network 'net' has none. Write MCDropout\(rate=0.1\), or put"),
        (
            nn.Sequential(nn.Linear(2, 3), nn.Dropout(1.0), nn.Linear(3, 1)),
            bz.MCDropout(),
            "'net.1' has rate 1, which drops",
        ),
        (Skip(), bz.MCDropout(), "Masks in the dropout layers 'net.drop' are not masks of the weights beside them"),
        (
            nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Dropout(0.2), nn.Tanh(), nn.Linear(3, 1)),
            bz.MCDropout(),
            "Dropout layer 'net.2' neither follows nor precedes a linear or convolutional layer",
        ),
    ],
)
def test_networks_whose_units_cannot_be_dropped_are_refused(net, method, message):
    with pytest.raises(ModelError, match=message):
        fitted(net, method)


@pytest.mark.parametrize("rate", [0.0, 1.0, -0.1])
def test_a_rate_is_between_zero_and_one(rate):
    with pytest.raises(ValueError, match=r"MCDropout\(rate="):
        fitted(bz.models.mlp(2, (3,)), bz.MCDropout(rate))


def test_weights_that_cannot_be_zero_are_refused():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 1))

    def model(x, y=None):
        def prior(name, parameter, fan_in):
            return dist.LogNormal(0.0, 1.0).expand(parameter.shape).to_event(parameter.ndim)

        f = bz.random_module("net", net, prior)(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f, 1.0), obs=y)

    with pytest.raises(ModelError, match=r"site 'net.1.weight' has the support .*Give it a prior on the whole line"):
        bz.fit(model, bz.MCDropout(0.2), X, Y, dtype=torch.float64)


def test_gradients_of_the_bound_are_those_of_a_network_with_dropout_and_weight_decay():
    """One mask for the batch, as torch computes it with the mask in a dropout layer."""
    net = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Dropout(0.5), nn.Linear(3, 1))
    density = density_of(net)
    _, bound = bound_of(bz.MCDropout(), density)
    params = torch.randn(density.num_params, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    params.requires_grad_()
    noise = torch.tensor([1.0, -1.0, 1.0], dtype=torch.float64)  # drops the first and the third
    (found,) = torch.autograd.grad(bound(params, noise, density.data), params)
    w1, b1, w2, b2 = (params[site.span].reshape(site.shape) for site in density.sites)
    f = functional.linear(functional.linear(X, w1, b1).relu() * torch.tensor([0.0, 2.0, 0.0]), w2, b2)[:, 0]
    loss = ((Y - f) ** 2).sum() / (2 * 0.5**2) + (
        (w1**2).sum() + (b1**2).sum() + (b2**2).sum() + (w2**2).sum() / 0.5
    ) / (2 * 0.7**2)
    (expected,) = torch.autograd.grad(-loss, params)
    assert torch.allclose(found, expected, rtol=1e-10)
