"""The comparison with exact moments sees what it should, and only that."""

import numpy as np
import pytest

from bnnzoo.testing import check_moments
from bnnzoo.testing.monte_carlo import mean_z_score, variance_z_score


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def autoregressive(rng, size: tuple[int, ...], correlation: float) -> np.ndarray:
    """Standard normal chains with correlated draws."""
    draws = np.empty(size)
    draws[:, 0] = rng.normal(size=size[0])
    for i in range(1, size[1]):
        draws[:, i] = correlation * draws[:, i - 1] + np.sqrt(1 - correlation**2) * rng.normal(size=size[0])
    return draws


def test_right_draws_pass(rng):
    check_moments("z", rng.normal([1.0, -2.0], [3.0, 0.1], (4, 500, 2)), [1.0, -2.0], [3.0, 0.1])


def test_correlated_draws_pass_because_their_size_is_effective(rng):
    draws = autoregressive(rng, (4, 2000), 0.9)
    check_moments("z", draws, 0.0, 1.0)
    assert abs(mean_z_score(draws, 0.0, 1.0)) < 5


def test_z_scores_are_standard_normal(rng):
    scores = [(mean_z_score(d, 0.0, 1.0), variance_z_score(d, 0.0, 1.0)) for d in rng.normal(size=(200, 2, 300))]
    assert np.abs(np.mean(scores, 0)).max() < 0.35
    assert np.all((np.std(scores, 0) > 0.8) & (np.std(scores, 0) < 1.25))


def test_a_shifted_mean_is_seen(rng):
    with pytest.raises(AssertionError, match=r"mean of z\[1\] is off by \d+\.\d Monte Carlo standard errors"):
        check_moments("z", rng.normal([0.0, 0.3], 1.0, (4, 500, 2)), np.zeros(2), np.ones(2))


def test_a_wrong_spread_is_seen(rng):
    with pytest.raises(AssertionError, match="variance of z is off by"):
        check_moments("z", 1.3 * rng.normal(size=(4, 500)), 0.0, 1.0)


def test_a_stated_inaccuracy_is_allowed_for(rng):
    draws = rng.normal(0.1, 1.0, (4, 5000))
    with pytest.raises(AssertionError, match="mean of z"):
        check_moments("z", draws, 0.0, 1.0)
    check_moments("z", draws, 0.0, 1.0, accuracy=0.1)


def test_too_few_effective_draws_are_no_evidence(rng):
    with pytest.raises(AssertionError, match=r"effective size of the draws is \d+, at least 100 is needed to judge"):
        check_moments("z", autoregressive(rng, (2, 500), 0.99), 0.0, 1.0)


def test_draws_that_are_not_finite_are_seen(rng):
    draws = rng.normal(size=(2, 100))
    draws[1, 3] = np.nan
    with pytest.raises(AssertionError, match="1 of 200 draws are not finite"):
        check_moments("z", draws, 0.0, 1.0)
