"""Every method that ``bnnzoo.inference`` exports keeps the promises of ``bnnzoo.testing.check_method``."""

import dataclasses

import pytest

from bnnzoo import inference
from bnnzoo.core.types import Method
from bnnzoo.testing import check_method

METHODS = {
    name: kind
    for name in inference.__all__
    if isinstance(kind := getattr(inference, name), type) and dataclasses.is_dataclass(kind)
}

# A target of three parameters needs less than the defaults, which are made for networks.
SHORT = {"num_warmup": 200, "num_draws": 250}

# Error beyond Monte Carlo, in posterior sds for means and relative for variances; 0 where a method is exact. Methods
# that are not listed must be exact on a Gaussian posterior.
ACCURACY = {"MeanFieldVI": 0.03, "SVI": 0.1, "Laplace": 1e-4}


def method_named(name: str) -> Method:
    """The method with its defaults, but no longer runs than the target needs."""
    kind = METHODS[name]
    own = {field.name for field in dataclasses.fields(kind)}
    return kind(**{setting: value for setting, value in SHORT.items() if setting in own})


def test_the_methods_are_found():
    assert {"MAP", "MeanFieldVI", "Laplace", "HMC", "NUTS", "SVI"} <= METHODS.keys()


@pytest.mark.parametrize("name", METHODS)
def test_method_keeps_its_promises(name):
    check_method(method_named(name), accuracy=ACCURACY.get(name, 0.0))
