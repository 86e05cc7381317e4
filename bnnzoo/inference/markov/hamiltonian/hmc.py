"""Hamiltonian Monte Carlo with trajectories of a fixed mean length (Duane et al. 1987, Neal 2011)."""

from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws
from bnnzoo.inference.markov.adaptation import MassMatrix
from bnnzoo.inference.markov.hamiltonian.kernel import (
    DIVERGENCE_THRESHOLD,
    Control,
    Metric,
    Phase,
    choose,
    energy,
    momentum_from,
)
from bnnzoo.inference.markov.hamiltonian.loop import HamiltonianSampler, LoopSettings
from bnnzoo.inference.markov.sampling import ChainSettings, sample_chains
from bnnzoo.inference.starts import Start

__all__ = ["HMC", "HMCKernel"]


class Leaf(NamedTuple):
    """The moving end of one chain's trajectory and how many steps it has gone."""

    phase: Phase
    num_steps: Tensor
    sum_acceptance: Tensor
    diverging: Tensor
    stop: Tensor


class Tree(NamedTuple):
    """The start of one chain's trajectory, which is also the draw if the end is not accepted."""

    control: Control
    proposal: Phase
    depth: Tensor
    done: Tensor


@dataclass(frozen=True)
class HMCKernel:
    """Hamiltonian Monte Carlo, a :class:`~bnnzoo.inference.markov.hamiltonian.kernel.Kernel` of one chain."""

    trajectory_length: float
    jitter: float
    max_steps: int

    def start(self, phase: Phase) -> tuple[Leaf, Tree]:
        """Return a finished trajectory at ``phase``."""
        zero = torch.zeros_like(phase.log_density)
        depth, no = torch.zeros_like(zero, dtype=torch.int64), torch.zeros_like(zero, dtype=torch.bool)
        control = Control(zero, torch.ones_like(zero), torch.ones_like(depth))
        return Leaf(phase, depth, zero, no, no), Tree(control, phase, depth, torch.ones_like(no))

    def begin(
        self, leaf: Leaf, tree: Tree, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[Leaf, Tree]:
        """Start a trajectory of random length at the last draw: jitter keeps it from closing on itself."""
        phase = tree.proposal._replace(momentum=momentum_from(metric, noise))
        length = self.trajectory_length * (1 + self.jitter * (2 * uniforms[0] - 1))
        num_steps = (length / step_size).ceil().clamp(1, self.max_steps).long()
        control = Control(energy(metric, phase), torch.ones_like(step_size), num_steps)
        zero, no = torch.zeros_like(phase.log_density), torch.zeros_like(tree.done)
        leaf = Leaf(phase, torch.zeros_like(num_steps), zero, no, no)
        return leaf, Tree(control, phase, torch.zeros_like(tree.depth), no)

    def leap(self, leaf: Leaf, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> Leaf:
        """Move the end of the trajectory to ``phase``."""
        error = energy(metric, phase) - control.energy
        num_steps, diverging = leaf.num_steps + 1, error > DIVERGENCE_THRESHOLD
        acceptance = num_steps * (-error).exp().clamp(max=1.0)
        return Leaf(phase, num_steps, acceptance, diverging, diverging | (num_steps >= control.length))

    def merge(self, leaf: Leaf, tree: Tree, metric: Metric, uniforms: Tensor) -> tuple[Leaf, Tree]:
        """Accept the end of the trajectory with probability ``min(1, exp(H(start) - H(end)))``, else stay."""
        error = energy(metric, leaf.phase) - tree.control.energy
        accepted = ~leaf.diverging & (uniforms[0].log() < -error)
        return leaf, tree._replace(
            proposal=choose(accepted, leaf.phase, tree.proposal), done=torch.ones_like(tree.done)
        )

    def num_merges(self, num_steps: int) -> int:
        """Return 1: a trajectory is whole."""
        return 1


@dataclass(frozen=True)
class HMC:
    """Hamiltonian Monte Carlo with windowed adaptation of step size and mass matrix; all chains run in one batch.

    Parameters
    ----------
    num_chains, num_warmup, num_draws : int
        Number of chains, and of draws of each chain during and after adaptation.
    trajectory_length : float
        Mean integration time; in units in which the posterior has standard deviation 1, once the mass matrix is adapted.
    jitter : float
        Each trajectory's length is uniform within this fraction of the mean: without it, periodic orbits spoil mixing.
    target_accept : float
        Mean acceptance probability that the step size is tuned to.
    max_steps : int
        Bound on the number of leapfrog steps of a trajectory.
    mass_matrix : {"diagonal", "dense", "fisher"}
        Estimated from the draws' variances, their covariance, or the ratio of variances of draws and gradients.
    step_size : float, optional
        Where to start tuning; found by doubling or halving unless given.
    num_groups : int, optional
        Batches that an executor runs side by side, best one a core; each chain by itself unless given. Chains in one batch
        share the cost of every call.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from; see :class:`bnnzoo.NUTS`.

    References
    ----------
    Duane, Kennedy, Pendleton and Roweth (1987), Hybrid Monte Carlo, Physics Letters B 195. Neal (2011), MCMC using Hamiltonian
    dynamics, arXiv:1206.1901.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model():
    ...     pyro.sample("z", dist.Normal(3.0, 1.0))
    >>> posterior = bz.fit(model, bz.HMC(num_chains=2, num_warmup=30, num_draws=20))
    >>> posterior.draws().shape
    torch.Size([2, 20, 1])
    """

    num_chains: int = 4
    num_warmup: int = 1000
    num_draws: int = 1000
    trajectory_length: float = 1.5
    jitter: float = 0.5
    target_accept: float = 0.8
    max_steps: int = 1000
    mass_matrix: MassMatrix = "diagonal"
    step_size: float | None = None
    num_groups: int | None = None
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    resumable: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`."""
        if self.trajectory_length <= 0 or not 0 <= self.jitter < 1 or self.max_steps < 1:
            raise ValueError(
                f"HMC(trajectory_length={self.trajectory_length}, jitter={self.jitter}, max_steps={self.max_steps}): the length "
                f"is positive, jitter is in [0, 1), and at least one step is taken."
            )
        loop = LoopSettings(self.num_warmup, self.num_draws, self.target_accept, self.mass_matrix, self.step_size)
        settings = ChainSettings(self.num_chains, self.num_warmup, self.num_draws, self.init)
        kernel = HMCKernel(self.trajectory_length, self.jitter, self.max_steps)
        return sample_chains(self, HamiltonianSampler(kernel, loop, self.num_groups), settings, density, context)
