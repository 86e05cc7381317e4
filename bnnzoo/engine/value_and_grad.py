"""Values and gradients of a function by autograd, of one point or of many."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import grad, vmap

from bnnzoo.engine.failures import is_numerical

__all__ = [
    "Evaluated",
    "eager_value_and_grad",
    "hessian_products",
    "jacobian_of",
    "looped_value_and_grad",
    "single_value_and_grad",
    "value_and_grad_of",
]


@dataclass(frozen=True)
class Evaluated:
    """Points ``theta[C, P]`` with the ``value[C]`` of a function and its ``gradient[C, P]`` there."""

    theta: Tensor
    value: Tensor
    gradient: Tensor

    def __getitem__(self, which: slice) -> "Evaluated":
        """Return some of the points."""
        return Evaluated(self.theta[which], self.value[which], self.gradient[which])


def single_value_and_grad(log_joint: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return ``(theta[P], *batch) -> ([], [P])``."""

    def value_and_grad(theta: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        return value_and_grad_of(lambda leaf: log_joint(leaf, *batch), theta)

    return value_and_grad


def looped_value_and_grad(log_joint: Callable[..., Tensor]) -> Callable[..., tuple[Tensor, Tensor]]:
    """Return ``(theta[C, P], *batch) -> ([C], [C, P])`` by a loop over chains, for models that cannot be batched.

    The value is minus infinity where the log density cannot be computed; see :func:`eager_value_and_grad`.
    """

    def value_and_grad(theta: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        pairs = [eager_value_and_grad(lambda leaf: log_joint(leaf, *batch), row) for row in theta]
        return torch.stack([value for value, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    return value_and_grad


def eager_value_and_grad(function: Callable[[Tensor], Tensor], theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the value ``[]`` of a function and its gradient at ``theta[P]``, minus infinity and NaN where it fails numerically.

    Examples
    --------
    >>> eager_value_and_grad(lambda x: torch.linalg.cholesky(x.diag()).sum(), torch.tensor([4.0, -1.0]))
    (tensor(-inf), tensor([nan, nan]))
    """
    try:
        return value_and_grad_of(function, theta)
    except Exception as error:
        if not is_numerical(error):
            raise
        return theta.new_full((), -torch.inf), torch.full_like(theta, torch.nan)


def value_and_grad_of(function: Callable[[Tensor], Tensor], theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the values of a function, and the gradient of their sum at ``theta``, by torch's autograd.

    ``torch.func.grad`` does the same, and imports torch's compiler, which takes more than a second.

    Examples
    --------
    >>> value_and_grad_of(lambda x: x.square(), torch.tensor([1.0, 3.0]))
    (tensor([1., 9.]), tensor([2., 6.]))
    """
    with torch.enable_grad():
        leaf = theta.detach().requires_grad_()
        value = function(leaf)
        (gradient,) = torch.autograd.grad(value.sum(), leaf, materialize_grads=True)
    return value.detach(), gradient


def hessian_products(function: Callable[[Tensor], Tensor], theta: Tensor) -> Callable[[Tensor], Tensor]:
    """Return ``v[P] -> H v`` for the Hessian of a function at ``theta[P]``, by reverse mode twice.

    In forward mode torch promotes single precision to double halfway. ``torch.func.vjp`` and ``jacrev`` give autograd vectors,
    at whose sight torch imports a library of symbolic algebra, which takes longer than a small fit.

    Examples
    --------
    >>> hessian_products(lambda x: (x**3).sum(), torch.tensor([1.0, 2.0]))(torch.tensor([1.0, 1.0]))
    tensor([ 6., 12.])
    """

    def along(at: Tensor, direction: Tensor) -> Tensor:
        return (grad(function)(at) * direction).sum()

    return lambda direction: grad(along)(theta, direction)


def jacobian_of(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Return ``(theta[P], *batch) -> [..., P]``, the Jacobian of a function about its first argument.

    Examples
    --------
    >>> jacobian_of(lambda x: torch.stack([x.sum(), x.prod()]))(torch.tensor([2.0, 3.0]))
    tensor([[1., 1.],
            [3., 2.]])
    """

    def jacobian(theta: Tensor, *batch: Any) -> Tensor:
        def along(at: Tensor, weights: Tensor) -> Tensor:
            return (function(at, *batch) * weights).sum()

        value = function(theta, *batch)
        each = torch.eye(value.numel(), dtype=value.dtype, device=value.device).view(-1, *value.shape)
        found: Tensor = vmap(grad(along), in_dims=(None, 0))(theta, each)
        return found.view(*value.shape, *theta.shape)

    return jacobian
