"""Ranks of truths among draws, as a calibration by simulation leaves them in a tree."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import xarray as xr

from bnnzoo.trees.argument_kinds import refuse_other_kind

__all__ = ["Array", "group_of_ranks", "pit_of", "pits_of_tree", "scalars_of"]

type Array = np.ndarray[Any, Any]

GROUPS = ("prior_sbc", "posterior_sbc")


def pits_of_tree(tree: xr.DataTree, asking: str) -> dict[str, Array]:
    """Return the ranks ``[draw]`` of every scalar as numbers that are uniform if the method is right, for a function ``asking``.

    Raises
    ------
    ValueError
        If the tree has no ranks.
    """
    refuse_other_kind(tree, xr.DataTree, "tree", f"what sbc returned, as in {asking}(sbc(model, method, x, y))")
    group = group_of_ranks(tree)
    if group is None:
        raise ValueError(
            f"{asking} takes the ranks that sbc returned, but the tree has neither prior_sbc nor posterior_sbc (groups: "
            f"{', '.join(tree.children) or 'none'}). Write {asking}(sbc(model, method, x, y))."
        )
    num_draws = int(tree.attrs["num_draws"])
    return {name: pit_of(ranks, num_draws) for name, ranks in _scalars(tree[group].to_dataset())}


def group_of_ranks(tree: xr.DataTree) -> str | None:
    """Return the name of the group of ranks, if there is one."""
    return next((name for name in GROUPS if name in tree.children), None)


def pit_of(ranks: Array, num_draws: int) -> Array:
    """Return ranks as numbers in (0, 1) that are uniform if the ranks are: the test is of a continuous distribution."""
    return (ranks + np.random.default_rng(0).uniform(size=len(ranks))) / (num_draws + 1)


def _scalars(dataset: xr.Dataset) -> Iterator[tuple[str, Array]]:
    """Yield the name and the ranks ``[draw]`` of every scalar."""
    for name, array in dataset.items():
        yield from scalars_of(str(name), array.isel(chain=0).to_numpy())


def scalars_of(name: str, values: Array) -> Iterator[tuple[str, Array]]:
    """Yield the name and the ranks ``[draw]`` of every scalar of an array ``[draw, ...]``."""
    for index in np.ndindex(values.shape[1:]):
        yield f"{name}{list(index) if index else ''}", values[(slice(None), *index)]
