"""Chains of a Hamiltonian kernel before their first trajectory, and the step size with which they begin."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.engine.loops import Stretch
from bnnzoo.inference.markov.adaptation import (
    identity_metric,
    initial_adaptation,
    search_step_size,
    settling_from,
    window_ends,
)
from bnnzoo.inference.markov.chains import INITIAL_STEP_SIZE
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Phase, energy
from bnnzoo.inference.markov.hamiltonian.native import Chain, Counters, Plan, Schedule
from bnnzoo.inference.markov.hamiltonian.steps import STATS
from bnnzoo.inference.markov.native import Gradient
from bnnzoo.inference.markov.noise import normals
from bnnzoo.inference.markov.settings import HamiltonianSettings

__all__ = ["begin", "started"]

MAX_ROWS, MAX_ENTRIES = 1024, 1 << 20
"""Draws, and entries of draws, that native code keeps before Python fetches them."""


def started(
    kernel: Kernel, gradient: Gradient, settings: HamiltonianSettings, theta: Tensor, keys: Sequence[Tensor]
) -> tuple[list[Chain], list[Plan]]:
    """Return chains at ``theta[C, P]`` that :func:`begin` has yet to see, and what does not change in them.

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
    metric = _of_one(identity_metric(theta[None], settings.mass_matrix))
    noise = normals(key[0], torch.arange(len(theta)), theta.dtype)
    step_size = theta.new_tensor(settings.step_size or INITIAL_STEP_SIZE)
    adaptation = _of_one(initial_adaptation(theta[None], step_size[None], settings.mass_matrix))
    phase = Phase(theta, noise, torch.zeros_like(theta), theta.new_zeros(()))
    end, trajectory = kernel.finished_trajectory(phase)
    chain = Chain(end, trajectory, adaptation, _no_counts(), *_buffers(theta))
    return chain, Plan(metric, key, _schedule(settings), gradient.constants, gradient.tensors)


def begin(
    kernel: Kernel, settings: HamiltonianSettings, stretch: Stretch, state: Sequence[Tensor], fixed: Sequence[Tensor]
) -> None:
    """Let a chain know the log density where it is, and its step size: the given one, or one found by doubling or halving.

    Its own native code computes both, so that the gradient is never written as Python.

    Parameters
    ----------
    kernel : Kernel
    settings : HamiltonianSettings
    stretch : Stretch
    state, fixed : sequence of Tensor
        A chain and a plan from :func:`started`, as the stretch packs them; ``state`` is changed in place.
    """
    chain, metric = stretch.unpack(state), stretch.unpack_fixed(fixed).metric
    here, step_size = Phase(*(part.clone() for part in chain.end.phase)), chain.adaptation.step_size.clone()

    def leapt(phase: Phase, step_size: Tensor) -> Phase:
        stretch.change(state, lambda chain: _before_a_leap(kernel, chain, phase, step_size))
        stretch(state, fixed)
        return Phase(*(part.clone() for part in stretch.unpack(state).end.phase))

    still = leapt(here, torch.zeros_like(step_size))  # a step of size zero
    phase = here._replace(gradient=still.gradient, log_density=still.log_density)
    if settings.step_size is None:
        before = energy(metric, phase)
        step_size = search_step_size(lambda size: (before - energy(metric, leapt(phase, size))).exp(), step_size)
    adaptation = _of_one(initial_adaptation(phase.theta[None], step_size[None], settings.mass_matrix))
    stretch.change(state, lambda chain: _at_rest(kernel, chain, phase)._replace(adaptation=adaptation))


def _before_a_leap(kernel: Kernel, chain: Chain, phase: Phase, step_size: Tensor) -> Chain:
    """Return a chain that takes one leapfrog step from ``phase``: not the last of its trajectory, and one that cannot diverge."""
    chain = _at_rest(kernel, chain, phase)
    going = chain.trajectory.control._replace(
        energy=torch.full_like(phase.log_density, torch.inf), length=torch.full_like(chain.trajectory.control.length, 2)
    )
    return chain._replace(
        trajectory=chain.trajectory._replace(control=going, done=torch.zeros_like(chain.trajectory.done)),
        adaptation=chain.adaptation._replace(step_size=step_size),
        counters=chain.counters._replace(budget=torch.ones_like(chain.counters.budget)),
    )


def _at_rest(kernel: Kernel, chain: Chain, phase: Phase) -> Chain:
    end, trajectory = kernel.finished_trajectory(phase)
    return chain._replace(end=end, trajectory=trajectory, counters=_no_counts())


def _no_counts() -> Counters:
    return Counters(*(torch.tensor(0) for _ in Counters._fields))


def _buffers(theta: Tensor) -> tuple[Tensor, Tensor]:
    rows = min(MAX_ROWS, max(1, MAX_ENTRIES // max(len(theta), 1))) + 1
    return theta.new_zeros(rows, len(theta)), torch.zeros(rows, len(STATS), dtype=torch.float64)


def _schedule(settings: HamiltonianSettings) -> Schedule:
    ends, total = window_ends(settings.num_warmup), settings.num_warmup + settings.num_draws
    first, last = (ends[0], ends[-1]) if ends else (0, 0)
    until = ends[0] if ends else total
    settle = settling_from(settings.num_warmup)
    return Schedule(*(torch.tensor(n) for n in (settings.num_warmup, settle, first, last, until, settings.num_warmup)))


def _of_one(state: Any) -> Any:
    return pytree.tree_map(lambda value: value[0].clone(), state)
