"""Models that were not written for the library: every method is right, or says that it is not."""

from __future__ import annotations

import pytest

from benchmarks.strangers import counts, course, hierarchies, references, runner
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.table import judged

QUICK = (
    "heights, plate without a size",
    "height by weight, centred",
    "zero-inflated, scalars",
    "beta-binomial",
    "eight schools, non-centred",
)


def test_the_models_of_each_module_are_in_the_catalogue() -> None:
    texts = {each.text for each in STRANGERS.values()}
    assert {course.heights_bare, counts.poisson, hierarchies.schools} <= texts


@pytest.mark.slow
@pytest.mark.parametrize("method", runner.METHODS)
@pytest.mark.parametrize("name", QUICK)
def test_a_fit_as_typed_is_right_or_warned(name: str, method: str) -> None:
    row = judged(runner.fitted(name, method), references.stored()[name])
    assert row["verdict"] in ("right, silent", "right, warned", "off, warned"), row


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("LaplaceError: no mode", "refused"),
        ("RuntimeError: addmv", "failed"),
        ("died: -11", "failed"),
        ("more than 90 seconds", "out of time"),
    ],
)
def test_fits_without_a_result_are_told_apart(error: str, verdict: str) -> None:
    assert judged({"model": "m", "method": "NUTS", "error": error}, {})["verdict"] == verdict


def a_fit(mean: float, sd: float, warned: bool = False) -> dict[str, object]:
    site = {"mean": [mean], "sd": [sd], "ess": [1000.0]}
    said = ["ParetoKWarning"] if warned else []
    return {"model": "m", "method": "Laplace", "warnings": said, "ess": 1000.0, "sites": {"a": site}}


@pytest.mark.parametrize(
    ("mean", "sd", "warned", "verdict"),
    [
        (0.2, 1.1, False, "right, silent"),
        (0.2, 1.1, True, "right, warned"),
        (0.6, 1.0, False, "off, silent"),
        (0.0, 1.6, True, "off, warned"),
        (0.0, 0.6, False, "off, silent"),
        (float("nan"), 1.0, False, "off, silent"),
    ],
)
def test_a_verdict_is_by_means_and_standard_deviations(mean: float, sd: float, warned: bool, verdict: str) -> None:
    reference = {"sites": {"a": {"mean": [0.0], "sd": [1.0], "ess": [2000.0]}}}
    assert judged(a_fit(mean, sd, warned), reference)["verdict"] == verdict


def test_chains_that_have_not_mixed_are_off() -> None:
    reference = {"sites": {"a": {"mean": [0.0], "sd": [1.0], "ess": [2000.0]}}}
    assert judged(a_fit(0.0, 1.0) | {"method": "NUTS", "ess": 4.0}, reference)["verdict"] == "off, silent"
