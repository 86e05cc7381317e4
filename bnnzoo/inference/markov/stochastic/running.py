"""From the settings of a stochastic-gradient method to its draws."""

from functools import partial

from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext
from bnnzoo.core.posterior import Draws
from bnnzoo.inference.markov.sampling import sample_chains
from bnnzoo.inference.markov.settings import without_init
from bnnzoo.inference.markov.stochastic.dynamics import StochasticDynamics
from bnnzoo.inference.markov.stochastic.loop import StochasticLoop, StochasticSampler
from bnnzoo.inference.markov.stochastic.settings import Plan, StochasticSettings, refuse_inconsistent
from bnnzoo.inference.markov.stochastic.starts import optimised_starts

__all__ = ["sample_stochastic"]


def sample_stochastic(
    settings: StochasticSettings,
    dynamics: StochasticDynamics,
    plan: Plan,
    density: LogDensity,
    context: FitContext,
    loop: type[StochasticLoop] = StochasticLoop,
) -> Draws:
    """Start chains at optimised members, run them along stochastic gradients, and return their draws ``[C, S, P]``.

    Raises
    ------
    ValueError
        If settings contradict each other or the data, or mini-batches are asked for of a model without rows.
    FloatingPointError
        If a chain leaves the region where the log density is finite.
    """
    refuse_inconsistent(settings, density)
    sampler = StochasticSampler(dynamics, plan, without_init(settings), loop)
    starts = partial(optimised_starts, settings, density, context)
    return sample_chains(settings, sampler, density, context, starts=starts)
