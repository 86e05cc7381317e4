"""A whole chain of a Hamiltonian kernel as two nested loops for native code: over proposals, and over leapfrog steps."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.loops import while_loop
from bnnzoo.inference.markov.adaptation import Adaptation
from bnnzoo.inference.markov.hamiltonian.kernel import Control, Kernel, Metric, Phase, drift, is_finite
from bnnzoo.inference.markov.hamiltonian.steps import learn
from bnnzoo.inference.markov.noise import normals, uniforms

__all__ = ["NUM_STREAMS", "Chain", "Counters", "Plan", "Schedule", "begun", "chain_loop"]

NUM_STREAMS = 4
"""Random streams of a chain: momenta, starts of trajectories, proposals, leapfrog steps."""

type Step = Callable[[Any, Any], Any]


class Counters(NamedTuple):
    """Numbers ``[]`` of a chain's draws, leapfrog steps and proposals so far, and of steps that this stretch may still take.

    ``rejected`` counts points at which the log density could not be computed.
    """

    draws: Tensor
    leaps: Tensor
    proposals: Tensor
    budget: Tensor
    rejected: Tensor


class Chain(NamedTuple):
    """Everything about one chain that changes.

    Its buffers hold the draws of one stretch, however many there will be in all: the same native code serves every number of
    draws. Draws that are not kept go to the last row.
    """

    end: Any
    trajectory: Any
    adaptation: Adaptation
    counters: Counters
    draws: Tensor
    stats: Tensor


class Schedule(NamedTuple):
    """Numbers of draws ``[]`` that say what happens when.

    Attributes
    ----------
    num_warmup : Tensor
        Draws of warm-up.
    settle_from : Tensor
        At which the step size begins to settle.
    collect_from, collect_until : Tensor
        At which moments begin and end to be collected.
    until : Tensor
        At which a window of the adaptation, or the chain, ends.
    first : Tensor
        Draws, warm-up included, before the one that goes to the first row of the buffers.
    """

    num_warmup: Tensor
    settle_from: Tensor
    collect_from: Tensor
    collect_until: Tensor
    until: Tensor
    first: Tensor


class Plan(NamedTuple):
    """What does not change during a stretch."""

    metric: Metric
    keys: Tensor
    schedule: Schedule
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


class Fixed(NamedTuple):
    """What does not change during a trajectory."""

    metric: Metric
    step_size: Tensor
    control: Control
    keys: Tensor
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


def chain_loop(kernel: Kernel, graph: GraphModule, target_accept: float) -> tuple[Callable[..., Tensor], Step]:
    """Return ``going`` and ``body`` of the loop over proposals of one chain, on a :class:`Chain` and a :class:`Plan`.

    A step moves the end of the trajectory until it stops and updates the proposal. If that makes a draw, the chain learns from
    it and begins the next trajectory. A stretch whose budget of leapfrog steps runs out, or whose buffers are full, continues
    there when it is called again; one that ends with a window of the adaptation ends before the next trajectory begins.
    """
    leap = _leaping(kernel, graph)

    def going(chain: Chain, plan: Plan) -> Tensor:
        count, schedule = chain.counters.draws, plan.schedule
        has_room = count - schedule.first < len(chain.draws) - 1
        return (count < schedule.until) & (chain.counters.budget > 0) & has_room

    def step(chain: Chain, plan: Plan) -> Chain:
        fixed = Fixed(
            plan.metric, chain.adaptation.step_size, chain.trajectory.control, plan.keys, plan.constants, plan.data
        )
        end, counters = while_loop(_is_moving, leap, (chain.end, chain.counters), fixed)
        stop, uniform = end.stop, _pair(plan.keys[2], counters.proposals, end.phase.theta)
        counters = counters._replace(rejected=counters.rejected + (stop & ~is_finite(end.phase)))
        end, trajectory = _where(
            stop, kernel.propose(end, chain.trajectory, plan.metric, uniform), (end, chain.trajectory)
        )
        counters = counters._replace(proposals=counters.proposals + stop)
        chain = _kept(chain._replace(end=end, trajectory=trajectory, counters=counters), plan, target_accept)
        begins = chain.trajectory.done & (chain.counters.draws < plan.schedule.until)
        end, trajectory = _where(begins, begun(kernel, chain, plan), (chain.end, chain.trajectory))
        return chain._replace(end=end, trajectory=trajectory)

    return going, step


def begun(kernel: Kernel, chain: Chain, plan: Plan) -> tuple[Any, Any]:
    """Return the moving end and the trajectory of a chain at the beginning of its next trajectory."""
    count, theta = chain.counters.draws, chain.trajectory.proposal.theta
    places = torch.arange(len(theta), device=theta.device)
    noise = normals(plan.keys[0], count * len(theta) + places, theta.dtype)
    uniform = _pair(plan.keys[1], count, theta)
    found: tuple[Any, Any] = kernel.begin(
        chain.end, chain.trajectory, plan.metric, chain.adaptation.step_size, noise, uniform
    )
    return found


def _is_moving(state: tuple[Any, Counters], fixed: Any) -> Tensor:
    end, counters = state
    return ~end.stop & (counters.budget > 0)


def _leaping(kernel: Kernel, graph: GraphModule) -> Step:
    """Return the leapfrog step of one chain, with the gradient in the middle."""

    def leap(state: tuple[Any, Counters], fixed: Fixed) -> tuple[Any, Counters]:
        end, counters = state
        signed = fixed.step_size * fixed.control.direction
        theta, halfway = drift(fixed.metric, end.phase, signed)
        value, gradient = graph(*fixed.constants, theta, *fixed.data)
        phase = Phase(theta, halfway + 0.5 * signed * gradient, gradient, value)
        uniform = uniforms(fixed.keys[3], counters.leaps, theta.dtype)
        end = kernel.leap(end, fixed.control, phase, fixed.metric, uniform)
        return end, counters._replace(leaps=counters.leaps + 1, budget=counters.budget - 1)

    return leap


def _kept(chain: Chain, plan: Plan, target: float) -> Chain:
    """Learn from a trajectory if it is done, and keep its draw."""
    done, counters, schedule = chain.trajectory.done, chain.counters, plan.schedule
    count = counters.draws
    stages = (
        count < schedule.num_warmup,
        count >= schedule.settle_from,
        (count >= schedule.collect_from) & (count < schedule.collect_until),
    )
    learnt, stats = learn(chain.end, chain.trajectory, plan.metric, chain.adaptation, *stages, target)
    kept = done & (count >= schedule.num_warmup)
    place = torch.where(kept, count - schedule.first, len(chain.draws) - 1).view(1)
    return chain._replace(
        adaptation=_where(done, learnt, chain.adaptation),
        counters=counters._replace(draws=count + done),
        draws=chain.draws.index_put((place,), chain.trajectory.proposal.theta[None]),
        stats=chain.stats.index_put((place,), stats[None]),
    )


def _pair(key: Tensor, count: Tensor, theta: Tensor) -> Tensor:
    return uniforms(key, 2 * count + torch.arange(2, device=theta.device), theta.dtype)


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)
