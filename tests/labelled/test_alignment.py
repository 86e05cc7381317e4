"""Observations, labels and scores are matched to rows by label, or refused: one by one, and in every measure."""

import inspect

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from bnnzoo import acquisition, calibration, diagnostics, ood, uncertainty
from bnnzoo.labelled import aligned
from bnnzoo.testing import example_tree

NUM_ROWS = 40
LABELS = [f"patient {i}" for i in range(NUM_ROWS)]
RNG = np.random.default_rng(0)
ORDER = RNG.permutation(NUM_ROWS)


def labelled(tree):
    return tree.map_over_datasets(lambda d: d.assign_coords(obs_id=LABELS) if "obs_id" in d.dims else d)


CLASSES = labelled(example_tree("classification", num_rows=NUM_ROWS))
TWO_CLASSES = labelled(example_tree("classification", num_rows=NUM_ROWS, num_classes=2))
REAL = labelled(example_tree("regression", num_rows=NUM_ROWS))
OUTPUT = xr.concat([REAL["predictions"]["y"]], "output_id").transpose(..., "output_id")
SCORE = xr.DataArray(RNG.normal(size=NUM_ROWS), dims="obs_id", coords={"obs_id": LABELS})
FEATURES = xr.DataArray(RNG.normal(size=(NUM_ROWS, 2)), dims=("obs_id", "feature"), coords={"obs_id": LABELS})


def probs(fitted, tree=CLASSES):
    return fitted.transform(tree)["conditional"]["probs"]


# Every public function and class that takes what was observed, as a function of that alone.
OF_LABELS = {
    **{name: lambda y, name=name: getattr(calibration, name)(CLASSES, y) for name in (
        "nll_of_probs", "brier", "brier_split", "ece", "classwise_ece", "reliability_curve", "misclassified",
        "accuracy", "class_scores", "confusion_matrix", "rank_errors")},
    "Temperature": lambda y: probs(calibration.Temperature.fit(CLASSES, y)),
    "VectorScaling": lambda y: probs(calibration.VectorScaling.fit(CLASSES, y)),
    "Isotonic": lambda y: probs(calibration.Isotonic.fit(CLASSES, y)),
    "LeastAmbiguousSets": lambda y: calibration.LeastAmbiguousSets.fit(CLASSES, y, level=0.8).sets(CLASSES),
    "AdaptiveSets": lambda y: calibration.AdaptiveSets.fit(CLASSES, y, level=0.8).sets(CLASSES),
    "GaussianDensity": lambda y: ood.GaussianDensity.fit(FEATURES, y).score(FEATURES),
    "Mahalanobis": lambda y: ood.Mahalanobis.fit(FEATURES, y).score(FEATURES),
    "GaussianProcessScore": lambda y: ood.GaussianProcessScore.fit(FEATURES, y).score(FEATURES),
}  # fmt: skip
OF_TWO_LABELS = {
    "Platt": lambda y: probs(calibration.Platt.fit(TWO_CLASSES, y), TWO_CLASSES),
    **{name: lambda y, name=name: getattr(calibration, name)(SCORE, y, num_resamples=3) for name in (
        "auroc", "aupr", "fpr_at_95")},
    "bootstrap": lambda y: calibration.bootstrap(lambda target, score: score[target].mean(), SCORE, y, num_resamples=3),
}  # fmt: skip
OF_NUMBERS = {
    **{name: lambda y, name=name: getattr(calibration, name)(REAL, y=y) for name in (
        "crps", "interval_score", "pit", "coverage_curve", "miscalibration_area")},
    **{name: lambda y, name=name: getattr(calibration, name).fit(REAL, y, level=0.8).intervals(REAL) for name in (
        "AbsoluteResidual", "NormalizedResidual", "ConformalizedQuantiles")},
    "risk_coverage_curve": lambda y: calibration.risk_coverage_curve(SCORE, y),
    "risk_threshold": lambda y: calibration.risk_threshold(SCORE, y, 0.1),
    "predictive_check": lambda y: calibration.predictive_check(REAL, y=y),
    "aurc": lambda y: calibration.aurc(SCORE, y, num_resamples=3),
    "decompose_normal_inverse_gamma": lambda y: uncertainty.decompose_normal_inverse_gamma(abs(SCORE), 2 + abs(y), abs(y)),
    "sum_of_layers": lambda y: ood.sum_of_layers([SCORE, y], [SCORE, SCORE]),
}  # fmt: skip
LABELLED_ONLY = {"decompose_normal_inverse_gamma", "sum_of_layers"}  # arguments that other measures returned
MANY_OUTPUTS = {"energy_score"}
EVERY = {**OF_LABELS, **OF_TWO_LABELS, **OF_NUMBERS}


def y_of(name):
    if name in OF_NUMBERS:
        return REAL["predictions_observed_data"]["y"]
    return (TWO_CLASSES if name in OF_TWO_LABELS else CLASSES)["predictions_observed_data"]["y"]


def numbers(result):
    dataset = result.to_dataset(name="value") if isinstance(result, xr.DataArray) else result
    return np.concatenate([np.asarray(v, float).ravel() for _, v in sorted(dataset.data_vars.items())])


def test_the_list_is_complete():
    names = {"y", "target", "loss", "labels"}
    found = set()
    for package in (acquisition, calibration, diagnostics, ood, uncertainty):
        for name in package.__all__:
            thing = getattr(package, name)
            if isinstance(thing, type) and issubclass(thing, Warning | dict):
                continue
            function = getattr(thing, "fit", thing)
            if names & set(inspect.signature(function).parameters):
                found.add(name)
    assert found - {"epig"} == {*EVERY, *MANY_OUTPUTS} - LABELLED_ONLY  # epig's target is a tree of predictions


@pytest.mark.parametrize("name", EVERY)
def test_labels_decide(name):
    measure, y = EVERY[name], y_of(name)
    expected = numbers(measure(y))
    shuffled = y.isel(obs_id=ORDER)
    more = xr.concat([shuffled, y[:3].assign_coords(obs_id=["a", "b", "c"])], "obs_id")
    for other in (shuffled, more):
        np.testing.assert_array_equal(numbers(measure(other)), expected)
    shifted = y.assign_coords(obs_id=[f"patient {i + 10}" for i in range(NUM_ROWS)])
    with pytest.raises(
        ValueError, match=r"No value of .* has the label obs_id=patient 0 \(10 of 40 labels of .* are missing"
    ):
        measure(shifted)


@pytest.mark.parametrize("name", [name for name in EVERY if name not in LABELLED_ONLY])
def test_values_without_labels_are_taken_by_position(name):
    measure, y = EVERY[name], y_of(name)
    expected = numbers(measure(y))
    for other in (y.drop_vars("obs_id"), y.to_numpy(), y.to_numpy().tolist(), xr.DataArray(y.to_numpy())):
        np.testing.assert_array_equal(numbers(measure(other)), expected)
    series = pd.Series(y.to_numpy(), index=LABELS).sample(frac=1.0, random_state=0)
    np.testing.assert_array_equal(numbers(measure(series)), expected)
    with pytest.raises(ValueError, match=r"No value of .* has the label obs_id=patient 0 \(40 of 40 labels"):
        measure(pd.Series(y.to_numpy()))


@pytest.mark.parametrize("name", EVERY)
def test_other_sizes_are_refused(name):
    measure, y = EVERY[name], y_of(name).drop_vars("obs_id")
    for count in (1, NUM_ROWS - 1):
        with pytest.raises(
            ValueError, match=rf"There are {count} values of .* along 'obs_id' for 40 rows of .*: pass one"
        ):
            measure(y[:count])
    with pytest.raises(ValueError, match=r"Values of .* with dims \(\) cannot belong to .* dims \(obs_id: 40\)"):
        measure(y[0])
    with pytest.raises(
        ValueError, match=r"Values of .* with dims \(obs_id: 40, k: 1\) cannot belong to .*: pass them with"
    ):
        measure(y.expand_dims(k=1, axis=1))


def test_several_outputs_are_matched_too():
    y = xr.concat([REAL["predictions_observed_data"]["y"]], "output_id")
    expected = calibration.energy_score(OUTPUT, y)
    np.testing.assert_array_equal(calibration.energy_score(OUTPUT, y.isel(obs_id=slice(None, None, -1))), expected)
    np.testing.assert_array_equal(calibration.energy_score(OUTPUT, y.to_numpy().T), expected)
    with pytest.raises(ValueError, match=r"with dims \(obs_id: 40\) cannot .* dims \(obs_id: 40, output_id: 1\)"):
        calibration.energy_score(OUTPUT, y[0])


def test_a_frame_of_outputs_goes_by_its_index():
    rows = xr.DataArray(np.zeros((2, 2)), dims=("obs_id", "output_id"), coords={"obs_id": [5, 7]})
    frame = pd.DataFrame({"a": [1.0, 2.0], "b": [3.0, 4.0]}, index=[7, 5])
    assert aligned(frame, rows).values.tolist() == [[2.0, 4.0], [1.0, 3.0]]


def test_labels_that_occur_twice_name_no_row_unless_they_are_those_of_the_rows():
    twice = xr.DataArray([1.0, 2.0, 3.0], dims="obs_id", coords={"obs_id": [0, 1, 1]})
    assert aligned(twice, twice).identical(twice)
    with pytest.raises(ValueError, match="Several values of y have the label obs_id=1: pass one for each row"):
        aligned(twice, twice.assign_coords(obs_id=[0, 1, 2]))


def test_the_result_has_the_labels_of_the_rows():
    wrong = calibration.misclassified(CLASSES, y_of("ece").to_numpy())
    assert wrong["obs_id"].values.tolist() == LABELS
