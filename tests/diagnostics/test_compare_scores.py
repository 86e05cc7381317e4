"""Differences of scores with their power, from all that has scores by row."""

import math

import arviz as az
import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.diagnostics import compare_scores
from bnnzoo.testing import linear_gaussian

TARGET = linear_gaussian(num_data=12, num_inputs=2)
X, Y = (value.double() for value in TARGET.data)
RNG = np.random.default_rng(0)
BASE = RNG.normal(size=200)
NOISE = RNG.normal(size=200)
CLOSE = BASE - 0.02 + 0.2 * (NOISE - NOISE.mean())


def test_methods_are_ranked_with_what_it_takes_to_tell_them_apart() -> None:
    found = compare_scores({"close": CLOSE, "best": BASE, "worst": BASE - 1.0 + 0.2 * RNG.normal(size=200)})
    assert found.attrs["reference"] == "best"
    assert list(found.index) == ["close", "worst"]
    gaps = CLOSE - BASE
    row = found.loc["close"]
    assert row["difference"] == pytest.approx(gaps.mean())
    assert row["se"] == pytest.approx(gaps.std(ddof=1) / math.sqrt(200))
    assert row["num_needed"] == math.ceil(200 * (row["detectable"] / row["difference"]) ** 2)
    assert row["sentence"].startswith("close compared with best: no clear difference (-0.0")
    assert "200 observations show differences from 0.0" in row["sentence"]
    assert found.loc["worst", "sentence"].startswith(
        "worst compared with best: worse (-0.999, standard error 0.014; 200"
    )
    assert found.loc["worst", "num_needed"] < 10 < found.loc["close", "num_needed"]


def test_results_of_cross_validation_are_compared_by_row_and_by_fold() -> None:
    folds = np.arange(12) % 3
    scores = {
        name: bz.validation.kfold(TARGET.model, method, X, Y, folds=folds, dtype=torch.float64)
        for name, method in {"Laplace": bz.Laplace(), "MAP": bz.MAP(num_steps=50)}.items()
    }
    rows = compare_scores(scores, "Laplace")
    table = az.compare(scores, round_to="none")
    gaps = (scores["MAP"].elpd_i - scores["Laplace"].elpd_i).to_numpy()
    assert rows.loc["MAP", "difference"] == pytest.approx(gaps.mean())
    assert 12 * abs(rows.loc["MAP", "difference"]) == pytest.approx(abs(table["elpd_diff"]).max())
    by_fold = compare_scores(scores, "Laplace", folds=folds)
    means = np.array([gaps[folds == fold].mean() for fold in range(3)])
    assert by_fold.loc["MAP", "se"] == pytest.approx(math.sqrt((1 / 3 + 1 / 2) * means.var(ddof=1)))
    assert by_fold.loc["MAP", "difference"] == pytest.approx(gaps.mean())
    assert "3 folds show differences from" in by_fold.loc["MAP", "sentence"]


def test_trees_are_compared_by_their_log_predictive_densities() -> None:
    def tree(values: np.ndarray) -> xr.DataTree:
        of_site = xr.Dataset({"y": (("chain", "draw", "obs_id"), values)})
        return xr.DataTree.from_dict({"predictions_log_likelihood": of_site})

    draws = RNG.normal(size=(2, 5, 30))
    found = compare_scores({"a": tree(draws), "b": tree(draws - 0.5)})
    assert found.loc["b", "difference"] == pytest.approx(-0.5)
    same = compare_scores({"a": np.log(np.exp(draws).mean((0, 1))), "b": tree(draws)}, "a")
    assert same.loc["b", "difference"] == pytest.approx(0.0, abs=1e-12)


def test_scores_of_random_splits_allow_for_their_overlap() -> None:
    gaps = np.array([0.3, 0.1, 0.7, 0.4, 0.2])
    found = compare_scores({"a": np.zeros(5), "b": gaps}, "a", splits=(80, 20)).loc["b"]
    assert found["se"] == pytest.approx(math.sqrt((1 / 5 + 1 / 4) * gaps.var(ddof=1)))
    assert "no clear difference" in found["sentence"]
    assert abs(found["difference"]) > 2 * found["se"]  # but not beyond a t test's critical value, 2.78
    assert "5 splits show differences from" in found["sentence"]


def test_forecasts_of_several_steps_have_a_wider_error() -> None:
    noise = np.random.default_rng(1).normal(size=202)
    scores = {"a": np.zeros(200), "b": noise[:200] + noise[1:201] + noise[2:]}
    one, three = (compare_scores(scores, "a", horizon=steps).loc["b", "se"] for steps in (1, 3))
    assert three > 1.3 * one


@pytest.mark.parametrize(
    ("scores", "options", "error", "sentence"),
    [
        (BASE, {}, TypeError, "scores is of type ndarray: pass scores by name"),
        ({"a": BASE}, {}, ValueError, "compares two methods or more, and scores holds a"),
        (
            {"a": BASE, "b": BASE[:9]},
            {"reference": "a"},
            ValueError,
            r"scores\['b'\] is of 9 observations and .* of 200",
        ),
        ({"a": BASE, "b": BASE}, {"reference": "c"}, ValueError, r"'c' is not one of the scores \(a, b\)"),
        (
            {"a": BASE, "b": 3.0},
            {},
            TypeError,
            r"scores\['b'\] is of type float; write a tree, what loo or kfold return",
        ),
        ({"a": BASE, "b": "text"}, {}, TypeError, r"scores\['b'\] is of type str"),
        (
            {"a": BASE, "b": np.where(np.arange(200) == 3, np.nan, BASE)},
            {},
            ValueError,
            r"scores\['b'\] is nan at observation 3: a difference needs finite log densities",
        ),
        ({"a": BASE, "b": xr.DataTree()}, {}, ValueError, r"scores\['b'\] has no group 'predictions_log_likelihood'"),
        (
            {"a": BASE, "b": CLOSE},
            {"folds": [0, 1]},
            ValueError,
            r"folds has shape \(2,\); write one entry for each of the 200",
        ),
        ({"a": BASE, "b": CLOSE}, {"splits": (9, 1), "horizon": 2}, ValueError, "splits= is for scores by split"),
        ({"a": BASE, "b": CLOSE}, {"splits": (9, 0)}, ValueError, r"splits=\(9, 0\); write how many rows"),
        ({"a": BASE, "b": CLOSE}, {"horizon": 0}, ValueError, "horizon=0; write the number of steps"),
        (
            {"a": BASE, "b": CLOSE},
            {"folds": np.zeros(200)},
            ValueError,
            "folds has the same entry for every observation",
        ),
    ],
)
def test_what_cannot_be_compared_is_refused(scores, options, error, sentence) -> None:
    with pytest.raises(error, match=sentence):
        compare_scores(scores, **options)


def test_the_table_is_one_of_pandas() -> None:
    found = compare_scores({"a": BASE, "b": CLOSE}, "a")
    assert isinstance(found, pd.DataFrame)
    assert list(found.columns) == ["difference", "se", "p_worse", "detectable", "num_needed", "sentence"]
    assert found.loc["b", "p_worse"] == pytest.approx(0.92, abs=0.05)
