"""Warnings at the end of a fit, and their thresholds, which are those of the report."""

import math
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "INSIDE",
    "MAX_RHAT",
    "MAX_SATURATED",
    "MIN_ESS",
    "BiasedDrawsWarning",
    "ChainsApartWarning",
    "DegenerateWeightsWarning",
    "DivergenceWarning",
    "FewEffectiveDrawsWarning",
    "FewRoundTripsWarning",
    "FitWarning",
    "JointModeWarning",
    "NotConvergedWarning",
    "ParetoKWarning",
    "PrecisionWarning",
    "RejectedPointsWarning",
    "SeveralModesWarning",
    "StillImprovingWarning",
    "TooNarrowWarning",
    "TreeDepthWarning",
    "Trouble",
    "UnreadableLikelihoodWarning",
    "told",
]

INSIDE = (str(Path(__file__).parents[1]),)
"""Files whose lines no warning names: it names the line that called bnnzoo."""

MAX_RHAT = 1.01
"""R-hat above which chains disagree (Vehtari et al. 2021)."""

MIN_ESS = 400
"""Effective sample size below which R-hat and quantiles are themselves uncertain (Vehtari et al. 2021)."""

MAX_SATURATED = 0.05
"""Share of draws whose trajectories may end at the largest tree depth; beyond it the sampler is slow."""

MOST_DIGITS = 10


class FitWarning(UserWarning):
    """A fit ended with trouble. Its subclasses say which, and their messages what to do."""


class BiasedDrawsWarning(FitWarning):
    """Draws of a sampler without an acceptance step are not those of the posterior: its steps, or mini-batches, leave a bias."""


class DivergenceWarning(FitWarning):
    """Trajectories diverged: the draws avoid a part of the posterior in which the step size is too large."""


class ChainsApartWarning(FitWarning):
    """Chains disagree: R-hat of a parameter is above ``MAX_RHAT``."""


class FewEffectiveDrawsWarning(FitWarning):
    """The effective sample size of a parameter is below ``MIN_ESS``."""


class FewRoundTripsWarning(FitWarning):
    """States of a ladder of temperatures have seldom gone from prior to posterior: the weights of modes are uncertain."""


class TreeDepthWarning(FitWarning):
    """Many trajectories ended at the largest tree depth before they turned back."""


class StillImprovingWarning(FitWarning):
    """An optimisation ended while its objective was still improving."""


class NotConvergedWarning(FitWarning):
    """An optimisation ended before the mode, so the Gaussian is centred beside it."""


class JointModeWarning(FitWarning):
    """The mode of a hierarchy's scales and effects together is far from where the posterior has its mass."""


class ParetoKWarning(FitWarning):
    """An approximation is not the posterior: a mean is off by 0.3 standard deviations, or a standard deviation by a third."""


class PrecisionWarning(FitWarning):
    """Rounding in single precision moves the log density at the draws, or leaves it without a value."""


class RejectedPointsWarning(FitWarning):
    """The model could not be evaluated at many of the points that an optimisation tried."""


class SeveralModesWarning(FitWarning):
    """The posterior has modes that an approximation does not hold, or there may be a better one than those that were found."""


class DegenerateWeightsWarning(FitWarning):
    """One member of an ensemble has nearly all weight."""


class TooNarrowWarning(FitWarning):
    """Draws spread far less than the posterior does, whatever their centre."""


class UnreadableLikelihoodWarning(FitWarning):
    """The likelihood has no parameters that can be read, so its curvature is the exact Hessian."""


@dataclass(frozen=True)
class Trouble:
    """One kind of trouble and the sentence that says what to do about it."""

    kind: type[FitWarning]
    message: str


LARGEST = 1e4
"""Beyond which powers of ten say more than digits."""


def told(value: float, limit: float, digits: int = 3) -> str:
    """Return a number with as many digits as it takes to see on which side of a limit it lies.

    Examples
    --------
    >>> told(1.0104, 1.01), told(1.52, 1.01)
    ('1.0104', '1.520')
    """
    if value > LARGEST:
        return f"{value:.1e}" if math.isfinite(value) else "infinite"
    while digits < MOST_DIGITS and (float(f"{value:.{digits}f}") > limit) != (value > limit):
        digits += 1
    while digits < MOST_DIGITS and float(f"{value:.{digits}f}") == limit != value:
        digits += 1
    return f"{value:.{digits}f}"
