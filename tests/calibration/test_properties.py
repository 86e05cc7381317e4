"""Properties of scores and calibration errors that hold whatever the predictions are."""

import numpy as np
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

from bnnzoo.acquisition import bald
from bnnzoo.calibration import brier, classwise_ece, crps, ece, nll_of_probs, pit
from bnnzoo.uncertainty import margin, max_probability, predictive_entropy, votes

DIMS = ("chain", "draw", "obs_id", "class_id")
SHAPES = st.tuples(st.integers(2, 5), st.integers(2, 5), st.integers(2, 4))
LABELLED = (nll_of_probs, brier, ece, classwise_ece)
UNLABELLED = (bald, predictive_entropy, max_probability, margin, votes)


@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_of_class_probabilities(shape, seed):
    rng = np.random.default_rng(seed)
    values = rng.dirichlet(np.ones(shape[-1]), (1, *shape[:-1]))
    probs = xr.DataArray(values, dims=DIMS)
    y = xr.DataArray(rng.integers(shape[-1], size=shape[1]), dims="obs_id")
    permuted = probs.isel(draw=rng.permutation(shape[0]))
    for measure in (*LABELLED, *UNLABELLED):
        arguments = (y,) if measure in LABELLED else ()
        expected = measure(probs, *arguments)
        xr.testing.assert_allclose(measure(permuted, *arguments), expected, rtol=1e-9, atol=1e-12)
        xr.testing.assert_allclose(measure(probs.chunk(draw=2, obs_id=1), *arguments), expected, rtol=1e-9, atol=1e-12)
    assert (brier(probs, y) <= 2).all()
    assert 0 <= float(ece(probs, y)) <= 1
    relabelled = rng.permutation(shape[-1])
    same = nll_of_probs(probs.isel(class_id=np.argsort(relabelled)), y.copy(data=relabelled[y.values]))
    xr.testing.assert_allclose(same, nll_of_probs(probs, y))


@settings(max_examples=15, deadline=None)
@given(shape=SHAPES, seed=st.integers(0, 2**32 - 1))
def test_sure_and_right_is_perfect_and_sure_and_wrong_is_worst(shape, seed):
    labels = np.random.default_rng(seed).integers(shape[-1], size=shape[1])
    sure = xr.DataArray(np.broadcast_to(np.eye(shape[-1])[labels], (1, *shape)), dims=DIMS)
    y = xr.DataArray(labels, dims="obs_id")
    wrong = xr.DataArray((labels + 1) % shape[-1], dims="obs_id")
    assert float(brier(sure, y).max()) == float(ece(sure, y)) == float(nll_of_probs(sure, y).max()) == 0.0
    assert float(brier(sure, wrong).min()) == 2.0
    assert float(ece(sure, wrong)) == 1.0


@settings(max_examples=15, deadline=None)
@given(draws=st.integers(2, 8), rows=st.integers(1, 4), scale=st.floats(0.1, 100.0), seed=st.integers(0, 2**32 - 1))
def test_of_draws(draws, rows, scale, seed):
    rng = np.random.default_rng(seed)
    values, y = rng.normal(size=(1, draws, rows)), xr.DataArray(rng.normal(size=rows), dims="obs_id")
    predicted = xr.DataArray(values, dims=DIMS[:3])
    permuted = predicted.isel(draw=rng.permutation(draws))
    for measure in (crps, pit):
        xr.testing.assert_allclose(measure(permuted, y), measure(predicted, y))
        xr.testing.assert_allclose(measure(predicted.chunk(draw=1), y), measure(predicted, y))
    np.testing.assert_allclose(crps(scale * predicted, scale * y), scale * crps(predicted, y), rtol=1e-9, atol=1e-9)
    xr.testing.assert_allclose(pit(scale * predicted, scale * y), pit(predicted, y))
    point = xr.DataArray(np.broadcast_to(values[:, :1], values.shape), dims=DIMS[:3])
    np.testing.assert_allclose(crps(point, y), np.abs(values[0, 0] - y), rtol=1e-9, atol=1e-12)
