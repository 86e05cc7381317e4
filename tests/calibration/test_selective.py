"""Risk-coverage curves against plain loops, their oracle, and ties."""

import numpy as np
import pytest
import xarray as xr
from scipy.stats import binom

from bnnzoo.calibration import aurc, risk_coverage_curve, risk_threshold


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


def test_threshold_is_read_off_the_curve():
    rng = np.random.default_rng(0)
    uncertainty, loss = rows(rng.random(50)), rows(rng.random(50) < 0.4)
    curve = risk_coverage_curve(uncertainty, loss)
    found = risk_threshold(uncertainty, loss, 0.35)
    assert float(found["coverage"]) == float(curve["coverage"][curve["risk"] <= 0.35].max())
    assert float(loss[uncertainty <= found["threshold"]].mean()) == float(found["risk"]) <= 0.35
    none = risk_threshold(rows([1, 2]), rows([1, 1]), 0.5)
    assert (float(none["threshold"]), float(none["coverage"])) == (-np.inf, 0.0)
    tied = risk_threshold(rows([1, 1, 2]), rows([0, 1, 1]), 0.4)  # the two most certain rows cannot be told apart
    assert float(tied["coverage"]) == 0.0


def test_threshold_with_a_guarantee_keeps_the_risk():
    """The probability of an error is the uncertainty itself, so the true risk below a threshold t is t / 2."""
    rng, failures = np.random.default_rng(0), 0
    for _ in range(200):
        uncertainty = rng.random(400)
        found = risk_threshold(rows(uncertainty), rows(rng.random(400) < uncertainty), 0.3, confidence=0.9)
        failures += float(found["threshold"]) / 2 > 0.3
        assert float(found["coverage"]) == 0 or float(found["risk"]) < float(found["bound"]) <= 0.3
    assert failures <= 20


def bound(lost, kept, confidence):
    """Return the bound of a risk of which one threshold has kept so many rows, and lost some of them."""
    found = risk_threshold(rows(np.zeros(kept)), rows(np.arange(kept) < lost), 1.0, confidence=confidence)
    return float(found["bound"])


@pytest.mark.parametrize(("lost", "kept"), [(0, 30), (3, 20), (19, 20), (7, 200)])
def test_the_bound_is_the_risk_at_which_so_few_errors_would_be_a_surprise(lost, kept):
    assert binom.cdf(lost, kept, bound(lost, kept, 0.9)) == pytest.approx(0.1)
    assert bound(kept, kept, 0.9) == 1.0


@pytest.mark.parametrize("confidence", [0.8, 0.95])
def test_the_guarantee_covers_every_risk_and_none_much_more_often_than_asked_for(confidence):
    """Exactly, over all numbers of errors: the bound is below the true risk with probability one minus the confidence at most."""
    bounds = np.array([bound(lost, 50, confidence) for lost in range(51)])
    misses = [binom.pmf(np.flatnonzero(bounds < p), 50, p).sum() for p in np.linspace(0.1, 0.95, 200)]
    assert max(misses) <= 1 - confidence + 1e-12
    assert max(misses) > 0.95 * (1 - confidence) and np.mean(misses) > 0.5 * (1 - confidence)


def test_a_guarantee_needs_errors():
    with pytest.raises(ValueError, match="needs losses that are 0 or 1"):
        risk_threshold(rows([1, 2]), rows([0.5, 1]), 0.5, confidence=0.9)
    with pytest.raises(ValueError, match=r"confidence=1\.5 must be between 0 and 1"):
        risk_threshold(rows([1, 2]), rows([1, 1]), 0.5, confidence=1.5)
