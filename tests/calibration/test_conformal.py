"""Conformal coverage: within the binomial band where data are exchangeable, lost where they shift."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.calibration import (
    AbsoluteResidual,
    AdaptiveSets,
    ConformalizedQuantiles,
    LeastAmbiguousSets,
    NormalizedResidual,
    conformal_quantile,
)
from bnnzoo.testing import example_tree

DIMS = ("chain", "draw", "obs_id", "class_id")
DATA_SETS, HELD_OUT, NEW = 200, 60, 40


def regression(rng, rows, shift=0.0):
    """Predictions that are too narrow and off, as those of a wrong model."""
    x = rng.normal(shift, 1.0, rows)
    y = x + 0.3 * x**2 + (0.5 + np.abs(x)) * rng.normal(size=rows)
    draws = 0.9 * x + (0.3 + 0.2 * np.abs(x)) * rng.normal(size=(30, rows))
    return xr.DataArray(draws[None], dims=DIMS[:3]), xr.DataArray(y, dims="obs_id")


def classification(rng, rows, shift=0.0):
    """Overconfident probabilities of five classes; a shift makes labels random."""
    true = rng.dirichlet(np.ones(5), rows)
    probs = true**2 / (true**2).sum(-1, keepdims=True)
    true = (1 - shift) * true + shift / 5
    labels = (true.cumsum(-1) < rng.random((rows, 1))).sum(-1)
    return xr.DataArray(probs[None, None], dims=DIMS), xr.DataArray(labels, dims="obs_id")


def holds_interval(method):
    def holds(rng, level, shift=0.0):
        interval = method.fit(*regression(rng, HELD_OUT), level=level).intervals(
            (new := regression(rng, NEW, shift))[0]
        )
        return ((interval["low"] <= new[1]) & (new[1] <= interval["high"])).values

    return holds


def holds_set(method, **options):
    def holds(rng, level, shift=0.0):
        seed = int(rng.integers(2**31))
        seeded = {"seed": seed} if method is AdaptiveSets else {}
        fitted = method.fit(*classification(rng, HELD_OUT), level=level, **options, **seeded)
        probs, labels = classification(rng, NEW, shift)
        return fitted.sets(probs, **seeded).values[np.arange(NEW), labels.values]

    return holds


METHODS = {
    "absolute": holds_interval(AbsoluteResidual),
    "normalized": holds_interval(NormalizedResidual),
    "cqr": holds_interval(ConformalizedQuantiles),
    "lac": holds_set(LeastAmbiguousSets),
    "aps": holds_set(AdaptiveSets),
    "raps": holds_set(AdaptiveSets, penalty=0.05),
}


@pytest.mark.parametrize("level", [*(pytest.param(each, marks=pytest.mark.slow) for each in (0.5, 0.9)), 0.8])
@pytest.mark.parametrize("name", METHODS)
def test_coverage_of_exchangeable_data(name, level):
    """One new row of each data set gives independent trials of probability ceil((n + 1) level) / (n + 1)."""
    rng = np.random.default_rng(0)
    covered = np.array([METHODS[name](rng, level) for _ in range(DATA_SETS)])
    exact = np.ceil((HELD_OUT + 1) * level) / (HELD_OUT + 1)
    # Each data set's coverage has the variance of its beta distribution plus that of the new rows' binomial one.
    low, high = scipy.stats.binom.interval(0.999, DATA_SETS, exact)
    assert low <= covered[:, 0].sum() <= high
    error = covered.mean(1).std() / np.sqrt(DATA_SETS)
    assert abs(covered.mean() - exact) < 4 * error


@pytest.mark.parametrize("name", METHODS)
def test_coverage_is_lost_under_shift(name):
    rng = np.random.default_rng(0)
    shift = 3.0 if name in ("absolute", "normalized", "cqr") else 1.0
    covered = np.mean([METHODS[name](rng, 0.9, shift) for _ in range(30)])
    assert covered < 0.85


def test_the_quantile_is_a_rank():
    assert conformal_quantile(np.arange(1.0, 10.0), 0.9) == 9.0
    assert conformal_quantile(np.arange(1.0, 10.0), 0.91) == np.inf
    assert conformal_quantile(np.arange(1.0, 20.0), 0.5) == 10.0


def test_too_few_rows_give_everything():
    tree = example_tree("classification", num_rows=5)
    assert bool(LeastAmbiguousSets.fit(tree, level=0.99).sets(tree).all())
    interval = AbsoluteResidual.fit(example_tree("regression", num_rows=5), level=0.99).intervals(
        example_tree("regression")
    )
    assert np.isinf(interval["low"]).all()


def test_sets_by_hand():
    """Thresholds that leave no choice to the random numbers."""
    probs = np.array([[0.6, 0.3, 0.1], [0.2, 0.5, 0.3]])
    array = xr.DataArray(probs[None, None], dims=DIMS)
    assert LeastAmbiguousSets(0.6).sets(array).values.tolist() == [[True, False, False], [False, True, False]]
    everything = AdaptiveSets(1.0).sets(array)
    assert bool(everything.all())
    penalised = AdaptiveSets(1.0, penalty=1.0, free_ranks=1).sets(array)
    assert penalised.sum("class_id").values.tolist() == [1, 1]


def test_normalized_intervals_follow_the_predicted_width():
    rng = np.random.default_rng(0)
    held_out, (new, _) = regression(rng, 200), regression(rng, 50)
    interval = NormalizedResidual.fit(*held_out, level=0.9).intervals(new)
    width = interval["high"] - interval["low"]
    assert np.corrcoef(width, new.std(("chain", "draw")))[0, 1] > 0.999
    fixed = AbsoluteResidual.fit(*held_out, level=0.9).intervals(new)
    assert np.ptp((fixed["high"] - fixed["low"]).values) < 1e-9


def test_intervals_moved_far_inwards_do_not_turn_inside_out():
    interval = ConformalizedQuantiles(-100.0, 0.9).intervals(regression(np.random.default_rng(0), 5)[0])
    assert (interval["low"] <= interval["high"]).all()


def test_bad_input_is_named():
    tree = example_tree("classification")
    with pytest.raises(ValueError, match=r"level=90; write a probability between 0 and 1, such as 0\.9"):
        LeastAmbiguousSets.fit(tree, level=90)
    with pytest.raises(ValueError, match=r"penalty=-1 and free_ranks=1 must not be negative"):
        AdaptiveSets.fit(tree, level=0.9, penalty=-1)
    with pytest.raises(ValueError, match="held-out scores without NaN"):
        conformal_quantile(np.array([np.nan]), 0.9)
    still = xr.DataArray(np.zeros((1, 3, 2)), dims=DIMS[:3])
    with pytest.raises(ValueError, match=r"divides by the standard deviation .* it is 0"):
        NormalizedResidual.fit(still, xr.DataArray([0.0, 0.0], dims="obs_id"), level=0.9)
