"""Monitoring: nothing is found where nothing changed, and a shift where there is one."""

import numpy as np
import pytest
import xarray as xr

import bnnzoo as bz
from bnnzoo.calibration import accuracy, nll
from bnnzoo.testing import example_tree
from tests.helpers.trees import held_out


def test_no_drift_where_nothing_changed() -> None:
    reference, new = (example_tree("regression", num_rows=400, seed=seed) for seed in (0, 1))
    found = bz.monitor(reference, new, num_windows=4)
    assert (found["unusual_low"] < 0.05).all()
    assert (found["unusual_high"] > 0.05).all()
    assert (found["drift_p_value"] > 0.001).all()
    assert (found["coverage_high"] > 0.9).all()


def test_a_shift_is_found_in_the_window_in_which_it_begins() -> None:
    reference, new = (example_tree("regression", num_rows=200, seed=seed) for seed in (0, 1))
    late = xr.DataArray(np.arange(200) >= 100, dims="obs_id")
    mean = new["conditional"]["mean"]
    new["conditional"] = xr.DataTree(new["conditional"].to_dataset().assign(mean=xr.where(late, 4 * mean, mean)))
    found = bz.monitor(reference, new, num_windows=4)
    assert (found["unusual"].values[2:] > 0.9).all()
    assert (found["drift_p_value"].values[2:] < 1e-6).all()
    assert (found["unusual"].values[:2] < 0.2).all()


def test_scores_of_labelled_rows() -> None:
    reference, new = (held_out("classification", num_rows=40, seed=seed) for seed in (0, 1))
    found = bz.monitor(reference, new, num_windows=1)
    assert found["accuracy"].values.tolist() == [float(accuracy(new)["value"])]
    assert float(found["reference_accuracy"]) == float(accuracy(reference)["value"])
    np.testing.assert_allclose(found["nll"], [float(nll(new).mean())])
    half = 1.959963984540054 * nll(new).std(ddof=1) / np.sqrt(40)
    np.testing.assert_allclose(found["nll_high"] - found["nll"], [float(half)])


def test_rows_without_labels_have_no_scores() -> None:
    reference, new = (example_tree("classification", num_rows=30, seed=seed) for seed in (0, 1))
    del new["predictions_observed_data"]
    assert "accuracy" not in bz.monitor(reference, new, num_windows=3)


def test_more_windows_than_rows_are_refused() -> None:
    tree = example_tree("classification")
    with pytest.raises(ValueError, match="num_windows=10, but there are 7 new rows"):
        bz.monitor(tree, tree)
