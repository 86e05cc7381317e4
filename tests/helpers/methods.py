"""Every method that ``bnnzoo.inference`` exports, with budgets that suffice for three parameters."""

import dataclasses

from bnnzoo import inference
from bnnzoo.core.method import Method

__all__ = ["ACCURACY", "AS_GOOD_AS_EXACT", "METHODS", "SLOW", "method_named"]

METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and dataclasses.is_dataclass(kind)
}

# A target of three parameters needs less than the defaults, which are made for networks.
SHORT = {"num_warmup": 100, "num_draws": 100}

# Error beyond Monte Carlo, in posterior sds for means and relative for variances. A method that is not listed must be as
# good as exact on a Gaussian posterior.

ACCURACY = {"MCLMC": 0.05}  # not exact: its bias at the default step size, see docs/methods/mcmc.md
AS_GOOD_AS_EXACT = 1e-4

# Tens of seconds each, and close relatives of a method that runs by default.
SLOW = {"HMC", "MAMS", "ChEESHMC", "MCLMC", "SVI", "FullRankVI", "FlowVI", "LowRankVI", "LastLayerVI", "SubsetVI"}


def method_named(name: str) -> Method:
    """Return the method with its defaults, but no longer runs than the target needs."""
    kind = METHODS[name]
    own = {field.name for field in dataclasses.fields(kind)}
    return kind(**{setting: value for setting, value in SHORT.items() if setting in own})
