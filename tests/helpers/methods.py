"""Every method that ``bnnzoo.inference`` exports, with budgets that suffice for three parameters."""

import dataclasses

from bnnzoo import inference
from bnnzoo.core.method import Method
from bnnzoo.testing import Target, dropout_network

__all__ = ["ACCURACY", "AS_GOOD_AS_EXACT", "METHODS", "TARGETS", "method_named"]

METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and dataclasses.is_dataclass(kind)
}

# A target of three parameters needs less than the defaults, which are made for networks.
SHORT = {"num_warmup": 100, "num_draws": 100}
SHORTER = {
    "FlowVI": inference.FlowVI(inference.FullRankVI(num_steps=500), num_layers=2, num_hidden=4, num_steps=200),
    "FullRankVI": inference.FullRankVI(num_steps=1000),
    "LastLayerVI": inference.LastLayerVI(vi=inference.MeanFieldVI(num_steps=800)),
    "LowRankVI": inference.LowRankVI(num_steps=1000),
    "SVI": inference.SVI(num_steps=1000),
    "SubsetVI": inference.SubsetVI(vi=inference.MeanFieldVI(num_steps=800)),
}

# Error beyond Monte Carlo, in posterior sds for means and relative for variances. A method that is not listed must be as
# good as exact on a Gaussian posterior.

ACCURACY = {
    "ConcreteDropout": 0.05,  # relaxed masks learn a slightly higher rate, see docs/methods/dropout.md
    "MCDropout": 1e-3,
    "MCLMC": 0.05,  # not exact: its bias at the default step size, see docs/methods/mcmc.md
}
AS_GOOD_AS_EXACT = 1e-4

# What the optimum of a method is where it is not the posterior.
TARGETS: dict[str, Target] = {
    "ConcreteDropout": dropout_network(rate=None, noise=5.0),
    "MCDropout": dropout_network(rate=0.2),
}


def method_named(name: str) -> Method:
    """Return the method with its defaults, but no longer runs than the target needs."""
    if name in SHORTER:
        return SHORTER[name]
    kind = METHODS[name]
    own = {field.name for field in dataclasses.fields(kind)}
    return kind(**{setting: value for setting, value in SHORT.items() if setting in own})
