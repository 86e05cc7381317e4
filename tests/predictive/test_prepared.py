"""Predictions that are asked for again: the numbers of the first call, without the model, and never those of another model."""

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from torch import Tensor, nn

import bnnzoo as bz
from bnnzoo.predictive import prepared

GENERATOR = torch.Generator().manual_seed(3)
X, Y = (torch.randn(30, *shape, generator=GENERATOR) for shape in ((2,), ()))
NEW = [torch.randn(7, 2, generator=GENERATOR) for _ in range(4)]


def fitted(network: nn.Module | None = None, likelihood=None, method=None):
    network = network or bz.models.mlp(2, (5,))
    model = bz.models.supervised(network, bz.priors.normal(1.0), likelihood or bz.likelihoods.gaussian())
    return bz.fit(model, method or bz.MeanFieldVI(num_steps=20), X, Y, progress=False)


def is_prepared(posterior) -> bool:
    kept = prepared._KEPT.get(id(posterior), {}).values()
    return any(sweep is not None for *_, sweeps in kept for sweep in sweeps.values())


def are_equal(a: xr.DataTree, b: xr.DataTree) -> bool:
    return a.identical(b)


def afresh(posterior, *data, **options) -> xr.DataTree:
    prepared.forget(posterior)
    return bz.predict(posterior, *data, **options)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (bz.MeanFieldVI(num_steps=20), {}),
        (bz.MeanFieldVI(num_steps=20), {"num_draws": 30, "seed": 5, "weights": False}),
        (bz.MeanFieldVI(num_steps=20), {"keep": ("predictions", "conditional/mean")}),
        (bz.Laplace(bz.MAP(num_steps=50)), {}),
        (bz.MAP(num_members=3, num_steps=20, polish_steps=0), {}),
    ],
)
def test_a_prediction_that_is_repeated_has_the_numbers_of_one_made_afresh(method, options) -> None:
    posterior = fitted(method=method)
    trees = [bz.predict(posterior, x, **options) for x in NEW]
    assert is_prepared(posterior)
    for x, tree in zip(NEW, trees, strict=True):
        assert are_equal(tree, afresh(posterior, x, **options))


def test_many_rows_observations_and_deterministic_sites_are_prepared_as_well() -> None:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        s = pyro.deterministic("s", w.exp().sum())
        with pyro.plate("data", len(x)):
            mean = pyro.deterministic("mean", x @ w)
            pyro.sample("y", dist.LogNormal(mean, s), obs=y)

    posterior = bz.fit(model, bz.MeanFieldVI(num_steps=50), X, Y.exp(), progress=False)
    more = torch.randn(4, 600, 2, generator=GENERATOR)
    for data in ([(x, x[:, 0].exp()) for x in more], [(x,) for x in more]):
        trees = [bz.predict(posterior, *each, num_draws=40) for each in data]
        assert is_prepared(posterior)
        for each, tree in zip(data, trees, strict=True):
            assert are_equal(tree, afresh(posterior, *each, num_draws=40))


@pytest.mark.filterwarnings("ignore:.*no longer what was fitted")
def test_a_network_that_is_changed_predicts_as_it_is_now() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.activation = nn.Linear(2, 1), torch.tanh

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(self.layer(x))

    network = Net()
    posterior = fitted(network)
    before = [bz.predict(posterior, NEW[0]) for _ in range(3)][-1]
    assert is_prepared(posterior)
    network.activation = torch.exp
    after = bz.predict(posterior, NEW[0])
    assert not np.array_equal(before["conditional"]["mean"], after["conditional"]["mean"])
    assert are_equal(after, afresh(posterior, NEW[0]))


@pytest.mark.filterwarnings("ignore:The model could not be traced")
def test_a_model_that_decides_by_its_data_is_never_taken_for_another() -> None:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)):
            slope = w if float(x.abs().max()) < 100.0 else 10.0 * w
            pyro.sample("y", dist.Normal(slope * x[:, 0], 1.0), obs=y)

    posterior = bz.fit(model, bz.MeanFieldVI(num_steps=50), X, Y, progress=False)
    for x in (NEW[0], NEW[1], NEW[2], 1000.0 * NEW[0], NEW[1], 1000.0 * NEW[1]):
        assert are_equal(bz.predict(posterior, x), afresh(posterior, x))


def test_what_a_caller_does_to_a_tree_does_not_reach_the_next_one() -> None:
    posterior = fitted()
    for _ in range(3):
        for group in bz.predict(posterior, NEW[0]).subtree:
            for values in group.data_vars.values():
                values.to_numpy()[...] = 0
    assert are_equal(bz.predict(posterior, NEW[0]), afresh(posterior, NEW[0]))


def test_draws_that_are_changed_in_place_are_not_those_of_before() -> None:
    posterior = fitted(method=bz.MAP(num_members=3, num_steps=20, polish_steps=0))
    before = [bz.predict(posterior, NEW[0]) for _ in range(3)][-1]
    posterior.theta.mul_(0.5)
    after = bz.predict(posterior, NEW[0])
    assert not before["conditional"].to_dataset().identical(after["conditional"].to_dataset())
    assert are_equal(after, afresh(posterior, NEW[0]))


def test_what_is_kept_goes_with_the_posterior() -> None:
    posterior = fitted()
    bz.predict(posterior, NEW[0])
    place = id(posterior)
    assert place in prepared._KEPT
    del posterior
    assert place not in prepared._KEPT


def test_few_shapes_are_kept() -> None:
    posterior = fitted()
    for rows in range(1, prepared.MOST + 5):
        bz.predict(posterior, torch.zeros(rows, 2), num_draws=2)
    ((*_, sweeps),) = prepared._KEPT[id(posterior)].values()
    assert len(sweeps) == prepared.MOST
