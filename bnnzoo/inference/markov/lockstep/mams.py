"""The Metropolis-adjusted microcanonical sampler (Robnik, Cohn-Gordon and Seljak 2025)."""

from dataclasses import dataclass
from typing import ClassVar

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws
from bnnzoo.inference.markov.lockstep.dynamics import Microcanonical
from bnnzoo.inference.markov.lockstep.loop import LockstepSampler, LockstepSettings
from bnnzoo.inference.markov.sampling import ChainSettings, sample_chains
from bnnzoo.inference.markov.settings import refuse_single_parameter
from bnnzoo.inference.markov.trajectory_length import squared_jump
from bnnzoo.inference.starts import Start

__all__ = ["MAMS"]


@dataclass(frozen=True)
class MAMS:
    """Metropolis-adjusted microcanonical sampler: exact, and fewer gradients for an effective draw.

    A chain moves at constant speed; the gradient only turns it. All chains take trajectories of the same number of steps. Step
    size, scales and trajectory length are learnt during warm-up from all chains of a group together.

    Parameters
    ----------
    num_chains, num_warmup, num_draws : int
        Number of chains, and of draws of each chain during and after adaptation. A network needs 200 draws of warm-up or more:
        scales come first, lengths after them.
    trajectory_length : float, optional
        Mean distance travelled between draws, in units in which the posterior has standard deviation 1; the square root of the
        number of parameters is a natural measure. Tuned to the largest squared jump per gradient unless given.
    target_accept : float
        Acceptance probability, as the harmonic mean over chains, that the step size is tuned to.
    max_steps : int
        Bound on the number of steps of a trajectory.
    step_size : float, optional
        Where to start tuning; found by doubling or halving unless given.
    num_groups : int
        Groups of chains that adapt together. On an executor every group is a task of its own, so a group for each core or
        machine uses them all.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from; see :class:`bnnzoo.NUTS`.

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

    num_chains: int = 4
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
        """Draw from the posterior; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the model has a single parameter: a direction needs two.
        """
        refuse_single_parameter("MAMS", density)
        tuning = (self.target_accept, squared_jump, self.trajectory_length, self.max_steps, self.step_size)
        settings = LockstepSettings(self.num_warmup, self.num_draws, *tuning)
        chains = ChainSettings(self.num_chains, self.num_warmup, self.num_draws, self.init)
        return sample_chains(
            self, LockstepSampler(Microcanonical(), settings, self.num_groups), chains, density, context
        )
