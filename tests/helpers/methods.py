"""Every method that ``bnnzoo.inference`` exports, with budgets that suffice for three parameters."""

import dataclasses

from bnnzoo import inference
from bnnzoo.core.method import Method
from bnnzoo.testing import Target, dropout_network

__all__ = ["ACCURACY", "AS_GOOD_AS_EXACT", "METHODS", "TARGETS", "method_named"]

METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and hasattr(kind, "needs")
}

# A target of three parameters needs less than the defaults, which are made for networks.
LONGER_SWAG = inference.SWAG(4000, every=7, rank=400)
SHORT = {"num_warmup": 60, "num_draws": 60}
SHORTER = {
    "FlowVI": inference.FlowVI(inference.FullRankVI(num_steps=300), num_layers=2, num_hidden=4, num_steps=60),
    "FullRankVI": inference.FullRankVI(num_steps=1000),
    "LastLayerVI": inference.LastLayerVI(vi=inference.MeanFieldVI(num_steps=800)),
    "LowRankVI": inference.LowRankVI(num_steps=1000),
    "CyclicalSGMCMC": inference.CyclicalSGMCMC(num_chains=8, num_cycles=10, num_draws=100, optimise_steps=300),
    "HMC": inference.HMC(num_warmup=100, num_draws=100),
    "NUTS": inference.NUTS(num_warmup=100, num_draws=200),
    "MCLMC": inference.MCLMC(num_warmup=100, num_draws=200),
    "Pathfinder": inference.Pathfinder(),
    "PSGLD": inference.PSGLD(num_chains=8, num_warmup=100, num_draws=100, steps_per_draw=20, optimise_steps=300),
    "SGHMC": inference.SGHMC(num_chains=8, num_draws=60, optimise_steps=300),
    "SGLD": inference.SGLD(num_chains=8, num_warmup=100, num_draws=100, steps_per_draw=20, optimise_steps=300),
    "SVI": inference.SVI(num_steps=700),
    "StochasticMCLMC": inference.StochasticMCLMC(num_chains=8, num_draws=30, optimise_steps=300),
    "MixtureOf": inference.MixtureOf(inference.Laplace(), num_members=2, weights="evidence"),
    "MultiSWAG": inference.MultiSWAG(2, LONGER_SWAG),
    "SWAG": LONGER_SWAG,
    "SubsetVI": inference.SubsetVI(vi=inference.MeanFieldVI(num_steps=800)),
    "Tempered": inference.Tempered(inference.HMC(num_warmup=100, num_draws=100), num_temperatures=4),
}

# Error beyond Monte Carlo, in posterior sds for means and relative for variances. A method that is not listed must be as
# good as exact on a Gaussian posterior.

ACCURACY = {  # not exact: their bias at the default step size, see docs/methods/mcmc.md and sgmcmc.md
    "MCLMC": 0.05,
    "CyclicalSGMCMC": 0.15,
    "PSGLD": 0.1,
    "SGHMC": 0.05,
    "SGLD": 0.05,
    "StochasticMCLMC": 0.05,
    "DeepEnsemble": 0.02,  # trained for a number of steps, and not driven to the mode
    "MultiSWAG": 0.3,  # the width of its Gaussians is that of gradient noise
    "SWAG": 0.3,
    "ConcreteDropout": 0.05,  # relaxed masks learn a slightly higher rate, see docs/methods/dropout.md
    "MCDropout": 1e-3,
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
