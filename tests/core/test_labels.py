"""Column names and indices of pandas objects are compared, and put in order, by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.labels import columns_of, in_fitted_order, refuse_unaligned_rows
from bnnzoo.core.minibatch import DataError

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}, index=["p", "q", "r"])


def test_columns_are_put_in_the_order_of_the_fit() -> None:
    fitted = columns_of((FRAME, None), ["x", "y"])
    (found, rest) = in_fitted_order((FRAME[["b", "a"]], None), fitted, ["x", "y"])
    pd.testing.assert_frame_equal(found, FRAME)
    assert rest is None


@pytest.mark.parametrize(
    ("frame", "sentence"),
    [
        (
            FRAME.rename(columns={"a": "u"}),
            r"argument 'x' has no column 'a'; .* fitted to the columns a, b, and these are u, b",
        ),
        (FRAME.assign(c=1.0), r"has a column 'c' that the fit did not have"),
    ],
)
def test_other_columns_are_refused(frame: pd.DataFrame, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        in_fitted_order((frame,), columns_of((FRAME,), ["x"]), ["x"])


@pytest.mark.parametrize(
    "named",
    [
        lambda frame: xr.DataArray(frame.to_numpy(), dims=("row", "column"), coords={"column": [*frame.columns]}),
        lambda frame: pytest.importorskip("polars").DataFrame({name: frame[name].to_numpy() for name in frame}),
    ],
    ids=["xarray", "polars"],
)
def test_columns_of_other_kinds_of_tables_are_named_too(named: Callable[[pd.DataFrame], Any]) -> None:
    fitted = columns_of((named(FRAME),), ["x"])
    assert fitted == {"x": ("a", "b")}
    (found,) = in_fitted_order((named(FRAME[["b", "a"]]),), fitted, ["x"])
    np.testing.assert_array_equal(found.to_numpy(), FRAME.to_numpy())
    with pytest.raises(DataError, match="argument 'x' has no column 'a'"):
        in_fitted_order((named(FRAME.rename(columns={"a": "u"})),), fitted, ["x"])


def test_arrays_have_no_names_and_are_taken_as_they_are() -> None:
    array = np.ones((3, 2))
    assert in_fitted_order((array,), columns_of((FRAME,), ["x"]), ["x"])[0] is array
    assert columns_of((array,), ["x"]) == {}
    assert in_fitted_order((FRAME,), {}, ["x"])[0] is FRAME


def test_rows_are_paired_by_index_or_refused() -> None:
    y = pd.Series([1.0, 2.0, 3.0], index=FRAME.index)
    refuse_unaligned_rows((FRAME, y, np.ones(3)), ["x", "y", "z"])
    with pytest.raises(DataError, match=r"indices of arguments 'x' and 'y' differ, first at row 0 \('p' and 'r'\)"):
        refuse_unaligned_rows((FRAME, y[::-1]), ["x", "y"])


def test_a_frame_in_another_order_is_predicted_alike() -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame(rng.normal(size=(30, 2)), columns=["a", "b"])
    y = frame["a"] - 2 * frame["b"]
    model = bz.models.supervised(torch.nn.Linear(2, 1), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.1))
    posterior = bz.fit(model, bz.MAP(), x=frame, y=y)
    expected = bz.predict(posterior, frame)["conditional"]["mean"]
    np.testing.assert_array_equal(bz.predict(posterior, x=frame[["b", "a"]])["conditional"]["mean"], expected)
    with pytest.raises(DataError, match="argument 'x' has no column 'a'"):
        bz.predict(posterior, frame.rename(columns={"a": "u"}))
    shuffled = y.sample(frac=1.0, random_state=0)
    for call in (lambda: bz.fit(model, bz.MAP(), frame, shuffled), lambda: bz.predict(posterior, frame, shuffled)):
        with pytest.raises(DataError, match=r"indices of arguments 'x' and 'y' differ, first at row 0 \(0 and \d+\)"):
            call()
