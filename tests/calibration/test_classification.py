"""Error analysis of a classifier against scikit-learn and by hand."""

import numpy as np
import pytest
import sklearn.metrics
import xarray as xr

from bnnzoo.calibration import accuracy, class_scores, confusion_matrix, misclassified, rank_errors
from bnnzoo.testing import example_tree
from bnnzoo.uncertainty import mutual_information

TREE = example_tree("classification", num_rows=60)
Y = TREE["predictions_observed_data"]["y"].values
PREDICTED = TREE["conditional"]["probs"].mean(("chain", "draw")).values.argmax(-1)


def named(probs):
    """Return probabilities of two rows of two named classes, of one draw."""
    array = xr.DataArray([[probs]], dims=("chain", "draw", "obs_id", "class_id"))
    return array.assign_coords(class_id=["cat", "dog"], obs_id=["a", "b"])


def test_accuracy_and_its_interval():
    found = accuracy(TREE)
    assert float(found["value"]) == sklearn.metrics.accuracy_score(Y, PREDICTED) == 1 - misclassified(TREE).mean()
    n, p, z = len(Y), float(found["value"]), 1.959963984540054
    half = z * np.sqrt(p * (1 - p) / n + z**2 / (4 * n**2)) / (1 + z**2 / n)  # Wilson's formula
    np.testing.assert_allclose(found["high"] - found["low"], 2 * half)
    with pytest.raises(ValueError, match=r"level=1 must be between 0 and 1"):
        accuracy(TREE, level=1)


def test_confusion_matrix_is_labelled():
    found = confusion_matrix(named([[0.9, 0.1], [0.6, 0.4]]), xr.DataArray(["cat", "dog"], dims="obs_id"))
    assert int(found.sel(observed="dog", predicted="cat")) == 1
    assert int(found.sel(observed="dog", predicted="dog")) == 0
    np.testing.assert_array_equal(confusion_matrix(TREE), sklearn.metrics.confusion_matrix(Y, PREDICTED))


def test_scores_of_each_class():
    scores, counts = class_scores(TREE), confusion_matrix(TREE)
    hits = np.diag(counts)
    np.testing.assert_allclose(scores["recall"], hits / counts.sum("predicted"))
    np.testing.assert_allclose(scores["precision"], hits / counts.sum("observed"))
    np.testing.assert_allclose(
        scores["f1"], 2 * hits / (counts.sum("predicted").values + counts.sum("observed").values)
    )
    assert scores["support"].values.tolist() == counts.sum("predicted").values.tolist()
    assert scores["predicted"].values.tolist() == counts.sum("observed").values.tolist()


def test_rows_are_ranked_by_what_one_looks_for():
    table = rank_errors(TREE, by="mutual_information")
    assert (np.diff(table["mutual_information"]) <= 0).all()
    expected = mutual_information(TREE).values[table["position"].values]
    np.testing.assert_allclose(table["mutual_information"], expected)
    worst = rank_errors(named([[0.9, 0.1], [0.6, 0.4]]), xr.DataArray(["cat", "dog"], dims="obs_id")).isel(obs_id=0)
    assert (worst["obs_id"].item(), worst["observed"].item(), worst["predicted"].item()) == ("b", "dog", "cat")
    np.testing.assert_allclose([worst["nll"], worst["probability"]], [-np.log(0.4), 0.6])


def test_what_cannot_be_ranked_by_is_named():
    with pytest.raises(ValueError, match=r"by='loss': write one of 'nll', 'predictive_entropy', "):
        rank_errors(TREE, by="loss")
    with pytest.raises(ValueError, match=r"by='mutual_information' compares draws, but there is only one"):
        rank_errors(named([[1.0, 0.0], [0.6, 0.4]]), ["cat", "cat"], by="mutual_information")
