"""What changes as stochastic-gradient chains run."""

import math
from typing import NamedTuple

import torch
from torch import Tensor

from bnnzoo.inference.markov.stochastic.dynamics import Measured
from bnnzoo.inference.markov.stochastic.gradients import Anchor, GradientMoments, no_moments

__all__ = ["StochasticState", "first_state"]

FIRST_STEP_SIZE = 1e-6
"""Of a chain that starts where the Hessian cannot be estimated: it hardly moves until a window of gradients has been seen."""

SHORTENED = 0.25
"""Factor of the step size of a chain that has been taken back."""

DEEPEST_FALL, DEEPEST_FALL_OF_A_ROW = 1000.0, 10.0
"""By how many nats the log density may fall from draw to draw, in all and for each observation, besides one for each parameter.

Steps that have become too long take a chain to where its predictions are absurd long before they overflow. A mode is higher than
what is typical by half a nat for each parameter.
"""


class StochasticState(NamedTuple):
    """Where the chains are, what they have learnt, and counters.

    Attributes
    ----------
    theta : Tensor [C, P]
    carried : tuple of Tensor [C, P]
        What the dynamics carry from step to step, such as momenta.
    moments : GradientMoments
        Of the gradients of the current window.
    scale, gradient_noise : Tensor [C, P]
        Units of the parameters, and variance of the noise of gradients.
    step_size : Tensor [C]
    anchor : tuple of Tensor [C, P]
        Of the control variate, if there is one.
    value : Tensor [C]
        Estimate of the log density before the latest step.
    in_a_row : Tensor [C]
        How many of the latest draws ended with the chain being taken back.
    evaluated : tuple of Tensor [C, P]
        Position before the latest step of a draw, and what was carried there: at its end nothing has been evaluated yet.
    tuning : tuple of Tensor [C]
        What a kind of loop learns besides.
    iteration, num_steps, num_gradients : int
        Draws, steps and gradients of each chain so far; a gradient on all rows counts as many as it has batches.
    num_rejected : int
        How often a chain was taken back from where the log density is not finite.
    """

    theta: Tensor
    carried: tuple[Tensor, ...]
    moments: GradientMoments
    scale: Tensor
    gradient_noise: Tensor
    step_size: Tensor
    anchor: Anchor
    value: Tensor
    in_a_row: Tensor
    evaluated: tuple[Tensor, ...] = ()
    tuning: tuple[Tensor, ...] = ()
    iteration: int = 0
    num_steps: int = 0
    num_gradients: int = 0
    num_rejected: int = 0

    def counted(self, num_gradients: float) -> "StochasticState":
        """Add to the number of gradients; with a control variate they come in pairs."""
        pairs = 2 if self.anchor else 1
        return self._replace(num_gradients=self.num_gradients + pairs * math.ceil(num_gradients))

    def tuned(self, found: Measured, size: Tensor) -> "StochasticState":
        """Return this state with new units and step sizes ``[C]``; a chain with gradients that overflowed keeps its own."""
        usable = found.curvature.isfinite().all(1) & found.noise.isfinite().all(1) & size.isfinite()
        row = usable[:, None]
        return self._replace(
            scale=torch.where(row, found.scale, self.scale),
            gradient_noise=torch.where(row, found.noise, self.gradient_noise),
            step_size=torch.where(usable, size, self.step_size),
        )

    def lost_since(self, before: "StochasticState", num_rows: int, temperature: float) -> Tensor:
        """Mark the chains ``[C]`` that are where the density is not finite, or have fallen far since ``before``."""
        deepest = DEEPEST_FALL + DEEPEST_FALL_OF_A_ROW * num_rows + max(1.0, temperature) * self.theta.shape[1]
        finite = self.theta.isfinite().all(1) & self.value.isfinite()
        return (self.value < before.value - deepest) | ~finite

    def taken_back(self, chains: Tensor, before: "StochasticState", shortened: Tensor) -> "StochasticState":
        """Return this state, the marked chains ``[C]`` where ``before`` was evaluated, and some of them with shorter steps."""
        column = chains[:, None]
        pairs = zip((self.theta, *self.carried), before.evaluated, strict=True)
        theta, *carried = (torch.where(column, old, new) for new, old in pairs)
        kept = zip(self.evaluated, before.evaluated, strict=True)
        return self._replace(
            theta=theta,
            carried=tuple(carried),
            evaluated=tuple(torch.where(column, old, new) for new, old in kept),
            moments=before.moments,
            value=torch.where(chains, before.value, self.value),
            step_size=torch.where(shortened, SHORTENED * self.step_size, self.step_size),
            num_rejected=self.num_rejected + int(chains.sum()),
        )

    def stats(self, num_steps: int, lost: Tensor) -> Tensor:
        """Return the statistics ``[C, 4]`` of a draw that took so many steps, for all but the chains ``lost[C]``."""
        columns = (self.value, torch.full_like(self.value, num_steps), lost, self.step_size)
        return torch.stack([column.double() for column in columns], 1).cpu()


def first_state(theta: Tensor, anchor: Anchor) -> StochasticState:
    """Return the state of chains at ``theta[C, P]`` before anything is known of the density."""
    ones, zeros, size = torch.ones_like(theta), torch.zeros_like(theta), torch.full_like(theta[:, 0], FIRST_STEP_SIZE)
    none = torch.zeros_like(size)
    return StochasticState(theta, (), no_moments(theta), ones, zeros, size, anchor, none, none)
