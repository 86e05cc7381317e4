"""Draws of samplers judged by a network's functions, and those without an acceptance step by short chains of one that has it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

from bnnzoo.core.fit_warnings import (
    MAX_RHAT,
    BiasedDrawsWarning,
    ChainsApartWarning,
    FewEffectiveDrawsWarning,
    Trouble,
    told,
)
from bnnzoo.core.posterior.mixing import mixing
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.verdict.accuracy import none_if_it_fails, trouble_by_chains
from bnnzoo.core.verdict.importance import NUM_DRAWS, alike
from bnnzoo.core.verdict.quantities import quantities_of
from bnnzoo.core.verdict.short_chains import moves

__all__ = ["MIN_EFFECTIVE", "SLIGHT_RHAT", "of_functions"]

MIN_EFFECTIVE = 100
"""Draws of a function, fewer of which say little of its standard deviation."""

SLIGHT_RHAT = 1.05
"""R-hat up to which more draws are what it takes; the largest of many functions passes 1.01 by chance."""


def of_functions(posterior: Draws) -> Iterator[Trouble]:
    """Say whether chains agree on a network's functions, and whether the draws of an unadjusted sampler are the posterior's.

    Weights may be relabelled, and chains that agree on the log density need not agree on predictions.

    Parameters
    ----------
    posterior : Draws
    """
    found = _judged(posterior) if posterior.density.networks or posterior.info.unadjusted else None
    if found is None:
        return
    config, (chains, draws) = posterior.info.config, posterior.theta.shape[:2]
    if found.rhat > SLIGHT_RHAT:
        yield Trouble(
            ChainsApartWarning,
            f"The chains disagree: R-hat of {found.worst} is {told(found.rhat, SLIGHT_RHAT)}, and should be at most {MAX_RHAT}. "
            f"Run longer (num_warmup, num_draws: now {config.get('num_warmup')} and {draws}).",
        )
    elif found.ess < MIN_EFFECTIVE:
        yield Trouble(
            FewEffectiveDrawsWarning,
            f"The {chains * draws} draws of {found.least} are worth {told(found.ess, MIN_EFFECTIVE, 0)} independent ones, and "
            f"intervals need {MIN_EFFECTIVE} at least. Write a larger num_draws (now {draws} for each of {chains} chains).",
        )
    elif found.trouble:
        setting = next(
            (name for name in ("variance_bias", "energy_variance") if config.get(name) is not None), "step_size"
        )
        now = f" (now {config[setting]:g})" if isinstance(config.get(setting), float) else ""
        yield Trouble(
            BiasedDrawsWarning,
            f"The draws are not those of the posterior: {found.trouble}. No acceptance step corrects the bias of steps and "
            f"mini-batches: write a smaller {setting}{now} or a larger batch_size, or use MAMS() or NUTS().",
        )


class Chains(NamedTuple):
    """What was found of the draws of a sampler.

    Attributes
    ----------
    rhat, ess : float
        The largest R-hat and the smallest effective sample size.
    worst, least : str
        Of which quantities.
    trouble : str
        The clause that says what is off of draws of a sampler without an acceptance step; empty if nothing is found.
    """

    rhat: float
    worst: str
    ess: float
    least: str
    trouble: str = ""


@none_if_it_fails
def _judged(posterior: Draws) -> Chains | None:
    """Judge draws of a network by its functions, and those of an unadjusted sampler by short chains, too; None if they cannot be.

    Parameters
    ----------
    posterior : Draws
    """
    quantities = quantities_of(posterior)
    if quantities is None:
        return None
    theta = posterior.theta[:, :: -(-posterior.theta.shape[1] * len(posterior.theta) // NUM_DRAWS)]
    drawn = alike(theta.flatten(0, 1))
    values = quantities.own(drawn.theta)
    rhat, ess = mixing(values.unflatten(0, theta.shape[:2]))
    rhat, ess = rhat.nan_to_num(0.0, posinf=math.inf), ess.nan_to_num(math.inf)
    worst, least = int(rhat.argmax()), int(ess.argmin())
    found = Chains(float(rhat[worst]), quantities.names[worst], float(ess[least]), quantities.names[least])
    info, moving = posterior.info, bool((drawn.theta.std(0) > 0).all())
    if not info.unadjusted or info.is_tempered or found.ess < MIN_EFFECTIVE or not moving:
        return found
    trouble = trouble_by_chains(quantities, values, moves(posterior.density, drawn), ess)
    return found._replace(trouble=trouble or "")
