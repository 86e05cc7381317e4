"""A whole chain of a Hamiltonian kernel as one loop for native code: draws, in them trajectories, in them leapfrog steps."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import grad_and_value
from torch.fx import GraphModule
from torch.utils import _pytree as pytree

from bnnzoo.core.density import LogDensity
from bnnzoo.inference.markov.adaptation import Adaptation
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel, Metric, Phase, drift
from bnnzoo.inference.markov.hamiltonian.steps import learn
from bnnzoo.inference.markov.noise import normals, uniforms
from bnnzoo.lowering.compiling import for_compiling
from bnnzoo.lowering.graphs import lift_constants, trace
from bnnzoo.lowering.loops import while_loop

__all__ = ["NUM_STREAMS", "Chain", "Counters", "Plan", "Schedule", "chain_loop", "gradient_graph"]

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
    keys: Tensor
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


def gradient_graph(density: LogDensity) -> tuple[GraphModule, list[Tensor]]:
    """Return ``(*constants, theta[P], *tensors) -> (log joint [], gradient [P])`` as a graph, and its constants."""
    leaves, spec = pytree.tree_flatten(density.data)
    places = [i for i, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

    def value_and_grad(theta: Tensor, *tensors: Tensor) -> tuple[Tensor, Tensor]:
        values = dict(zip(places, tensors, strict=True))
        data = pytree.tree_unflatten([values.get(i, leaf) for i, leaf in enumerate(leaves)], spec)
        gradient, value = grad_and_value(density.log_joint)(theta, *data)
        return value, gradient

    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    graph, _ = trace(value_and_grad, [theta, *(leaves[i].detach().clone() for i in places)])
    for_compiling(graph)
    return graph, lift_constants(graph)


def chain_loop(kernel: Kernel, graph: GraphModule, target_accept: float) -> tuple[Callable[..., Tensor], Step]:
    """Return ``going`` and ``body`` of the loop over draws of one chain, on a :class:`Chain` and a :class:`Plan`.

    A stretch that ends in the middle of a trajectory, for want of budget, goes on there when it is called again.
    """
    double = _doubling(kernel, _leaping(kernel, graph))

    def going(chain: Chain, plan: Plan) -> Tensor:
        return (chain.counters.draws < plan.schedule.until) & (chain.counters.budget > 0)

    def draw(chain: Chain, plan: Plan) -> Chain:
        leaf, tree = _begun(kernel, chain, plan)
        fixed = Trajectory(plan.metric, chain.adaptation.step_size, plan.keys, plan.constants, plan.data)
        leaf, tree, counters = while_loop(_is_unfinished, double, (leaf, tree, chain.counters), fixed)
        return _kept(chain._replace(leaf=leaf, tree=tree, counters=counters), plan, target_accept)

    return going, draw


def _begun(kernel: Kernel, chain: Chain, plan: Plan) -> tuple[Any, Any]:
    """Begin the next trajectory if the last one is done."""
    leaf, tree, count = chain.leaf, chain.tree, chain.counters.draws
    theta = tree.proposal.theta
    size, places = len(theta), torch.arange(max(2, len(theta)), device=theta.device)
    noise = normals(plan.keys[0], count * size + places[:size], theta.dtype)
    begun = kernel.begin(
        leaf, tree, plan.metric, chain.adaptation.step_size, noise, _pair(plan.keys[1], count, places, theta.dtype)
    )
    found: tuple[Any, Any] = _where(tree.done, begun, (leaf, tree))
    return found


def _is_unfinished(state: tuple[Any, Any, Counters], fixed: Trajectory) -> Tensor:
    _, tree, counters = state
    return ~tree.done & (counters.budget > 0)


def _doubling(kernel: Kernel, leap: Step) -> Step:
    """Return the step that grows a trajectory by one subtree."""

    def double(state: tuple[Any, Any, Counters], fixed: Trajectory) -> tuple[Any, Any, Counters]:
        leaf, tree, counters = state
        leaf, counters = while_loop(_is_growing, leap, (leaf, counters), (tree.control, fixed))
        theta, stop = leaf.phase.theta, leaf.stop
        places = torch.arange(2, device=theta.device)
        merged = kernel.merge(leaf, tree, fixed.metric, _pair(fixed.keys[2], counters.merges, places, theta.dtype))
        leaf, tree = _where(stop, merged, (leaf, tree))
        return leaf, tree, counters._replace(merges=counters.merges + stop)

    return double


def _is_growing(state: tuple[Any, Counters], fixed: Any) -> Tensor:
    leaf, counters = state
    return ~leaf.stop & (counters.budget > 0)


def _leaping(kernel: Kernel, graph: GraphModule) -> Step:
    """Return the leapfrog step of one chain, with the gradient in the middle."""

    def leap(state: tuple[Any, Counters], fixed: tuple[Any, Trajectory]) -> tuple[Any, Counters]:
        (leaf, counters), (control, rest) = state, fixed
        signed = rest.step_size * control.direction
        theta, halfway = drift(rest.metric, leaf.phase, signed)
        value, gradient = graph(*rest.constants, theta, *rest.data)
        phase = Phase(theta, halfway + 0.5 * signed * gradient, gradient, value)
        uniform = uniforms(rest.keys[3], counters.leaps, theta.dtype)
        leaf = kernel.leap(leaf, control, phase, rest.metric, uniform)
        return leaf, counters._replace(leaps=counters.leaps + 1, budget=counters.budget - 1)

    return leap


def _kept(chain: Chain, plan: Plan, target: float) -> Chain:
    """Learn from a trajectory that is done, and write its draw down."""
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


def _pair(key: Tensor, count: Tensor, places: Tensor, dtype: torch.dtype) -> Tensor:
    return uniforms(key, 2 * count + places[:2], dtype)


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)
