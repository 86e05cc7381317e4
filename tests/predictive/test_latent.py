"""Latent draws of a tree: entries that are constant but for rounding, and draws that have overflowed."""

import numpy as np

from bnnzoo.predictive.latent import _without_rounding


def test_only_entries_that_are_constant_but_for_rounding_become_constant() -> None:
    draws = np.ones((2, 5, 3)) * [1.0, 2.0, np.inf]
    draws[0, 0] += [1e-16, 1e-3, -1.0]
    draws[1, 1, 0] = 1.0 + 2e-16
    draws[0, 2, 2] = 3.0  # finite beside infinite ones
    found = _without_rounding(draws)
    assert np.ptp(found[..., 0]) == 0.0
    assert np.array_equal(found[..., 1:], draws[..., 1:])
