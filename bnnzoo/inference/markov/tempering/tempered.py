"""Non-reversible parallel tempering between prior and posterior (Syed et al. 2022)."""

import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor

from bnnzoo.core.method import Declared, FitContext, Need, starting_at
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.mixing import mixing
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.settings import Range
from bnnzoo.inference.config import config_of
from bnnzoo.inference.markov.chain_settings import without_init
from bnnzoo.inference.markov.hamiltonian.hmc import HMC
from bnnzoo.inference.markov.hamiltonian.nuts import NUTS
from bnnzoo.inference.markov.sampling import sample_chains
from bnnzoo.inference.markov.tempering.ladder import LOG_LIKELIHOOD, ROUND_TRIPS, LadderSampler
from bnnzoo.inference.markov.tempering.path import refuse_improper

__all__ = ["Tempered", "evidence_along"]

MAX_STEPS, TOLERANCE = 1000, 1e-12
"""Of the fixed point of a ratio of normalising constants."""


@dataclass(frozen=True)
class Tempered(Declared):
    r"""Parallel tempering: chains between prior and posterior that exchange states, for posteriors with several modes.

    A ladder has K chains, whose targets lead from the prior to the posterior,

    .. math:: p_k(\theta) \propto p(\theta) \, p(y \mid \theta)^{\beta_k}, \qquad 0 = \beta_1 < \dots < \beta_K = 1.

    Draws of the prior are independent; every other temperature has a chain of ``sampler``. After each draw neighbours exchange
    states with the probability of Metropolis, even and odd pairs in turn. A mode that a chain at the posterior would never
    find, or never leave, is reached through the prior. In warm-up, in rounds that double in length, temperatures are moved to
    where all pairs reject equally often. Draws are those at :math:`\beta = 1`: exact, and a ladder is a chain of the result.

    Parameters
    ----------
    sampler : NUTS or HMC
        What moves the chains at each temperature. Its ``num_chains`` is the number of ladders, and the other settings are those
        of each chain.
    num_temperatures : int
        K, prior and posterior included. A pair of neighbours should reject about half of its exchanges: twice the
        communication barrier in ``posterior.info.config["tempering"]``, and one.

    Notes
    -----
    ``posterior.info.config["tempering"]`` holds ``inverse_temperatures`` and ``rejection_rates`` of each ladder;
    ``communication_barrier``, the sum of rejection rates, which is nearly the same for any large number of temperatures;
    ``round_trips``, how often a state went from the prior to the posterior and back, over all ladders, and ``round_trip_rate``,
    for each iteration of a ladder; ``log_evidence`` and its standard error ``log_evidence_se``, which
    :func:`bnnzoo.validation.log_evidence` returns.

    The log evidence is the sum of log ratios of normalising constants of neighbours, each by Bennett's acceptance ratio, the
    bridge between draws at both temperatures with the least variance: unlike thermodynamic integration it has no error of
    quadrature, and unlike one-sided stepping stones it does not depend on rare draws of the wider density.

    References
    ----------
    Syed, Bouchard-Côté, Deligiannidis and Doucet (2022), Non-reversible parallel tempering: a scalable highly parallel MCMC
    scheme, JRSS B 84. Bennett (1976), Efficient estimation of free energy differences from Monte Carlo data, Journal of
    Computational Physics 22.

    Examples
    --------
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> def model(y):
    ...     z = pyro.sample("z", dist.Normal(0.0, 5.0))
    ...     pyro.sample("y", dist.Normal(z.abs(), 0.2), obs=y)
    >>> method = bz.Tempered(bz.NUTS(num_chains=2, num_warmup=100, num_draws=100), num_temperatures=5)
    >>> posterior = bz.fit(model, method, torch.tensor(3.0))
    >>> bool((posterior.draws() > 0).any()), bool((posterior.draws() < 0).any())
    (True, True)
    """

    sampler: NUTS | HMC = field(default_factory=NUTS)
    num_temperatures: Annotated[int, Range(2)] = 10

    needs: ClassVar[frozenset[Need]] = frozenset()
    stages: ClassVar[tuple[str, ...]] = ("sampler",)
    resumable: ClassVar[bool] = True

    def in_native_code(self, density: LogDensity) -> bool:
        """Tell whether chains move one by one in native code, if the model can be compiled."""
        return self.sampler.in_native_code(density)

    def starting_at(self, theta: Tensor, *, keep: bool) -> "Tempered":
        """Return the method with the start ``theta[P]`` for each chain."""
        started: Any = starting_at(self.sampler, theta, keep=keep)
        return replace(self, sampler=started)

    def run(self, density: LogDensity, context: FitContext) -> Draws:
        """Draw from the posterior; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a prior is improper.
        """
        refuse_improper(density)
        settings = without_init(self.sampler)
        sampler = LadderSampler(self.sampler.kernel(), settings, self.num_temperatures, context.engine)
        found = sample_chains(self.sampler, sampler, density, context, method=self)
        stats = dict(found.info.sample_stats)
        rest = torch.stack([stats.pop(LOG_LIKELIHOOD.format(level)) for level in range(self.num_temperatures)], -1)
        trips = int(stats.pop(ROUND_TRIPS)[:, -1].sum())
        # what a run says of its ladders, from inverse temperatures [L, K] and log likelihoods [L, S, K]
        temperatures = found.info.tuning["inverse_temperature"].cpu()
        log_ratio = temperatures.diff()[:, None] * -rest.diff()
        rejection = 1 - log_ratio.exp().clamp(max=1.0).nan_to_num(0.0).mean(1)
        value, error = evidence_along(temperatures, rest)
        said = {
            "inverse_temperatures": temperatures.tolist(),
            "rejection_rates": rejection.tolist(),
            "communication_barrier": float(rejection.sum(1).mean()),
            "round_trips": trips,
            "round_trip_rate": trips / rest[..., 0].numel(),
            "log_evidence": value,
            "log_evidence_se": error,
        }
        config = {**config_of(self.sampler), "tempering": said}
        return replace(found, info=replace(found.info, config=config, sample_stats=stats))


def evidence_along(temperatures: Tensor, rest: Tensor) -> tuple[float, float]:
    r"""Return the log evidence and its standard error, from draws at all temperatures of each ladder.

    With :math:`x = (\beta_{k+1} - \beta_k) \log p(y \mid \theta)`, the log ratio r of neighbours' constants solves

    .. math:: E_k[\sigma(x - r)] = E_{k+1}[\sigma(r - x)].

    Draws of neighbours depend on one another, since they exchange states. The error is therefore that of the sum over all
    temperatures at each iteration of what both sides contribute to r.

    Parameters
    ----------
    temperatures : Tensor [L, K]
    rest : Tensor [L, S, K]
        Log likelihoods.
    """
    width = temperatures.double().diff()[:, None]
    below, above = width * rest[..., :-1].double(), width * rest[..., 1:].double()
    ratio = above.median(1, keepdim=True).values
    for _ in range(MAX_STEPS):
        ours, theirs = torch.sigmoid(below - ratio), torch.sigmoid(ratio - above)
        change = ours.mean(1, keepdim=True).log() - theirs.mean(1, keepdim=True).log()
        ratio = ratio + change
        if not bool((change.abs() > TOLERANCE).any()):
            break
    by_ladder = ratio.sum(-1)
    shares = ours / ours.mean(1, keepdim=True) - theirs / theirs.mean(1, keepdim=True)
    contributions = shares.sum(-1) + by_ladder - by_ladder.mean()
    effective = float(mixing(contributions[..., None]).ess.nan_to_num(1.0).clamp(max=contributions.numel()))
    return float(by_ladder.mean()), math.sqrt(float(contributions.var()) / max(effective, 1.0))
