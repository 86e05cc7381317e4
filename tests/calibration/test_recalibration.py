"""Recalibration undoes a known distortion, keeps what it should, and refuses what it cannot do."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.calibration import Isotonic, Platt, Temperature, VectorScaling, ece, nll_of_probs
from bnnzoo.testing import example_tree
from bnnzoo.uncertainty import decompose

DIMS = ("chain", "draw", "obs_id", "class_id")


def distorted(power, bias=0.0, rows=4000, classes=3, draws=1, seed=0):
    """A tree with probabilities that are a power of the true ones, shifted towards class 0."""
    rng = np.random.default_rng(seed)
    true = rng.dirichlet(np.ones(classes), rows)
    labels = (true.cumsum(-1) < rng.random((rows, 1))).sum(-1)
    logits = power * np.log(true) + bias * np.eye(classes)[0]
    probs = np.exp(logits - logits.max(-1, keepdims=True))
    probs = np.broadcast_to(probs / probs.sum(-1, keepdims=True), (1, draws, rows, classes))
    return xr.DataTree.from_dict({
        "conditional": xr.Dataset({"probs": (DIMS, probs)}),
        "predictions_observed_data": xr.Dataset({"y": ("obs_id", labels)}),
        "predictions": xr.Dataset({"y": (DIMS[:3], np.zeros((1, draws, rows)))}),
    })  # fmt: skip


@pytest.mark.parametrize("power", [0.4, 1.0, 2.5])
@pytest.mark.parametrize("before_averaging", [False, True])
def test_temperature_finds_the_distortion(power, before_averaging):
    """Probabilities to the power of T need the temperature T; both ways agree where all draws are equal."""
    fitted = Temperature.fit(distorted(power, draws=2), before_averaging=before_averaging)
    assert fitted.temperature == pytest.approx(power, rel=0.06)


def test_vector_scaling_finds_the_distortion():
    fitted = VectorScaling.fit(distorted(2.0, bias=1.5, rows=20_000))
    np.testing.assert_allclose(fitted.weights, 0.5, rtol=0.1)
    np.testing.assert_allclose(np.array(fitted.bias)[0] - np.array(fitted.bias)[1:], -0.75, atol=0.12)


def test_platt_finds_the_distortion():
    fitted = Platt.fit(distorted(2.0, bias=-1.0, classes=2))
    assert fitted.slope == pytest.approx(0.5, rel=0.1)
    assert fitted.intercept == pytest.approx(-0.5, abs=0.1)


@pytest.mark.parametrize("method", [Temperature, VectorScaling, Platt, Isotonic])
def test_new_rows_become_calibrated(method):
    classes = 2 if method is Platt else 3
    held_out, new = (distorted(3.0, rows=3000, classes=classes, seed=seed) for seed in (0, 1))
    repaired = method.fit(held_out).transform(new)
    assert float(ece(repaired)) < 0.4 * float(ece(new))
    assert float(nll_of_probs(repaired).mean()) < float(nll_of_probs(new).mean())
    np.testing.assert_allclose(repaired["conditional"]["probs"].sum("class_id"), 1.0)


def test_scaling_before_averaging_keeps_the_draws_and_their_split():
    tree = example_tree("classification", num_rows=40)
    fitted = Temperature.fit(tree, before_averaging=True)
    repaired = fitted.transform(tree)
    assert repaired["conditional"]["probs"].sizes == tree["conditional"]["probs"].sizes
    probs = tree["conditional"]["probs"] ** (1 / fitted.temperature)
    np.testing.assert_allclose(repaired["conditional"]["probs"], probs / probs.sum("class_id"))
    assert set(decompose(repaired)) == {"total", "aleatoric", "epistemic"}


def test_temperature_has_the_best_score_of_its_family():
    tree = example_tree("classification", num_rows=60)
    for before_averaging in (False, True):
        best = Temperature.fit(tree, before_averaging=before_averaging)
        score = float(nll_of_probs(best.transform(tree)).mean())
        for factor in (0.9, 1.1):
            other = Temperature(best.temperature * factor, before_averaging)
            assert float(nll_of_probs(other.transform(tree)).mean()) > score


def test_what_no_longer_holds_is_left_out_and_the_tree_is_not_changed():
    tree = distorted(2.0, rows=50)
    before = tree.copy(deep=True)
    repaired = Temperature(1.5).transform(tree)
    assert set(repaired.children) == {"conditional", "predictions_observed_data"}
    assert tree.identical(before)


def test_identity():
    tree = distorted(2.0, rows=20)
    for method in (Temperature(1.0), VectorScaling((1.0,) * 3, (0.0,) * 3)):
        np.testing.assert_allclose(method.transform(tree)["conditional"]["probs"], tree["conditional"]["probs"])


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="for two classes, but there are 3: use VectorScaling"):
        Platt.fit(distorted(1.0, rows=20))
    tree = distorted(1.0, rows=20, classes=2)
    with pytest.raises(ValueError, match="of both classes, but only one was observed"):
        Platt.fit(tree, xr.DataArray(np.zeros(20, int), dims="obs_id"))
    with pytest.raises(ValueError, match="was fitted to 2 classes, but the tree has 3"):
        VectorScaling((1.0, 1.0), (0.0, 0.0)).transform(distorted(1.0, rows=20))
    with pytest.raises(ValueError, match="was fitted to 2 classes, but the tree has 3"):
        Isotonic.fit(tree).transform(distorted(1.0, rows=20))
    with pytest.raises(ValueError, match="temperature must be positive, but is 0"):
        Temperature(0.0)
