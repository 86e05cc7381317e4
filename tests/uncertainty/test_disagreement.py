"""Votes, margins and confidence against plain loops."""

from collections import Counter
from itertools import permutations

import numpy as np
import pytest
import xarray as xr

from bnnzoo.testing import check_measure, example_tree
from bnnzoo.uncertainty import expected_disagreement, margin, max_probability, variation_ratio, votes

MEASURES = [votes, variation_ratio, expected_disagreement, max_probability, margin]


@pytest.mark.parametrize("measure", MEASURES)
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_against_plain_loops():
    tree = example_tree("classification", num_chains=2, num_draws=6)
    draws = tree["conditional"]["probs"].values.reshape(12, 7, 3)
    for row in range(7):
        labels = [int(np.argmax(each)) for each in draws[:, row]]
        pairs = list(permutations(labels, 2))
        ordered = sorted(draws[:, row].mean(0))
        counts = Counter(labels)
        np.testing.assert_allclose(votes(tree)[row], [counts[k] / 12 for k in range(3)])
        assert float(variation_ratio(tree)[row]) == pytest.approx(1 - max(counts.values()) / 12)
        assert float(expected_disagreement(tree)[row]) == pytest.approx(sum(a != b for a, b in pairs) / len(pairs))
        assert float(max_probability(tree)[row]) == pytest.approx(ordered[-1])
        assert float(margin(tree)[row]) == pytest.approx(ordered[-1] - ordered[-2])


def test_limits():
    dims = ("chain", "draw", "obs_id", "class_id")
    same = xr.DataArray(np.broadcast_to([1.0, 0.0, 0.0], (1, 4, 1, 3)), dims=dims)
    assert [float(measure(same).max()) for measure in MEASURES] == [1.0, 0.0, 0.0, 1.0, 1.0]
    apart = xr.DataArray(np.eye(3)[None, :, None], dims=dims)
    assert float(variation_ratio(apart)[0]) == pytest.approx(2 / 3)
    assert float(expected_disagreement(apart)[0]) == 1.0
    assert float(margin(apart)[0]) == 0.0


def test_a_single_draw_is_refused_only_where_draws_are_compared():
    single = example_tree("classification").isel(chain=[0], draw=[0])
    for measure in (variation_ratio, expected_disagreement):
        with pytest.raises(ValueError, match=f"{measure.__name__} compares draws"):
            measure(single)
    assert np.isfinite(max_probability(single)).all()
    assert np.isfinite(margin(single)).all()
