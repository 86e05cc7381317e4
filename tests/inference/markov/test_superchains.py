"""Superchains: chains that start at one point, and are judged by nested R-hat."""

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import arviz as az
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.testing import linear_gaussian


@pytest.mark.parametrize("method", [bz.NUTS, bz.HMC, bz.ChEESHMC, bz.MAMS, bz.MCLMC])
def test_the_chains_of_a_superchain_start_at_one_point(method: Callable[..., Method]) -> None:
    target = linear_gaussian()
    settings: dict[str, Any] = {
        "num_chains": 6,
        "num_superchains": 3,
        "num_warmup": 0,
        "num_draws": 4,
        "step_size": 1e-9,
    }
    posterior = bz.fit(target.model, method(**settings), *target.data, seed=3, progress=False)
    starts = posterior.draws()[:, 0]
    groups = starts.reshape(3, 2, -1)
    torch.testing.assert_close(groups[:, 0], groups[:, 1], rtol=0.0, atol=1e-5)  # a thousand steps of 1e-9
    assert float((groups[0] - groups[1]).abs().max()) > 0.01
    more = bz.to_datatree(posterior)["posterior"]
    assert more["superchain"].values.tolist() == [0, 0, 1, 1, 2, 2] and more["superchain"].dims == ("chain",)


def test_diagnostics_of_superchains_are_nested() -> None:
    target = linear_gaussian()
    method = bz.NUTS(num_chains=16, num_superchains=4, num_warmup=100, num_draws=20)
    weights = bz.to_datatree(bz.fit(target.model, method, *target.data, progress=False))["posterior"]["w"]
    nested = az.rhat_nested(weights, superchain_ids=weights["superchain"].values)
    xr.testing.assert_allclose(bz.diagnostics.convergence(weights)["rhat"], nested)
    xr.testing.assert_allclose(bz.diagnostics.convergence(weights.drop_vars("superchain"))["rhat"], az.rhat(weights))


@pytest.mark.parametrize(("chains", "superchains"), [(4, 4), (6, 4), (2, 3)])
def test_uneven_superchains_are_refused(chains: int, superchains: int) -> None:
    target = linear_gaussian()
    expected = re.escape(
        f"NUTS(num_superchains={superchains}, num_chains={chains}): each superchain needs the same number of chains, two or "
        f"more. Write a multiple of {superchains} for num_chains, such as {16 * superchains}."
    )
    with pytest.raises(ValueError, match=expected):
        bz.fit(target.model, bz.NUTS(num_chains=chains, num_superchains=superchains), *target.data, progress=False)


@pytest.fixture(scope="module")
def short() -> Draws:
    target = linear_gaussian()
    method = bz.NUTS(num_chains=6, num_superchains=3, num_warmup=100, num_draws=20)
    found = bz.fit(target.model, method, *target.data, progress=False)
    assert isinstance(found, Draws)
    return found


@pytest.mark.parametrize(("chains", "superchains"), [(6, [0, 0, 1, 1, 2, 2]), (4, [0, 0, 1, 1]), (3, None), (2, None)])
def test_superchains_of_an_interrupted_run_are_those_that_are_whole(
    short: Draws, chains: int, superchains: list[int] | None
) -> None:
    stats = {name: values[:chains] for name, values in short.info.sample_stats.items()}
    cut = replace(short, theta=short.theta[:chains], info=replace(short.info, complete=False, sample_stats=stats))
    found = bz.to_datatree(cut)["posterior"]
    assert ("superchain" in found.coords) == (superchains is not None)
    assert superchains is None or found["superchain"].values.tolist() == superchains
    assert "R-hat" in repr(cut)


def test_trees_of_superchains_are_stored_and_stacked(short: Draws, tmp_path: Path) -> None:
    data = linear_gaussian().data
    tree = bz.posterior_predictive(short, *data)
    kept = bz.predict(short, *data, store=tmp_path / "run.zarr")
    for group in ("posterior", "predictions"):
        assert kept[group]["superchain"].values.tolist() == [0, 0, 1, 1, 2, 2]
    plain = xr.DataTree.from_dict(
        {name: group.to_dataset().drop_vars("superchain", errors="ignore") for name, group in tree.items()}
    )
    mixed = bz.validation.stack({"one": tree, "other": plain}, {"one": 0.5, "other": 0.5})
    assert "superchain" not in mixed["posterior_predictive"].coords
