"""Warning of an ensemble without a network whose members reached no mode, or whose spread is not the posterior's."""

import math
import warnings

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning, TooNarrowWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.reading.streamed import value_and_grad_over_rows
from bnnzoo.inference.optimise.pathfinder import gaussian_at

__all__ = ["warn_of_spread"]

FAR = 3.0
"""Standard deviations of the posterior from the mode, beyond those of a typical draw, at which a member is lost."""

MAX_LOG_RATIO, SIGNIFICANCE = math.log(1.33), 1e-3
"""Of the spread to the posterior's standard deviation, and the probability of as much by chance, for any parameter."""


def warn_of_spread(density: LogDensity, theta: Tensor) -> None:
    """Compare the members ``theta[C, P]`` of an ensemble with the Gaussian at the best of them, if no network is involved.

    A network's members are compared with nothing: they lie in different modes, and no Gaussian describes its posterior.

    Warns
    -----
    NotConvergedWarning
        If the gradient says that even the best member is far from a mode, or members are farther apart than draws.
    TooNarrowWarning
        If a parameter varies less over members than under the posterior, as it does where all are at one mode.
    """
    if not density.has_data or not bool(theta.isfinite().all()):
        return
    value, gradient = value_and_grad_over_rows(density, theta)
    best = int(value.argmax())
    frame = gaussian_at(density, theta[best])
    if frame is None:
        return
    away = float((frame.root.mT @ gradient[best]).norm())
    if away > FAR + math.sqrt(density.num_params):
        warnings.warn(
            f"The members are far from a mode: the best of them is about {away:.2g} posterior standard deviations away. Write a "
            f"larger num_steps or learning_rate, standardise the data, or start at modes, DeepEnsemble(init=MAP()).",
            NotConvergedWarning,
            stacklevel=2,
        )
    elif len(theta) > 1:
        _warn_of_width(density, theta, frame.root.square().sum(1).sqrt())


def _warn_of_width(density: LogDensity, theta: Tensor, sd: Tensor) -> None:
    free = len(theta) - 1
    spread = theta.std(0).double() / sd.double()
    below = torch.special.gammainc(torch.full_like(spread, free / 2), spread.square() * free / 2)  # of chi-squared
    chance = 2 * torch.minimum(below, 1 - below)
    worst = int(chance.argmin())
    is_sure = float(chance[worst]) < SIGNIFICANCE / len(sd)
    if is_sure and abs(math.log(max(float(spread[worst]), 1e-9))) > MAX_LOG_RATIO:
        name = next(site.name for site in density.sites if site.span.start <= worst < site.span.stop)
        warnings.warn(
            f"The members are no draws from the posterior: over members {name!r} varies by {float(spread[worst]):.2g} of its "
            f"posterior standard deviation. A model without a network has few modes, at which members meet, and anchored members "
            f"are draws where the model is linear and its noise is known. Use Laplace() or NUTS() for intervals.",
            TooNarrowWarning if float(spread[worst]) < 1 else NotConvergedWarning,
            stacklevel=2,
        )
