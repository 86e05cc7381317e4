"""Predictions from draws at which the model cannot be evaluated: NaN, whatever the outcome, and the other draws as ever."""

import dataclasses
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

import bnnzoo as bz
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.predictive import block_graphs, blocks, sweep

THREE = torch.tensor([1.0, -1.0, 0.5])
FAMILIES: dict[str, Callable[[Tensor], dist.TorchDistribution]] = {
    "Poisson": dist.Poisson,
    "negative binomial": lambda rate: dist.NegativeBinomial(rate, torch.tensor(0.5).to(rate)),
    "gamma": lambda rate: dist.Gamma(rate, torch.ones_like(rate)),
    "normal": lambda rate: dist.Normal(rate, rate),
    "Bernoulli": lambda rate: dist.Bernoulli(logits=rate),
    "categorical": lambda rate: dist.Categorical(logits=rate[:, None] * THREE.to(rate)),
    "ordered": lambda rate: dist.OrderedLogistic(rate, THREE[1:].to(rate)),
}
CLASSES = ("Bernoulli", "categorical", "ordered")


@cache
def fitted(family: Callable[[Tensor], dist.TorchDistribution], num_chains: int, is_one_hot: bool) -> Any:
    def model(x: Tensor, y: Tensor | None = None) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 0.1))
        factor = torch.linalg.cholesky(torch.eye(2) + z * (1 - torch.eye(2)))
        with pyro.plate("rows", len(x)):
            rate = pyro.deterministic("factor", factor[1, 1].exp() + x)
            pyro.sample("y", family(rate), obs=y)

    y = torch.eye(3).repeat(2, 1) if is_one_hot else torch.ones(6)
    chains = bz.NUTS(num_chains=num_chains, num_warmup=5, num_draws=3)
    return bz.fit(model, chains, torch.linspace(0, 1, 6), y, progress=False)


def posterior_of(family: Callable[[Tensor], dist.TorchDistribution], z: Tensor, *, is_one_hot: bool = False) -> Any:
    """Return draws ``z[C, S]`` of a model that factorises a matrix that has no factor where ``|z| > 1``."""
    return dataclasses.replace(fitted(family, len(z), is_one_hot), theta=z[..., None])


LOST = torch.tensor([[3.0, 0.1, -0.2], [-2.0, 0.0, 0.5]])


@pytest.mark.parametrize("name", FAMILIES)
def test_predictions_are_nan_at_draws_where_a_factorisation_fails(name: str, tmp_path: Path) -> None:
    """Classes ended in an error, since no whole number is NaN."""
    x, y = torch.linspace(0, 1, 6), torch.ones(6)
    posterior = posterior_of(FAMILIES[name], LOST)
    fails = (abs(LOST.numpy()) > 1)[..., None]
    for new in (bz.predict(posterior, x), bz.predict(posterior, x, y, store=tmp_path / "p.zarr")):
        assert (new["predictions"]["y"].isnull() == fails).all()
        if name in CLASSES:
            assert (new["conditional"]["probs"].isnull() == fails[..., None]).all()
            assert set(np.unique(new["predictions"]["y"])[:-1]) <= {0.0, 1.0, 2.0}
    assert (bz.to_datatree(posterior)["posterior"]["factor"].isnull() == fails).all()
    tree = bz.posterior_predictive(posterior, x, y)
    assert (tree["posterior_predictive"]["y"].isnull() == fails).all()
    assert (tree["log_likelihood"]["y"].isnull() == fails).all()


@pytest.mark.parametrize("is_native", [None, True, False], ids=["Python", "native", "torch"])
@pytest.mark.parametrize(
    "family",
    [
        FAMILIES["gamma"],
        FAMILIES["negative binomial"],
        lambda rate: dist.StudentT(rate, torch.zeros_like(rate), torch.ones_like(rate)),
        lambda rate: dist.Beta(rate, torch.ones_like(rate)),
        lambda rate: dist.Binomial(3.0, probs=rate / 5),
        lambda rate: dist.VonMises(torch.zeros_like(rate), rate),
    ],
    ids=["gamma", "negative binomial", "Student t", "beta", "binomial", "von Mises"],
)
def test_draws_from_parameters_that_are_nan_are_nan(
    family: Callable[[Tensor], dist.TorchDistribution], is_native: bool | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing raises there: torch draws numbers from a gamma or beta distribution without parameters."""
    monkeypatch.setattr(sweep, "MIN_BLOCKS_TO_TRACE", 10**9 if is_native is None else 1)
    monkeypatch.setattr(block_graphs, "NATIVE_PAYS_FROM_SECONDS", 0.0 if is_native else 1e9)

    def model(x: Tensor, y: Tensor | None = None) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 0.1))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", family((1 + x - z).sqrt()), obs=y)

    y = (
        torch.full((6,), 0.5)
        if isinstance(family(torch.ones(1)), dist.Beta | dist.Gamma | dist.StudentT | dist.VonMises)
        else torch.ones(6)
    )
    x = torch.linspace(0, 1, 6)
    posterior = bz.fit(model, bz.NUTS(num_chains=2, num_warmup=5, num_draws=3), x, y, progress=False)
    posterior = dataclasses.replace(posterior, theta=LOST[..., None])
    tree = bz.predict(posterior, x)
    fails = LOST.numpy()[..., None] > 1 + x.numpy()
    assert fails.any() and (tree["predictions"]["y"].isnull() == fails).all()


@pytest.mark.parametrize("native_from", [0.0, 1e9], ids=["native", "torch"])
@pytest.mark.parametrize("keep", [None, ("predictions",)], ids=["all", "draws"])
@pytest.mark.parametrize("name", ["Poisson", "Bernoulli", "categorical", "normal"])
def test_one_lost_draw_among_many_blocks_changes_no_other(
    name: str, keep: tuple[str, ...] | None, native_from: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Graphs of blocks ended in torch's own error."""
    monkeypatch.setattr(blocks, "MAX_RANDOM_ELEMENTS", 512)
    monkeypatch.setattr(blocks, "RANDOM_ROWS", 32)
    monkeypatch.setattr(block_graphs, "NATIVE_PAYS_FROM_SECONDS", native_from)
    x, z = torch.linspace(0, 1, 64), torch.linspace(-0.1, 0.1, 700)
    posterior = posterior_of(FAMILIES[name], torch.stack([z]))
    whole = bz.predict(posterior, x, keep=keep)["predictions"]["y"]
    z[600] = 2.0
    lost = bz.predict(dataclasses.replace(posterior, theta=z[None, :, None]), x, keep=keep)["predictions"]["y"]
    assert (lost.isnull() == (np.arange(700) == 600)[:, None]).all()
    if name != "Poisson":  # whose numbers take as many of the stream as they need
        np.testing.assert_array_equal(lost.drop_sel(draw=600), whole.drop_sel(draw=600))


@pytest.mark.parametrize("name", ["normal", "categorical"])
def test_where_all_draws_are_lost_the_reason_is_said(name: str, tmp_path: Path) -> None:
    posterior, x = posterior_of(FAMILIES[name], torch.full((1, 3), 2.0)), torch.linspace(0, 1, 6)
    sentence = (
        r"^There are no predictions, since the model cannot be evaluated at any of the 3 draws: after site 'z' it fails"
    )
    for predicted in (
        lambda: bz.predict(posterior, x),
        lambda: bz.predict(posterior, x, store=tmp_path / "p.zarr"),
        lambda: bz.posterior_predictive(posterior, x, torch.ones(6)),
    ):
        with pytest.raises(ValueError, match=sentence):
            predicted()


def test_lost_outcomes_that_are_no_single_numbers_are_refused_with_the_reason() -> None:
    one_hot: Callable[[Tensor], Any] = lambda rate: dist.OneHotCategorical(logits=rate[:, None] * THREE)  # noqa: E731
    posterior = posterior_of(one_hot, LOST, is_one_hot=True)
    with pytest.raises(NumericalFailure, match="after site 'z' it fails with _LinAlgError"):
        bz.predict(posterior, torch.linspace(0, 1, 6))


def test_rows_at_which_draws_are_lost_do_not_fit_a_store_of_whole_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bnnzoo.predictive.many_rows.BAND_BYTES", 1)
    root: Callable[[Tensor], Any] = lambda rate: dist.Categorical(logits=(5.0 - rate).sqrt()[:, None] * THREE)  # noqa: E731
    posterior, x = posterior_of(root, torch.zeros(1, 4)), torch.linspace(0.0, 4.0, 600)
    lost = bz.predict(posterior, x)["predictions"]["y"].isnull()
    assert (lost == (x > 5 - np.e).numpy()).all()
    measured = bz.measure_predictions(
        posterior, lambda tree: tree["predictions"]["y"].isel(chain=0, draw=0, drop=True), x
    )
    assert (measured["y"].isnull() == lost[0, 0]).all()
    with pytest.raises(
        ValueError, match=r"store= holds whole numbers for 'y' up to row \d+, but of the next rows some"
    ):
        bz.predict(posterior, x, store=tmp_path / "p.zarr")
