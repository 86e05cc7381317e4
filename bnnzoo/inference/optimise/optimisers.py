"""From gradients to moves of the parameters: pure updates of plain tensors, for all members at once."""

from dataclasses import dataclass
from typing import Annotated, Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.settings import Fraction, Positive, Range

__all__ = ["SGD", "Adam", "Optimiser", "State"]

type State = tuple[Tensor, ...]
"""Tensors ``[C, Q]`` that an optimiser carries from one step to the next."""


@runtime_checkable
class Optimiser(Protocol):
    """An update rule whose state is plain tensors and whose step-dependent numbers are rows of one table."""

    def start(self, params: Tensor) -> State:
        """Return the state before the first step from ``params[C, Q]``."""
        ...

    def scalars(self, factors: Tensor) -> Tensor:
        """Return the numbers ``[num_steps, K]`` that each step needs, given the schedule's ``factors[num_steps]``."""
        ...

    def move(self, gradient: Tensor, state: State, scalars: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        """Return how far to move uphill ``[C, Q]``, and the next state.

        ``scalars`` are the step's row of the table.
        """
        ...


@dataclass(frozen=True)
class Adam:
    r"""Adam: steps scaled by running moments of the gradient.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
        \phi \leftarrow \phi + \eta_t \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    Parameters
    ----------
    learning_rate : float
        :math:`\eta`, which the schedule multiplies.
    momentum, second_momentum : float
        :math:`\beta_1` and :math:`\beta_2`.
    epsilon : float
        :math:`\epsilon`.
    clip : float, optional
        Shorten a member's gradient to this many times the root mean square of those before it. A single gradient that is
        larger by orders of magnitude would otherwise keep the steps short for a thousand more.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization, ICLR.

    Examples
    --------
    >>> adam, gradient = Adam(0.1), torch.tensor([[2.0, -30.0]])
    >>> row = adam.scalars(torch.ones(1, dtype=torch.float64))[0]
    >>> move, state = adam.move(gradient, adam.start(gradient), row.unbind())
    >>> [[round(float(m), 3) for m in move[0]]]  # the first step moves by the learning rate, however steep the slope
    [[0.1, -0.1]]
    """

    learning_rate: Positive = 0.001
    momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.9
    second_momentum: Fraction = 0.999
    epsilon: Positive = 1e-8
    clip: Positive | None = None

    def start(self, params: Tensor) -> State:
        """Return both moments before the first step: zeros."""
        return torch.zeros_like(params), torch.zeros_like(params)

    def scalars(self, factors: Tensor) -> Tensor:
        """Return learning rate and both bias corrections ``[num_steps, 3]``."""
        t = torch.arange(1, len(factors) + 1, dtype=torch.float64)
        corrections = (1 / (1 - self.momentum**t), 1 / (1 - self.second_momentum**t))
        return torch.stack([self.learning_rate * factors, *corrections], 1)

    def move(self, gradient: Tensor, state: State, scalars: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        """Return how far to move uphill ``[C, Q]``, and both moments."""
        mean, square = state
        rate, mean_correction, square_correction = scalars
        if self.clip is not None:
            # shorten what is longer than the usual length by this factor; the first one stays as it is
            usual = (square.sum(1, keepdim=True) * square_correction).sqrt()
            length, most = gradient.norm(dim=1, keepdim=True), self.clip * usual
            gradient = torch.where((usual > 0) & (length > most), gradient * (most / length), gradient)
        mean = self.momentum * mean + (1 - self.momentum) * gradient
        square = self.second_momentum * square + (1 - self.second_momentum) * gradient**2
        move = rate * mean * mean_correction / ((square * square_correction).sqrt() + self.epsilon)
        return move, (mean, square)


@dataclass(frozen=True)
class SGD:
    r"""Stochastic gradient steps with momentum, the heavy ball or Nesterov's.

    .. math::
        v \leftarrow \mu v + g, \qquad \phi \leftarrow \phi + \eta_t v \quad \text{(heavy ball)}, \qquad
        \phi \leftarrow \phi + \eta_t (g + \mu v) \quad \text{(Nesterov)}

    Parameters
    ----------
    learning_rate : float
        :math:`\eta`, which the schedule multiplies.
    momentum : float
        :math:`\mu`; 0 for plain gradient steps.
    nesterov : bool
        Look ahead by one step of the momentum.

    References
    ----------
    Polyak (1964), Some methods of speeding up the convergence of iteration methods. Sutskever, Martens, Dahl and Hinton
    (2013), On the importance of initialization and momentum in deep learning, ICML.

    Examples
    --------
    >>> sgd, gradient = SGD(0.1, momentum=0.5), torch.ones(1, 1)
    >>> (rate,) = sgd.scalars(torch.ones(1, dtype=torch.float64))
    >>> first, state = sgd.move(gradient, sgd.start(gradient), rate.unbind())
    >>> second, _ = sgd.move(gradient, state, rate.unbind())
    >>> round(float(first), 3), round(float(second), 3)
    (0.1, 0.15)
    """

    learning_rate: Positive = 0.01
    momentum: Annotated[float, Range(0, 1, open_high=True)] = 0.9
    nesterov: bool = False

    def start(self, params: Tensor) -> State:
        """Return the velocity before the first step: zeros."""
        return (torch.zeros_like(params),)

    def scalars(self, factors: Tensor) -> Tensor:
        """Return the learning rate ``[num_steps, 1]``."""
        return self.learning_rate * factors[:, None]

    def move(self, gradient: Tensor, state: State, scalars: tuple[Tensor, ...]) -> tuple[Tensor, State]:
        """Return how far to move uphill ``[C, Q]``, and the velocity."""
        (velocity,), (rate,) = state, scalars
        velocity = self.momentum * velocity + gradient
        direction = gradient + self.momentum * velocity if self.nesterov else velocity
        return rate * direction, (velocity,)
