"""Whatever is passed to a public function of trees, scores or results, it answers in a sentence of its own."""

import inspect
from types import ModuleType
from typing import Any

import pytest

import bnnzoo as bz
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_posterior

PACKAGES = (bz.diagnostics, bz.uncertainty, bz.calibration, bz.acquisition, bz.ood, bz.plots, bz.validation)
RAW = (
    "not iterable",
    "object has no attribute",
    "not subscriptable",
    "unsupported operand",
    "not supported between",
    "indices must be",
    "not callable",
    "must be str",
    "has no len",
)
"""What Python says of objects that are used as something else."""

NOT_OF_OBJECTS = {"conformal_quantile", "line_inputs"}
"""Functions of plain numbers or arrays."""


def functions(package: ModuleType) -> list[Any]:
    found = [getattr(package, name) for name in package.__all__]
    return [each for each in found if inspect.isfunction(each) and each.__name__ not in NOT_OF_OBJECTS]


def required(function: Any) -> int:
    """Return how many arguments a function cannot do without."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return max(1, sum(each.default is each.empty and each.kind in kinds for each in found))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(each, id=f"{package.__name__}.{each.__name__}")
        for package in PACKAGES
        for each in functions(package)
    ],
)
def test_objects_of_the_wrong_kind_get_a_sentence(function: Any) -> None:
    posterior = exact_posterior(linear_gaussian())
    for wrong in (posterior, "nuts", None, {"nuts": posterior}):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # of any type, as long as it is a sentence of ours
            function(*[wrong] * required(function))
        assert not any(words in str(caught.value) for words in RAW), caught.value
