"""Column names and indices of pandas objects are compared, and put in order, by name."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.data.conversion import DataError
from bnnzoo.core.data.frame_labels import columns_of, in_fitted_order, refuse_unaligned_rows

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
    assert fitted["x"] == ("a", "b")
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


def labelled(values: Any, labels: Any = None) -> xr.DataArray:
    return xr.DataArray(values, dims="obs", coords={} if labels is None else {"obs": labels})


X, Y = labelled([1.0, 2.0, 3.0], ["p", "q", "r"]), labelled([4.0, 5.0, 6.0], ["p", "q", "r"])


@pytest.mark.parametrize(
    ("data", "names"),
    [
        ((X, Y[::-1]), "'x' and 'y'"),
        ((FRAME, Y[::-1]), "'x' and 'y'"),
        (({"x": FRAME["a"], "y": FRAME["b"][::-1]}, None), r"\"x\['x'\]\" and \"x\['y'\]\""),
        (([FRAME, Y[::-1]], None), r"'x\[0\]' and 'x\[1\]'"),
    ],
    ids=["xarray", "pandas and xarray", "mapping", "list"],
)
def test_rows_of_labelled_arrays_and_within_mappings_are_paired_by_label_or_refused(data: Any, names: str) -> None:
    refuse_unaligned_rows((X, {"y": Y, "z": [FRAME]}, labelled([0.0, 0.0, 0.0])), ["x", "y", "z"])
    with pytest.raises(DataError, match=rf"indices of arguments {names} differ, first at row 0 \('p' and 'r'\)"):
        refuse_unaligned_rows(data, ["x", "y"])


def test_dimensions_of_labelled_arrays_are_put_in_the_order_of_the_fit() -> None:
    table = xr.DataArray([[1.0, 2.0], [3.0, 4.0]], dims=("obs", "feature"))
    fitted = columns_of(({"x": table},), ["d"])
    (found,) = in_fitted_order(({"x": table.T, "z": 1},), fitted, ["d"])
    xr.testing.assert_equal(found["x"], table)
    same = {"x": table.rename(obs="row")}  # other names say nothing of the order
    assert in_fitted_order((same,), fitted, ["d"])[0] is same


@pytest.mark.parametrize(
    "named",
    [
        lambda name: pd.Series([1.0, 2.0], name=name),
        lambda name: labelled([1.0, 2.0]).rename(name),
        lambda name: pytest.importorskip("polars").Series(name, [1.0, 2.0]),
    ],
    ids=["pandas", "xarray", "polars"],
)
def test_a_series_of_another_name_is_refused(named: Callable[[str | None], Any]) -> None:
    fitted = columns_of((named("dose"),), ["x"])
    for fine in (named("dose"), named(None), np.ones(2)):
        assert in_fitted_order((fine,), fitted, ["x"])[0] is fine
    with pytest.raises(DataError, match=r"argument 'x' is 'age' here and was 'dose' at the fit.*x\.rename\('dose'\)"):
        in_fitted_order((named("age"),), fitted, ["x"])
