"""Draws of samplers judged by a network's functions, and those without an acceptance step by short chains of one that has it."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch

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
from bnnzoo.core.verdict.accuracy import by_short_chains, can_be_compared, none_if_it_fails
from bnnzoo.core.verdict.importance import NUM_DRAWS, Shift, WeightedDraws
from bnnzoo.core.verdict.quantities import quantities_of
from bnnzoo.core.verdict.short_chains import FEW_CHAINS, NUM_CHAINS, Moved, moves, shift_by_chains

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
    density, every = posterior.density, -(-posterior.theta.shape[1] * len(posterior.theta) // NUM_DRAWS)
    can_be = density.has_data and (bool(density.networks) or can_be_compared(density))
    quantities = quantities_of(posterior) if can_be else None
    if quantities is None:
        return None
    theta = posterior.theta[:, ::every]
    flat = theta.flatten(0, 1)
    values = quantities.own(flat)
    rhat, ess = mixing(values.unflatten(0, theta.shape[:2]))
    rhat, ess = rhat.nan_to_num(0.0, posinf=math.inf), ess.nan_to_num(math.inf)
    worst, least = int(rhat.argmax()), int(ess.argmin())
    found = Chains(float(rhat[worst]), quantities.names[worst], float(ess[least]), quantities.names[least])
    is_tempered = posterior.info.config.get("temperature", 1.0) != 1.0
    if not posterior.info.unadjusted or is_tempered or found.ess < MIN_EFFECTIVE or not bool((flat.std(0) > 0).all()):
        return found

    def judged(moved: Moved) -> tuple[Shift, Shift]:
        shift = shift_by_chains(quantities, values, moved)
        errors = (torch.hypot(shift.mean_error, ess.rsqrt()), torch.hypot(shift.log_sd_error, (2 * ess).rsqrt()))
        shift = Shift(shift.mean, errors[0], shift.log_sd, errors[1])
        return shift, shift

    drawn = WeightedDraws(flat, flat.new_zeros(len(flat), dtype=torch.float64, device="cpu"))
    chains = moves(density, drawn, FEW_CHAINS if density.networks else NUM_CHAINS)
    return found._replace(trouble=by_short_chains(quantities, chains, judged)[0] or "")
