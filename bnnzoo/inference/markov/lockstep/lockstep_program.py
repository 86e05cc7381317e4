"""A chain in lockstep as two nested loops for native code: over draws, and over steps."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.fx import GraphModule

from bnnzoo.engine import pytree
from bnnzoo.engine.loops import while_loop
from bnnzoo.inference.markov.lockstep.dynamics import Point, arrive, drift, is_finite
from bnnzoo.inference.markov.lockstep.motions import Common, LockstepState, Motion
from bnnzoo.inference.markov.noise import normals, uniforms

__all__ = ["Chain", "DrawPlan", "LockstepCounters", "chain_loop"]


class LockstepCounters(NamedTuple):
    """Numbers ``[]`` of one chain.

    Attributes
    ----------
    draws : Tensor
        Draws of this chunk so far.
    left : Tensor
        Steps left until the next draw; 0 before it begins.
    budget : Tensor
        Steps that may be taken before the native code returns.
    normals, uniforms : Tensor
        Random numbers that the chain has used.
    rejected : Tensor
        Draws of this chunk at whose end the log density could not be computed.
    """

    draws: Tensor
    left: Tensor
    budget: Tensor
    normals: Tensor
    uniforms: Tensor
    rejected: Tensor


class Chain(NamedTuple):
    """One chain: start of the current draw, where it is, and buffers for draws and statistics of one chunk.

    What is not to be kept goes to the buffers' last row. ``keys[2]`` are those of the uniform and the normal stream.
    """

    start: Point
    moving: LockstepState
    counters: LockstepCounters
    keys: Tensor
    draws: Tensor
    stats: Tensor


class DrawPlan(NamedTuple):
    """What does not change during a chunk: numbers of steps of its draws, and how many there are to be."""

    common: Common
    steps: Tensor
    until: Tensor
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


class Fixed(NamedTuple):
    """What does not change between two draws."""

    common: Common
    key: Tensor
    constants: Sequence[Tensor]
    data: Sequence[Tensor]


def chain_loop(motion: Motion, graph: GraphModule) -> tuple[Callable[..., Tensor], Callable[[Chain, DrawPlan], Chain]]:
    """Return ``going`` and ``body`` of the loop over the draws of one chain, on a :class:`Chain` and a :class:`DrawPlan`.

    A chunk whose budget of steps runs out goes on there when it is called again.
    """
    leap = _leaping(motion, graph)

    def going(chain: Chain, plan: DrawPlan) -> Tensor:
        return (chain.counters.draws < plan.until) & (chain.counters.budget > 0)

    def body(chain: Chain, plan: DrawPlan) -> Chain:
        fixed = Fixed(plan.common, chain.keys[1], plan.constants, plan.data)
        num_steps = plan.steps.gather(0, chain.counters.draws.view(1)).view(())
        chain = _begun(motion, chain, num_steps)
        moving, counters = while_loop(_is_moving, leap, (chain.moving, chain.counters), fixed)
        uniform = uniforms(chain.keys[0], counters.uniforms, chain.start.theta.dtype)
        ended = motion.end(chain.start, moving, plan.common, num_steps, uniform)
        return _kept(motion, chain._replace(moving=moving, counters=counters), ended)

    return going, body


def _begun(motion: Motion, chain: Chain, num_steps: Tensor) -> Chain:
    """Begin a draw, unless one is under way."""
    fresh, counters = chain.counters.left == 0, chain.counters
    start, used = chain.start, counters.normals
    if not motion.noise_per_step:
        noise, after = _next_noise(chain.keys[1], used, start.theta)
        start, used = motion.begin(start, noise), torch.where(fresh, after, used)
    moving = LockstepState(start, torch.zeros_like(chain.moving.squares))
    counters = counters._replace(left=torch.where(fresh, num_steps, counters.left), normals=used)
    return chain._replace(
        start=_where(fresh, start, chain.start), moving=_where(fresh, moving, chain.moving), counters=counters
    )


def _kept(motion: Motion, chain: Chain, ended: tuple[Point, Tensor]) -> Chain:
    """Keep a draw if the chain has arrived."""
    counters, (point, stats) = chain.counters, ended
    done = counters.left == 0
    place = torch.where(done, counters.draws, len(chain.draws) - 1).view(1)
    counters = counters._replace(
        draws=counters.draws + done,
        uniforms=counters.uniforms + done if motion.accepts else counters.uniforms,
        rejected=counters.rejected + (done & ~is_finite(chain.moving.point)),
    )
    return chain._replace(
        start=_where(done, point, chain.start),
        counters=counters,
        draws=chain.draws.index_put((place,), point.theta[None]),
        stats=chain.stats.index_put((place,), stats[None]),
    )


def _is_moving(state: tuple[LockstepState, LockstepCounters], fixed: Any) -> Tensor:
    return (state[1].left > 0) & (state[1].budget > 0)


def _leaping(motion: Motion, graph: GraphModule) -> Callable[..., tuple[LockstepState, LockstepCounters]]:
    """Return one step of one chain, with the gradient in the middle."""

    def leap(state: tuple[LockstepState, LockstepCounters], fixed: Fixed) -> tuple[LockstepState, LockstepCounters]:
        (point, squares), counters = state
        common, used = fixed.common, counters.normals
        if motion.noise_per_step:
            noise, used = _next_noise(fixed.key, used, point.theta)
            point = motion.turn(point, common.nu, noise)
        moved = drift(motion.dynamics, point, common.scale, common.step_size)
        value, gradient = graph(*fixed.constants, moved.theta, *fixed.data)
        end = arrive(motion.dynamics, moved, value, gradient, common.scale, common.step_size)
        if motion.noise_per_step:
            squares = squares + (end.work - (end.log_density - point.log_density)).square()
        left, budget = counters.left - 1, counters.budget - 1
        return LockstepState(end, squares), counters._replace(left=left, budget=budget, normals=used)

    return leap


def _next_noise(key: Tensor, used: Tensor, theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the next standard normal numbers ``[P]`` of a chain, and how many it has used then."""
    places = used + torch.arange(len(theta), device=theta.device)
    return normals(key, places, theta.dtype), used + len(theta)


def _where(condition: Tensor, yes: Any, no: Any) -> Any:
    return pytree.tree_map(lambda a, b: a if a is b else torch.where(condition, a, b), yes, no)
