"""Microcanonical Langevin Monte Carlo, unadjusted (Robnik, De Luca, Silverstein and Seljak 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Draws
from bnnzoo.inference.markov.lockstep.langevin import LangevinSampler, LangevinSettings
from bnnzoo.inference.markov.sampling import ChainSettings, sample_chains
from bnnzoo.inference.markov.settings import refuse_single_parameter
from bnnzoo.inference.starts import Start

__all__ = ["MCLMC"]


@dataclass(frozen=True)
class MCLMC:
    """Microcanonical Langevin Monte Carlo: the fewest gradients for an effective draw, and a small bias that does not go away.

    Nothing is rejected; the step size is tuned so that the energy changes little, which bounds the bias. Use
    :class:`bnnzoo.MAMS` where a bias of a few percent of a posterior sd matters. Step size, scales and decoherence length are
    learnt during warm-up from all chains of a group together.

    Parameters
    ----------
    num_chains, num_warmup, num_draws : int
        Number of chains, and of draws of each chain during and after adaptation; a draw of warm-up takes 32 steps.
    steps_per_draw : int, optional
        Steps between the draws that are kept; about one decoherence length unless given, and 1,000 at most.
    energy_variance : float
        Mean squared change of the energy in a step, a parameter, that the step size is tuned to: smaller is slower and less
        biased.
    decoherence_length : float, optional
        Distance over which the direction is forgotten, in units in which the posterior has standard deviation 1; taken from the
        autocorrelation time unless given.
    step_size : float, optional
        Step size to keep to; tuned to ``energy_variance`` unless given.
    num_groups : int
        Groups of chains that adapt together. On an executor every group is a task of its own, so a group for each core or
        machine uses them all.
    init : Tensor, Posterior or Method, optional
        Starting points ``theta[C, P]``, or where to take them from; see :class:`bnnzoo.NUTS`.

    References
    ----------
    Robnik, De Luca, Silverstein and Seljak (2023), Microcanonical Hamiltonian Monte Carlo, JMLR 24. Robnik and Seljak (2024),
    Fluctuation without dissipation: Microcanonical Langevin Monte Carlo, PMLR 253.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model():
    ...     pyro.sample("z", dist.Normal(3.0, 1.0).expand([5]).to_event(1))
    >>> posterior = bz.fit(model, bz.MCLMC(num_chains=2, num_warmup=30, num_draws=20))
    >>> posterior.draws().shape
    torch.Size([2, 20, 5])
    """

    num_chains: int = 4
    num_warmup: int = 1000
    num_draws: int = 1000
    steps_per_draw: int | None = None
    energy_variance: float = 5e-4
    decoherence_length: float | None = None
    step_size: float | None = None
    num_groups: int = 1
    init: Start = None

    needs: ClassVar[frozenset[Need]] = frozenset()
    resumable: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, nearly; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the model has a single parameter: a direction needs two.
        FloatingPointError
            If a chain leaves the region where the log density is finite after warm-up.
        """
        refuse_single_parameter("MCLMC", density)
        tuning = (self.steps_per_draw, self.energy_variance, self.decoherence_length, self.step_size)
        sampler = LangevinSampler(LangevinSettings(self.num_warmup, self.num_draws, *tuning), self.num_groups)
        chains = ChainSettings(self.num_chains, self.num_warmup, self.num_draws, self.init)
        return sample_chains(self, sampler, chains, density, context)
