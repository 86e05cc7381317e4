"""Refits to parts of many lengths by one program, against fits to the parts themselves."""

import math
from dataclasses import is_dataclass
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.method import Declared
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference import many
from bnnzoo.validation.padding import Padding, padding_that_pays

NUM_ROWS, SHORTEST = 16, 13
GENERATOR = torch.Generator().manual_seed(0)
X = torch.randn(NUM_ROWS, 2, generator=GENERATOR, dtype=torch.float64)
Y = X.sum(1) + 0.3 * torch.randn(NUM_ROWS, generator=GENERATOR, dtype=torch.float64)
PASTS = [torch.arange(past) for past in range(SHORTEST, NUM_ROWS)]


def regression(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2).to(x), 1.0).to_event(1))
    sigma = pyro.sample("sigma", dist.HalfNormal(torch.ones(()).to(x)))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, sigma), obs=y)


NETWORK = bz.models.supervised(
    bz.models.mlp(2, hidden=(3,)), prior=bz.priors.fan_in(1.0), likelihood=bz.likelihoods.gaussian(scale=0.3)
)


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (regression, bz.Laplace()),
        (NETWORK, bz.DiagonalLaplace(bz.MAP(num_steps=50))),
        (regression, bz.MeanFieldVI(num_steps=100)),
        (regression, bz.NUTS(num_chains=1, num_warmup=30, num_draws=30)),
    ],
    ids=["Laplace", "a network by DiagonalLaplace", "MeanFieldVI", "NUTS"],
)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
def test_every_past_is_fitted_as_if_there_were_no_other(
    model: Any, method: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[object] = []
    reads = many.read_with_checks
    monkeypatch.setattr(many, "read_with_checks", lambda *args: (read.append(args), reads(*args))[1])
    found = bz.validation.leave_future_out(model, method, X, Y, min_observations=SHORTEST, dtype=torch.float64)
    assert len(read) == 1  # program for all pasts
    for past, value in zip(range(SHORTEST, NUM_ROWS), found.elpd_i.to_numpy(), strict=True):
        alone = bz.fit(model, method, X[:past], Y[:past], dtype=torch.float64, progress=False)
        tree = bz.predict(alone, X[past:], Y[past:])
        assert value == pytest.approx(-float(bz.calibration.nll(tree)[0]), abs=1e-7)


def padding_of(density: LogDensity, method: Any, parts: list[Tensor] = PASTS) -> Padding | None:
    return padding_that_pays(density, method, [len(rows) for rows in parts], parts)


def by_number_of_rows(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2).to(x), 1.0 / math.sqrt(len(x))).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def by_other_rows(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2).to(x), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal((x - x.mean(0)) @ b, 1.0), obs=y)


def scaled(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2).to(x), 1.0).to_event(1))
    with pyro.plate("rows", len(x)), pyro.poutine.scale(scale=1.0 / len(x)):
        pyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)


def random_walk(x: Tensor, y: Tensor) -> None:
    steps = pyro.sample("steps", dist.Normal(torch.zeros(len(y)).to(x), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(steps.cumsum(0), 1.0), obs=y)


def mixture(x: Tensor, y: Tensor) -> None:
    b = pyro.sample("b", dist.Normal(torch.zeros(2).to(x), 1.0).to_event(1))
    with pyro.plate("rows", len(x)):
        kind = pyro.sample("kind", dist.Categorical(torch.ones(2).to(x)))
        pyro.sample("y", dist.Normal(b[kind], 1.0), obs=y)


@pytest.mark.parametrize("model", [by_number_of_rows, by_other_rows, scaled, random_walk, mixture])
def test_parts_are_not_padded_where_the_posterior_would_be_another(model: Any) -> None:
    density = build_density(model, X, Y, dtype=torch.float64)
    assert padding_of(density, bz.Laplace()) is None


@pytest.mark.parametrize(
    ("method", "parts"),
    [
        (bz.SGHMC(), PASTS),
        (bz.DeepEnsemble(), PASTS),
        (bz.MeanFieldVI(batch_size=4), PASTS),
        (bz.Laplace(bz.MAP(batch_size=4)), PASTS),
        (bz.MixtureOf(bz.Laplace()), PASTS),
        (bz.MCDropout(rate=0.1), PASTS),
        (bz.ConcreteDropout(), PASTS),
        (bz.Laplace(), PASTS[:2]),
        (bz.Laplace(), [torch.arange(0), *PASTS]),
    ],
)
def test_nor_for_methods_that_count_rows_or_for_two_lengths(method: Any, parts: list[Tensor]) -> None:
    density = build_density(regression, X, Y, dtype=torch.float64)
    assert padding_of(density, bz.Laplace()) is not None
    assert padding_of(density, method, parts) is None


def test_methods_that_see_the_density_alone_are_those_that_say_so() -> None:
    """Not those that inherit from them: dropout draws masks for rows, samplers on mini-batches draw rows."""
    kinds = [each for each in vars(bz.inference).values() if isinstance(each, type) and is_dataclass(each)]
    blind = {each.__name__ for each in kinds if issubclass(each, Declared) and not each().sees_rows()}
    exact = {"HMC", "NUTS", "ChEESHMC", "MAMS", "MCLMC"}
    gaussian = {"Laplace", "DiagonalLaplace", "LowRankLaplace", "MeanFieldVI", "LowRankVI", "FullRankVI"}
    assert blind == exact | gaussian | {"MAP", "Pathfinder", "FlowVI"}


def test_what_is_left_out_is_in_no_argument() -> None:
    density = build_density(regression, X, Y, dtype=torch.float64)
    padding = padding_of(density, bz.Laplace())
    assert padding is not None
    weights, x, y = padding.fitted(density, PASTS[0])
    assert weights.tolist() == [1.0] * SHORTEST + [0.0] * (padding.length - SHORTEST)
    assert padding.length == NUM_ROWS - 1
    assert {*y.tolist()} == {*Y[:SHORTEST].tolist()}
    assert torch.equal(x[SHORTEST:], X[SHORTEST - 1].expand(padding.length - SHORTEST, 2))


def test_large_models_are_not_padded(monkeypatch: pytest.MonkeyPatch) -> None:
    density = build_density(regression, X, Y, dtype=torch.float64)
    monkeypatch.setattr("bnnzoo.engine.choose.MAX_ENTRIES_FOR_ONE_THREAD", density.num_params * NUM_ROWS - 1)
    assert padding_of(density, bz.Laplace()) is None


def test_folds_of_several_sizes_are_fitted_together() -> None:
    folds = np.repeat(np.arange(4), [2, 3, 5, 6])
    found = bz.validation.kfold(regression, bz.Laplace(), X, Y, folds=folds, dtype=torch.float64)
    for fold in range(4):
        kept, out = folds != fold, folds == fold
        alone = bz.fit(regression, bz.Laplace(), X[kept], Y[kept], dtype=torch.float64, progress=False)
        expected = -bz.calibration.nll(bz.predict(alone, X[out], Y[out])).to_numpy()
        np.testing.assert_allclose(found.elpd_i.to_numpy()[out], expected, atol=1e-7)
