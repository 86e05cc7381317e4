"""Chains of a Hamiltonian kernel before their first trajectory, and the step size with which they begin."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from bnnzoo.inference.markov.adaptation import identity_metric, initial_adaptation, search_step_size, window_ends
from bnnzoo.inference.markov.chains import INITIAL_STEP_SIZE
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric, Phase, drift, energy
from bnnzoo.inference.markov.hamiltonian.native import Chain, Counters, Plan, Schedule
from bnnzoo.inference.markov.hamiltonian.steps import STATS
from bnnzoo.inference.markov.native import Gradient
from bnnzoo.inference.markov.noise import normals
from bnnzoo.inference.markov.settings import HamiltonianSettings

__all__ = ["started"]

MAX_ROWS, MAX_ENTRIES = 1024, 1 << 20
"""Draws, and entries of draws, that native code keeps before Python fetches them."""

type Evaluate = Callable[[Tensor], Sequence[Tensor]]


def started(
    kernel: Kernel, gradient: Gradient, settings: HamiltonianSettings, theta: Tensor, keys: Sequence[Tensor]
) -> tuple[list[Chain], list[Plan]]:
    """Return chains at ``theta[C, P]`` whose first trajectory has yet to begin, and what does not change in them.

    Parameters
    ----------
    kernel : Kernel
    gradient : Gradient
    settings : HamiltonianSettings
    theta : Tensor
    keys : sequence of Tensor
        Of the random streams of each chain.
    """
    pairs = [_started(kernel, gradient, settings, start, key) for start, key in zip(theta, keys, strict=True)]
    return [chain for chain, _ in pairs], [plan for _, plan in pairs]


def _started(
    kernel: Kernel, gradient: Gradient, settings: HamiltonianSettings, theta: Tensor, key: Tensor
) -> tuple[Chain, Plan]:
    def evaluate(point: Tensor) -> Sequence[Tensor]:
        found: Sequence[Tensor] = gradient.graph(*gradient.constants, point, *gradient.tensors)
        return found

    value, slope = evaluate(theta)
    metric = _of_one(identity_metric(theta[None], settings.mass_matrix))
    noise = normals(key[0], torch.arange(len(theta)), theta.dtype)
    phase = Phase(theta, noise, slope, value)
    step = _first_step_size(evaluate, settings, phase, metric)
    adaptation = _of_one(initial_adaptation(theta[None], step[None], settings.mass_matrix))
    end, trajectory = kernel.finished_trajectory(phase)
    counters = Counters(*(torch.tensor(0) for _ in Counters._fields))
    chain = Chain(end, trajectory, adaptation, counters, *_buffers(theta))
    return chain, Plan(metric, key, _schedule(settings), gradient.constants, gradient.tensors)


def _buffers(theta: Tensor) -> tuple[Tensor, Tensor]:
    rows = min(MAX_ROWS, max(1, MAX_ENTRIES // max(len(theta), 1))) + 1
    return theta.new_zeros(rows, len(theta)), torch.zeros(rows, len(STATS), dtype=torch.float64)


def _schedule(settings: HamiltonianSettings) -> Schedule:
    ends, total = window_ends(settings.num_warmup), settings.num_warmup + settings.num_draws
    first, last = (ends[0], ends[-1]) if ends else (0, 0)
    until = ends[0] if ends else total
    return Schedule(*(torch.tensor(n) for n in (settings.num_warmup, first, last, until, settings.num_warmup)))


def _first_step_size(evaluate: Evaluate, settings: HamiltonianSettings, phase: Phase, metric: Metric) -> Tensor:
    """Return the step size with which a chain begins: the given one, or one found by doubling or halving."""
    step_size = torch.full_like(phase.log_density, settings.step_size or INITIAL_STEP_SIZE)
    if settings.step_size is not None:
        return step_size

    def acceptance(step_size: Tensor) -> Tensor:
        theta, halfway = drift(metric, phase, step_size)
        value, gradient = evaluate(theta)
        moved = Phase(theta, halfway + 0.5 * step_size * gradient, gradient, value)
        return (energy(metric, phase) - energy(metric, moved)).exp()

    return search_step_size(acceptance, step_size)


def _of_one(state: Any) -> Any:
    return pytree.tree_map(lambda value: value[0].clone(), state)
