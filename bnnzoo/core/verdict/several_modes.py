"""Modes of a posterior that its approximation does not hold, of those that were found on the way to it."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import SeveralModesWarning, Trouble
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.surroundings import isolated

__all__ = ["MATTERS", "modes_not_held"]

MATTERS = 0.025
"""Share of the posterior that no central interval of 95% reaches."""

LEAST_HELD = 0.1
"""Of its share that an approximation gives a mode that it holds, however skewed the mode or poor the family."""

ALIKE = 0.02
"""Nats by which modes differ that are mirror images: what rounding leaves."""

NUM_DRAWS = 200


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
    lost = ~(held > (LEAST_HELD * share).log())  # NaN, too
    missing = float(share[lost].sum())
    if missing > MATTERS:
        place = int(torch.where(lost, share, 0.0).argmax())
        site, distance = _farthest(posterior, places[place], theta)
        found = "another mode" if int(lost.sum()) == 1 else f"{int(lost.sum())} other modes"
        yield Trouble(
            SeveralModesWarning,
            f"About {missing:.0%} of the posterior lies in {found} that the approximation does not hold, {distance:.0f} of its "
            f"standard deviations away in {site!r}. Use NUTS(), whose chains tell whether they move between modes, or "
            f"Tempered(NUTS()), which finds the weights of modes.{_of_mirrors(modes)}",
        )
    elif modes[0]["num_searches"] == 1:
        total = posterior.info.config["num_searches"]
        yield Trouble(
            SeveralModesWarning,
            f"Only one of {total} searches ended in the mode that the approximation is of, and others in modes that hold less: "
            f"there may be a better one. Compare with NUTS() or Tempered(NUTS()), start elsewhere by seed= or init=, or order "
            f"components that may exchange their roles.",
        )


def _farthest(posterior: Posterior, place: Tensor, theta: Tensor) -> tuple[str, float]:
    """Return the site in which ``place[P]`` is farthest from draws ``theta[S, P]``, in their standard deviations."""
    away = ((place - theta.mean(0)) / theta.std(0)).abs().nan_to_num(0.0)
    farthest = int(away.argmax())
    site = next(each.name for each in posterior.density.sites if each.span.start <= farthest < each.span.stop)
    return site, float(away[farthest])


def _of_mirrors(modes: Sequence[Mapping[str, Any]]) -> str:
    """Say what to do about modes that are as alike as mirror images."""
    first, second = ((mode["log_evidence"], mode["log_volume"]) for mode in modes[:2])
    if not all(math.isclose(a, b, rel_tol=0.0, abs_tol=ALIKE) for a, b in zip(first, second, strict=True)):
        return ""
    return (
        " The two largest modes are alike: they may differ in labels or signs only (label switching), and predictions then "
        "agree. Order the components to tell them apart, as by a prior on constraints.ordered_vector."
    )
