"""Interface of stochastic-gradient methods: the tuning of a step, and the move of a chain along a gradient."""

from typing import NamedTuple, Protocol, runtime_checkable

from torch import Tensor

__all__ = ["Measured", "Step", "StochasticDynamics"]


class Measured(NamedTuple):
    """What is known of the density around a chain, of each parameter ``[C, P]`` or of each chain ``[C]``.

    Attributes
    ----------
    curvature : Tensor [C, P]
        Mean squared stochastic gradient, or at the start what it is expected to be.
    noise : Tensor [C, P]
        Variance of the gradient noise.
    scale : Tensor [C, P]
        Units of the parameters.
    stiffness : Tensor [C]
        Largest eigenvalue of the Hessian in these units.
    """

    curvature: Tensor
    noise: Tensor
    scale: Tensor
    stiffness: Tensor


class Step(NamedTuple):
    """What a step of a chain depends on besides the gradient.

    Attributes
    ----------
    size : Tensor []
    scale : Tensor [P]
        Units of the parameters.
    gradient_noise : Tensor [P]
        Variance of the noise of the gradient.
    noisy : Tensor []
        1, or 0 for a step without noise of its own.
    """

    size: Tensor
    scale: Tensor
    gradient_noise: Tensor
    noisy: Tensor


@runtime_checkable
class StochasticDynamics(Protocol):
    """A stochastic-gradient method as pure functions of plain tensors: tuned for all chains at once, moved chain by chain.

    Attributes
    ----------
    preconditioned : bool
        Whether the units of the parameters are estimated; they are those of the model otherwise.
    counts_noise : bool
        Whether the noise of gradients counts as part of the noise of the dynamics, which asks for independent batches.
    """

    @property
    def preconditioned(self) -> bool: ...
    @property
    def counts_noise(self) -> bool: ...

    def start(self, measured: Measured, noise: Tensor) -> tuple[Tensor, ...]:
        """Return what a chain carries besides its position, ``[C, P]`` each, given standard normal ``noise[C, P]``."""
        ...

    def step_size(self, measured: Measured) -> Tensor:
        """Return the default step size of each chain ``[C]``."""
        ...

    def reversed(self, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return what a chain carries, ``[P]`` each, after a draw that was rejected: what has a direction points back."""
        ...

    def move(
        self, gradient: Tensor, state: tuple[Tensor, ...], step: Step, noise: Tensor
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """Return how far to move ``[P]``, and the next state, given the ``gradient[P]`` and ``noise[P]``."""
        ...
