"""Every method that ``bnnzoo.inference`` exports keeps the promises of ``bnnzoo.testing.check_method``."""

import dataclasses

import pytest

from bnnzoo import inference
from bnnzoo.core.method import Method
from bnnzoo.testing import check_method

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


def test_the_methods_are_found():
    assert {"MAP", "MeanFieldVI", "Laplace", "HMC", "NUTS", "SVI"} <= METHODS.keys()
    assert METHODS.keys() >= SLOW | ACCURACY.keys()


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in METHODS])
def test_method_keeps_its_promises(name, device):
    check_method(method_named(name), accuracy=ACCURACY.get(name, AS_GOOD_AS_EXACT), device=device)
