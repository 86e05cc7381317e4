"""What loops over Hamiltonian kernels need to know of a method, and how a step size goes on when the mass matrix changes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from bnnzoo.inference.markov.adaptation import MassMatrix, StepSize, restart_step_size

__all__ = ["FIRST_STEP_SIZE", "MAX_SEARCH", "LoopSettings", "retuned"]

FIRST_STEP_SIZE, MAX_SEARCH = 0.1, 50


@dataclass(frozen=True)
class LoopSettings:
    """What the loop needs to know of a method."""

    num_warmup: int
    num_draws: int
    target_accept: float
    mass_matrix: MassMatrix
    step_size: float | None


def retuned(step: StepSize, growth: Tensor, window: int, num_ends: int) -> StepSize:
    """Say how the step size of one chain goes on with a new mass matrix, at the end of a window.

    The first estimate replaces the unit matrix, so steps are rescaled. The last one differs little from the one before
    it, and too few draws follow to tune from nothing: dual averaging then simply goes on.
    """
    if window == 1:
        return restart_step_size(step, growth)
    return step if window == num_ends - 1 else restart_step_size(step, torch.ones_like(growth))
