"""Adam on many parameter vectors at once: members, restarts and chains are the rows of one tensor."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext
from bnnzoo.core.minibatch import RowIndices, select
from bnnzoo.core.types import Data
from bnnzoo.lowering.lowered import Lowered

__all__ = ["AdamSettings", "Objective", "Optimum", "Schedule", "ascend"]

type Schedule = Literal["cosine", "constant"]

type Objective = Callable[..., tuple[Tensor, Tensor]]
"""``(params[C, Q], weight[], *noise, *batch) -> (value[C], gradient[C, Q])``, to be maximised."""

MOMENTUM, SECOND_MOMENTUM, EPSILON = 0.9, 0.999, 1e-8
REPORTS = 200  # how often a run tells its progress bar where it is


@dataclass(frozen=True)
class AdamSettings:
    """How long Adam runs, with what steps, on what batches, and what it returns.

    Attributes
    ----------
    num_steps : int
    learning_rate : float
        Of the first step.
    schedule : {"cosine", "constant"}
        Whether the learning rate falls to zero along half a cosine.
    batch_size : int or None
        Rows of a mini-batch; None for all of them.
    window : int
        The result is the mean of the last ``window`` iterates; 1 for the last one.
    tolerance : float or None
        Stop where the mean value over a window differs by less than this, relatively, from the window before.
    weights : Tensor [num_steps] or None
        Passed to the objective step by step, such as the weight of an annealed KL divergence.
    clip : float or None
        Shorten a row's gradient to this many times the root mean square of those before it. One gradient that is larger by
        orders of magnitude would otherwise keep Adam's steps short for a thousand more.
    """

    num_steps: int
    learning_rate: float
    schedule: Schedule = "cosine"
    batch_size: int | None = None
    window: int = 1
    tolerance: float | None = None
    weights: Tensor | None = None
    clip: float | None = None


@dataclass(frozen=True)
class Optimum:
    """What was found: ``params[C, Q]``, the objective's ``trace[C, num_steps]``, and whether it ran to its end."""

    params: Tensor
    trace: Tensor
    complete: bool

    @property
    def num_steps(self) -> int:
        """Number of steps taken."""
        return self.trace.shape[1]


def ascend(
    objective: Objective,
    start: Tensor,
    settings: AdamSettings,
    density: LogDensity,
    context: FitContext,
    noise: Callable[[torch.Generator], tuple[Tensor, ...]] = lambda _: (),
    fallback: Objective | None = None,
    name: str = "loss",
) -> Optimum:
    r"""Maximise an objective with Adam from every row of ``start[C, Q]``; one step of all rows is one lowered graph.

    .. math::
        m \leftarrow \beta_1 m + (1 - \beta_1) g, \quad v \leftarrow \beta_2 v + (1 - \beta_2) g^2, \quad
        \phi \leftarrow \phi + \eta_t \frac{m / (1 - \beta_1^t)}{\sqrt{v / (1 - \beta_2^t)} + \epsilon}

    A row whose gradient is not finite stays where it is for that step.

    Parameters
    ----------
    objective : callable
        See :data:`Objective`.
    start : Tensor [C, Q]
    settings : AdamSettings
    density, context
        As in ``Method.run``.
    noise : callable
        Draws what is random in one step.
    fallback : callable, optional
        The objective by loops, for models that cannot be traced.
    name : str
        What the progress bar calls the objective.

    Raises
    ------
    ValueError
        If a setting is out of range, or no argument of the model has rows to make mini-batches of.

    References
    ----------
    Kingma and Ba (2015), Adam: a method for stochastic optimization, ICLR.
    """
    check_settings(settings, density)
    generator = torch.Generator().manual_seed(context.seed)
    batches = _batches(settings.batch_size, density, generator)
    dials = _dials(settings, start).unbind(0)
    zeros = torch.zeros_like(start)
    step = None
    params, mean, square, total = start, zeros, zeros.clone(), zeros.clone()
    values: list[Tensor] = []
    complete = True
    context.progress.start("Optimising", settings.num_steps)
    try:
        for t in range(settings.num_steps):
            batch = next(batches)
            args = (params, mean, square, dials[t], *noise(generator), *batch)
            if step is None:
                looped = None if fallback is None else _adam_step(fallback, settings.clip)
                lowered = Lowered(_adam_step(objective, settings.clip), looped)
                step = lowered.specialize(*args, num_calls=settings.num_steps).flat
            with torch.no_grad():
                params, mean, square, value = step(*(a for a in args if isinstance(a, Tensor)))
            values.append(value)
            if (settings.num_steps - t) % settings.window == 0:
                total = torch.zeros_like(total)  # a new window begins; the last one ends with the last step
            total = total + params
            if (settings.num_steps - t - 1) % settings.window == 0 and _is_settled(values, settings):
                break
            if t % max(1, settings.num_steps // REPORTS) == 0:
                context.progress.update(t + 1, **{name: float(value.mean())})
    except KeyboardInterrupt:
        if not values:
            raise
        complete = False
    in_window = (len(values) - settings.num_steps - 1) % settings.window + 1
    return Optimum(total / in_window, torch.stack(values, 1), complete)


def check_settings(settings: AdamSettings, density: LogDensity) -> None:
    """Refuse settings out of range, and mini-batches of a model without rows."""
    if settings.num_steps < 1:
        raise ValueError(f"num_steps={settings.num_steps}: write 1 or more.")
    if not settings.learning_rate > 0:
        raise ValueError(f"learning_rate={settings.learning_rate}: write a positive number, such as 0.01.")
    if not 1 <= settings.window <= settings.num_steps:
        raise ValueError(f"num_averaged={settings.window}: write 1 to num_steps={settings.num_steps}.")
    has_rows = any(isinstance(v, Tensor) and v.ndim and len(v) == density.num_data for v in density.data)
    if settings.batch_size is not None and not has_rows:
        raise ValueError(
            f"batch_size={settings.batch_size}, but no argument of the model has one row for each of its "
            f"{density.num_data} observations. Leave batch_size out."
        )


def _batches(size: int | None, density: LogDensity, generator: torch.Generator) -> Iterator[Data]:
    rows = RowIndices(density.num_data, size, generator)
    while True:
        yield density.data if rows.is_full else select(density.data, rows.next().to(density.device), density.num_data)


def _dials(settings: AdamSettings, like: Tensor) -> Tensor:
    """Return ``[num_steps, 4]``: learning rate, both bias corrections, and the objective's weight, for every step."""
    t = torch.arange(1, settings.num_steps + 1, dtype=torch.float64)
    falling = 0.5 * (1 + torch.cos(math.pi * (t - 1) / settings.num_steps))
    rate = settings.learning_rate * (falling if settings.schedule == "cosine" else torch.ones_like(t))
    weights = torch.ones_like(t) if settings.weights is None else settings.weights.to(t)
    corrections = (1 / (1 - MOMENTUM**t), 1 / (1 - SECOND_MOMENTUM**t))
    return torch.stack([rate, *corrections, weights], 1).to(like)


def _adam_step(objective: Objective, clip: float | None = None) -> Callable[..., tuple[Tensor, ...]]:
    """Return one step ``(params, mean, square, dials, *noise_and_batch) -> (params, mean, square, value)``."""

    def step(params: Tensor, mean: Tensor, square: Tensor, dials: Tensor, *arguments: Any) -> tuple[Tensor, ...]:
        rate, mean_correction, square_correction, weight = dials.unbind()
        value, gradient = objective(params, weight, *arguments)
        usable = gradient.isfinite().all(1, keepdim=True)
        gradient = torch.where(usable, gradient, 0.0)
        if clip is not None:
            gradient = _clipped(gradient, square, square_correction, clip)
        mean = MOMENTUM * mean + (1 - MOMENTUM) * gradient
        square = SECOND_MOMENTUM * square + (1 - SECOND_MOMENTUM) * gradient**2
        move = rate * mean * mean_correction / ((square * square_correction).sqrt() + EPSILON)
        return params + torch.where(usable, move, 0.0), mean, square, value

    return step


def _clipped(gradient: Tensor, square: Tensor, correction: Tensor, clip: float) -> Tensor:
    """Shorten each row of ``gradient[C, Q]`` that is longer than ``clip`` times what is usual; the first stays as it is."""
    usual = (square.sum(1, keepdim=True) * correction).sqrt()
    length = gradient.norm(dim=1, keepdim=True)
    return torch.where((usual > 0) & (length > clip * usual), gradient * (clip * usual / length), gradient)


def _is_settled(values: list[Tensor], settings: AdamSettings) -> bool:
    size = settings.window
    if settings.tolerance is None or len(values) < 2 * size:
        return False
    before, now = (torch.stack(values[a:b]).mean(0) for a, b in ((-2 * size, -size), (-size, None)))
    return bool(((now - before).abs() <= settings.tolerance * now.abs().clamp(min=1.0)).all())
