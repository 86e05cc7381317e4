"""All other parameters given the hyperparameters of a hierarchy: modes, curvatures and means, many values at a time."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.func import grad, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.engine.failures import is_numerical
from bnnzoo.inference.laplace.hessian_products import negative_hessian

__all__ = ["ConditionalModes", "Conditionals"]

MAX_STEPS, MAX_HALVINGS, DECREMENT = 50, 12, 1e-6
NUM_CORRECTIONS, MAX_CORRECTION = 3, 0.5  # of means, and the largest of each, in standard deviations
MAX_ELEMENTS = 2**23  # of what is computed together


@dataclass(frozen=True)
class ConditionalModes:
    """The modes of the other parameters given hyperparameters, and the marginal density by Laplace's approximation.

    Attributes
    ----------
    theta : Tensor [M, P]
    log_marginal : Tensor [M]
        Minus infinity where there is no approximation.
    precision : Tensor [M, P, P]
        Minus the Hessian of the log joint density.
    """

    theta: Tensor
    log_marginal: Tensor
    precision: Tensor


class Conditionals:
    """The other parameters given hyperparameters ``theta[..., index]``, many values at a time."""

    def __init__(self, density: LogDensity, index: Tensor, others: Tensor, damping: float) -> None:
        self._density, self._index, self._others, self._damping = density, index, others, damping
        rows = max(1, density.num_data) * max(1, density.num_params)
        self._size = max(1, MAX_ELEMENTS // rows)
        self.num_gradients = 0

    def at(self, phi: Tensor, start: Tensor) -> ConditionalModes:
        """Return the modes given ``phi[M, H]`` by Newton's iteration from the other parameters of ``start[M, P]``."""
        theta = start.index_copy(1, self._index, phi)
        value = self._values(theta)
        precision = torch.full((*theta.shape, theta.shape[1]), torch.nan).to(theta)
        left = value.isfinite().nonzero()[:, 0]
        for _ in range(MAX_STEPS):
            if not len(left):
                break
            gradient, precision[left] = self._derivatives(theta[left])
            gradient = gradient[:, self._others]
            step = _newton_step(self._block(precision[left]), gradient)
            decrement = (gradient * step).sum(1)
            on = (decrement > DECREMENT) & decrement.isfinite()
            left, step, decrement = left[on], step[on], decrement[on]
            moved = self._line_search(theta[left], value[left], step, decrement)
            better = moved[1] > value[left]
            theta[left], value[left] = moved
            left = left[better]
        factor, failed = torch.linalg.cholesky_ex(self._block(precision).nan_to_num(0.0))
        size = len(self._others)
        found = value + 0.5 * size * math.log(2 * math.pi) - factor.diagonal(dim1=-2, dim2=-1).log().sum(1)
        return ConditionalModes(theta, torch.where((failed == 0) & found.isfinite(), found, -torch.inf), precision)

    def slopes(self, precision: Tensor) -> tuple[Tensor, Tensor]:
        """Return the covariance ``[M, R, R]`` of the others and how their modes move with the hyperparameters, ``[M, R, H]``."""
        covariance = torch.cholesky_inverse(torch.linalg.cholesky(self._block(precision)))
        return covariance, -covariance @ precision[:, self._others][:, :, self._index]

    def corrected(self, theta: Tensor, covariance: Tensor) -> Tensor:
        """Return the means ``[M, P]`` given hyperparameters, where skewness draws them from the modes ``theta[M, P]``.

        They are such that the mean gradient under the Gaussian of this covariance ``[M, R, R]`` is zero, by second differences
        along its axes.

        References
        ----------
        van Niekerk and Rue (2024), Low-rank variational Bayes correction to the Laplace method, Journal of Machine Learning
        Research 25.
        """
        root = torch.linalg.cholesky(covariance).mT
        moves = theta.new_zeros(*root.shape[:2], theta.shape[1])
        moves[..., self._others] = root
        moves = torch.cat([torch.zeros_like(moves[:, :1]), moves, -moves], 1)
        found, size = theta, len(self._others)
        weights = torch.cat([theta.new_tensor([1.0 - size]), theta.new_full((2 * size,), 0.5)])
        for _ in range(NUM_CORRECTIONS):
            points = (found[:, None] + moves).flatten(0, 1)
            gradient = self._batched(grad(self._log_joint), points, points.shape[1])
            self.num_gradients += len(points)
            mean = (gradient.reshape(moves.shape)[..., self._others] * weights[:, None]).sum(1)
            white = (root @ mean[..., None])[..., 0]
            length = white.norm(dim=1, keepdim=True) / math.sqrt(size)
            white = white * (MAX_CORRECTION / length).clamp(max=1.0)
            step = (root.mT @ white[..., None])[..., 0].nan_to_num(0.0, 0.0, 0.0)
            found = found.index_add(1, self._others, step)
        return found

    def _log_joint(self, theta: Tensor) -> Tensor:
        return self._density.log_joint(theta, *self._density.data)

    def _block(self, precision: Tensor) -> Tensor:
        found = precision[:, self._others][:, :, self._others]
        return found + self._damping * torch.eye(len(self._others)).to(found)

    def _line_search(self, theta: Tensor, value: Tensor, step: Tensor, decrement: Tensor) -> tuple[Tensor, Tensor]:
        """Return points ``[M, P]`` along Newton's steps at which the density is higher, and its values; else the same."""
        best, best_value, length = theta.clone(), value.clone(), 1.0
        open_rows = torch.arange(len(theta), device=theta.device)
        for _ in range(MAX_HALVINGS):
            if not len(open_rows):
                break
            tried = theta[open_rows].index_add(1, self._others, length * step[open_rows])
            found = self._values(tried)
            enough = found >= value[open_rows] + 1e-4 * length * decrement[open_rows]
            best[open_rows[enough]], best_value[open_rows[enough]] = tried[enough], found[enough]
            open_rows, length = open_rows[~enough], length / 2
        return best, best_value

    def _values(self, theta: Tensor) -> Tensor:
        with torch.no_grad():
            found = self._batched(self._log_joint, theta)
        return found.nan_to_num(nan=-torch.inf, posinf=-torch.inf)

    def _derivatives(self, theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient ``[M, P]`` of the log joint density and minus its Hessian ``[M, P, P]``."""

        def at(row: Tensor) -> Tensor:
            return torch.cat([grad(self._log_joint)(row)[None], negative_hessian(self._log_joint, row, ())])

        self.num_gradients += len(theta) * (1 + theta.shape[1])
        found = self._batched(at, theta, 1 + theta.shape[1], theta.shape[1])
        return found[:, 0], found[:, 1:]

    def _batched(self, function: Callable[[Tensor], Tensor], theta: Tensor, *shape: int) -> Tensor:
        """Return a function of each row, by blocks of rows; row by row where the model cannot be batched."""
        try:
            return torch.cat([vmap(function)(block).detach() for block in theta.split(self._size)])
        except Exception:  # the model's own code may raise anything where it cannot be batched
            return torch.stack([self._one(function, row, shape) for row in theta])

    def _one(self, function: Callable[[Tensor], Tensor], row: Tensor, shape: tuple[int, ...]) -> Tensor:
        try:
            return function(row).detach()
        except Exception as error:
            if not is_numerical(error):
                raise
            return torch.full(shape, torch.nan).to(row)


def _newton_step(precision: Tensor, gradient: Tensor) -> Tensor:
    """Return Newton's steps ``[M, R]``, uphill also where a precision ``[M, R, R]`` is not positive definite."""
    factor, failed = torch.linalg.cholesky_ex(precision.nan_to_num(0.0))
    step = torch.cholesky_solve(gradient[..., None], factor)[..., 0]
    bad = (failed > 0).nonzero()[:, 0]
    if len(bad):
        values, vectors = torch.linalg.eigh(precision[bad].nan_to_num(0.0))
        size = values.abs().clamp(min=1e-6 * float(values.abs().max().clamp(min=1e-6)))
        step[bad] = (vectors @ ((vectors.mT @ gradient[bad][..., None]) / size[..., None]))[..., 0]
    return step
