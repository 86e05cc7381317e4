"""The pure steps that the loop over Hamiltonian kernels compiles: those of a kernel, batched over chains."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.engine import pytree
from bnnzoo.engine.packed import Packed
from bnnzoo.inference.markov.adaptation import Adaptation, observe, settle_step_size, settling_from, update_step_size
from bnnzoo.inference.markov.hamiltonian.kernel import (
    Kernel,
    Metric,
    Phase,
    StepState,
    TrajectoryState,
    drift,
    energy,
    is_finite,
)

__all__ = ["STATS", "batched_begin", "batched_leap", "batched_learn", "batched_propose", "learn", "stages_of"]

STATS = ("lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size")
"""Columns of the statistics kept of every draw."""


def batched_leap(
    kernel: Kernel, value_and_grad: Callable[..., tuple[Tensor, Tensor]]
) -> Callable[..., tuple[Packed, Tensor]]:
    """Return one leapfrog step of all chains, with the gradient in the middle, and whether the end of any chain stops."""

    def leap(
        end_: Packed, trajectory_: Packed, metric_: Packed, step_size: Tensor, uniform: Tensor, *data: Any
    ) -> tuple[Packed, Tensor]:
        end, control, metric = end_.value, trajectory_.value.control, metric_.value
        signed = step_size * control.direction
        theta, halfway = vmap(drift)(metric, end.phase, signed)
        value, gradient = value_and_grad(theta, *data)
        momentum = halfway + 0.5 * signed[:, None] * gradient
        end = vmap(kernel.leap)(end, control, Phase(theta, momentum, gradient, value), metric, uniform)
        return Packed(end), end.stop.any()

    return leap


def batched_propose(kernel: Kernel) -> Callable[..., tuple[Packed, Packed, Tensor, Tensor]]:
    """Return the step that updates the proposals of chains whose end has stopped.

    It also counts the ends at which the log density cannot be computed, and tells whether any chain has a draw.
    """

    def propose(
        end: Packed, trajectory: Packed, metric: Packed, uniforms: Tensor
    ) -> tuple[Packed, Packed, Tensor, Tensor]:
        rejected = (end.value.stop & ~vmap(is_finite)(end.value.phase)).sum()
        updated = vmap(kernel.propose, in_dims=(0, 0, 0, 1))(end.value, trajectory.value, metric.value, uniforms)
        end, trajectory = _select(end.value.stop, updated, (end, trajectory))
        return end, trajectory, rejected, trajectory.value.done.any()

    return propose


def learn(
    end: StepState,
    trajectory: TrajectoryState,
    metric: Metric,
    state: Adaptation,
    warm: Tensor,
    settling: Tensor,
    collecting: Tensor,
    target: float,
) -> tuple[Adaptation, Tensor]:
    """Return the adaptation of one chain after a finished trajectory, and the statistics ``[7]`` of its draw.

    ``warm`` says whether the step size adapts, ``settling`` whether it is dual averaging's average that moves, ``collecting``
    whether moments are updated.
    """
    proposal, acceptance = trajectory.proposal, end.sum_acceptance / end.num_steps
    settled = settle_step_size(state.step, acceptance, target)
    step = _where(settling, settled, update_step_size(state.step, acceptance, target))
    step = _where(warm, step, state.step)
    tuned = torch.where(settling, step.log_average, step.log_step).exp()
    moments = _where(collecting, observe(state.moments, proposal.theta, proposal.gradient), state.moments)
    learnt = Adaptation(torch.where(warm, tuned, state.step_size), step, moments)
    path = end.num_steps, trajectory.depth, end.diverging
    stats = (proposal.log_density, energy(metric, proposal), acceptance, *path, state.step_size)
    return learnt, torch.stack([s.double() for s in stats])


def batched_learn(target: float) -> Callable[..., tuple[Packed, Tensor]]:
    """Return the step that updates the adaptation of chains that are done and gathers their statistics ``[C, 7]``."""

    def batched(
        end: Packed, trajectory: Packed, metric: Packed, state: Packed, *stages: Tensor
    ) -> tuple[Packed, Tensor]:
        one = partial(learn, target=target)
        learnt, stats = vmap(one)(end.value, trajectory.value, metric.value, state.value, *stages)
        (state,) = _select(trajectory.value.done, (learnt,), (state,))
        return state, stats

    return batched


def batched_begin(kernel: Kernel) -> Callable[..., tuple[Packed, Packed]]:
    """Return the step that begins the next trajectory of chains that are done."""

    def begin(
        end: Packed, trajectory: Packed, metric: Packed, state: Packed, noise: Tensor, uniforms: Tensor
    ) -> tuple[Packed, Packed]:
        args = (end.value, trajectory.value, metric.value, state.value.step_size, noise, uniforms)
        begun = vmap(kernel.begin, in_dims=(0, 0, 0, 0, 0, 1))(*args)
        end, trajectory = _select(trajectory.value.done, begun, (end, trajectory))
        return end, trajectory

    return begin


def _select(condition: Tensor, yes: Sequence[Any], no: Sequence[Packed]) -> tuple[Packed, ...]:
    """Return for each chain the new state where ``condition[C]`` holds, else the old one, packed."""
    return tuple(_select_packed(condition, Packed(a), b) for a, b in zip(yes, no, strict=True))


def _select_packed(condition: Tensor, yes: Packed, no: Packed) -> Packed:
    pairs = zip(yes.groups, no.groups, strict=True)
    return no.with_groups([torch.where(condition.view(-1, *(1,) * (a.ndim - 2)), a, b) for a, b in pairs])


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: torch.where(condition, a, b), yes, no)


def stages_of(
    counts: Tensor, num_warmup: int, ends: tuple[int, ...], device: torch.device
) -> tuple[Tensor, Tensor, Tensor]:
    """Return which chains adapt their step size, which settle it, and which collect moments."""
    first, last = (ends[0], ends[-1]) if ends else (0, 0)
    stages = counts < num_warmup, counts >= settling_from(num_warmup), (counts >= first) & (counts < last)
    return stages[0].to(device), stages[1].to(device), stages[2].to(device)
