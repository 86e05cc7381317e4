"""Risk-coverage curves against plain loops, their oracle, and ties."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.calibration import aurc, risk_coverage_curve


def rows(values):
    return xr.DataArray(np.asarray(values, float), dims="obs_id")


def test_against_plain_loops():
    rng = np.random.default_rng(0)
    uncertainty, loss = rng.random(30), rng.random(30)
    curve = risk_coverage_curve(rows(uncertainty), rows(loss))
    order = np.argsort(uncertainty)
    for n in range(1, 31):
        assert float(curve["risk"][n - 1]) == pytest.approx(sum(loss[order[:n]]) / n)
    assert float(curve["risk"][-1]) == pytest.approx(loss.mean())
    found = aurc(rows(uncertainty), rows(loss), num_resamples=50)
    assert float(found["value"]) == pytest.approx(float(curve["risk"].mean()))
    assert float(found["low"]) <= float(found["value"]) <= float(found["high"])


def test_oracle_and_chance():
    rng = np.random.default_rng(0)
    loss = rows(rng.random(400) < 0.3)
    assert float(aurc(loss, loss, num_resamples=10)["excess"]) == 0.0
    noise = aurc(rows(rng.random(400)), loss, num_resamples=200)
    assert float(noise["low"]) < 0.3 < float(noise["high"])
    same = risk_coverage_curve(rows(np.zeros(400)), loss)["risk"]
    np.testing.assert_allclose(same, loss.mean())


def test_order_of_ties_does_not_matter():
    uncertainty, loss = rows([1, 1, 0, 0]), rows([0, 1, 1, 0])
    backwards = risk_coverage_curve(uncertainty[::-1], loss[::-1])
    np.testing.assert_allclose(backwards["risk"], risk_coverage_curve(uncertainty, loss)["risk"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="There are 1 values of loss along 'obs_id' for 2 rows of the uncertainties"):
        risk_coverage_curve(rows([1, 2]), rows([1]))
    with pytest.raises(ValueError, match="must be finite"):
        aurc(rows([1, np.nan]), rows([1, 1]))
    with pytest.raises(ValueError, match="level=1 between 0 and 1"):
        aurc(rows([1, 2]), rows([1, 1]), level=1)
