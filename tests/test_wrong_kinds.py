"""Whatever is passed to a public function of trees, scores or results, it answers in a sentence of its own."""

import inspect
from types import ModuleType
from typing import Any

import matplotlib.pyplot as plt
import pytest
import xarray as xr

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
    "unhashable",
    "out of bounds for axis",
)
"""What Python says of objects that are used as something else."""

NOT_OF_OBJECTS = {"conformal_quantile", "line_inputs"}
"""Functions of plain numbers or arrays."""


OF_POSTERIORS = {"log_evidence", "moment_match"}
"""Functions to which a posterior is right."""


def functions(package: ModuleType) -> list[Any]:
    found = [getattr(package, name) for name in package.__all__]
    return [each for each in found if inspect.isfunction(each) and each.__name__ not in NOT_OF_OBJECTS]


def required(function: Any) -> int:
    """Return how many arguments a function cannot do without."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    found = inspect.signature(function).parameters.values()
    return max(1, sum(each.default is each.empty and each.kind in kinds for each in found))


FUNCTIONS = [
    pytest.param(each, id=f"{package.__name__}.{each.__name__}") for package in PACKAGES for each in functions(package)
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_objects_of_the_wrong_kind_get_a_sentence(function: Any) -> None:
    posterior = exact_posterior(linear_gaussian())
    given = ("nuts", None, {"nuts": posterior})
    for wrong in given if function.__name__ in OF_POSTERIORS else (posterior, *given):
        with pytest.raises(Exception) as caught:  # noqa: PT011  # of any type, as long as it is a sentence of ours
            function(*[wrong] * required(function))
        assert not any(words in str(caught.value) for words in RAW), caught.value


@pytest.fixture(scope="module")
def tree() -> xr.DataTree:
    target = linear_gaussian()
    return bz.posterior_predictive(exact_posterior(target), *target.data, num_draws=30)


@pytest.mark.parametrize("function", FUNCTIONS)
@pytest.mark.parametrize("part", ["group", "moment", "empty", "trees"])
def test_parts_of_trees_are_taken_or_get_a_sentence(function: Any, part: str, tree: xr.DataTree) -> None:
    group = tree["conditional"].to_dataset()
    wrong = {"group": group, "moment": group["mean"], "empty": xr.DataTree(), "trees": {"nuts": tree, "vi": tree}}[part]
    try:
        function(*[wrong] * required(function))
    except Exception as error:
        assert not any(words in str(error) for words in RAW), error  # noqa: PT017  # many take parts
    finally:
        plt.close("all")


SCORES = xr.DataArray([0.1, 0.3], dims="obs_id")


NO_TREE_OF_ITS_OWN = "the first argument is a part of one, of type"
SAID = {
    "loo": (lambda tree: bz.diagnostics.loo(tree["conditional"].to_dataset()), f"{NO_TREE_OF_ITS_OWN} Dataset"),
    "nll": (lambda tree: bz.calibration.nll(tree["conditional"]["mean"]), f"{NO_TREE_OF_ITS_OWN} DataArray"),
    "monitor": (lambda tree: bz.validation.monitor(tree["conditional"].to_dataset(), tree), "reference is a part of"),
    "compare": (lambda tree: bz.diagnostics.compare_posteriors({"a": tree}, tree), "reference is of type DataTree"),
    "no score": (lambda _: bz.plots.plot_acquisition({}), "scores is empty: pass at least one score"),
    "fewer scores": (
        lambda _: bz.plots.plot_acquisition({"BALD": SCORES, "EIG": SCORES[:1]}),
        "'EIG' has scores of shape .1,., but there are 2 rows: give one for each",
    ),
    "scores of draws": (lambda tree: bz.plots.plot_acquisition(tree["conditional"]["mean"]), "give one for each"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_the_sentences_say(name: str, tree: xr.DataTree) -> None:
    call, sentence = SAID[name]
    with pytest.raises((TypeError, ValueError), match=sentence):
        call(tree)
