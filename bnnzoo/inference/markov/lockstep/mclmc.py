"""Microcanonical Langevin Monte Carlo, unadjusted (Robnik, De Luca, Silverstein and Seljak 2023)."""

from dataclasses import dataclass
from typing import ClassVar

from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference.markov.chain_settings import refuse_single_parameter, without_init
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinSampler, LangevinSettings
from bnnzoo.inference.markov.lockstep.pilot import pilot
from bnnzoo.inference.markov.sampling import sample_chains

__all__ = ["MCLMC"]


@dataclass(frozen=True, kw_only=True)
class MCLMC(LangevinSettings):
    """Microcanonical Langevin Monte Carlo: the fewest gradients per effective draw, and a small asymptotic bias.

    No step is rejected for its energy error: the step size is tuned so that the energy changes little, which bounds the bias. A
    chain that comes to a point at which the log density cannot be computed returns to its last draw, which is then marked
    ``diverging``. Use :class:`bnnzoo.MAMS` where a bias of a few percent of a posterior sd matters. Step size, mass matrix and
    decoherence length are tuned during warm-up on all chains of a group.

    Parameters
    ----------
    num_warmup : int
        Draws of each chain during adaptation, which are not kept and take 32 steps each.
    steps_per_draw : int, optional
        Steps between the draws that are kept. Default: about one decoherence length, and 1,000 at most.
    energy_variance : float
        Mean squared energy change per step and parameter to which the step size is tuned: smaller values are slower and less
        biased.
    decoherence_length : float, optional
        Distance over which the direction decoheres, in units of the posterior's standard deviation. Default: estimated from the
        autocorrelation time.
    step_size : float, optional
        A fixed step size. Default: tuned to ``energy_variance``.

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

    unadjusted: ClassVar[bool] = True

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior, up to a small bias; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If the model has a single parameter: a direction needs two.
        """
        refuse_single_parameter("MCLMC", density)
        theta, root = pilot(self, density, context)
        sampler = LangevinSampler(without_init(self), root, context.engine)
        return sample_chains(self, sampler, density, context, starts=lambda: theta)
