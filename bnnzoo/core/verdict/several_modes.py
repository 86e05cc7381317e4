"""Modes of a posterior: those that were found on the way to an approximation that does not hold them, and those not reached."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch

from bnnzoo.core.fit_warnings import JointModeWarning, NotConvergedWarning, SeveralModesWarning, Trouble, told
from bnnzoo.core.parameters.hierarchy import hyperparameter_sites
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import isolated

__all__ = ["MATTERS", "MAX_DECREMENT", "beside_modes", "modes_not_held"]

MATTERS = 0.025
"""Share of the posterior that no central interval of 95% reaches."""

LEAST_HELD = 0.1
"""Of its share that an approximation gives a mode that it holds, however skewed the mode or poor the family."""

ALIKE = 0.02
"""Nats by which modes differ that are mirror images: what rounding leaves."""

NUM_DRAWS = 200

MAX_DECREMENT = 0.1
"""Posterior standard deviations from where a search ended to the mode."""


def beside_modes(posterior: Posterior) -> Iterator[Trouble]:
    """Say which searches ended beside a mode, by the last step that Newton's method would take."""
    left = posterior.info.sample_stats.get("newton_decrement")
    worst = 0.0 if left is None else float(left.nan_to_num(0.0, posinf=math.inf).max())
    if not worst > MAX_DECREMENT:
        return
    above = hyperparameter_sites(posterior.density)
    if math.isinf(worst) and above:
        yield Trouble(
            JointModeWarning,
            f"The search ended where the density has no maximum: the prior of other sites depends on {', '.join(above)}, and the "
            f"joint density of such a model rises without bound towards a prior scale of zero. The estimate is where the "
            f"search stopped: use HierarchicalLaplace(), which integrates the other sites out, or NUTS().",
        )
        return
    where = (
        "a point that is no maximum: the density curves upwards there"
        if math.isinf(worst)
        else f"a point {told(worst, MAX_DECREMENT, 2)} posterior standard deviations from the mode"
    )
    yield Trouble(
        NotConvergedWarning,
        f"The mode was not reached: the search ended at {where}. Write a larger num_steps (now "
        f"{posterior.info.config.get('num_steps')}) or polish_steps (now {posterior.info.config.get('polish_steps')}), "
        f"standardise the data, or use dtype=torch.float64.",
    )


def modes_not_held(posterior: Posterior) -> Iterator[Trouble]:
    """Say which share of the posterior lies in modes that an approximation does not hold, or that its own is seldom reached.

    Shares are those of the Gaussians at the modes. An approximation holds a mode if its density times the volume of the Gaussian
    there is no small part of the mode's share.
    """
    modes: Sequence[Mapping[str, Any]] = posterior.info.config.get("modes", ())
    if not modes:
        return
    with torch.no_grad(), isolated(0, posterior.density.device):
        theta = posterior.draws(NUM_DRAWS).flatten(0, 1)
        places = torch.tensor([mode["theta"] for mode in modes]).to(theta)
        log_q = posterior.log_prob(places)
    if log_q is None:
        return
    share = torch.tensor([mode["share"] for mode in modes], dtype=torch.float64)
    held = log_q.cpu().double() + torch.tensor([mode["log_volume"] for mode in modes], dtype=torch.float64)
    missed = ~(held > (LEAST_HELD * share).log())  # NaN, too
    missing = float(share[missed].sum())
    if missing > MATTERS:
        place = int(torch.where(missed, share, 0.0).argmax())
        # the site in which the mode is farthest from the draws, in their standard deviations
        away = ((places[place] - theta.mean(0)) / theta.std(0)).abs().nan_to_num(0.0)
        farthest = int(away.argmax())
        site = next(each.name for each in posterior.density.sites if each.span.start <= farthest < each.span.stop)
        # what to do about modes that are as alike as mirror images
        first, second = ((mode["log_evidence"], mode["log_volume"]) for mode in modes[:2])
        are_mirrors = all(math.isclose(a, b, rel_tol=0.0, abs_tol=ALIKE) for a, b in zip(first, second, strict=True))
        hint = (
            " The two largest modes are alike: they may differ in labels or signs only (label switching), and predictions then "
            "agree. Order the components to tell them apart, as by a prior on constraints.ordered_vector."
        )
        found = "another mode" if int(missed.sum()) == 1 else f"{int(missed.sum())} other modes"
        yield Trouble(
            SeveralModesWarning,
            f"About {missing:.0%} of the posterior lies in {found} that the approximation does not hold, "
            f"{float(away[farthest]):.0f} of its standard deviations away in {site!r}. Use NUTS(), whose chains tell whether "
            f"they move between modes, or Tempered(NUTS()), which finds the weights of modes.{hint if are_mirrors else ''}",
        )
    elif modes[0]["num_searches"] == 1:
        total = posterior.info.config["num_searches"]
        yield Trouble(
            SeveralModesWarning,
            f"Only one of {total} searches ended in the mode that the approximation is of, and others in modes that hold less: "
            f"there may be a better one. Compare with NUTS() or Tempered(NUTS()), start elsewhere by seed= or init=, or order "
            f"components that may exchange their roles.",
        )
