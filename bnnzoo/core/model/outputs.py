r"""Unconstrained parameters z of each p(y | z), as functions of theta.

The generalised Gauss-Newton matrix is :math:`\sum_n J_n^T F_n J_n` with :math:`J_n = \partial z_n / \partial \theta`
and :math:`F_n` the Fisher information of p(y | z_n) about :math:`z_n`; the linearised predictive replaces
:math:`z(\theta)` by :math:`z(\theta^*) + J (\theta - \theta^*)`. Both need these functions and their Jacobians.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import pyro
import torch
from torch import Tensor
from torch.func import jacrev, jvp, vmap

from bnnzoo.core.data.minibatch import select
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.likelihood.unchecked import switch_validation_off
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.types import Data
from bnnzoo.engine.value_and_grad import jacobian_of

type _Axes = tuple[int | None, ...]

__all__ = [
    "LinearizedDensity",
    "jacobian_in_blocks",
    "linearized",
    "row_jacobians",
    "rows_are_independent",
    "whitened_node",
    "whitened_outputs",
]

NUM_ASKED = 14
"""Rows between the first and the last that are asked whether they are the same alone."""


def whitened_outputs(
    density: LogDensity,
    active: Mapping[str, tuple[bool, ...]],
    theta: Tensor,
    *batch: Any,
    roots: Mapping[str, tuple[Tensor, ...]] | None = None,
) -> Tensor:
    r"""Return ``[B, K]`` whose Jacobian about theta is :math:`R_n^T J_n` for each row: the rows of a root of the GGN.

    Scales and masks of the likelihood are included. The roots R are held constant, as if they did not depend on theta.

    Parameters
    ----------
    density : LogDensity
    active : mapping
        ``density.active``, or that of the density whose sites ``density`` restricts; other coordinates are left out.
    theta : Tensor [P]
    *batch
        Arguments of the model.
    roots : mapping of str to tuple of Tensor, optional
        The roots R of each observed site, see :attr:`~bnnzoo.core.likelihood.general_readout.Readout.roots`. Default: those at
        theta.
    """
    nodes = density.nodes(theta, *batch)
    given = roots or {}
    # join outputs [B, K] of sites along K where they have the same rows, else into one row of all of them
    sites = [_whitened(nodes[name], active[name], given.get(name)) for name in density.observed]
    if len({len(site) for site in sites}) == 1:
        return torch.cat(sites, -1)
    return torch.cat([site.reshape(1, -1) for site in sites], -1)


def whitened_node(node: Node) -> Tensor:
    """Return the whitened outputs ``[B, K]`` of one site, without the coordinates that depend on no variable."""
    return _whitened(node, tuple(block.requires_grad for block in read(node["fn"]).coordinates))


def _whitened(node: Node, active: tuple[bool, ...], roots: tuple[Tensor, ...] | None = None) -> Tensor:
    found = read(node["fn"])
    weight = (node["scale"] * found.weight).sqrt()
    if isinstance(node["mask"], Tensor):
        events = weight.ndim - node["mask"].ndim
        weight = weight * node["mask"].reshape(node["mask"].shape + (1,) * events)
    parts = [weight.new_zeros(weight.shape[0] if weight.ndim else 1, 0)]  # for a site that depends on nothing
    for is_active, z, root in zip(active, found.coordinates, roots or found.roots, strict=True):
        if is_active:
            white = (root.detach() * z[..., :, None]).sum(-2)
            parts.append((weight[..., None] * white).reshape(weight.shape[0] if weight.ndim else 1, -1))
    return torch.cat(parts, -1)


def rows_are_independent(
    whole: Tensor, function: Callable[..., Tensor], theta: Tensor, data: Data, num_rows: int
) -> bool:
    """Tell whether rows have the same ``function(theta, *batch)`` alone as in ``whole[N, K]``: the ends and some between."""
    if num_rows < 2 or len(whole) != num_rows:
        return False
    between = torch.randperm(num_rows, generator=torch.Generator().manual_seed(0))[:NUM_ASKED]
    ends = torch.cat([torch.tensor([0, num_rows - 1]), between]).to(theta.device)
    alone, axes = _one_by_one(function, data, num_rows)
    with torch.no_grad():
        try:
            batch = select(data, ends, num_rows)
            try:
                found: Tensor = vmap(alone, in_dims=axes)(theta, *batch)
            except RuntimeError:  # some operations of the user's model may be unknown to vmap: row after row
                rows = range(next(len(v) for v, axis in zip(batch, axes[1:], strict=True) if axis == 0))
                parts = [[v if a is None else v[row] for v, a in zip(batch, axes[1:], strict=True)] for row in rows]
                found = torch.stack([alone(theta, *part) for part in parts])
        except Exception:  # the model may raise anything on one row; then rows cannot be told apart
            return False
    # convolutions of one row and of thousands are summed in other orders
    rounding = torch.finfo(whole.dtype).eps ** 0.5 * float(whole.abs().max())
    return found.shape == whole[ends].shape and torch.allclose(found, whole[ends], atol=rounding)


def jacobian_in_blocks(
    whole: Tensor, function: Callable[..., Tensor], theta: Tensor, data: Data, num_rows: int, max_elements: int
) -> tuple[Callable[..., Tensor], list[slice]]:
    """Return ``(theta, *batch) -> [B, K, P]``, Jacobians about theta, and the rows for which to ask at a time.

    Parameters
    ----------
    whole, function, theta, data, num_rows
        As for :func:`rows_are_independent`; if they are not, all rows form one block.
    max_elements : int
        Of a block's Jacobian; that of a single row may be larger.
    """
    if not rows_are_independent(whole, function, theta, data, num_rows):
        return jacobian_of(function), [slice(0, num_rows)]
    size = max(1, max_elements // (whole.shape[-1] * len(theta)))
    blocks = [slice(first, min(first + size, num_rows)) for first in range(0, num_rows, size)]
    return row_jacobians(function, data, num_rows), blocks


def row_jacobians(function: Callable[..., Tensor], data: Data, num_rows: int) -> Callable[..., Tensor]:
    """Return ``(theta, *batch) -> [B, K, P]``, the Jacobians about theta of a function ``[B, K]`` of independent rows.

    Parameters
    ----------
    function : callable
        ``(theta[P], *batch) -> [B, K]``.
    data : tuple
        Arguments like those of a batch; tensors with ``num_rows`` rows are split into rows.
    num_rows : int
    """
    alone, axes = _one_by_one(function, data, num_rows)

    def batched(theta: Tensor, *batch: Any) -> Tensor:
        try:
            found: Tensor = vmap(jacobian_of(alone), in_dims=axes)(theta, *batch)
        except RuntimeError:  # some operations of the user's model may be unknown to vmap
            found = jacrev(function, chunk_size=1)(theta, *batch)
        return found

    return batched


def _one_by_one(function: Callable[..., Tensor], data: Data, num_rows: int) -> tuple[Callable[..., Tensor], _Axes]:
    """Return ``(theta, *row) -> [K]`` for a function ``[B, K]``, and over which axes of a batch's arguments rows go."""
    axes = tuple(0 if isinstance(v, Tensor) and v.ndim > 0 and len(v) == num_rows else None for v in data)

    def alone(theta: Tensor, *row: Any) -> Tensor:
        batch = (v if axis is None else v[None] for v, axis in zip(row, axes, strict=True))
        return function(theta, *batch).squeeze(0)

    return alone, (None, *axes)


@dataclass(frozen=True, repr=False)
class LinearizedDensity(LogDensity):
    r"""A log density whose likelihood takes :math:`z(\theta^*) + J (\theta - \theta^*)` instead of :math:`z(\theta)`.

    Attributes
    ----------
    anchor : Tensor [P]
        Where the outputs are linearised, the mode of a Laplace approximation.
    """

    anchor: Tensor

    def nodes(self, theta: Tensor, *batch: Any, draw: bool = False) -> dict[str, Node]:
        """Return the nodes of the model's trace, those of observed sites with linearised parameters."""
        return super().nodes(theta, *batch) | self.observed_nodes(theta, *batch, draw=draw)

    def observed_nodes(self, theta: Tensor, *batch: Any, draw: bool = False) -> dict[str, Node]:
        """Return the nodes of the observed sites with linearised parameters."""

        def outputs(theta: Tensor) -> dict[str, tuple[Tensor, ...]]:
            here = super(LinearizedDensity, self).nodes(theta, *batch)
            return {name: read(here[name]["fn"]).coordinates for name in self.observed}

        at_anchor, change = jvp(outputs, (self.anchor,), (theta - self.anchor,))[:2]
        nodes = super().nodes(self.anchor, *batch)  # what families, scales and masks the sites have
        with pyro.validation_enabled(False):
            for name in self.observed:
                # torch's forward mode makes double tangents of single scalars that a number is added to
                moved = tuple(z + dz.to(z.dtype) for z, dz in zip(at_anchor[name], change[name], strict=True))
                fn = read(nodes[name]["fn"]).build(moved)
                switch_validation_off(fn)  # which it would do outside this block
                nodes[name] = {**nodes[name], "fn": fn} | ({"value": fn.sample()} if draw else {})
        return {name: nodes[name] for name in self.observed}


def linearized(density: LogDensity, anchor: Tensor) -> LinearizedDensity:
    """Return a density whose likelihood is that of the model's outputs linearised at ``anchor[P]``.

    Raises
    ------
    UnreadableLikelihood
        If the outputs of the likelihood cannot be read.
    """
    _ = density.active
    with warnings.catch_warnings():
        # At its first use torch's forward mode compiles rules with a tool that it warns about itself.
        warnings.simplefilter("ignore", FutureWarning)
        jvp(torch.sin, (anchor,), (anchor,))
    return LinearizedDensity(**{f.name: getattr(density, f.name) for f in fields(density)}, anchor=anchor)
