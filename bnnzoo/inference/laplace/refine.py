"""From where an optimisation ended to the mode itself, by steps in units of the posterior's own width."""

import math
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Covariance
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference.laplace.family import LaplaceError, Mode
from bnnzoo.inference.optimise.lbfgs import Evaluate, lbfgs

__all__ = ["MODE_TOLERANCE", "STEPS_PER_UPDATE", "preconditioned_lbfgs", "refined"]

MODE_TOLERANCE = 1e-4  # largest gradient per posterior sd at a mode, hence also the distance from it in sds
STEPS_PER_UPDATE = 25  # of L-BFGS with one preconditioner
MAX_UPDATES = 12
NEWTON = {torch.float64: 1e-8, torch.float32: 1e-4}
"""Distance from the mode, in posterior sds, at which Newton's iteration ends: what rounding leaves of it."""


def refined(
    density: LogDensity, mode: Mode, found: Gaussian, around: Callable[[Mode], Gaussian], *, is_newton: bool
) -> tuple[Mode, Gaussian]:
    """Return the mode near the end of an optimisation, and the Gaussian around it.

    Parameters
    ----------
    density : LogDensity
    mode : Mode
        Where the optimisation ended.
    found : Gaussian
        That around it.
    around : callable
        Returns the Gaussian around another point.
    is_newton : bool
        The covariance is that of the exact Hessian: Newton's iteration then converges to rounding error. Otherwise L-BFGS runs
        in units of the covariance, which is renewed every few steps.
    """
    value_and_grad, last = density.value_and_grad.repeated(compiles=False), math.inf

    def evaluate(rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = value_and_grad(rows, *density.data)
        return value, gradient

    for _ in range(MAX_UPDATES):
        gradient = evaluate(mode.theta[None])[1][0]
        distance = float(found.covariance.sqrt_rmatmul(gradient).norm())
        if not distance > (NEWTON.get(density.dtype, MODE_TOLERANCE) if is_newton else MODE_TOLERANCE * 10):
            break
        if distance > 0.5 * last:  # the mode is far, and the covariance says little about the way to it
            break
        last = distance
        moved = _newton_step(evaluate, mode, found.covariance, gradient) if is_newton else None
        if moved is None:
            end, _, count = preconditioned_lbfgs(found.covariance, evaluate, mode.theta, STEPS_PER_UPDATE)
            value, slope = evaluate(end[None])
            if torch.equal(end, mode.theta) or not _is_no_lower(value[0], mode):
                break
            moved = _at(mode, end, value[0], slope[0], count)
        try:
            mode, found = moved, around(moved)
        except LaplaceError:  # what is left is the approximation around the last point
            break
    return mode, found


def preconditioned_lbfgs(
    covariance: Covariance, evaluate: Evaluate, start: Tensor, max_steps: int
) -> tuple[Tensor, bool, int]:
    """Return where L-BFGS ends, whether it converged to the mode, and the number of evaluations."""

    def whitened(rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = evaluate(start + covariance.sqrt_matmul(rows))
        return value, covariance.sqrt_rmatmul(gradient)

    origin = start.new_zeros(1, covariance.rank)
    scale = max(1.0, abs(float(whitened(origin)[0])))  # L-BFGS multiplies its tolerance by this
    found = lbfgs(whitened, origin, max_steps, MODE_TOLERANCE / scale)
    converged = bool(found.gradient.abs().max() <= MODE_TOLERANCE)
    return start + covariance.sqrt_matmul(found.theta[0]), converged, 1 + found.num_evaluations


def _newton_step(evaluate: Evaluate, mode: Mode, covariance: Covariance, gradient: Tensor) -> Mode | None:
    """Return the end of a whole Newton step, unless the density or the gradient says that it leads away from the mode."""
    step = covariance.sqrt_matmul(covariance.sqrt_rmatmul(gradient))
    value, new = evaluate((mode.theta + step)[None])
    closer = float(covariance.sqrt_rmatmul(new[0]).norm()) < 0.5 * float(covariance.sqrt_rmatmul(gradient).norm())
    return _at(mode, mode.theta + step, value[0], new[0], 2) if closer and _is_no_lower(value[0], mode) else None


def _is_no_lower(value: Tensor, mode: Mode) -> bool:
    return bool(value >= mode.log_joint - 10 * torch.finfo(value.dtype).eps * mode.log_joint.abs())


def _at(mode: Mode, theta: Tensor, value: Tensor, gradient: Tensor, count: int) -> Mode:
    info = replace(mode.found.info, num_gradients=mode.found.info.num_gradients + count)
    return Mode(theta, value, float(gradient.norm()), replace(mode.found, info=info))
