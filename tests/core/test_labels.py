"""Column names and indices of pandas objects are compared, and put in order, by name."""

import numpy as np
import pandas as pd
import pytest

from bnnzoo.core.labels import in_fitted_order, labels_of, refuse_unaligned_rows
from bnnzoo.core.minibatch import DataError

FRAME = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": [4.0, 5.0, 6.0]}, index=["p", "q", "r"])


def test_columns_are_put_in_the_order_of_the_fit() -> None:
    fitted = labels_of((FRAME, None))
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
        in_fitted_order((frame,), labels_of((FRAME,)), ["x"])


def test_arrays_have_no_labels_and_are_taken_as_they_are() -> None:
    array = np.ones((3, 2))
    assert in_fitted_order((array,), labels_of((FRAME,)), ["x"])[0] is array
    assert in_fitted_order((FRAME,), labels_of((array,)), ["x"])[0] is FRAME
    assert labels_of((array, FRAME.reset_index(drop=True)))[1].rows is None


def test_rows_are_paired_by_index_or_refused() -> None:
    y = pd.Series([1.0, 2.0, 3.0], index=FRAME.index)
    refuse_unaligned_rows((FRAME, y, np.ones(3)), ["x", "y", "z"])
    with pytest.raises(DataError, match=r"indices of arguments 'x' and 'y' differ, first at row 0 \('p' and 'r'\)"):
        refuse_unaligned_rows((FRAME, y[::-1]), ["x", "y"])
