"""Every method that ``bnnzoo.inference`` exports keeps the promises of ``bnnzoo.testing.check_method``."""

import pytest

from bnnzoo.testing import check_method
from tests.helpers.methods import ACCURACY, AS_GOOD_AS_EXACT, METHODS, TARGETS, method_named


def test_the_methods_are_found():
    assert {"MAP", "MeanFieldVI", "Laplace", "HMC", "NUTS", "SVI"} <= METHODS.keys()
    assert METHODS.keys() >= ACCURACY.keys()


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # as short runs may
@pytest.mark.parametrize("name", METHODS)
def test_method_keeps_its_promises(name, device):
    accuracy = ACCURACY.get(name, AS_GOOD_AS_EXACT)
    check_method(method_named(name), accuracy=accuracy, device=device, target=TARGETS.get(name))
