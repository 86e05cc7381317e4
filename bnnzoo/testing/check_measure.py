"""Conformance of a measure: what every function of a predicted tree owes its users."""

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.predictive import datatree

__all__ = ["check_measure", "example_tree"]

type Measure = Callable[[xr.DataTree], xr.Dataset | xr.DataArray]


def example_tree(
    task: Literal["regression", "classification"],
    num_chains: int = 2,
    num_draws: int = 30,
    num_rows: int = 7,
    num_classes: int = 3,
    seed: int = 0,
) -> xr.DataTree:
    """Return a small tree of predictions with random but consistent contents, for tests of measures.

    Parameters
    ----------
    task : {"regression", "classification"}
    num_chains, num_draws, num_rows, num_classes : int
    seed : int

    Returns
    -------
    xarray.DataTree
        With groups ``predictions``, ``predictions_observed_data`` and ``conditional``.

    Examples
    --------
    >>> example_tree("classification")["conditional"]["probs"].dims
    ('chain', 'draw', 'obs_id', 'class_id')
    """
    rng = np.random.default_rng(seed)
    shape = (num_chains, num_draws, num_rows)
    if task == "classification":
        probs = rng.dirichlet(np.ones(num_classes), shape)
        y: NDArray[Any] = (probs.cumsum(-1) < rng.random((*shape, 1))).sum(-1)
        moments = {"probs": probs, "entropy": -(probs * np.log(probs)).sum(-1)}
    else:
        mean, variance = rng.normal(size=shape), rng.gamma(2.0, 0.5, shape)
        y = rng.normal(mean, np.sqrt(variance))
        moments = {"mean": mean, "variance": variance, "entropy": 0.5 * np.log(2 * math.pi * math.e * variance)}
    groups = {
        "predictions": datatree.by_row({"y": y}),
        "predictions_observed_data": datatree.by_row({"y": y[0, 0]}, draws=False),
        "conditional": datatree.conditional(moments),
    }
    return datatree.from_groups(groups, {})


def check_measure(measure: Measure, tree: xr.DataTree, *, uses_chains: bool = False) -> None:
    """Check a measure of uncertainty or quality against what every measure of bnnzoo promises.

    It returns labelled, finite values; leaves its argument as it was; gives the same twice; does not depend on the
    order of draws nor, unless ``uses_chains``, on how draws are spread over chains; and treats rows one by one or as a
    set, so that their order does not matter beyond the order of its result.

    Parameters
    ----------
    measure : callable
        From a tree to a Dataset or DataArray.
    tree : xarray.DataTree
        What it is computed on, with dims chain, draw and obs_id.
    uses_chains : bool
        True for diagnostics such as R-hat, which are about chains and the order of their draws.

    Raises
    ------
    AssertionError
        Naming the promise that is broken.

    Examples
    --------
    >>> def spread(tree):
    ...     return tree["conditional"]["mean"].std(("chain", "draw"))
    >>> check_measure(spread, example_tree("regression"))
    """
    name = getattr(measure, "__name__", repr(measure))
    before = tree.copy(deep=True)
    result = _as_dataset(measure(tree))
    if not tree.identical(before):
        raise AssertionError(f"{name} changes the tree it is given.")
    for variable, values in result.data_vars.items():
        if not np.isfinite(values.to_numpy()).all():
            raise AssertionError(f"{name}: {variable} holds values that are not finite.")
    _check_equal(name, "gives another result when called again", result, _as_dataset(measure(tree)))
    backwards = _take(tree, "obs_id", slice(None, None, -1))
    expected = result.isel(obs_id=slice(None, None, -1)) if "obs_id" in result.dims else result
    _check_equal(name, "depends on the order of rows", expected, _as_dataset(measure(backwards)))
    if not uses_chains:
        _check_draws(name, measure, tree, result)


def _check_draws(name: str, measure: Measure, tree: xr.DataTree, result: xr.Dataset) -> None:
    shuffled = _take(tree, "draw", slice(None, None, -1))
    _check_equal(name, "depends on the order of draws", result, _as_dataset(measure(shuffled)))
    groups = {}
    for group, node in tree.children.items():
        dataset = node.to_dataset()
        if "chain" in dataset.dims:
            stacked = dataset.stack(all_draws=("chain", "draw"), create_index=False)
            stacked = stacked.drop_vars(("chain", "draw"), errors="ignore").rename(all_draws="draw")
            dataset = stacked.expand_dims("chain").transpose("chain", "draw", ...)
            dataset = dataset.assign_coords(chain=[0], draw=np.arange(dataset.sizes["draw"]))
        groups[group] = dataset
    joined = datatree.from_groups(groups, {})
    _check_equal(name, "depends on how draws are spread over chains", result, _as_dataset(measure(joined)))


def _as_dataset(result: xr.Dataset | xr.DataArray) -> xr.Dataset:
    return result.to_dataset(name=result.name or "value") if isinstance(result, xr.DataArray) else result


def _take(tree: xr.DataTree, dim: str, index: slice) -> xr.DataTree:
    def take(dataset: xr.Dataset) -> xr.Dataset:
        return dataset.isel({dim: index}) if dim in dataset.dims else dataset

    return tree.map_over_datasets(take)


def _check_equal(name: str, failure: str, expected: xr.Dataset, found: xr.Dataset) -> None:
    try:
        xr.testing.assert_allclose(expected, found, rtol=1e-9, atol=1e-12)
    except AssertionError as error:
        raise AssertionError(f"{name} {failure}: {error}") from None
