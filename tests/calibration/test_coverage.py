"""PIT, coverage and sharpness: uniform where predictions are true, and against uncertainty-toolbox where installed."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.calibration import coverage_curve, miscalibration_area, pit, sharpness
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id")


def predicted(scale=1.0, rows=400, draws=499, seed=0):
    """Predictions that are ``scale`` times as wide as the truth, and observations."""
    rng = np.random.default_rng(seed)
    loc = rng.normal(size=rows)
    y = xr.DataArray(loc + rng.normal(size=rows), dims="obs_id")
    return xr.DataArray(loc + scale * rng.normal(size=(1, draws, rows)), dims=DIMS), y


@pytest.mark.parametrize("measure", [pit, coverage_curve, miscalibration_area, sharpness])
def test_conformance(measure):
    check_measure(measure, example_tree("regression"))


def test_pit_is_uniform_where_predictions_are_true_and_not_otherwise():
    def p_value(scale):
        return scipy.stats.kstest(pit(*predicted(scale)), "uniform").pvalue

    assert p_value(1.0) > 0.01
    assert max(p_value(0.5), p_value(2.0)) < 1e-6


def test_coverage_by_counting():
    draws, y = predicted()
    curve = coverage_curve(draws, y, levels=[0.5, 0.9])
    for level, found in zip([0.5, 0.9], curve["coverage"].values, strict=True):
        low, high = np.quantile(draws.values[0], [(1 - level) / 2, (1 + level) / 2], axis=0)
        assert abs(((y >= low) & (y <= high)).mean() - found) < 0.01  # quantiles interpolate, ranks do not
    assert coverage_curve(draws, y)["coverage"].values[-1] == 1.0


def test_the_band_holds_calibrated_predictions():
    inside = []
    for seed in range(40):
        curve = coverage_curve(*predicted(rows=200, draws=199, seed=seed), levels=[0.8])
        inside.append(bool(curve["low"] <= curve["coverage"]) and bool(curve["coverage"] <= curve["high"]))
    assert scipy.stats.binomtest(sum(inside), 40, 0.95).pvalue > 0.01


def test_against_uncertainty_toolbox():
    """Gaussian predictions as their own quantiles, and observations that lie on no edge of an interval."""
    toolbox = pytest.importorskip("uncertainty_toolbox.metrics_calibration", reason="needs uncertainty-toolbox")
    rng = np.random.default_rng(0)
    loc, scale = rng.normal(size=300), rng.gamma(2.0, size=300)
    y = loc + scale * scipy.stats.norm.ppf(np.clip((rng.beta(0.8, 1.2, 300) * 997).round(), 1, 996) / 997)
    levels = (np.arange(997) + 0.5) / 997
    draws = xr.DataArray((loc + scale * scipy.stats.norm.ppf(levels)[:, None])[None], dims=DIMS)
    observed = xr.DataArray(y, dims="obs_id")
    expected = toolbox.get_proportion_lists_vectorized(loc, scale, y)
    np.testing.assert_allclose(coverage_curve(draws, observed, levels=expected[0])["coverage"], expected[1], atol=1e-12)
    area = toolbox.miscalibration_area(loc, scale, y, num_bins=101, vectorized=True)
    assert float(miscalibration_area(draws, observed)) == pytest.approx(area, abs=1e-9)
    gap = (expected[1] - expected[0])[1:-1]
    assert (gap[:-1] * gap[1:] < 0).any()  # the curve crosses the diagonal
    two = xr.DataArray(np.stack([loc - scale, loc + scale])[None], dims=DIMS)
    assert float(sharpness(two)) == pytest.approx(float(np.sqrt((scale**2).mean())), abs=1e-12)


def test_areas_order_predictions_by_calibration():
    areas = [float(miscalibration_area(*predicted(scale))) for scale in (1.0, 1.5, 3.0)]
    assert areas == sorted(areas)
    assert areas[0] < 0.03


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"levels must be between 0 and 1, but one is 1\.5"):
        coverage_curve(*predicted(), levels=[0.5, 1.5])
    with pytest.raises(ValueError, match="band must be between 0 and 1, but one is 2"):
        coverage_curve(*predicted(), band=2)
    with pytest.raises(ValueError, match="sharpness needs at least 2 draws"):
        sharpness(predicted()[0].isel(draw=[0]))


@pytest.mark.parametrize("measure", [pit, coverage_curve, miscalibration_area])
def test_draws_and_observations_that_are_nan_are_refused(measure):
    draws, y = predicted(rows=20, draws=50)
    with pytest.raises(
        ValueError, match=r"10 of 50 draws of y hold NaN, and a draw that is no number lies neither above"
    ):
        measure(
            draws.where(draws["draw"] >= 10) if "draw" in draws.coords else draws.where(np.arange(50)[:, None] >= 10), y
        )
    with pytest.raises(
        ValueError, match=r"1 of 20 observations are NaN, the first in row 3 of them: leave these rows out"
    ):
        measure(draws, y.where(np.arange(20) != 3))
