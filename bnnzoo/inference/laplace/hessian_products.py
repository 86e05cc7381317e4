"""Exact Hessians by products with directions, batched where the model's operations can be."""

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.types import Data
from bnnzoo.engine.value_and_grad import hessian_products

__all__ = ["MAX_ELEMENTS", "diagonal_if_diagonal", "hessian_diagonal", "negative_hessian"]

BLOCK = 64  # Hessian rows at a time
MAX_ELEMENTS = 2**23  # of a block of Hessian rows


def negative_hessian(function: Callable[..., Tensor], theta: Tensor, data: Data, index: Tensor | None = None) -> Tensor:
    """Return minus the Hessian ``[R, R]`` of ``(theta[P], *data) -> []`` at theta, for some entries or all."""
    index = torch.arange(len(theta), device=theta.device) if index is None else index

    def of_part(part: Tensor) -> Tensor:
        return function(theta.index_copy(0, index, part), *data)

    product = hessian_products(of_part, theta[index])
    directions = torch.eye(len(index), dtype=theta.dtype, device=theta.device)
    size = max(1, MAX_ELEMENTS // max(1, 8 * len(theta)))
    hessian = -torch.cat([_products(product, block).detach() for block in directions.split(size)])
    return (hessian + hessian.mT) / 2


def _products(product: Callable[[Tensor], Tensor], directions: Tensor) -> Tensor:
    """Return a linear map applied to every row of ``directions[B, R]``."""
    try:
        found: Tensor = vmap(product)(directions)
        return found
    except RuntimeError:  # some operations of the user's model may be unknown to vmap
        return torch.stack([product(v) for v in directions])


def diagonal_if_diagonal(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor | None:
    """Return the diagonal ``[P]`` of a Hessian that has nothing else, as that of independent priors; None for others.

    One product with it is enough; a second one, with random signs, tells whether it is diagonal.
    """
    signs = 2.0 * torch.randint(2, theta.shape, generator=torch.Generator().manual_seed(0)).to(theta) - 1
    theta = theta.detach().requires_grad_()
    with torch.enable_grad():
        gradient = _derivative(function(theta), theta, torch.ones(()).to(theta), create_graph=True)
        diagonal, signed = (_derivative(gradient, theta, v) for v in (torch.ones_like(theta), signs))
    return diagonal if torch.allclose(signed, diagonal * signs) else None


def _derivative(value: Tensor, theta: Tensor, weights: Tensor, *, create_graph: bool = False) -> Tensor:
    """Return the transposed Jacobian of ``value`` about theta times ``weights``; zero where it does not depend on theta."""
    if not value.requires_grad:
        return torch.zeros_like(theta)
    along = (value * weights).sum()
    return torch.autograd.grad(along, theta, retain_graph=True, create_graph=create_graph, materialize_grads=True)[0]


def hessian_diagonal(function: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return the diagonal ``[P]`` of the Hessian of a function of ``theta[P]``."""
    diagonal = diagonal_if_diagonal(function, theta)
    if diagonal is not None:
        return diagonal
    product = hessian_products(function, theta)
    entries = []
    for rows in torch.arange(len(theta), device=theta.device).split(BLOCK):
        directions = torch.nn.functional.one_hot(rows, len(theta)).to(theta)
        entries.append((_products(product, directions) * directions).sum(1))
    return torch.cat(entries)
