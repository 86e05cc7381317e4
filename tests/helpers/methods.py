"""Every method that ``bnnzoo.inference`` exports, with budgets that suffice for three parameters."""

import dataclasses

from bnnzoo import inference
from bnnzoo.core.method import Method

__all__ = ["ACCURACY", "AS_GOOD_AS_EXACT", "METHODS", "method_named"]

METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and hasattr(kind, "needs")
}

# A target of three parameters needs less than the defaults, which are made for networks.
TUNED_SWAG = inference.SWAG(
    8000, learning_rate=0.002, batch_size=1, every=7, rank=400
)  # about as wide as this posterior
SHORT = {"num_warmup": 100, "num_draws": 100}
SHORTER = {
    "FlowVI": inference.FlowVI(inference.FullRankVI(num_steps=500), num_layers=2, num_hidden=4, num_steps=200),
    "FullRankVI": inference.FullRankVI(num_steps=1000),
    "LastLayerVI": inference.LastLayerVI(vi=inference.MeanFieldVI(num_steps=800)),
    "LowRankVI": inference.LowRankVI(num_steps=1000),
    "MixtureOf": inference.MixtureOf(inference.Laplace(), num_members=2, weights="evidence"),
    "MultiSWAG": inference.MultiSWAG(2, TUNED_SWAG),
    "SVI": inference.SVI(num_steps=1000),
    "SWAG": TUNED_SWAG,
    "SubsetVI": inference.SubsetVI(vi=inference.MeanFieldVI(num_steps=800)),
}

# Error beyond Monte Carlo, in posterior sds for means and relative for variances. A method that is not listed must be as
# good as exact on a Gaussian posterior.

ACCURACY = {
    "DeepEnsemble": 0.02,  # trained for a number of steps, and not driven to the mode
    "MultiSWAG": 0.5,  # the width of its Gaussians is that of gradient noise
    "SWAG": 0.5,
    "MCLMC": 0.05,  # not exact: its bias at the default step size, see docs/methods/mcmc.md
}
AS_GOOD_AS_EXACT = 1e-4


def method_named(name: str) -> Method:
    """Return the method with its defaults, but no longer runs than the target needs."""
    if name in SHORTER:
        return SHORTER[name]
    kind = METHODS[name]
    own = {field.name for field in dataclasses.fields(kind)}
    return kind(**{setting: value for setting, value in SHORT.items() if setting in own})
