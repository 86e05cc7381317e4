"""Calibration errors against torchmetrics where it is installed, plain loops, and their bias."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.calibration import classwise_ece, ece, reliability_curve
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id", "class_id")


def simulated(rows=600, classes=3, power=1.0, seed=0):
    """Probabilities whose powers are true, and labels."""
    rng = np.random.default_rng(seed)
    probs = rng.dirichlet(np.ones(classes), rows)
    true = probs**power / (probs**power).sum(-1, keepdims=True)
    labels = (true.cumsum(-1) < rng.random((rows, 1))).sum(-1)
    return xr.DataArray(probs[None, None], dims=DIMS), xr.DataArray(labels, dims="obs_id")


@pytest.mark.parametrize("measure", [ece, classwise_ece, reliability_curve])
def test_conformance(measure):
    check_measure(measure, example_tree("classification"))


def test_against_plain_loops():
    probs, y = simulated(power=2.0)
    confidence, correct = probs.values[0, 0].max(-1), probs.values[0, 0].argmax(-1) == y.values
    expected = 0.0
    for b in range(10):
        inside = (confidence > b / 10) & (confidence <= (b + 1) / 10)
        if inside.any():
            expected += inside.mean() * abs(confidence[inside].mean() - correct[inside].mean())
    assert float(ece(probs, y, num_bins=10)) == pytest.approx(expected, abs=1e-12)


@pytest.mark.filterwarnings("ignore:torch.searchsorted:UserWarning")
@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_against_torchmetrics(power):
    functional = pytest.importorskip("torchmetrics.functional.classification", reason="needs torchmetrics")
    torch = pytest.importorskip("torch")
    probs, y = simulated(power=power)
    values, labels = torch.tensor(probs.values[0, 0]), torch.tensor(y.values)
    expected = functional.multiclass_calibration_error(values, labels, num_classes=3, n_bins=15, norm="l1")
    assert float(ece(probs, y)) == pytest.approx(float(expected), abs=1e-6)
    for k in range(3):
        binary = functional.binary_calibration_error(values[:, k], (labels == k).long(), n_bins=15, norm="l1")
        assert float(classwise_ece(probs, y)[k]) == pytest.approx(float(binary), abs=1e-6)


def test_equal_mass_bins_hold_equally_many():
    curve = reliability_curve(*simulated(), num_bins=12, equal_mass=True)
    assert set(curve["count"].values.tolist()) == {50}


def test_ties_stay_in_one_bin():
    probs = xr.DataArray(np.tile([0.3, 0.7], (1, 1, 8, 1)), dims=DIMS)
    curve = reliability_curve(probs, xr.DataArray([0, 1] * 4, dims="obs_id"), equal_mass=True)
    assert curve["count"].values.tolist() == [8]


def test_debiasing_takes_the_bias_away():
    """Of true probabilities the plain error is all bias; over replicates the debiased one has clearly less."""
    plain, debiased = (
        np.array([float(ece(*simulated(300, seed=seed), equal_mass=True, debiased=d)) for seed in range(60)])
        for d in (False, True)
    )
    assert plain.mean() > 0.05
    assert abs(debiased.mean()) < 0.65 * plain.mean()


def test_miscalibration_is_seen():
    assert float(ece(*simulated(5000, power=3.0))) > 0.1
    assert float(ece(*simulated(20_000, power=1.0))) < 0.02


def test_a_class_has_its_own_curve():
    probs, y = simulated()
    curve = reliability_curve(probs, y, class_index=2, num_bins=1)
    assert float(curve["confidence"][0]) == pytest.approx(float(probs[0, 0, :, 2].mean()))
    assert float(curve["frequency"][0]) == pytest.approx(float((y == 2).mean()))


def test_bad_input_is_named():
    probs, y = simulated()
    with pytest.raises(ValueError, match="num_bins=0: write a positive number"):
        ece(probs, y, num_bins=0)
    with pytest.raises(ValueError, match="class_index=3, but there are 3 classes, counted from 0"):
        reliability_curve(probs, y, class_index=3)
