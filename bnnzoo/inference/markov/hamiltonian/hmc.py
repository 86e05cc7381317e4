"""Hamiltonian Monte Carlo with trajectories of a fixed mean length (Duane et al. 1987, Neal 2011)."""

from dataclasses import dataclass
from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from bnnzoo.core.settings import Count, Positive, Range
from bnnzoo.engine.program import where
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianMethod
from bnnzoo.inference.markov.hamiltonian.kernel import (
    DIVERGENCE_THRESHOLD,
    Control,
    Metric,
    Phase,
    energy,
    momentum_from,
)

__all__ = ["HMC", "HMCKernel"]


class End(NamedTuple):
    """The moving end of one chain's trajectory and the number of steps taken so far."""

    phase: Phase
    num_steps: Tensor
    sum_acceptance: Tensor
    diverging: Tensor
    stop: Tensor


class Trajectory(NamedTuple):
    """The start of one chain's trajectory, which is the next draw again if the end is rejected."""

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

    def finished_trajectory(self, phase: Phase) -> tuple[End, Trajectory]:
        """Return a finished trajectory at ``phase``."""
        zero = torch.zeros_like(phase.log_density)
        depth, no = torch.zeros_like(zero, dtype=torch.int64), torch.zeros_like(zero, dtype=torch.bool)
        control = Control(zero, torch.ones_like(zero), torch.ones_like(depth))
        return End(phase, depth, zero, no, no), Trajectory(control, phase, depth, torch.ones_like(no))

    def begin(
        self, end: End, trajectory: Trajectory, metric: Metric, step_size: Tensor, noise: Tensor, uniforms: Tensor
    ) -> tuple[End, Trajectory]:
        """Start a trajectory of random length at the last draw."""
        phase = trajectory.proposal._replace(momentum=momentum_from(metric, noise))
        length = self.trajectory_length * (1 + self.jitter * (2 * uniforms[0] - 1))
        num_steps = (length / step_size).ceil().clamp(1, self.max_steps).long()
        control = Control(energy(metric, phase), torch.ones_like(step_size), num_steps)
        zero, no = torch.zeros_like(phase.log_density), torch.zeros_like(trajectory.done)
        end = End(phase, torch.zeros_like(num_steps), zero, no, no)
        return end, Trajectory(control, phase, torch.zeros_like(trajectory.depth), no)

    def leapfrog(self, end: End, control: Control, phase: Phase, metric: Metric, uniform: Tensor) -> End:
        """Move the end of the trajectory to ``phase``."""
        error = energy(metric, phase) - control.energy
        num_steps, diverging = end.num_steps + 1, error > DIVERGENCE_THRESHOLD
        acceptance = num_steps * (-error).exp().clamp(max=1.0)
        return End(phase, num_steps, acceptance, diverging, diverging | (num_steps >= control.length))

    def propose(self, end: End, trajectory: Trajectory, metric: Metric, uniforms: Tensor) -> tuple[End, Trajectory]:
        """Accept the end of the trajectory with probability ``min(1, exp(H(start) - H(end)))``, else stay."""
        error = energy(metric, end.phase) - trajectory.control.energy
        accepted = ~end.diverging & (uniforms[0].log() < -error)
        return end, trajectory._replace(
            proposal=where(accepted, end.phase, trajectory.proposal), done=torch.ones_like(trajectory.done)
        )

    def num_proposals(self, num_steps: int) -> int:
        """Return 1: only the end of a trajectory is proposed."""
        return 1


@dataclass(frozen=True, kw_only=True)
class HMC(HamiltonianMethod):
    """Hamiltonian Monte Carlo with windowed adaptation of step size and mass matrix.

    Parameters
    ----------
    trajectory_length : float
        Mean integration time, in units of the posterior's standard deviation once the mass matrix is adapted.
    jitter : float
        Trajectory lengths are uniform within this fraction of the mean: trajectories of a fixed length may be periodic, and
        chains then mix slowly.
    max_steps : int
        Largest number of leapfrog steps of a trajectory.

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

    trajectory_length: Positive = 1.5
    jitter: Annotated[float, Range(0, 1, open_high=True)] = 0.5
    max_steps: Count = 1000

    def kernel(self) -> HMCKernel:
        """Return the kernel of these settings."""
        return HMCKernel(self.trajectory_length, self.jitter, self.max_steps)
