"""What a fit warns of when it ends, and the thresholds by which it does: those of the report are the same."""

__all__ = [
    "MAX_RHAT",
    "MAX_SATURATED",
    "MIN_ESS",
    "ChainsApartWarning",
    "DegenerateWeightsWarning",
    "DivergenceWarning",
    "FewEffectiveDrawsWarning",
    "FitWarning",
    "NotConvergedWarning",
    "ParetoKWarning",
    "StillImprovingWarning",
    "TooNarrowWarning",
    "TreeDepthWarning",
    "UnreadableLikelihoodWarning",
]

MAX_RHAT = 1.01
"""R-hat above which chains disagree (Vehtari et al. 2021)."""

MIN_ESS = 400
"""Effective sample size below which R-hat and quantiles are themselves uncertain (Vehtari et al. 2021)."""

MAX_SATURATED = 0.05
"""Share of draws whose trajectories may end at the largest tree depth; beyond it the sampler is slow."""


class FitWarning(UserWarning):
    """A fit ended with trouble. Its subclasses say which, and their messages what to do."""


class DivergenceWarning(FitWarning):
    """Trajectories diverged: the draws avoid a part of the posterior in which the step size is too large."""


class ChainsApartWarning(FitWarning):
    """Chains disagree: R-hat of a parameter is above ``MAX_RHAT``."""


class FewEffectiveDrawsWarning(FitWarning):
    """The effective sample size of a parameter is below ``MIN_ESS``."""


class TreeDepthWarning(FitWarning):
    """Many trajectories ended at the largest tree depth before they turned back."""


class StillImprovingWarning(FitWarning):
    """An optimisation ended while its objective was still improving."""


class NotConvergedWarning(FitWarning):
    """An optimisation ended before the mode, so the Gaussian is centred beside it."""


class ParetoKWarning(FitWarning):
    """The Pareto k of an approximation is above 0.7: it misses a part of the posterior."""


class DegenerateWeightsWarning(FitWarning):
    """One member of an ensemble has nearly all weight."""


class TooNarrowWarning(FitWarning):
    """Draws spread far less than the posterior does, whatever their centre."""


class UnreadableLikelihoodWarning(FitWarning):
    """The likelihood has no parameters that can be read, so its curvature is the exact Hessian."""
