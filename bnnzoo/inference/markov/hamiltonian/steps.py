"""The pure steps that the loop over Hamiltonian kernels compiles: a kernel's steps for one chain, batched over chains."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap
from torch.utils import _pytree as pytree

from bnnzoo.inference.markov.adaptation import Adaptation, observe, update_step_size
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Leaf, Metric, Phase, Tree, drift, energy
from bnnzoo.lowering.packed import Packed

__all__ = ["STATS", "batched_begin", "batched_leap", "batched_learn", "batched_merge", "learn"]

STATS = ("lp", "energy", "acceptance_rate", "n_steps", "tree_depth", "diverging", "step_size")
"""Columns of the statistics kept of every draw."""


def batched_leap(
    kernel: Kernel, value_and_grad: Callable[..., tuple[Tensor, Tensor]]
) -> Callable[..., tuple[Packed, Tensor]]:
    """Return one leapfrog step of all chains, with the gradient in the middle; it also says whether any chain stops."""

    def leap(
        leaf_: Packed, tree_: Packed, metric_: Packed, step_size: Tensor, uniform: Tensor, *data: Any
    ) -> tuple[Packed, Tensor]:
        leaf, control, metric = leaf_.value, tree_.value.control, metric_.value
        signed = step_size * control.direction
        theta, halfway = vmap(drift)(metric, leaf.phase, signed)
        value, gradient = value_and_grad(theta, *data)
        momentum = halfway + 0.5 * signed[:, None] * gradient
        leaf = vmap(kernel.leap)(leaf, control, Phase(theta, momentum, gradient, value), metric, uniform)
        return Packed(leaf), leaf.stop.any()

    return leap


def batched_merge(kernel: Kernel) -> Callable[..., tuple[Packed, Packed, Tensor]]:
    """Return the step that takes on the chains whose leaf has stopped; it also says whether any chain has a draw."""

    def merge(leaf: Packed, tree: Packed, metric: Packed, uniforms: Tensor) -> tuple[Packed, Packed, Tensor]:
        grown = vmap(kernel.merge, in_dims=(0, 0, 0, 1))(leaf.value, tree.value, metric.value, uniforms)
        leaf, tree = _select(leaf.value.stop, grown, (leaf, tree))
        return leaf, tree, tree.value.done.any()

    return merge


def learn(
    leaf: Leaf,
    tree: Tree,
    metric: Metric,
    state: Adaptation,
    warm: Tensor,
    last: Tensor,
    collecting: Tensor,
    target: float,
) -> tuple[Adaptation, Tensor]:
    """Return what one chain has learnt from a trajectory that is done, and its statistics ``[7]``.

    ``warm``, ``last`` and ``collecting`` say whether its step size adapts, for the last time, and whether moments are collected.
    """
    proposal, acceptance = tree.proposal, leaf.sum_acceptance / leaf.num_steps
    step = _where(warm, update_step_size(state.step, acceptance, target), state.step)
    tuned = torch.where(last, step.log_average, step.log_step).exp()
    moments = _where(collecting, observe(state.moments, proposal.theta, proposal.gradient), state.moments)
    learnt = Adaptation(torch.where(warm, tuned, state.step_size), step, moments)
    stats = (proposal.log_density, energy(metric, proposal), acceptance, leaf.num_steps, tree.depth, leaf.diverging)
    return learnt, torch.stack([s.double() for s in (*stats, state.step_size)])


def batched_learn(target: float) -> Callable[..., tuple[Packed, Tensor]]:
    """Return the step that updates the adaptation of chains that are done and gathers their statistics ``[C, 7]``."""

    def batched(leaf: Packed, tree: Packed, metric: Packed, state: Packed, *stages: Tensor) -> tuple[Packed, Tensor]:
        one = partial(learn, target=target)
        learnt, stats = vmap(one)(leaf.value, tree.value, metric.value, state.value, *stages)
        (state,) = _select(tree.value.done, (learnt,), (state,))
        return state, stats

    return batched


def batched_begin(kernel: Kernel) -> Callable[..., tuple[Packed, Packed]]:
    """Return the step that begins the next trajectory of chains that are done."""

    def begin(
        leaf: Packed, tree: Packed, metric: Packed, state: Packed, noise: Tensor, uniforms: Tensor
    ) -> tuple[Packed, Packed]:
        args = (leaf.value, tree.value, metric.value, state.value.step_size, noise, uniforms)
        begun = vmap(kernel.begin, in_dims=(0, 0, 0, 0, 0, 1))(*args)
        leaf, tree = _select(tree.value.done, begun, (leaf, tree))
        return leaf, tree

    return begin


def _select(condition: Tensor, yes: Sequence[Any], no: Sequence[Packed]) -> tuple[Packed, ...]:
    """Return for each chain the new state where ``condition[C]`` holds, else the old one, packed."""
    return tuple(_select_packed(condition, Packed(a), b) for a, b in zip(yes, no, strict=True))


def _select_packed(condition: Tensor, yes: Packed, no: Packed) -> Packed:
    pairs = zip(yes.groups, no.groups, strict=True)
    return no.with_groups([torch.where(condition.view(-1, *(1,) * (a.ndim - 2)), a, b) for a, b in pairs])


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: torch.where(condition, a, b), yes, no)
