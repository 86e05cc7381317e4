"""Objectives of training: functions of one member's parameters, batched over members."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import common_scale, log_prob
from bnnzoo.engine.value_and_grad import eager_value_and_grad
from bnnzoo.inference.optimise.batches import StepBatch

__all__ = ["MemberObjective", "Objective", "ObjectiveInputs", "inputs_of_member", "log_joint_objective"]


class ObjectiveInputs(NamedTuple):
    """What an objective sees at one step besides the parameters.

    Attributes
    ----------
    scalars : tuple of Tensor []
        Numbers that change from step to step, such as the weight of an annealed divergence.
    constants : tuple of Tensor [C, ...]
        What stays the same for each member, such as anchors.
    noise : tuple of Tensor [C, ...]
        The step's random numbers.
    batch : StepBatch
    """

    scalars: tuple[Tensor, ...]
    constants: tuple[Tensor, ...]
    noise: tuple[Tensor, ...]
    batch: StepBatch


@runtime_checkable
class Objective(Protocol):
    """A value for each member, to be maximised. One that couples its members computes their gradient here."""

    def value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the value ``[C]`` and its gradient ``[C, Q]`` at ``params[C, Q]``."""
        ...

    def looped_value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the same by Python loops, for models that cannot be traced."""
        ...


@dataclass(frozen=True)
class MemberObjective:
    """An objective that is a function of each member's own parameters.

    Attributes
    ----------
    function : callable
        ``(params[Q], inputs) -> []`` for one member, whose inputs have no dimension for members.
    looped : callable, optional
        The same without ``vmap``; default: ``function``.
    num_terms : int
        Number of terms, such as particles, that ``looped`` adds up one by one.
    key : hashable, optional
        What stands for the function among the functions of a density: fits of one kind share what is made of it.

    Examples
    --------
    >>> objective = MemberObjective(lambda params, inputs: -(params**2).sum())
    >>> nothing = ObjectiveInputs((), (), (), StepBatch((), ()))
    >>> objective.value_and_grad(torch.tensor([[1.0], [2.0]]), nothing)
    (tensor([-1., -4.]), tensor([[-2.],
            [-4.]]))
    """

    function: Callable[[Tensor, ObjectiveInputs], Tensor]
    looped: Callable[[Tensor, ObjectiveInputs], Tensor] | None = None
    num_terms: int = 1
    key: Hashable = None

    def value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the value ``[C]`` and its gradient ``[C, Q]`` at ``params[C, Q]``."""
        weights_dim = None if inputs.batch.row_weights is None else 0
        batch_dims = StepBatch(inputs.batch.dims, (None,) * len(inputs.batch.dims), weights_dim)  # type: ignore[arg-type]
        dims = ObjectiveInputs(None, 0, 0, batch_dims)  # type: ignore[arg-type]
        gradient, value = vmap(grad_and_value(self.function), in_dims=(0, dims))(params, inputs)
        return value, gradient

    def looped_value_and_grad(self, params: Tensor, inputs: ObjectiveInputs) -> tuple[Tensor, Tensor]:
        """Return the same, one member after another."""
        pairs = [
            eager_value_and_grad(partial(self.alone, inputs=inputs_of_member(inputs, member)), row)
            for member, row in enumerate(params)
        ]
        return torch.stack([value for value, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    def alone(self, params: Tensor, inputs: ObjectiveInputs) -> Tensor:
        """Return the value ``[]`` of one member at ``params[Q]``, by Python loops."""
        return (self.looped or self.function)(params, inputs)


def log_joint_objective(density: LogDensity) -> MemberObjective:
    r"""Return the log joint density of each member, its prior counted once and a mini-batch scaled up to all rows.

    .. math:: \log p(\theta) + \frac{N}{B} \sum_{n=1}^{B} w_n \log p(y_n \mid \theta)

    The weights :math:`w_n` are those of the batch, 1 by default.
    """

    def value(theta: Tensor, inputs: ObjectiveInputs) -> Tensor:
        batch = inputs.batch
        if batch.row_weights is None:
            return density.log_joint(theta, *batch.data)
        return density.log_prior(theta) + _weighted_log_likelihood(density, theta, batch)

    return MemberObjective(value, key="log joint")


def _weighted_log_likelihood(density: LogDensity, theta: Tensor, batch: StepBatch) -> Tensor:
    weights = batch.row_weights
    assert weights is not None
    nodes = density.nodes(theta, *batch.data)
    total = theta.new_zeros(())
    for name in (*density.observed, *density.factors):
        rows = log_prob(nodes[name])
        if rows.shape[:1] != weights.shape:
            raise ValueError(
                f"Row weights need one row for each observation, but site {name!r} has a log likelihood of shape "
                f"{tuple(rows.shape)} for {len(weights)} rows. Put it into a plate over the rows, or leave the weights out."
            )
        total = total + common_scale(nodes[name]) * (rows.reshape(len(weights), -1).sum(1) * weights).sum()
    return density.num_data / len(weights) * total


def inputs_of_member(inputs: ObjectiveInputs, member: int) -> ObjectiveInputs:
    """Return what the objective of one member sees, without a dimension for members."""
    batch = inputs.batch
    pairs = zip(batch.data, batch.dims, strict=True)
    data = tuple(value if dim is None else value[member] for value, dim in pairs)
    weights = None if batch.row_weights is None else batch.row_weights[member]
    return ObjectiveInputs(
        inputs.scalars,
        tuple(each[member] for each in inputs.constants),
        tuple(each[member] for each in inputs.noise),
        StepBatch(data, (None,) * len(data), weights),
    )
