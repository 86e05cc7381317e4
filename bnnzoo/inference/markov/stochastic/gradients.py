"""Stochastic gradients of the log posterior density: from a mini-batch alone, or corrected by a control variate."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.streamed import StreamedDensity, rows_in_blocks
from bnnzoo.engine.lowered import Lowered
from bnnzoo.inference.optimise.batches import StepBatch
from bnnzoo.inference.optimise.objectives import ObjectiveInputs

__all__ = ["Anchor", "GradientMoments", "Stochastic", "full_gradient", "no_moments", "observed", "stochastic_gradient"]

type Anchor = tuple[Tensor, ...]
"""Nothing, or the centre of a control variate ``[C, P]`` and the gradient on all rows there ``[C, P]``."""

type Stochastic = Callable[[Tensor, Anchor, StepBatch], tuple[Tensor, Tensor]]

ROWS_AT_A_TIME = 10_000
"""A gradient on all rows is computed in blocks of this size, so that memory does not grow with the data."""


class GradientMoments(NamedTuple):
    """Sums over the stochastic gradients of some steps: of their squares, and of the squares of successive differences.

    At stationarity the mean square is the curvature plus the variance of the gradient noise. Half the mean squared difference
    is that variance alone, as long as a chain moves little in one step.
    """

    count: Tensor  # type: ignore[assignment]  # hides tuple.count, which nobody calls here
    square: Tensor
    difference: Tensor
    previous: Tensor

    @property
    def mean_square(self) -> Tensor:
        """Mean squared gradient ``[C, P]``."""
        return self.square / self.count.unsqueeze(-1).clamp(min=1)

    @property
    def noise(self) -> Tensor:
        """Variance of the gradient noise ``[C, P]``."""
        return self.difference / (2 * (self.count.unsqueeze(-1) - 1).clamp(min=1))


def no_moments(theta: Tensor) -> GradientMoments:
    """Return empty moments for chains at ``theta[C, P]``."""
    return GradientMoments(theta.new_zeros(theta.shape[:-1]), *(torch.zeros_like(theta) for _ in range(3)))


def observed(moments: GradientMoments, gradient: Tensor) -> GradientMoments:
    """Add the gradient ``[..., P]`` of a step."""
    change = torch.where(moments.count.unsqueeze(-1) > 0, gradient - moments.previous, 0.0)
    square, difference = moments.square + gradient**2, moments.difference + change**2
    return GradientMoments(moments.count + 1, square, difference, gradient)


def stochastic_gradient(value_and_grad: Callable[[Tensor, ObjectiveInputs], tuple[Tensor, Tensor]]) -> Stochastic:
    r"""Return an unbiased estimate of the log posterior density ``[C]`` and of its gradient ``[C, P]`` from a batch.

    .. math:: \tilde g(\theta) = \nabla \log p(\theta) + \frac{N}{B} \sum_{n \in \text{batch}} \nabla \log p(y_n \mid \theta)

    With an anchor :math:`\hat\theta` the estimate is :math:`\tilde g(\theta) - \tilde g(\hat\theta) + \nabla \log p(\hat\theta
    \mid y)`, with the same batch in both: near the anchor the noise cancels. The value is not corrected.

    References
    ----------
    Baker, Fearnhead, Fox and Nemeth (2019), Control variates for stochastic gradient MCMC, Statistics and Computing 29.
    Dubey et al. (2016), Variance reduction in stochastic gradient Langevin dynamics, NeurIPS.
    """

    def estimate(theta: Tensor, anchor: Anchor, batch: StepBatch) -> tuple[Tensor, Tensor]:
        inputs = ObjectiveInputs((), (), (), batch)
        value, gradient = value_and_grad(theta, inputs)
        if anchor:
            centre, whole = anchor
            gradient = gradient - value_and_grad(centre, inputs)[1] + whole
        return value, gradient

    return estimate


def full_gradient(gradient: Lowered, theta: Tensor, density: LogDensity) -> Tensor:
    """Return the gradient of the log posterior density on all rows ``[C, P]``, computed in blocks of rows.

    A block is scaled up to all rows and weighted by its share of them, so that the prior counts once.
    """
    dims = (None,) * len(density.data)
    if density.num_data <= ROWS_AT_A_TIME and not isinstance(density, StreamedDensity):
        return gradient(theta, (), StepBatch(density.data, dims))[1]
    total = torch.zeros_like(theta)
    for rows, share in rows_in_blocks(density, ROWS_AT_A_TIME):
        total = total + share * gradient(theta, (), StepBatch(rows, dims))[1]
    return total
