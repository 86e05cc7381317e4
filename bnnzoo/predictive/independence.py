"""Does a row have the same prediction without the others? Asked before rows are predicted in blocks."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.model.terms import moments_of, pointwise_of
from bnnzoo.core.types import Data

__all__ = ["are_close", "can_split_rows", "probe", "row_values", "values_of"]

type Values = Mapping[str, Tensor]

NUM_RANDOM = 64
"""Random rows, in random order, that are predicted without the others."""

ROUNDING = {torch.float32: 1e-4}
"""Relative difference, also to a typical value, that the order of additions may make."""


def row_values(density: LogDensity) -> Callable[..., dict[str, Tensor]]:
    """Return ``(theta[P], *data) -> {name: Tensor[B, ...]}``: moments of observed sites, and log densities of outcomes."""

    def function(theta: Tensor, *data: Any) -> dict[str, Tensor]:
        return values_of(density, density.observed_nodes(theta, *data))

    return function


def values_of(density: LogDensity, nodes: Mapping[str, Node]) -> dict[str, Tensor]:
    """Return what :func:`row_values` does, from one run of the model."""
    names = (*density.observed, *density.factors)
    terms = pointwise_of(nodes, [name for name in names if name in nodes and nodes[name]["is_observed"]])
    return moments_of(nodes, density.observed) | {f"log density of {name}": value for name, value in terms.items()}


def can_split_rows(
    whole: Values, function: Callable[..., Values], theta: Tensor, data: Data, num_rows: int, sizes: Iterable[int]
) -> bool:
    """Tell whether rows have the same ``function(theta, *data)`` in blocks as in ``whole``, among all the others.

    Most models' moments do. One that reads the number of rows, or mixes them, does not, and is evaluated on all rows at once.
    For each size of a block the first, both sides of the edge in the middle, and the last are compared, and once random rows.

    Parameters
    ----------
    whole : mapping of str to Tensor [N, ...]
    function, theta, data, num_rows
    sizes : iterable of int
        Rows of the blocks that will be evaluated; blocks of all rows are not asked about.
    """
    if num_rows < 1 or any(value.shape[:1] != (num_rows,) for value in whole.values()):
        return False
    smaller = {size for size in sizes if 0 < size < num_rows}
    parts = [rows for size in smaller for rows in _blocks(num_rows, size)]
    if smaller:
        parts.append(_random_rows(num_rows, min(NUM_RANDOM, max(1, num_rows - 1))))
    return all(_agree(whole, function, theta, data, num_rows, rows) for rows in parts)


def probe(num_rows: int, size: int) -> Tensor:
    """Return rows ``[B]`` that stand for all where those are many: two blocks and some that lie anywhere, in their order."""
    if num_rows <= 2 * size + NUM_RANDOM:
        return torch.arange(num_rows)
    rest = 2 * size + _random_rows(num_rows - 2 * size, NUM_RANDOM).sort().values
    return torch.cat([torch.arange(2 * size), rest])


def _blocks(num_rows: int, size: int) -> list[Tensor]:
    edge = num_rows // size // 2 * size
    starts = {0, max(0, edge - size), min(edge, num_rows - size), num_rows - size}
    return [torch.arange(start, start + size) for start in sorted(starts)]


def _random_rows(num_rows: int, count: int) -> Tensor:
    return torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:count]


def _agree(
    whole: Values, function: Callable[..., Values], theta: Tensor, data: Data, num_rows: int, rows: Tensor
) -> bool:
    try:
        part = function(theta, *select(data, rows.to(theta.device), num_rows))
    except Exception:  # the model's own code may raise anything on fewer rows: then they cannot be split
        return False
    return all(are_close(part[name], whole[name][rows.to(whole[name].device)]) for name in whole)


def are_close(found: Tensor, expected: Tensor) -> bool:
    """Tell whether values are the same but for rounding."""
    if found.shape != expected.shape:
        return False
    if not expected.is_floating_point():
        return bool(torch.equal(found, expected))
    tolerance = ROUNDING.get(expected.dtype, 1e-9)
    typical = expected.abs().nanmedian().nan_to_num(0.0, 0.0) if expected.numel() else 0.0
    return torch.allclose(found, expected, rtol=tolerance, atol=tolerance * float(typical), equal_nan=True)
