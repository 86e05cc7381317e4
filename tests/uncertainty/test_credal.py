"""Lower and upper probabilities against plain loops and the hull itself."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import probability_bounds

TREE = example_tree("classification")


def test_bounds_hold_for_every_member_of_the_hull():
    found, probs = probability_bounds(TREE), TREE["conditional"]["probs"].values
    draws = probs.reshape(-1, *probs.shape[2:])
    np.testing.assert_array_equal(found["lower"], draws.min(0))
    np.testing.assert_array_equal(found["upper"], draws.max(0))
    weights = np.random.default_rng(0).dirichlet(np.ones(len(draws)), 50)
    members = np.einsum("ms,snk->mnk", weights, draws)
    assert (found["lower"].values <= members).all()
    assert (members <= found["upper"].values).all()
    np.testing.assert_allclose(found["imprecision"], (draws.max(0) - draws.min(0)).max(-1))


def test_it_keeps_the_promises_of_measures():
    check_measure(probability_bounds, TREE)


def test_bad_input_is_named():
    single = TREE["conditional"]["probs"].isel(chain=[0], draw=[0])
    with pytest.raises(ValueError, match="probability_bounds compares draws of the posterior, but there is only one"):
        probability_bounds(single)
    with pytest.raises(ValueError, match="must sum to one, but at obs_id=0"):
        probability_bounds(xr.concat([single, 2 * single], "draw"))
