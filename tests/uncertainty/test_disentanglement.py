"""The rank correlation is scipy's, and says when a split is one number twice."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.testing import example_tree
from bnnzoo.uncertainty import decompose, rank_correlation


def test_against_scipy():
    split = decompose(example_tree("classification", num_rows=40))
    split["epistemic"] = split["epistemic"].round(2)  # with ties
    expected = scipy.stats.spearmanr(split["aleatoric"], split["epistemic"]).statistic
    assert float(rank_correlation(split)) == pytest.approx(expected)


def test_one_number_twice_and_nothing_at_all():
    row = np.arange(5.0)
    assert float(rank_correlation(xr.Dataset({"aleatoric": ("obs_id", row), "epistemic": ("obs_id", -(row**3))}))) == -1
    assert np.isnan(rank_correlation(xr.Dataset({"aleatoric": ("obs_id", row), "epistemic": ("obs_id", 0 * row)})))


def test_other_dims_are_kept():
    split = xr.Dataset({name: (("obs_id", "output_id"), np.eye(4)) for name in ("aleatoric", "epistemic")})
    np.testing.assert_allclose(rank_correlation(split), np.ones(4))


def test_bad_input_is_named():
    with pytest.raises(ValueError, match=r"has no 'epistemic' \(variables: aleatoric\): pass what bnnzoo.*decompose"):
        rank_correlation(xr.Dataset({"aleatoric": ("obs_id", [1.0])}))
    with pytest.raises(ValueError, match="needs three observations, but 'obs_id' has 1"):
        rank_correlation(xr.Dataset({"aleatoric": ("obs_id", [1.0]), "epistemic": ("obs_id", [1.0])}))
