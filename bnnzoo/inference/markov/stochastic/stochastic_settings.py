"""Settings of stochastic-gradient samplers, and checks of several of them together or against the data."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.settings import Count, Fraction, NonNegativeCount, Positive, check_settings
from bnnzoo.engine.choose import NATIVE_PAYS_FROM
from bnnzoo.inference.markov.chain_settings import ChainSettings, goes_on, refuse_untuned
from bnnzoo.inference.optimise.schedules import Schedule, ScheduleName, schedule_named

__all__ = [
    "ControlVariates",
    "GradientSettings",
    "StepPlan",
    "StochasticSettings",
    "divergence",
    "plan_of",
    "refuse_inconsistent",
    "rows_of_batch",
    "steps_between_draws",
]

type ControlVariates = Literal["map", "svrg"]

DEFAULT_ROWS = 256
FEWEST_STEPS, MOST_STEPS = 10, 100
"""Bounds on the default number of steps between draws, which is otherwise one pass over the data."""


@dataclass(frozen=True, kw_only=True)
class StochasticSettings(ChainSettings):
    """Settings of every stochastic-gradient sampler.

    Parameters
    ----------
    num_warmup : int
        Draws of each chain before step size and scales are fixed, which are not kept.
    num_groups : int, optional
        Batches of chains that an executor runs in parallel. Default: one chain each.
    batch_size : int, optional
        Rows of a mini-batch, in an order of its own for each chain. Default: 256, or all rows of smaller data.
    steps_per_draw : int, optional
        Steps between the draws that are kept (thinning). Default: as many as make a pass over the data, from 10 to 100.
    temperature : float
        Draws target the posterior density to the power of 1 / T.
    control_variates : {"map", "svrg"}, optional
        Reduce the noise of gradients by their values at an anchor, at twice the cost of a step: ``"map"`` where the chain
        starts, which by default is near a mode; ``"svrg"`` where it was when the current period began.
    svrg_period : int, optional
        Steps between anchors of SVRG, each of which costs a gradient on all rows. Default: one pass over the data.
    optimise_steps : int
        Steps of Adam on mini-batches from which each chain starts; 0 for random starts. Not used if ``init`` is given.
    """

    num_warmup: NonNegativeCount = 200
    batch_size: Count | None = None
    steps_per_draw: Count | None = None
    temperature: Positive = 1.0
    control_variates: ControlVariates | None = None
    svrg_period: Count | None = None
    optimise_steps: NonNegativeCount = 1000

    in_batches: ClassVar[Mapping[str, object] | None] = {}
    always_in_batches: ClassVar[bool] = True
    unadjusted: ClassVar[bool] = True
    native_pays_from: ClassVar[float] = NATIVE_PAYS_FROM


@dataclass(frozen=True, kw_only=True)
class GradientSettings(StochasticSettings):
    """Settings of samplers that add their own noise: a step size tuned to a bias, and a schedule for it.

    Parameters
    ----------
    step_size : float, optional
        Default: tuned to ``variance_bias``. In units of the parameters, or of their scales if these are estimated.
    variance_bias : float
        Relative bias of the variances of a Gaussian posterior to which the step size is tuned: half of it means twice as many
        steps.
    schedule : {"constant", "cosine"} or Schedule
        Factors of the step size over the draws that are kept; see :mod:`bnnzoo.inference.optimise.schedules`.
    """

    variance_bias: Fraction = 0.025
    schedule: ScheduleName | Schedule = "constant"


@dataclass(frozen=True)
class StepPlan:
    """How many steps each draw takes, and the numbers that change from step to step, for warm-up and what follows.

    Attributes
    ----------
    steps_of_warmup : int
        Steps of each draw of warm-up.
    steps_of_draws : tuple of int
        Steps of each draw that is kept.
    factors : Tensor [T]
        Factor of the step size at each step of the draws that are kept.
    noise : Tensor [T]
        1 where the step adds noise, 0 where it only ascends.
    factor_of_warmup : float
        Factor of the step size during warm-up.
    num_cycles : int
        How often the draws that are kept, and their steps, go through the same numbers.
    """

    steps_of_warmup: int
    steps_of_draws: tuple[int, ...]
    factors: Tensor
    noise: Tensor
    factor_of_warmup: float = 1.0
    num_cycles: int = 1

    def num_steps(self, num_warmup: int) -> int:
        """Return the number of steps of a chain with so many draws of warm-up."""
        return num_warmup * self.steps_of_warmup + sum(self.steps_of_draws)

    def cycle(self) -> tuple[Tensor, Tensor]:
        """Return the steps of the draws of a cycle ``[D]``, factors and noise of its steps ``[T, 2]``; one if they are equal."""
        steps, table = torch.tensor(self.steps_of_draws), torch.stack([self.factors, self.noise.to(self.factors)], 1)
        return _repeated(steps, self.num_cycles), _repeated(table, self.num_cycles)


def plan_of(
    settings: StochasticSettings, density: LogDensity, schedule: ScheduleName | Schedule = "constant"
) -> StepPlan:
    """Return the plan of a run with the same number of steps between all draws."""
    thinning = steps_between_draws(settings, density)
    total = settings.num_draws * thinning
    schedule = schedule_named(schedule) if isinstance(schedule, str) else schedule
    check_settings(schedule)
    return StepPlan(thinning, (thinning,) * settings.num_draws, schedule.factors(total), torch.ones(total))


def _repeated(rows: Tensor, num_cycles: int) -> Tensor:
    return rows[:1] if bool((rows == rows[0]).all()) else rows[: len(rows) // num_cycles]


def steps_between_draws(settings: StochasticSettings, density: LogDensity) -> int:
    """Return the number of steps of a draw; default: a pass over the data, but at least 10 and at most 100 steps."""
    passes = math.ceil(max(1, density.num_data) / rows_of_batch(settings, density))
    return settings.steps_per_draw or min(max(passes, FEWEST_STEPS), MOST_STEPS)


def rows_of_batch(settings: StochasticSettings, density: LogDensity) -> int:
    """Return the number of rows of a batch; default: 256, or all rows of smaller data."""
    return settings.batch_size or max(1, min(DEFAULT_ROWS, density.num_data))


def refuse_inconsistent(settings: StochasticSettings, density: LogDensity) -> None:
    """Raise ValueError if settings contradict each other or the data."""
    name = type(settings).__name__
    if settings.batch_size is not None and settings.batch_size > density.num_data:
        raise ValueError(
            f"{name}(batch_size={settings.batch_size}): the data have {density.num_data} observations. Write "
            f"{density.num_data} for all of them at every step, or leave it out."
        )
    if settings.svrg_period is not None and settings.control_variates != "svrg":
        raise ValueError(
            f"{name}(svrg_period={settings.svrg_period}) has no effect: write control_variates='svrg', or leave it out."
        )
    refuse_untuned(settings)
    if settings.num_warmup == 0 and not goes_on(settings) and getattr(settings, "preconditioning", None) is not None:
        raise ValueError(
            f"{name}(num_warmup=0) cannot estimate the scales of parameters: warm up, or write preconditioning=None."
        )


def divergence(settings: StochasticSettings, diverged: Tensor, iteration: int, step_size: Tensor) -> FloatingPointError:
    """Return the error for the first of the ``diverged[C]`` chains: warming up, they came to where the density is not finite."""
    chain = int(diverged.nonzero()[0])
    size = float(step_size[chain])
    return FloatingPointError(
        f"Chain {chain} left the region where the log density is finite, at draw {iteration} of warm-up with step size "
        f"{size:.3g}. Lower step_size, leave it out, start at a mode with init=MAP(num_members={settings.num_chains}), or use "
        f"NUTS()."
    )
