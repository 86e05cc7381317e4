"""The Metropolis-adjusted microcanonical sampler (Robnik, Cohn-Gordon and Seljak 2025)."""

from dataclasses import dataclass

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference.markov.chain_settings import LockstepSettings, refuse_single_parameter, without_init
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical
from bnnzoo.inference.markov.lockstep.pilot import pilot
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectorySampler
from bnnzoo.inference.markov.sampling import sample_chains
from bnnzoo.inference.markov.trajectory_length import squared_jump

__all__ = ["MAMS"]


@dataclass(frozen=True, kw_only=True)
class MAMS(LockstepSettings):
    """Metropolis-adjusted microcanonical sampler: exact, with fewer gradients per effective draw.

    A chain moves at constant speed; the gradient only changes its direction. All chains take trajectories of the same number of
    steps. Step size, mass matrix and trajectory length are tuned during warm-up on all chains of a group.

    Parameters
    ----------
    num_warmup : int
        Draws of each chain during adaptation, which are not kept. Chains may have converged with fewer. A network needs 200 or
        more: scales are tuned first, the trajectory length after them.
    trajectory_length : float, optional
        Mean length of the path between draws, in units of the posterior's standard deviation; its natural scale is the square
        root of the number of parameters. Default: tuned to the largest expected squared jump per gradient.

    References
    ----------
    Robnik, Cohn-Gordon and Seljak (2025), Metropolis adjusted microcanonical Hamiltonian Monte Carlo, arXiv:2503.01707.
    Pasarica and Gelman (2010), Adaptively scaling the Metropolis algorithm using expected squared jumped distance, Statistica
    Sinica 20.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model():
    ...     pyro.sample("z", dist.Normal(3.0, 1.0).expand([5]).to_event(1))
    >>> posterior = bz.fit(model, bz.MAMS(num_chains=2, num_warmup=30, num_draws=20))
    >>> posterior.draws().shape
    torch.Size([2, 20, 5])
    """

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the model has a single parameter: a direction needs two.
        """
        refuse_single_parameter("MAMS", density)
        theta, root = pilot(self, density, context)
        sampler = TrajectorySampler(Microcanonical(), squared_jump, without_init(self), root, context.engine)
        return sample_chains(self, sampler, density, context, starts=lambda: theta)
