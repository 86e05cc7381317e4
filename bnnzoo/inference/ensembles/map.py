"""Maximum a posteriori estimation, from one or many starts."""

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws, FitInfo
from bnnzoo.inference.optimise.lbfgs import LBFGSResult, lbfgs
from bnnzoo.inference.optimise.train import AdamSettings, Objective, Optimum, Schedule, ascend
from bnnzoo.inference.starts import Evaluated, Start, evaluated_starts
from bnnzoo.lowering.lowered import looped_value_and_grad

__all__ = ["MAP"]


@dataclass(frozen=True)
class MAP:
    """Maximum of the posterior density over unconstrained space: Adam, then L-BFGS on all data.

    All starts are climbed in one batch and kept: each is one draw of the result, ``theta[1, num_members, P]``. The
    density counts the Jacobian of the constraining transforms, as everything here does, so that the mode is that of
    the Laplace approximation and not that of the constrained density.

    Parameters
    ----------
    num_members : int
        Number of starts.
    num_steps : int
        Steps of Adam; 0 leaves them out, for a start that is the mode already.
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int, optional
        Rows of a mini-batch for Adam; all of them by default.
    polish_steps : int
        At most so many steps of L-BFGS afterwards, on all rows. 0 leaves them out, for data too large for it.
    tolerance : float
        L-BFGS stops where no entry of the gradient exceeds this times ``max(1, |log density|)``.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[num_members, P]``, or where to take them from.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.MAP(num_members=2), *target.data)
    >>> posterior.draws().shape, posterior.info.sampling
    (torch.Size([1, 2, 3]), 'ensemble')
    >>> bool(posterior.info.sample_stats["gradient_norm"].max() < 1e-4)
    True

    With neither Adam nor L-BFGS the result is the start, such as a mode found before:

    >>> again = bz.fit(target.model, bz.Laplace(MAP(init=posterior, num_steps=0, polish_steps=0)), *target.data)
    >>> bool(torch.equal(again.loc, posterior.theta[0, -1]))
    True
    """

    num_members: int = 1
    num_steps: int = 1000
    learning_rate: float = 0.03
    schedule: Schedule = "cosine"
    batch_size: int | None = None
    polish_steps: int = 500
    tolerance: float = 1e-9
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Find the modes; see :func:`bnnzoo.fit`.

        Returns
        -------
        Draws
            With ``lp`` and the Euclidean ``gradient_norm`` of every member in ``info.sample_stats``, and the loss
            (minus the log density, of the mini-batch scaled up) in ``info.fit_stats``.
        """
        if self.num_members < 1:
            raise ValueError(f"MAP(num_members={self.num_members}): write 1 or more.")
        start = evaluated_starts(self.init, self.num_members, density, context)
        found = self._climbed(start.theta, density, context)
        mode = self._polished(density, found.params) if self.num_steps or self.polish_steps else _as_they_are(start)
        stats = {"lp": mode.value[None], "gradient_norm": mode.gradient.norm(dim=1)[None]}
        info = FitInfo(
            sampling="ensemble",
            num_gradients=(found.num_steps + mode.num_evaluations) * self.num_members,
            complete=found.complete,
            sample_stats=stats,
            fit_stats={"loss": -found.trace} if self.num_steps else {},
        )
        return Draws(density, info, mode.theta[None])

    def _climbed(self, start: Tensor, density: LogDensity, context: FitContext) -> Optimum:
        if self.num_steps == 0:
            return Optimum(start, start.new_zeros(len(start), 0), True)
        settings = AdamSettings(self.num_steps, self.learning_rate, self.schedule, self.batch_size)
        objective = _ignoring_weight(density.batched_value_and_grad)
        fallback = _ignoring_weight(looped_value_and_grad(density.log_joint))
        return ascend(objective, start, settings, density, context, fallback=fallback)

    def _polished(self, density: LogDensity, theta: Tensor) -> LBFGSResult:
        if self.polish_steps == 0:  # tracing takes longer than to evaluate the members one after the other
            return LBFGSResult(
                theta, *looped_value_and_grad(density.log_joint)(theta, *density.data), num_evaluations=1
            )
        if self.num_steps == 0 and len(theta) == 1:  # a start that was a mode before: few steps, and nothing traced yet
            looped = looped_value_and_grad(density.log_joint)
            return lbfgs(lambda rows: looped(rows, *density.data), theta, self.polish_steps, self.tolerance)
        evaluate = density.value_and_grad.specialize(theta, *density.data, num_calls=2 * self.polish_steps)
        return lbfgs(lambda rows: evaluate(rows, *density.data), theta, self.polish_steps, self.tolerance)


def _as_they_are(start: Evaluated) -> LBFGSResult:
    return LBFGSResult(start.theta, start.value, start.gradient, num_evaluations=1)


def _ignoring_weight(value_and_grad: Objective) -> Objective:
    """Turn ``(theta, *batch) -> (value, gradient)`` into an objective, whose second argument is a weight."""

    def objective(theta: Tensor, _: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        return value_and_grad(theta, *batch)

    return objective
