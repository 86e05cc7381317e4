"""The user's own network is what a model calls: all of its changes count, and none of its state is left behind."""

import gc
import weakref
from collections.abc import Callable

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.program.sites import ModelError
from bnnzoo.models import likelihoods, priors, random_module, supervised

NORMAL = priors.normal(1.0)
X = torch.linspace(-1.0, 1.0, 12, dtype=torch.float64)[:, None]


class Flexible(nn.Module):
    """A network with everything that a copy of its layers would not follow."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.register_buffer("shift", torch.zeros(1))
        self.activation: Callable[[Tensor], Tensor] = torch.tanh
        self.switch, self.factors, self.plain = {"k": 1.0}, [1.0], torch.ones(1)

    def forward(self, x: Tensor) -> Tensor:
        return self.switch["k"] * self.factors[0] * self.plain * self.activation(self.layer(x) + self.shift)


def add_hook(net: Flexible) -> None:
    net.register_forward_hook(lambda module, args, output: 3 * output)


CHANGES: dict[str, Callable[[Flexible], object]] = {
    "function": lambda net: setattr(net, "activation", torch.exp),
    "dict": lambda net: net.switch.update(k=10.0),
    "list": lambda net: net.factors.__setitem__(0, 5.0),
    "plain tensor": lambda net: setattr(net, "plain", torch.full((1,), 7.0)),
    "plain tensor in place": lambda net: net.plain.mul_(4.0),
    "buffer": lambda net: net.shift.add_(1.0),
    "hook": add_hook,
    "layer": lambda net: setattr(net, "layer", nn.Sequential(nn.Linear(1, 1), nn.Tanh())),
    "frozen": lambda net: net.layer.bias.requires_grad_(False),
}


def density_of(net: nn.Module) -> LogDensity:
    return build_density(supervised(net, NORMAL, likelihoods.gaussian(0.5)), X, X[:, 0])


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_two_fits_is_seen(name: str) -> None:
    net, changed = Flexible(), Flexible()
    changed.load_state_dict(net.state_dict())
    before = density_of(net)
    before.log_joint(torch.ones(before.num_params), *before.data)
    CHANGES[name](net)
    CHANGES[name](changed)
    after, fresh = density_of(net), density_of(changed)
    theta = torch.ones(fresh.num_params)
    assert torch.equal(after.log_joint(theta, *after.data), fresh.log_joint(theta, *fresh.data))
    untouched = density_of(Flexible())
    assert after.num_params != before.num_params or not torch.equal(
        after.log_joint(theta, *after.data), untouched.log_joint(theta, *after.data)
    )


@pytest.mark.parametrize("training", [True, False])
def test_a_fit_leaves_the_network_as_it_was(training: bool) -> None:
    net = nn.Sequential(nn.Linear(1, 3), nn.Dropout(0.3), nn.Tanh(), nn.Linear(3, 1)).train(training)
    net[2].eval()
    modes, state = [layer.training for layer in net.modules()], {k: v.clone() for k, v in net.state_dict().items()}
    attributes = [set(vars(layer)) for layer in net.modules()]
    posterior = bz.fit(supervised(net, NORMAL, likelihoods.gaussian(0.5)), bz.MeanFieldVI(num_steps=5), X, X[:, 0])
    bz.predict(posterior, X, num_draws=3)
    assert [layer.training for layer in net.modules()] == modes
    assert [set(vars(layer)) for layer in net.modules()] == attributes
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    assert all(p.grad is None and p.requires_grad for p in net.parameters())


def test_a_network_is_let_go_with_the_last_that_holds_it() -> None:
    net = nn.Linear(1, 1)
    density, held = density_of(net), weakref.ref(net)
    assert density.networks[0].module is net
    del net, density
    gc.collect()
    assert held() is None


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning", "ignore:There is a performance drop:UserWarning")
def test_weights_normalised_by_hooks_are_sampled_and_left_as_they_were() -> None:
    layer = nn.utils.weight_norm(nn.Linear(1, 2))
    net = nn.Sequential(layer, nn.Tanh(), nn.Linear(2, 1))
    net(X)
    before = layer.weight
    density = density_of(net)
    value, gradient = density.batched_value_and_grad(density.init(3, 0), *density.data)
    assert bool(value.isfinite().all() and gradient.isfinite().all())
    assert layer.weight is before
    values = density.constrain(density.init(1, 0)[0])
    direction = values["net.0.weight_v"]
    weight = values["net.0.weight_g"] * direction / direction.norm(dim=1, keepdim=True)
    hidden = torch.tanh(X @ weight.T + values["net.0.bias"])
    mean = (hidden @ values["net.2.weight"].T + values["net.2.bias"])[:, 0]
    torch.testing.assert_close(density.conditional(density.init(1, 0)[0], X)["mean"], mean)


REFUSED = {
    "jit": (
        lambda: torch.jit.trace(nn.Linear(1, 1), X),
        "was compiled by torch.jit.* as it was before torch.jit.script",
    ),
    "parallel": (lambda: nn.DataParallel(nn.Linear(1, 1)), r"is DataParallel.* Pass net\.module"),
    "max_norm": (
        lambda: nn.Embedding(3, 2, max_norm=1.0),
        r"is Embedding with max_norm=1, which shortens its weights in place.* Leave max_norm out",
    ),
}


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:FutureWarning")
@pytest.mark.parametrize("name", REFUSED)
def test_networks_whose_weights_cannot_be_sampled_are_refused(name: str) -> None:
    make, sentence = REFUSED[name]
    with pytest.raises(ValueError, match=r"random_module\('net'\): (layer '0'|the network) " + sentence):
        random_module("net", nn.Sequential(make()) if name != "jit" else make(), NORMAL)


def test_two_sites_of_one_name_are_refused() -> None:
    def networks(x: Tensor, y: Tensor) -> None:
        f = random_module("a", nn.Linear(1, 1), NORMAL)(x) + random_module("a", nn.Linear(1, 1), NORMAL)(x)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(f[:, 0], 1.0), obs=y)

    def loop(x: Tensor, y: Tensor) -> None:
        for _ in range(2):
            pyro.sample("w", dist.Normal(0.0, 1.0))

    with pytest.raises(ModelError, match=r"^Two sites of the model are named 'a.weight'.* or 'a' of two networks"):
        build_density(networks, X, X[:, 0])
    with pytest.raises(ModelError, match=r"^Two sites of the model are named 'w': give each its own name, in a loop"):
        build_density(loop, X, X[:, 0])
