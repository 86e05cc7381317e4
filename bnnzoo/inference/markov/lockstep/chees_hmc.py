"""ChEES-HMC: Hamiltonian Monte Carlo with one adaptive trajectory length for all chains (Hoffman et al. 2021)."""

from dataclasses import dataclass

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Count
from bnnzoo.inference.markov.chain_settings import LockstepSettings, without_init
from bnnzoo.inference.markov.lockstep.dynamics import Newtonian
from bnnzoo.inference.markov.lockstep.pilot import pilot
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectorySampler
from bnnzoo.inference.markov.sampling import sample_chains
from bnnzoo.inference.markov.trajectory_length import jump_of_spread

__all__ = ["ChEESHMC"]


@dataclass(frozen=True, kw_only=True)
class ChEESHMC(LockstepSettings):
    """Hamiltonian Monte Carlo that tunes its trajectory length on all chains together: for many chains, and for GPUs.

    All chains take trajectories of the same number of steps, so none waits for another and nothing branches. Step size, mass
    matrix and trajectory length are tuned during warm-up on all chains of a group. The length maximises the expected change of
    the squared distance from the mean (the ChEES criterion) per gradient evaluation.

    Parameters
    ----------
    trajectory_length : float, optional
        Mean integration time, in units of the posterior's standard deviation. Default: tuned.

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

    num_chains: Count = 16

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`."""
        theta, root = pilot(self, density, context)
        sampler = TrajectorySampler(Newtonian(), jump_of_spread, without_init(self), root, context.engine)
        return sample_chains(self, sampler, density, context, starts=lambda: theta)
