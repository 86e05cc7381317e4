"""Networks of Pyro's own modules are treated as those of `random_module`: same group, same methods, same numbers."""

import copy
import warnings
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from pyro.nn import PyroModule, PyroSample
from pyro.nn.module import to_pyro_module_
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.program.sites import ModelError, ModelWarning
from bnnzoo.inference.laplace.curvature import MonteCarloFisher

X = torch.linspace(-1.0, 1.0, 24, dtype=torch.float64)[:, None] * torch.tensor([1.0, -0.5], dtype=torch.float64)
Y = torch.sin(3 * X[:, 0])


def normal(*shape: int) -> PyroSample:
    return PyroSample(dist.Normal(0.0, 1.0).expand(shape).to_event(len(shape)))


class Seed(PyroModule):
    """The way of Pyro's own tutorial: layers, noise scale and likelihood in one module; the last layer is made first."""

    def __init__(self) -> None:
        super().__init__()
        self.out = PyroModule[nn.Linear](4, 1)
        self.out.weight, self.out.bias = normal(1, 4), normal(1)
        self.fc1 = PyroModule[nn.Linear](2, 4)
        self.fc1.weight, self.fc1.bias = normal(4, 2), normal(4)
        self.scale = PyroSample(dist.LogNormal(-1.0, 0.5))

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        mean = self.out(torch.tanh(self.fc1(x))).squeeze(-1)
        scale = self.scale
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, scale), obs=y)
        return mean


def around(net: Callable[[Tensor], Tensor]) -> Callable[..., None]:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        mean = net(x).squeeze(-1)
        scale = pyro.sample("scale", dist.LogNormal(-1.0, 0.5))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(mean, scale), obs=y)

    return model


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(2, 4), nn.Tanh(), nn.Linear(4, 1))


def converted() -> Callable[..., None]:
    """A module of torch converted in place, and called in a function."""
    net = layers()
    to_pyro_module_(net)
    for layer in net.modules():
        for name, value in list(layer.named_parameters(recurse=False)):
            setattr(layer, name, normal(*value.shape))
    return around(net)


def nested() -> Callable[..., None]:
    """A Sequential within a class of the user's own, within a Sequential of torch."""

    class Body(PyroModule):
        def __init__(self) -> None:
            super().__init__()
            self.stack = PyroModule[nn.Sequential](
                PyroModule[nn.Linear](2, 4), PyroModule[nn.Tanh](), PyroModule[nn.Linear](4, 1)
            )
            for layer in (self.stack[0], self.stack[2]):
                layer.weight, layer.bias = normal(*layer.weight.shape), normal(*layer.bias.shape)

        def forward(self, x: Tensor) -> Tensor:
            return self.stack(x)

    return around(nn.Sequential(Body(), nn.Identity()))


def ours() -> Callable[..., None]:
    """The same model by `random_module`."""
    net = layers()
    return around(lambda x: bz.random_module("net", net, bz.priors.normal(1.0))(x))


MODELS: dict[str, Callable[[], Any]] = {"seed": Seed, "converted": converted, "nested": nested}
WEIGHTS = {
    "seed": ["fc1.weight", "fc1.bias", "out.weight", "out.bias"],
    "converted": ["0.weight", "0.bias", "2.weight", "2.bias"],
    "nested": ["stack.0.weight", "stack.0.bias", "stack.2.weight", "stack.2.bias"],
}


@pytest.fixture(params=["seed", *(pytest.param(name, marks=pytest.mark.slow) for name in list(MODELS)[1:])])
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


def test_the_density_is_that_of_random_module(kind: str) -> None:
    theirs, mine = (build_density(make(), X, Y, dtype=torch.float64) for make in (MODELS[kind], ours))
    assert [site.name for site in theirs.sites if site.is_weight] == WEIGHTS[kind]
    assert [site.name for site in theirs.sites if not site.is_weight] == ["scale"]
    (network,) = theirs.networks
    assert list(network.sites.values()) == WEIGHTS[kind]
    theta = torch.randn(5, mine.num_params, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    for found, expected in zip(theirs.value_and_grad(theta, X, Y), mine.value_and_grad(theta, X, Y), strict=True):
        assert torch.allclose(found, expected, rtol=1e-12, atol=1e-12)


def fitted(make: Callable[[], Any], method: Any) -> Any:
    return bz.fit(make(), method, X, Y, seed=1, dtype=torch.float64, progress=False).draws(20, seed=2)


@cache
def draws_of_ours(method: Any) -> Tensor:
    return fitted(ours, method)


@pytest.mark.parametrize("name", ["seed", *(pytest.param(name, marks=pytest.mark.slow) for name in list(MODELS)[1:])])
@pytest.mark.parametrize(
    "method",
    [
        bz.LastLayerLaplace(map=bz.MAP(num_steps=60)),
        bz.inference.KFACLaplace(map=bz.MAP(num_steps=60)),
        pytest.param(
            bz.inference.KFACLaplace(map=bz.MAP(num_steps=60), curvature=MonteCarloFisher(num_draws=3)),
            marks=pytest.mark.slow,
        ),
        pytest.param(
            bz.inference.KFACLaplace(map=bz.MAP(num_steps=60), curvature="empirical_fisher"), marks=pytest.mark.slow
        ),
        pytest.param(
            bz.LastLayerVI(below=bz.MAP(num_steps=60), vi=bz.MeanFieldVI(num_steps=60)), marks=pytest.mark.slow
        ),
        bz.MeanFieldVI(num_steps=60, estimator="local"),
        pytest.param(bz.MeanFieldVI(num_steps=60, estimator="flipout"), marks=pytest.mark.slow),
    ],
    ids=lambda method: f"{type(method).__name__}-{getattr(method, 'curvature', getattr(method, 'estimator', ''))}",
)
@pytest.mark.filterwarnings(
    "ignore:The draws of the approximation do not fit:bnnzoo.core.fit_warnings.ParetoKWarning"
)  # 60 steps are few
def test_methods_that_need_layers_give_the_same_posterior(name: str, method: Any) -> None:
    assert torch.allclose(fitted(MODELS[name], method), draws_of_ours(method), rtol=1e-6, atol=1e-8)


def test_weights_are_kept_out_of_the_posterior_group(kind: str) -> None:
    posterior = bz.fit(MODELS[kind](), bz.MAP(num_steps=5), X, Y, dtype=torch.float64, progress=False)
    tree = bz.posterior_predictive(posterior, X, Y)
    assert list(tree["posterior"].data_vars) == ["scale"]
    assert list(tree["weights"].data_vars) == WEIGHTS[kind]


def test_features_are_those_of_random_module(kind: str) -> None:
    trees = []
    for make in (MODELS[kind], ours):
        posterior = bz.fit(make(), bz.MeanFieldVI(num_steps=20), X, Y, seed=3, dtype=torch.float64, progress=False)
        trees.append(bz.predictive.features(posterior, X, num_draws=4))
    assert trees[0].sizes["feature"] == 4
    assert np.allclose(*(tree.to_numpy() for tree in trees))


def test_a_pyro_module_without_layers_of_torch_is_no_network() -> None:
    class Line(PyroModule):
        def __init__(self) -> None:
            super().__init__()
            self.slope = PyroSample(dist.Normal(0.0, 1.0))

        def forward(self, x: Tensor, y: Tensor | None = None) -> None:
            slope = self.slope
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(slope * x[:, 0], 0.1), obs=y)

    density = build_density(Line(), X, Y)
    assert not density.networks
    assert not density.sites[0].is_weight


def test_kfac_refuses_a_layer_that_is_called_twice() -> None:
    class Twice(Seed):
        def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
            mean = (self.out(torch.tanh(self.fc1(x))) + self.out(torch.relu(self.fc1(x)))).squeeze(-1)
            scale = self.scale
            with pyro.plate("data", len(x)):
                pyro.sample("y", dist.Normal(mean, scale), obs=y)
            return mean

    with pytest.raises(
        ModelError, match=r"each layer of its network once.*calls fc1 2 times, out 2 times and observes y"
    ):
        bz.fit(Twice(), bz.inference.KFACLaplace(map=bz.MAP(num_steps=5)), X, Y, dtype=torch.float64, progress=False)


def test_the_users_module_is_not_changed() -> None:
    model = Seed()
    before = {name: dict(vars(module)) for name, module in model.named_modules()}
    bz.fit(model, bz.inference.KFACLaplace(map=bz.MAP(num_steps=5)), X, Y, dtype=torch.float64, progress=False)
    after = {name: dict(vars(module)) for name, module in model.named_modules()}
    for name, attributes in before.items():
        hooks = [key for key in attributes if key.endswith("hooks") and key in after[name]]
        assert all(not after[name][key] for key in hooks)
        assert list(attributes["_parameters"]) == list(after[name]["_parameters"])


def test_a_scale_kept_in_a_layer_is_a_hyperparameter_and_no_weight() -> None:
    layer = PyroModule[nn.Linear](2, 1)
    layer.width = PyroSample(dist.LogNormal(torch.zeros((), dtype=torch.float64), 1.0))
    layer.weight = PyroSample(lambda module: dist.Normal(0.0, module.width).expand((1, 2)).to_event(2))
    layer.bias = PyroSample(dist.Normal(torch.zeros(1, dtype=torch.float64), 1.0).to_event(1))
    posterior = bz.fit(around(layer), bz.MAP(num_members=2, num_steps=20), X, Y, dtype=torch.float64, progress=False)
    tree = bz.predict(posterior, X)
    assert len(tree["posterior"].data_vars) == 2  # of the layer and of the noise
    assert all("weight" not in str(name) for name in tree["posterior"].data_vars)
    assert {site.name for site in posterior.density.sites if site.is_weight} == {"weight", "bias"}


class WithNoise(PyroModule):
    """A regression whose noise scale is read inside the plate of the rows, or before it."""

    def __init__(self, before: bool) -> None:
        super().__init__()
        self.before, self.slope, self.noise = before, normal(), PyroSample(dist.HalfNormal(1.0))

    def forward(self, x: Tensor, y: Tensor | None = None) -> None:
        mean = self.slope * x
        noise = self.noise if self.before else None
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(mean, self.noise if noise is None else noise), obs=y)


def test_an_attribute_that_is_first_read_inside_the_plate_of_rows_is_pointed_out() -> None:
    x = torch.linspace(-1, 1, 5)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert build_density(WithNoise(True), x, x).num_params == 2
    sentence = (
        r"^Site 'noise' is a PyroSample .* inside plate 'rows', so that each of its 5 rows.* before the plate, noise = "
    )
    with pytest.warns(ModelWarning, match=sentence):
        assert build_density(WithNoise(False), x, x).num_params == 6


def with_layer(layer: nn.Module) -> nn.Module:
    net = nn.Sequential(nn.Linear(2, 3), layer, nn.Linear(3, 1))
    to_pyro_module_(net)
    for part in net.modules():
        for name, parameter in list(part.named_parameters(recurse=False)):
            setattr(part, name, PyroSample(dist.Normal(0.0, 1.0).expand(parameter.shape).to_event(parameter.ndim)))
    return net


def on_a_network(net: nn.Module):
    def model(x, y=None):
        scale = pyro.sample("scale", dist.HalfNormal(1.0))
        f = net(x).squeeze(-1)
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(scale * f, 0.5), obs=y)

    return model


@pytest.mark.parametrize(
    ("layer", "sentence"),
    [
        (
            nn.BatchNorm1d(3),
            r"Layer '1' of \w*Sequential is BatchNorm1d in training mode: its output for one row depends",
        ),
        (nn.Dropout(0.5), r"Layer '1' of \w*Sequential is Dropout\(p=0.5\) in training mode: its dropout is noise"),
    ],
    ids=["BatchNorm", "Dropout"],
)
@pytest.mark.parametrize("make", [with_layer, lambda layer: nn.Sequential(nn.Linear(2, 3), layer, nn.Linear(3, 1))])
def test_layers_in_training_mode_are_named(layer: nn.Module, sentence: str, make) -> None:
    x, y, layer = torch.randn(12, 2), torch.randn(12), copy.deepcopy(layer)
    model = on_a_network(make(layer).requires_grad_(False))
    with pytest.raises(ModelError, match=sentence):
        build_density(model, x, y)
    layer.eval()
    assert build_density(model, x, y).num_data == 12
