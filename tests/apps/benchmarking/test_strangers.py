"""Models that were not written for the library: every method is right, or says that it is not."""

from __future__ import annotations

import json
import warnings
from pathlib import Path

import pytest
import torch

import bnnzoo as bz
from benchmarks.strangers import counts, course, dynamics, hierarchies, references, runner
from benchmarks.strangers.catalogue import STRANGERS
from benchmarks.strangers.independent import Unconstrained, newton
from benchmarks.strangers.table import RESULTS, judged, which
from bnnzoo.core.posterior.posterior import Gaussian

QUICK = (
    "heights, plate without a size",
    "height by weight, centred",
    "zero-inflated, scalars",
    "beta-binomial",
    "eight schools, non-centred",
)


def test_the_models_of_each_module_are_in_the_catalogue() -> None:
    texts = {each.text for each in STRANGERS.values()}
    assert {course.heights_bare, counts.poisson, dynamics.ar1, hierarchies.schools} <= texts


@pytest.mark.slow
@pytest.mark.parametrize("method", runner.METHODS)
@pytest.mark.parametrize("name", QUICK)
def test_a_fit_as_typed_is_right_or_warned(name: str, method: str) -> None:
    row = judged(runner.fitted(name, method), references.stored()[name])
    assert row["verdict"] in ("right, silent", "right, warned", "off, warned"), row


@pytest.mark.slow
@pytest.mark.parametrize("name", STRANGERS)
def test_a_silent_laplace_approximation_has_the_mode_and_hessian_of_newton_on_pyros_density(name: str) -> None:
    density = Unconstrained(STRANGERS[name])
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            posterior = bz.fit(density.model, bz.Laplace(), *density.data, seed=0, dtype=torch.float64)
        except bz.inference.LaplaceError as error:
            pytest.skip(f"refused: {error}")
    if any(issubclass(each.category, bz.inference.FitWarning) for each in caught):
        pytest.skip(f"warns: {caught[0].message}")
    if not isinstance(posterior, Gaussian):
        pytest.skip("integrates over scales: a mixture has no single mode")
    root = torch.linalg.cholesky(posterior.covariance.dense())
    noise = torch.randn(len(root), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    mode, precision = newton(density, posterior.loc + 0.5 * root @ noise)
    eye = torch.eye(len(root), dtype=torch.float64)
    assert float(torch.linalg.solve_triangular(root, (posterior.loc - mode)[:, None], upper=False).abs().max()) < 1e-6
    assert float((root.mT @ precision @ root - eye).abs().max()) < 1e-6


@pytest.mark.parametrize(
    ("error", "verdict"),
    [
        ("LaplaceError: no mode", "refused"),
        ("FloatingPointError: Chain 1 accepts no step", "refused"),
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


@pytest.mark.parametrize(
    ("median", "high", "verdict"), [(0.0, 1.5, "right"), (0.0, 3.0, "off"), (0.0, 0.7, "off"), (0.5, 1.5, "off")]
)
def test_a_site_without_variance_is_judged_by_its_quantiles(median: float, high: float, verdict: str) -> None:
    site = {"mean": [0.0], "sd": [1.0], "ess": [2000.0], "quantiles": [[-1.645], [0.0], [1.645]]}
    heavy = site | {"mean": [9.0], "sd": [70.0], "quantiles": [[-1.645], [median], [high]]}
    fit = {"model": "horseshoe", "method": "MAMS", "warnings": [], "ess": 1000.0, "sites": {"scales": heavy}}
    assert judged(fit, {"sites": {"scales": site}})["verdict"] == f"{verdict}, silent"
    other = fit | {"sites": {"tau": heavy}}
    assert judged(other, {"sites": {"tau": site}})["verdict"] == "off, silent"


def test_the_table_of_the_guide_is_that_of_the_committed_fits() -> None:
    page = (Path(__file__).parents[3] / "docs" / "inference.md").read_text()
    for method, cells in which(json.loads(RESULTS.read_text())["fits"]).items():
        assert f"| `{method}` | {cells} |" in page
