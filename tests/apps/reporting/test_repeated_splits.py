"""Scores over repeated splits."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from bnnzoo.apps.reporting.repeated_splits import Repeat, repeat_findings, repeat_grid, repeats_frame
from bnnzoo.apps.reporting.report_findings import findings
from bnnzoo.apps.reporting.scores import REGRESSION
from bnnzoo.trees.power import corrected_error, detectable_difference
from tests.helpers.trees import comparison


def repeats(num_splits=4):
    rng = np.random.default_rng(0)
    labels = [score.label for score in REGRESSION]
    offsets = {"nuts": 0.0, "mfvi": -0.5, "mean only": -3.0}
    noise = rng.normal(size=(num_splits, len(labels)))
    return tuple(
        Repeat(
            7 + k, 80, 20, {name: dict(zip(labels, noise[k] + shift, strict=True)) for name, shift in offsets.items()}
        )
        for k in range(num_splits)
    )


def off_by(repeat: Repeat, amount: float) -> dict[str, float]:
    return {label: value + amount for label, value in repeat.scores["nuts"].items()}


def test_standard_errors_allow_for_the_overlap_of_training_parts():
    values = np.array([0.3, 0.1, 0.7, 0.4])
    assert corrected_error(values, 20 / 80) == pytest.approx(np.sqrt((0.25 + 0.25) * values.var(ddof=1)))
    assert np.isnan(corrected_error([1.0], 20 / 80))


def test_the_corrected_error_is_that_of_the_mean_over_splits():
    """The mean over splits of one data set, against that of other data sets: the usual standard error is far too small."""
    rng = np.random.default_rng(1)
    means, corrected, usual = [], [], []
    for _ in range(300):
        x = rng.normal(size=50)
        y = x + rng.normal(size=50)
        losses = []
        for _ in range(10):
            order = rng.permutation(50)
            train, test = order[:40], order[40:]
            line = LinearRegression().fit(x[train, None], y[train])
            losses.append(np.mean((y[test] - line.predict(x[test, None])) ** 2))
        means.append(np.mean(losses))
        corrected.append(corrected_error(losses, 10 / 40))
        usual.append(np.std(losses, ddof=1) / np.sqrt(10))
    assert np.mean(usual) < 0.75 * np.std(means)
    assert 0.75 < np.mean(corrected) / np.std(means) < 1.5


def test_the_table_has_means_and_paired_differences():
    found = repeats()
    grid = repeat_grid(found, REGRESSION)
    assert [name for name, _ in grid.cells] == ["nuts", "mfvi", "mean only"]
    values = np.array([repeat.scores["mfvi"]["RMSE"] for repeat in found])
    assert grid.rows[1][1] == f"{values.mean():.2f} ± {corrected_error(values, 20 / 80):.2f}"
    assert grid.rows[0][-1] == "reference"
    assert grid.rows[1][-1].startswith("-0.500")
    close = [
        dataclasses.replace(each, scores={**each.scores, "map": off_by(each, 0.1 * k)}) for k, each in enumerate(found)
    ]
    error = corrected_error([0.0, 0.1, 0.2, 0.3], 20 / 80)
    assert repeat_grid(close, REGRESSION).rows[3][-1] == f"+0.150 ± {error:.3f} ({detectable_difference(error, 4):.2g})"
    assert repeat_findings(close)[2].endswith(
        "no clear difference (+0.150, standard error 0.091; 4 splits show differences from 0.38 on, and one of this size no "
        "number of splits of these rows)."
    )
    assert "4 random splits (seeds 7 to 10)" in grid.note
    frame = repeats_frame(found)
    assert len(frame) == 12
    assert frame.groupby("method")["log density"].mean()["mfvi"] == pytest.approx(
        frame.groupby("method")["log density"].mean()["nuts"] - 0.5
    )


def test_findings_name_the_splits():
    found = repeats()
    assert repeat_findings(()) == []
    assert (
        "mfvi compared with nuts in log density over 4 splits: worse (-0.500, standard error"
        in repeat_findings(found)[0]
    )
    result = dataclasses.replace(comparison("regression"), repeats=found)
    said = " ".join(findings(result))
    assert "over 4 splits" in said
    assert "on held-out observations: " not in said
    assert "All scores are from one split" not in said
    assert "another split would give other values (bnnzoo compare --repeats)" in " ".join(
        findings(comparison("regression"))
    )
