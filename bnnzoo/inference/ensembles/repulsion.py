"""Repulsive ensembles: members kept apart in the space of functions."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.func import vjp, vmap

from bnnzoo.core.likelihood.general_readout import UnreadableLikelihood
from bnnzoo.core.likelihood.readout import read
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.settings import NonNegative, Positive
from bnnzoo.inference.optimise.objectives import Objective, ObjectiveInputs

__all__ = ["FunctionRepulsion", "Repulsive", "repulsive_force"]


@dataclass(frozen=True)
class FunctionRepulsion:
    r"""Members repel each other where their functions agree, whatever their weights.

    With :math:`f_m` the likelihood's parameters at the rows of the batch (for a network: its outputs), and k a Gaussian kernel,

    .. math::
        \theta_m \leftarrow \theta_m + \eta \left( \nabla_\theta \log p(\theta_m, y) - \lambda \,
        \frac{\partial f_m}{\partial \theta_m}^T \frac{\sum_l \nabla_{f_m} k(f_m, f_l)}{\sum_l k(f_m, f_l)} \right)

    The second term is the repulsive term of Stein variational gradient descent, divided by the kernel's sum: the gradient of a
    kernel density estimate of the members themselves, so that they spread like draws instead of meeting at modes.

    Parameters
    ----------
    strength : float
        :math:`\lambda`; 1 for the gradient flow of the paper.
    bandwidth : float, optional
        Kernel :math:`k(f, g) = \exp(-\|f - g\|^2 / h)`: the bandwidth h. Default: the median of the squared distances between
        members, divided by the logarithm of their number.

    References
    ----------
    D'Angelo and Fortuin (2021), Repulsive deep ensembles are Bayesian, NeurIPS. Wang, Ren, Zhu and Zhang (2019), Function space
    particle optimization for Bayesian neural networks, ICLR.
    """

    strength: NonNegative = 1.0
    bandwidth: Positive | None = None


@dataclass(frozen=True)
class Repulsive:
    """The objective of members that repel each other: its value is that of ``base``, its gradient has the repulsive term.

    Attributes
    ----------
    base : Objective
    function : callable
        ``(theta[P], *batch) -> [D]``, the values that are kept apart.
    repulsion : FunctionRepulsion
    """

    base: Objective
    function: Callable[..., Tensor]
    repulsion: FunctionRepulsion

    @classmethod
    def of(cls, base: Objective, density: LogDensity, repulsion: FunctionRepulsion) -> "Repulsive":
        """Return the objective that keeps the parameters of the likelihood apart.

        Raises
        ------
        ModelError
            If the likelihood has no parameters that can be read.
        """
        return cls(base, _outputs(density), repulsion)

    def value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the value ``[C]`` and its gradient with the repulsive term ``[C, P]`` at ``params[C, P]``."""
        value, gradient = self.base.value_and_grad(params, inputs)
        found, pull_back = vjp(vmap(self._at(inputs)), params)[:2]
        (force,) = pull_back(repulsive_force(found.detach(), self.repulsion.bandwidth))
        return value, gradient + self.repulsion.strength * force

    def looped_value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the same, one member after another."""
        value, gradient = self.base.looped_value_and_grad(params, inputs)
        with torch.enable_grad():
            leaf = params.detach().requires_grad_()
            found = torch.stack([self._at(inputs)(row) for row in leaf])
            (force,) = torch.autograd.grad(found, leaf, repulsive_force(found.detach(), self.repulsion.bandwidth))
        return value, gradient + self.repulsion.strength * force

    def _at(self, inputs: ObjectiveInputs) -> Callable[[Tensor], Tensor]:
        return lambda theta: self.function(theta, *inputs.batch.data)


def repulsive_force(values: Tensor, bandwidth: float | None) -> Tensor:
    r"""Return the direction ``[C, D]`` in which each member of ``values[C, D]`` leaves the others; zero for one alone.

    .. math:: - \frac{\sum_l \nabla_{f_m} k(f_m, f_l)}{\sum_l k(f_m, f_l)} =
        \frac2h \sum_l \frac{k(f_m, f_l)}{\sum_j k(f_m, f_j)} (f_m - f_l)

    Examples
    --------
    >>> repulsive_force(torch.tensor([[0.0], [1.0]]), bandwidth=1.0).flatten()
    tensor([-0.5379,  0.5379])
    """
    apart = values[:, None] - values
    squared = apart.square().sum(-1)
    width = _median_bandwidth(squared) if bandwidth is None else values.new_tensor(bandwidth)
    weights = (-squared / width).softmax(1)
    return 2 / width * (weights[..., None] * apart).sum(1)


def _median_bandwidth(squared: Tensor) -> Tensor:
    """Return the median of the squared distances ``[C, C]`` between different members over the logarithm of C."""
    count = len(squared)
    if count == 1:
        return squared.new_ones(())
    others = squared.reshape(-1)[1:].reshape(count - 1, count + 1)[:, :-1]  # all but the diagonal
    return (others.median() / math.log(count)).clamp(min=torch.finfo(squared.dtype).eps)


def _outputs(density: LogDensity) -> Callable[..., Tensor]:
    """Return the parameters of the likelihood ``[D]`` that depend on theta, as a function of theta and a batch."""
    try:
        active = density.active
    except UnreadableLikelihood as error:
        raise ModelError(f"repulsion keeps the parameters of the likelihood apart, but {error} Leave it out.") from None

    def function(theta: Tensor, *batch: Any) -> Tensor:
        nodes = density.observed_nodes(theta, *batch[: len(density.data)])  # the numbers of rows may follow
        return torch.cat(
            [
                block.reshape(-1)
                for name in density.observed
                for block, is_active in zip(read(nodes[name]["fn"]).coordinates, active[name], strict=True)
                if is_active
            ]
        )

    return function
