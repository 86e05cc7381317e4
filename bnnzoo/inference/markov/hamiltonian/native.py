"""A whole chain of a Hamiltonian kernel as one loop for native code: subtrees, and in them leapfrog steps."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from bnnzoo.core.density import LogDensity
from bnnzoo.inference.markov.adaptation import Adaptation
from bnnzoo.inference.markov.hamiltonian.kernel import Control, Kernel, Metric, Phase, drift
from bnnzoo.inference.markov.hamiltonian.steps import learn
from bnnzoo.inference.markov.noise import normals, uniforms
from bnnzoo.lowering.compiling import for_compiling
from bnnzoo.lowering.graphs import lift_constants, trace
from bnnzoo.lowering.loops import while_loop

__all__ = ["NUM_STREAMS", "Chain", "Counters", "Gradient", "Plan", "Schedule", "begun", "chain_loop", "gradient_of"]

NUM_STREAMS = 4
"""Random streams of a chain: momenta, starts of trajectories, merged subtrees, leaves."""

type Step = Callable[[Any, Any], Any]


class Counters(NamedTuple):
    """What a chain has done, each ``[]``: draws, leapfrog steps, merges, and how many steps this stretch may still take."""

    draws: Tensor
    leaps: Tensor
    merges: Tensor
    budget: Tensor


class Chain(NamedTuple):
    """Everything of one chain that changes; the last row of each buffer takes what is not kept."""

    leaf: Any
    tree: Any
    adaptation: Adaptation
    counters: Counters
    draws: Tensor
    stats: Tensor


class Schedule(NamedTuple):
    """Numbers of draws ``[]``: of warm-up, at which moments begin and end to be collected, at which the stretch ends."""

    num_warmup: Tensor
    collect_from: Tensor
    collect_until: Tensor
    until: Tensor


class Plan(NamedTuple):
    """What does not change during a stretch."""

    metric: Metric
    keys: Tensor
    schedule: Schedule
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


class Trajectory(NamedTuple):
    """What does not change during a trajectory."""

    metric: Metric
    step_size: Tensor
    control: Control
    keys: Tensor
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


class Gradient(NamedTuple):
    """``graph(*constants, theta[P], *tensors) -> (log joint [], gradient [P])``, and what it takes besides theta."""

    graph: GraphModule
    constants: Sequence[Tensor]
    tensors: Sequence[Tensor]


def gradient_of(density: LogDensity) -> Gradient | None:
    """Return the gradient of a log density at one point as a graph, or None where it cannot be traced."""
    leaves, spec = pytree.tree_flatten(density.data)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(theta: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        data = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(density.log_joint)(theta, *data)
        return value, gradient

    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    try:
        graph, _ = trace(value_and_grad, [theta, *(leaves[i].detach().clone() for i in places)])
    except Exception:  # a model may fail to trace in any way; the loop in Python says what to change
        return None
    for_compiling(graph)
    return Gradient(graph, lift_constants(graph), [leaves[i].detach() for i in places])


def chain_loop(kernel: Kernel, graph: GraphModule, target_accept: float) -> tuple[Callable[..., Tensor], Step]:
    """Return ``going`` and ``body`` of the loop over subtrees of one chain, on a :class:`Chain` and a :class:`Plan`.

    A step grows a subtree leaf by leaf, merges it, and if that makes a draw, learns from it and begins the next
    trajectory. A stretch that ends in the middle of a subtree, for want of budget, goes on there when it is called again;
    one that ends with a window ends before the next trajectory begins.
    """
    leap = _leaping(kernel, graph)

    def going(chain: Chain, plan: Plan) -> Tensor:
        return (chain.counters.draws < plan.schedule.until) & (chain.counters.budget > 0)

    def grow(chain: Chain, plan: Plan) -> Chain:
        fixed = Trajectory(
            plan.metric, chain.adaptation.step_size, chain.tree.control, plan.keys, plan.constants, plan.data
        )
        leaf, counters = while_loop(_is_growing, leap, (chain.leaf, chain.counters), fixed)
        stop, uniform = leaf.stop, _pair(plan.keys[2], counters.merges, leaf.phase.theta)
        leaf, tree = _where(stop, kernel.merge(leaf, chain.tree, plan.metric, uniform), (leaf, chain.tree))
        counters = counters._replace(merges=counters.merges + stop)
        chain = _kept(chain._replace(leaf=leaf, tree=tree, counters=counters), plan, target_accept)
        begins = chain.tree.done & (chain.counters.draws < plan.schedule.until)
        leaf, tree = _where(begins, begun(kernel, chain, plan), (chain.leaf, chain.tree))
        return chain._replace(leaf=leaf, tree=tree)

    return going, grow


def begun(kernel: Kernel, chain: Chain, plan: Plan) -> tuple[Any, Any]:
    """Return the leaf and the tree of a chain at the beginning of its next trajectory."""
    count, theta = chain.counters.draws, chain.tree.proposal.theta
    places = torch.arange(len(theta), device=theta.device)
    noise = normals(plan.keys[0], count * len(theta) + places, theta.dtype)
    uniform = _pair(plan.keys[1], count, theta)
    found: tuple[Any, Any] = kernel.begin(
        chain.leaf, chain.tree, plan.metric, chain.adaptation.step_size, noise, uniform
    )
    return found


def _is_growing(state: tuple[Any, Counters], fixed: Any) -> Tensor:
    leaf, counters = state
    return ~leaf.stop & (counters.budget > 0)


def _leaping(kernel: Kernel, graph: GraphModule) -> Step:
    """Return the leapfrog step of one chain, with the gradient in the middle."""

    def leap(state: tuple[Any, Counters], fixed: Trajectory) -> tuple[Any, Counters]:
        leaf, counters = state
        signed = fixed.step_size * fixed.control.direction
        theta, halfway = drift(fixed.metric, leaf.phase, signed)
        value, gradient = graph(*fixed.constants, theta, *fixed.data)
        phase = Phase(theta, halfway + 0.5 * signed * gradient, gradient, value)
        uniform = uniforms(fixed.keys[3], counters.leaps, theta.dtype)
        leaf = kernel.leap(leaf, fixed.control, phase, fixed.metric, uniform)
        return leaf, counters._replace(leaps=counters.leaps + 1, budget=counters.budget - 1)

    return leap


def _kept(chain: Chain, plan: Plan, target: float) -> Chain:
    """Learn from a trajectory if it is done, and write its draw down."""
    done, counters, schedule = chain.tree.done, chain.counters, plan.schedule
    count = counters.draws
    stages = (
        count < schedule.num_warmup,
        count == schedule.num_warmup - 1,
        (count >= schedule.collect_from) & (count < schedule.collect_until),
    )
    learnt, stats = learn(chain.leaf, chain.tree, plan.metric, chain.adaptation, *stages, target)
    place = count - schedule.num_warmup
    place = torch.where(done & (place >= 0), place, len(chain.draws) - 1).view(1)
    return chain._replace(
        adaptation=_where(done, learnt, chain.adaptation),
        counters=counters._replace(draws=count + done),
        draws=chain.draws.index_put((place,), chain.tree.proposal.theta[None]),
        stats=chain.stats.index_put((place,), stats[None]),
    )


def _pair(key: Tensor, count: Tensor, theta: Tensor) -> Tensor:
    return uniforms(key, 2 * count + torch.arange(2, device=theta.device), theta.dtype)


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)
