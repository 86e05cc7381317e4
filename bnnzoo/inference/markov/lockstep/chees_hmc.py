"""Hamiltonian Monte Carlo with one trajectory length for all chains, learnt from how far they jump (Hoffman et al. 2021)."""

from dataclasses import dataclass
from typing import ClassVar

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws
from bnnzoo.inference.markov.lockstep.dynamics import Newtonian
from bnnzoo.inference.markov.lockstep.loop import LockstepSampler, LockstepSettings
from bnnzoo.inference.markov.sampling import ChainSettings, sample_chains
from bnnzoo.inference.markov.trajectory_length import jump_of_spread
from bnnzoo.inference.starts import Start

__all__ = ["ChEESHMC"]


@dataclass(frozen=True)
class ChEESHMC:
    """Hamiltonian Monte Carlo whose trajectory length is learnt by all chains together: for many chains, and for GPUs.

    All chains take trajectories of the same number of steps, so none waits for another and nothing branches. Step size, scales
    and trajectory length are learnt during warm-up from all chains of a group together. The length goes to the largest change of
    the squared distance from the mean, per gradient evaluation.

    Parameters
    ----------
    num_chains, num_warmup, num_draws : int
        Number of chains, and of draws of each chain during and after adaptation.
    trajectory_length : float, optional
        Mean integration time, in units in which the posterior has standard deviation 1; tuned unless given.
    target_accept : float
        Acceptance probability, as the harmonic mean over chains, that the step size is tuned to.
    max_steps : int
        Bound on the number of leapfrog steps of a trajectory.
    step_size : float, optional
        Where to start tuning; found by doubling or halving unless given.
    num_groups : int
        Groups of chains that adapt together. On an executor every group is a task of its own, so a group for each core or
        machine uses them all.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from; see :class:`bnnzoo.NUTS`.

    References
    ----------
    Hoffman, Radul and Sountsov (2021), An adaptive-MCMC scheme for setting trajectory lengths in Hamiltonian Monte Carlo,
    AISTATS.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model():
    ...     pyro.sample("z", dist.Normal(3.0, 1.0))
    >>> posterior = bz.fit(model, bz.ChEESHMC(num_chains=8, num_warmup=30, num_draws=20))
    >>> posterior.draws().shape
    torch.Size([8, 20, 1])
    """

    num_chains: int = 16
    num_warmup: int = 1000
    num_draws: int = 1000
    trajectory_length: float | None = None
    target_accept: float = 0.7
    max_steps: int = 1000
    step_size: float | None = None
    num_groups: int = 1
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    resumable: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`."""
        tuning = (self.target_accept, jump_of_spread, self.trajectory_length, self.max_steps, self.step_size)
        settings = LockstepSettings(self.num_warmup, self.num_draws, *tuning)
        chains = ChainSettings(self.num_chains, self.num_warmup, self.num_draws, self.init)
        return sample_chains(self, LockstepSampler(Newtonian(), settings, self.num_groups), chains, density, context)
