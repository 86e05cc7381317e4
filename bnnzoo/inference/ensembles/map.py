"""Maximum a posteriori estimation, from one or many starts."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.method import Declared, FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.hierarchy import hyperparameter_sites
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.reading.streamed import value_and_grad_over_rows
from bnnzoo.core.settings import Count, NonNegative, NonNegativeCount, Positive
from bnnzoo.core.verdict.rejections import why_rejected
from bnnzoo.engine.value_and_grad import looped_value_and_grad
from bnnzoo.inference.optimise.batches import batches_of
from bnnzoo.inference.optimise.independent_members import Members, joined, trained_in_parts
from bnnzoo.inference.optimise.lbfgs import LBFGSResult, lbfgs
from bnnzoo.inference.optimise.objectives import log_joint_objective
from bnnzoo.inference.optimise.optimisers import Adam
from bnnzoo.inference.optimise.pathfinder import NEWTON_STEPS, uphill
from bnnzoo.inference.optimise.schedules import ScheduleName, schedule_named
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.optimise.training_run import Trained
from bnnzoo.inference.starts import Start, evaluated_starts

__all__ = ["MAP"]


@dataclass(frozen=True)
class MAP(Declared):
    """Maximum of the posterior density over unconstrained space: Adam, then L-BFGS and Newton's method on all data.

    All members are optimised in one batch, or one by one on ``executor=``, and kept: each is one draw of the result,
    ``theta[1, num_members, P]``. The density includes the Jacobian of the constraining transforms, as everywhere in bnnzoo,
    so that the mode is that of the Laplace approximation and not that of the constrained density.

    Parameters
    ----------
    num_members : int
        Number of starts.
    num_steps : int
        Steps of Adam; 0 for a start that is the mode already.
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int, optional
        Rows of a mini-batch for Adam; default: all rows.
    polish_steps : int
        At most this many steps of L-BFGS afterwards, on all rows, and then, for models without networks of up to 300 parameters,
        of Newton's method to the mode, which finds it in any units. 0 for data too large for it.
    tolerance : float
        L-BFGS stops when no entry of the gradient exceeds this times ``max(1, |log density|)``.
    init : Tensor, Posterior, Method, torch.nn.Module or mapping, optional
        Starting points ``theta[num_members, P]``, or where to find them. A trained network, or its ``state_dict()``, gives the
        weights; ``MAP(init=net, num_steps=0)`` goes from there to the nearest mode of the posterior density.

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

    num_members: Count = 1
    num_steps: NonNegativeCount = 1000
    learning_rate: Positive = 0.03
    schedule: ScheduleName = "cosine"
    batch_size: Count | None = None
    polish_steps: NonNegativeCount = 500
    tolerance: NonNegative = 1e-9
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    by_density: ClassVar[bool] = True
    parts: ClassVar[str | None] = "num_members"
    in_batches: ClassVar[Mapping[str, object] | None] = {"polish_steps": 0}

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Find the modes; see :func:`bnnzoo.fit`.

        Returns
        -------
        Draws
            With ``lp`` and the Euclidean ``gradient_norm`` of every member in ``info.sample_stats``, and the loss
            (minus the log density, of the mini-batch scaled up) in ``info.fit_stats``. ``newton_decrement``, where there is one,
            is the distance that is left to the mode, in posterior standard deviations.

        Raises
        ------
        ValueError
            If mini-batches are asked for of a model without rows.
        """
        start = evaluated_starts(self.init, self.num_members, density, context, trains=True)
        search = Members(replace(self, init=None), start, range(self.num_members), context.seed)
        if not _is_search(search.method):
            found = _searched_together(search, density, context)
        else:
            found = joined(trained_in_parts(search, _searched_together, density, context))
        info = FitInfo(
            sampling="ensemble",
            num_gradients=found.num_gradients,
            num_rejected=found.num_rejected,
            rejected_at=why_rejected(density, found.theta, found.num_rejected),
            complete=found.complete,
            sample_stats={
                "lp": found.value[None],
                "gradient_norm": found.gradient_norm[None],
                **(
                    {}
                    if bool(found.newton_decrement.isnan().all())
                    else {"newton_decrement": found.newton_decrement[None]}
                ),
            },
            fit_stats={"loss": -found.trace} if self.num_steps else {},
        )
        return Draws(density, info, found.theta[None])


@dataclass(frozen=True)
class Modes:
    """Where members ended: ``theta[C, P]``, ``value[C]`` and ``gradient_norm[C]`` there, Adam's ``trace[C, num_steps]``.

    ``newton_decrement[C]`` is how far the mode is away, as :func:`bnnzoo.inference.optimise.pathfinder.uphill` says.
    """

    theta: Tensor
    value: Tensor
    gradient_norm: Tensor
    newton_decrement: Tensor
    trace: Tensor
    num_gradients: int
    num_rejected: int
    complete: bool


def _is_search(method: MAP) -> bool:
    return method.num_steps > 0 or method.polish_steps > 0


def _searched_together(search: Members[MAP], density: LogDensity, context: FitContext) -> Modes:
    method, start = search.method, search.start
    found = _trained(search, density, context)
    theta, max_steps, tolerance = found.params, method.polish_steps, method.tolerance
    if not _is_search(method):
        mode = LBFGSResult(start.theta, start.value, start.gradient, num_evaluations=1)
    elif max_steps == 0:  # tracing takes longer than evaluating the members one after the other
        mode = LBFGSResult(theta, *value_and_grad_over_rows(density, theta), num_evaluations=1)
    elif method.num_steps == 0 and len(theta) == 1:  # the start was a mode before: few steps, and nothing traced yet
        looped = looped_value_and_grad(density.log_joint)
        mode = lbfgs(lambda rows: looped(rows, *density.data), theta, max_steps, tolerance)
    else:
        evaluate = density.value_and_grad.repeated()  # most searches end long before the last step
        mode = lbfgs(lambda rows: evaluate(rows, *density.data), theta, max_steps, tolerance)
    decrement, climbing = torch.full_like(mode.value, math.nan), 0
    if method.polish_steps:
        mode, decrement, climbing = _climbed(density, mode)
    return Modes(
        theta=mode.theta,
        value=mode.value,
        gradient_norm=mode.gradient.norm(dim=1),
        newton_decrement=decrement,
        trace=found.trace,
        num_gradients=(found.num_steps + mode.num_evaluations) * len(search.members) + climbing,
        num_rejected=found.num_rejected + mode.num_rejected,
        complete=found.complete,
    )


def _trained(search: Members[MAP], density: LogDensity, context: FitContext) -> Trained:
    method, start = search.method, search.start.theta
    if method.num_steps == 0:
        return Trained(start, (), start.new_zeros(len(start), 0), True, start)
    found = train(
        log_joint_objective(density),
        Adam(method.learning_rate),
        schedule_named(method.schedule),
        batches_of(method.batch_size),
        start,
        num_steps=method.num_steps,
        density=density,
        context=context,
        members=search.members,
    )
    if found.num_rejected == 0:
        return found
    # the last iterates [C, P], or those before where the last step ended at a point that cannot be evaluated
    value, gradient = value_and_grad_over_rows(density, found.params)
    finite = value.isfinite() & gradient.isfinite().all(1)
    return replace(found, params=torch.where(finite[:, None], found.params, found.last_good))


def _climbed(density: LogDensity, mode: LBFGSResult) -> tuple[LBFGSResult, Tensor, int]:
    """Return the modes uphill of where L-BFGS ended, the distance ``[C]`` that is left, and how many gradients Newton took.

    In raw units it ends far from the mode, where the line search sees nothing but rounding errors. The joint density of a
    hierarchy rises without bound, so that nothing is climbed there.
    """
    max_steps = 0 if hyperparameter_sites(density) else NEWTON_STEPS
    ends, decrement, counts = zip(*(uphill(density, row, max_steps) for row in mode.theta), strict=True)
    theta, left = torch.stack(ends), mode.value.new_tensor(decrement)
    if torch.equal(theta, mode.theta):
        return mode, left, sum(counts)
    value, gradient = value_and_grad_over_rows(density, theta)
    return LBFGSResult(theta, value, gradient, mode.num_evaluations + 1, mode.num_rejected), left, sum(counts)
