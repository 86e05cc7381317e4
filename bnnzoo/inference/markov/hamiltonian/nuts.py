"""The No-U-Turn sampler (Hoffman and Gelman 2014) with multinomial proposals (Betancourt 2017), without recursion."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.settings import Range
from bnnzoo.engine.program import where
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianMethod
from bnnzoo.inference.markov.hamiltonian.kernel import (
    DIVERGENCE_THRESHOLD,
    Control,
    Metric,
    Phase,
    energy,
    momentum_from,
    velocity,
)

__all__ = ["NUTS", "NUTSKernel"]


class Subtree(NamedTuple):
    """What changes at every leapfrog step of one chain: the moving end of its trajectory and the subtree growing there."""

    phase: Phase
    index: Tensor  # type: ignore[assignment]  # hides tuple.index, which nobody calls here
    proposal: Phase
    log_weight: Tensor
    momentum_sum: Tensor
    stack: Tensor
    sum_acceptance: Tensor
    num_steps: Tensor
    turning: Tensor
    diverging: Tensor
    stop: Tensor


class Tree(NamedTuple):
    """What changes when a subtree is complete: both ends of the trajectory, its proposal, and its weight."""

    control: Control
    left: Phase
    right: Phase
    proposal: Phase
    log_weight: Tensor
    momentum_sum: Tensor
    depth: Tensor
    done: Tensor


@dataclass(frozen=True)
class NUTSKernel:
    """The three pure steps of the No-U-Turn sampler, a :class:`~bnnzoo.inference.markov.hamiltonian.kernel.Kernel`.

    A trajectory doubles until it turns back on itself. Its new half, the subtree, grows leaf by leaf. A stack, as long as the
    tree is deep, holds what it takes to test every balanced part of the subtree for a U-turn.
    """

    max_tree_depth: int

    def finished_trajectory(self, phase: Phase) -> tuple[Subtree, Tree]:
        """Return a finished tree at ``phase``, from which the first trajectory can begin."""
        zero = torch.zeros_like(phase.log_density)
        depth = torch.zeros_like(zero, dtype=torch.int64)
        control = Control(zero, torch.ones_like(zero), torch.ones_like(depth))
        done = torch.ones_like(zero, dtype=torch.bool)
        stack = phase.theta.new_zeros(self._stack_height + 1, 2, len(phase.theta))
        tree = Tree(control, phase, phase, phase, zero, torch.zeros_like(phase.theta), depth, done)
        return _empty_subtree(phase, zero, depth, stack), tree

    def begin(
        self, subtree: Subtree, tree: Tree, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[Subtree, Tree]:
        """Start a trajectory at the last draw."""
        momentum = momentum_from(metric, noise)
        phase = tree.proposal._replace(momentum=momentum)
        zero = torch.zeros_like(phase.log_density)
        tree = Tree(
            control=Control(energy(metric, phase), _sign(uniforms[0]), torch.ones_like(tree.depth)),
            left=phase,
            right=phase,
            proposal=phase,
            log_weight=zero,
            momentum_sum=momentum,
            depth=torch.zeros_like(tree.depth),
            done=torch.zeros_like(tree.done),
        )
        return _empty_subtree(phase, zero, torch.zeros_like(tree.depth), subtree.stack), tree

    def leapfrog(self, subtree: Subtree, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> Subtree:
        """Add the leaf at ``phase`` to the subtree."""
        error = energy(metric, phase) - control.energy
        log_weight = torch.logaddexp(subtree.log_weight, -error)
        accepted = (uniform.log() < -error - log_weight) | (subtree.index == 0)
        momentum_sum = subtree.momentum_sum + phase.momentum
        speed = velocity(metric, phase.momentum)
        place, tested = _stack_places(subtree.index, self._stack_height)
        half = 0.5 * phase.momentum
        turning = _turns_within(subtree.stack[:-1], tested, momentum_sum - half, speed)
        stack = subtree.stack.index_put((place.view(1),), torch.stack([speed, half - momentum_sum])[None])
        diverging = error > DIVERGENCE_THRESHOLD
        index = subtree.index + 1
        return Subtree(
            phase=phase,
            index=index,
            proposal=where(accepted, phase, subtree.proposal),
            log_weight=log_weight,
            momentum_sum=momentum_sum,
            stack=stack,
            sum_acceptance=subtree.sum_acceptance + (-error).exp().clamp(max=1.0),
            num_steps=subtree.num_steps + 1,
            turning=turning,
            diverging=diverging,
            stop=turning | diverging | (index == control.length),
        )

    def propose(self, subtree: Subtree, tree: Tree, metric: Metric, uniforms: Tensor) -> tuple[Subtree, Tree]:
        """Join a complete subtree to the tree, or discard it if it turned or diverged, and double again unless done."""
        valid = ~(subtree.turning | subtree.diverging)
        forward = tree.control.direction > 0
        left = where(valid & ~forward, subtree.phase, tree.left)
        right = where(valid & forward, subtree.phase, tree.right)
        momentum_sum = tree.momentum_sum + subtree.momentum_sum
        accepted = valid & (uniforms[0].log() < subtree.log_weight - tree.log_weight)
        depth = tree.depth + valid
        turning = _turns(velocity(metric, left.momentum), velocity(metric, right.momentum), left, right, momentum_sum)
        direction = _sign(uniforms[1])
        grown = Tree(
            control=Control(tree.control.energy, direction, torch.ones_like(depth) << depth),
            left=left,
            right=right,
            proposal=where(accepted, subtree.proposal, tree.proposal),
            log_weight=torch.logaddexp(tree.log_weight, subtree.log_weight),
            momentum_sum=momentum_sum,
            depth=depth,
            done=~valid | turning | (depth >= self.max_tree_depth),
        )
        moving = where(direction > 0, right, left)
        fresh = _empty_subtree(moving, subtree.sum_acceptance, subtree.num_steps, subtree.stack)
        return fresh._replace(diverging=subtree.diverging), grown

    def num_proposals(self, num_steps: int) -> int:
        """Return the number of doublings that make a trajectory of ``num_steps`` steps."""
        return min(num_steps.bit_length(), self.max_tree_depth)

    @property
    def _stack_height(self) -> int:
        """Largest number of balanced parts of a subtree that can end at one leaf."""
        return max(1, self.max_tree_depth - 1)


@dataclass(frozen=True, kw_only=True)
class NUTS(HamiltonianMethod):
    """No-U-Turn sampler with windowed adaptation of step size and mass matrix.

    Parameters
    ----------
    max_tree_depth : int
        A trajectory takes fewer than ``2**max_tree_depth`` leapfrog steps; from 1 to 20.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from. Default: network weights are drawn from their prior, all
        other parameters uniformly on (-2, 2) in unconstrained space.

    References
    ----------
    Hoffman and Gelman (2014), The No-U-Turn sampler, JMLR 15. Betancourt (2017), A conceptual introduction to Hamiltonian
    Monte Carlo, arXiv:1701.02434. Dance, Glaser, Orbanz and Adams (2025), Efficiently vectorized MCMC on modern accelerators.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model():
    ...     pyro.sample("z", dist.Normal(3.0, 1.0))
    >>> posterior = bz.fit(model, bz.NUTS(num_chains=2, num_warmup=30, num_draws=20))
    >>> posterior.draws().shape
    torch.Size([2, 20, 1])
    """

    max_tree_depth: Annotated[int, Range(1, 20)] = 10

    def kernel(self) -> NUTSKernel:
        """Return the kernel of these settings."""
        return NUTSKernel(self.max_tree_depth)


def _sign(uniform: Tensor) -> Tensor:
    return torch.where(uniform < 0.5, -torch.ones_like(uniform), torch.ones_like(uniform))


def _turns(left_speed: Tensor, right_speed: Tensor, left: Phase, right: Phase, momentum_sum: Tensor) -> Tensor:
    rho = momentum_sum - 0.5 * (left.momentum + right.momentum)
    return ((rho * left_speed).sum() <= 0) | ((rho * right_speed).sum() <= 0)


def _empty_subtree(phase: Phase, sum_acceptance: Tensor, num_steps: Tensor, stack: Tensor) -> Subtree:
    """Return a subtree without leaves; it reuses ``stack``, every place of which is written before it is read."""
    zero = torch.zeros_like(phase.log_density)
    index, no = torch.zeros_like(num_steps), torch.zeros_like(zero, dtype=torch.bool)
    nothing = torch.zeros_like(phase.theta)
    return Subtree(phase, index, phase, zero - torch.inf, nothing, stack, sum_acceptance, num_steps, no, no, no)


def _turns_within(stack: Tensor, tested: Tensor, rest: Tensor, speed: Tensor) -> Tensor:
    """Test every balanced part of the subtree that ends at an odd leaf; the parts begin at the leaves on the stack.

    With rho the momenta's sum over a part less half of both ends', the part turns if rho has a negative product with
    the velocity at either end. For each leaf the stack holds its velocity, and half its momentum less the sum so far.
    """
    rho = rest + stack[:, 1]
    turned = ((rho * stack[:, 0]).sum(1) <= 0) | ((rho * speed).sum(1) <= 0)
    return (tested & turned).any()


def _stack_places(index: Tensor, height: int) -> tuple[Tensor, Tensor]:
    """Return where on the stack a leaf of a subtree is stored ``[]``, and which places are tested at it ``[height]``.

    An even leaf is stored at the place given by the number of ones in the binary digits of half its index, an odd one beyond
    the stack. At an odd one as many balanced parts end as its index ends in ones; they begin at the leaves on top of the stack.
    """
    places = torch.arange(height, device=index.device)
    top = _num_ones(index >> 1, places)
    trailing = _num_ones((index ^ (index + 1)) >> 1, places)
    return torch.where(index % 2 == 0, top, height), (places <= top) & (places > top - trailing)


def _num_ones(number: Tensor, places: Tensor) -> Tensor:
    return ((number >> places) & 1).sum()
