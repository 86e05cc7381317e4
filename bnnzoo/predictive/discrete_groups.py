"""Draws of the discrete sites that were summed out, and the probabilities of their values, as labelled arrays."""

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.discrete_states import DiscreteAxes, described, drawn_states
from bnnzoo.core.types import Data
from bnnzoo.predictive import datatree
from bnnzoo.predictive.blocks import Arrays, draw_blocks, or_nan
from bnnzoo.predictive.labels import Labels
from bnnzoo.predictive.sweep import evaluate

__all__ = ["discrete_groups"]

MAX_NUMBERS = 10_000_000
"""Of all draws of the discrete sites; probabilities beyond it are left out, and then the draws."""


def discrete_groups(
    density: LogDensity, theta: Tensor, batch: Data, seed: int, labels: Labels
) -> dict[str, xr.Dataset]:
    """Return the groups ``discrete`` and ``discrete_probs``; nothing for a model without such sites.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [C, S, P]
    batch : tuple
        Arguments of the model, with the observations given which discrete sites are drawn, or without.
    seed : int
    labels : Labels
    """
    flat = theta.flatten(0, 1)
    with torch.no_grad():
        known = or_nan(partial(described, density), flat[0], *batch)
        if not known:
            return {}
        once = or_nan(partial(drawn_states, density), flat[0], *batch)
    groups = ("discrete", "discrete_probs")
    sizes = {group: sum(v.numel() for (own, _), v in once.items() if own == group) * len(flat) for group in groups}
    wanted = {group for group, size in sizes.items() if size <= MAX_NUMBERS}
    if not wanted:
        return {}

    def function(theta: Tensor, *data: object) -> dict[tuple[str, str], Tensor]:
        found = drawn_states(density, theta, *data)
        lost = {("lost", name): v.isnan().any(-1) for (group, name), v in found.items() if group == "discrete_probs"}
        return lost | {place: v for place, v in found.items() if place[0] in wanted}

    blocks = draw_blocks(function, flat[0], batch, 0, splits=False)
    found = evaluate(function, flat, batch, 0, blocks, seed)
    arrays = {place: array.reshape(*theta.shape[:2], *array.shape[1:]) for place, array in found.items()}
    lost = {name: array for (group, name), array in arrays.items() if group == "lost"}
    arrays = {
        place: _or_nan(array, lost, place[1]) if place[0] == "discrete" else array for place, array in arrays.items()
    }
    return {
        group: _dataset({n: a for (own, n), a in arrays.items() if own == group}, known, labels, group)
        for group in groups
    }


def _or_nan(array: NDArray[Any], lost: Arrays, name: str) -> NDArray[Any]:
    """Return values ``[C, S, ...]``, NaN where the probabilities of a site are, or for what depends on sites all of theirs."""
    own = lost.get(name)
    if own is None:
        own = np.logical_and.reduce([each.all(tuple(range(2, each.ndim))) for each in lost.values()])
    own = own.reshape(*own.shape, *(1 for _ in range(array.ndim - own.ndim)))
    return np.where(own, np.nan, array) if own.any() else array


def _dataset(arrays: Arrays, known: dict[str, DiscreteAxes], labels: Labels, group: str) -> xr.Dataset:
    has_values = group == "discrete_probs"
    plates = {name: known[name].plates for name in arrays}
    if has_values:  # one probability for each value, also of a vector
        plates = {name: (*(p for p in known[name].plates if p is not None), None) for name in arrays}
    dataset = datatree.by_draw(arrays, replace(labels, plates={**labels.plates, **plates}))
    if not has_values:
        return dataset
    renamed = {dataset[name].dims[-1]: f"{name}_value" for name in arrays}
    dataset = dataset.rename(renamed)
    values = {f"{name}_value": known[name].values for name in arrays}
    return dataset.assign_coords({dim: value.cpu().numpy() for dim, value in values.items() if value is not None})
