"""Rows that depend on one another are predicted together, however few rows a block would have."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.predictive.blocks import RANDOM_ROWS
from bnnzoo.predictive.independence import can_split_rows, probe, row_values
from bnnzoo.testing import linear_gaussian

LATENT = torch.tensor([[[1.5], [0.7]]])


def posterior_of(mean: Callable[[Tensor, Tensor], Tensor], scale: Callable[[Tensor], Tensor] | None = None) -> Draws:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        w = pyro.sample("w", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(x)), pyro.poutine.scale(scale=scale(x) if scale else 1.0):
            pyro.sample("y", dist.Normal(mean(w, x), 0.1), obs=y)

    density = build_density(model, torch.ones(3), torch.ones(3))
    return Draws(density, FitInfo("mcmc"), LATENT)


def standardised(w: Tensor, x: Tensor) -> Tensor:
    return w * (x - x.mean())


def lagged(w: Tensor, x: Tensor) -> Tensor:
    return w * torch.where(x > 3, x.roll(1), x)


def next_one(w: Tensor, x: Tensor) -> Tensor:
    return w * torch.cat([x[1:], x[-1:]])


def counted(w: Tensor, x: Tensor) -> Tensor:
    return w * x / len(x)


DEPENDENT = {"standardised": standardised, "lagged": lagged, "next": next_one, "counted": counted}


def expected(mean: Callable[[Tensor, Tensor], Tensor], x: Tensor) -> np.ndarray:
    return np.stack([mean(w, x).numpy() for w in LATENT[0, :, 0]])[None]


@pytest.mark.parametrize("name", DEPENDENT)
@pytest.mark.parametrize(("num_rows", "chunk_size"), [(3001, None), (41, 10), (41, 1), (600, None)])
def test_rows_that_depend_on_one_another_are_predicted_together(
    name: str, num_rows: int, chunk_size: int | None
) -> None:
    x = torch.linspace(0, 10, num_rows)
    tree = bz.predict(posterior_of(DEPENDENT[name]), x, chunk_size=chunk_size)
    np.testing.assert_allclose(tree["conditional"]["mean"], expected(DEPENDENT[name], x), rtol=1e-12)


@pytest.mark.parametrize("name", DEPENDENT)
def test_rows_that_depend_on_one_another_are_not_predicted_in_parts(name: str, tmp_path: Path) -> None:
    x, posterior = torch.linspace(0, 10, 1001), posterior_of(DEPENDENT[name])
    np.save(tmp_path / "x.npy", x.numpy())
    with pytest.raises(ValueError, match="a row's prediction depends on the others"):
        bz.measure_predictions(posterior, bz.uncertainty.decompose, x)
    with pytest.raises(ValueError, match="a row's prediction depends on the others"):
        bz.predict(posterior, np.load(tmp_path / "x.npy", mmap_mode="r"))
    with pytest.raises(ValueError, match="a row's prediction depends on the others"):
        bz.predict(posterior, x, store=tmp_path / "run.zarr")


def test_log_densities_weighted_among_the_rows_are_evaluated_together() -> None:
    x = torch.linspace(0.5, 10, 600)
    tree = bz.predict(posterior_of(lambda w, x: w * x, lambda x: x / x.mean()), x, x)
    w = LATENT[0, :, 0, None]
    terms = dist.Normal(w * x, 0.1).log_prob(x) * x / x.mean()
    np.testing.assert_allclose(tree["predictions_log_likelihood"]["y"][0], terms, rtol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_independent_rows_are_recognised_whatever_the_precision(dtype: torch.dtype) -> None:
    model = bz.models.supervised(bz.models.mlp(3, (50, 50)), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    x = torch.randn(2000, 3, generator=torch.Generator().manual_seed(0)).to(dtype)
    density = build_density(model, x[:5], torch.zeros(5, dtype=dtype), dtype=dtype)
    theta, values = density.init(1, 0)[0], row_values(density)
    with torch.no_grad():
        assert can_split_rows(values(theta, x), values, theta, (x,), 2000, [256, 250, 1])


def test_blocks_of_all_rows_need_no_further_run_of_the_model() -> None:
    runs = 0

    def mean(w: Tensor, x: Tensor) -> Tensor:
        nonlocal runs
        runs += 1
        return w * x

    posterior = posterior_of(mean)
    runs = 0
    values = row_values(posterior.density)
    theta, data = LATENT[0, 0], (torch.linspace(0, 1, RANDOM_ROWS),)
    assert can_split_rows(values(theta, *data), values, theta, data, RANDOM_ROWS, [RANDOM_ROWS])
    assert runs == 1


def test_a_model_of_one_event_is_not_split() -> None:
    target = linear_gaussian()
    assert not can_split_rows({"mean": torch.zeros(3)}, lambda *_: {}, LATENT[0, 0], target.data, 40, [10])


def test_rows_that_stand_for_many_are_two_blocks_and_some_of_the_others() -> None:
    rows = probe(10_000, 250)
    assert rows[:500].tolist() == list(range(500))
    assert len(rows) == len(rows.unique()) == 564 and bool((rows[1:] > rows[:-1]).all()) and rows[-1] > 9000
    assert probe(300, 250).tolist() == list(range(300))
