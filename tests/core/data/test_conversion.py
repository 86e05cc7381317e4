"""What holds numbers becomes a tensor; what does not is refused with argument, row and column."""

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from bnnzoo.core.data.conversion import DataError, as_tensor

CPU = torch.device("cpu")
VALUES = np.arange(6.0).reshape(3, 2)
FRAME = pd.DataFrame(VALUES, columns=["a", "b"])


class PolarsLike:
    """A frame of another library: ``to_numpy``, ``columns`` as a list, and ``dtypes`` as a list."""

    columns = ("a", "b")
    dtypes = ("f", "f")

    def to_numpy(self):
        return VALUES


class ArrayLike:
    def __array__(self, dtype=None, copy=None):
        return VALUES


def converted(value):
    return as_tensor(value, "argument 1 of the model", torch.float32, CPU)


@pytest.mark.parametrize(
    "value",
    [
        VALUES,
        VALUES.tolist(),
        list(VALUES),
        VALUES.astype(object),
        VALUES.astype(">f8"),
        VALUES.astype(np.float16),
        VALUES.astype(np.longdouble),
        VALUES[::-1][::-1],
        np.ma.masked_greater(VALUES, 100.0),
        FRAME,
        FRAME.astype("Float64"),
        PolarsLike(),
        ArrayLike(),
        xr.DataArray(VALUES),
        torch.tensor(VALUES),
        torch.tensor(VALUES, dtype=torch.bfloat16),
        torch.nn.Parameter(torch.tensor(VALUES)),
    ],
    ids=lambda value: type(value).__name__,
)
def test_numbers_become_a_tensor_of_the_type_of_the_fit(value) -> None:
    found = converted(value)
    assert type(found) is torch.Tensor
    assert not found.requires_grad
    assert found.dtype == torch.float32
    assert found.tolist() == VALUES.tolist()


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ([1, 2], torch.int64),
        ([True, False], torch.bool),
        (np.array([1, 2], dtype=np.uint16), torch.int64),
        (np.array([1, 2], dtype=np.int8), torch.int64),
        (np.array([1, 2], dtype=object), torch.int64),
        (pd.Series([1, 2], dtype="Int64"), torch.int64),
        (np.array([True, False]), torch.bool),
    ],
)
def test_whole_numbers_and_booleans_keep_their_kind(value, kind: torch.dtype) -> None:
    assert converted(value).dtype == kind


@pytest.mark.parametrize("value", [None, 3.0, "name", (20, 20), np.float64(1.0), ["a", "b"], [], {"x": 1}, torch.tanh])
def test_what_holds_no_numbers_is_passed_on(value) -> None:
    assert converted(value) is value


MISSING = FRAME.astype("Float64")
MISSING.iloc[1, 1] = pd.NA


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        (MISSING, r"argument 1 of the model holds nan at row 1, column 1 \('b'\)\. Remove or impute"),
        (FRAME.where(FRAME < 5), r"holds nan at row 2, column 1 \('b'\)"),
        (MISSING["b"], "holds nan at row 1"),
        (np.where(VALUES > 4, None, VALUES), "holds nan at row 2, column 1"),
        (np.ma.masked_greater(VALUES, 4.0), "holds nan at row 2, column 1"),
        ([[1.0, None]], "holds nan at row 0, column 1"),
        (np.where(VALUES > 4, -np.inf, VALUES), "holds -inf at row 2, column 1"),
        (FRAME.assign(b="u"), "has the non-numeric column 'b'. Encode it as numbers"),
        (FRAME.assign(b=pd.Categorical(list("uvw"))), "has the non-numeric column 'b'"),
        (FRAME.assign(b=pd.Timestamp("2020")), "has the non-numeric column 'b'. Write dates as numbers"),
        (pd.Series(["u"]), "is not numeric"),
        (np.array(["2020"], dtype="datetime64[D]"), r"is not numeric \(dtype datetime64\[D\]\)\. Write dates"),
        (VALUES + 1j, "is not numeric .dtype complex128.. Pass real and imaginary parts"),
        (torch.tensor(VALUES) + 1j, "holds complex numbers"),
        (torch.tensor(VALUES).to_sparse(), r"is a sparse tensor\. Pass the dense one, \.to_dense\(\)"),
        ([[1.0, 2.0], [3.0]], "is a list whose rows have different lengths"),
        (xr.Dataset({"u": ("i", [1.0])}), r"is a Dataset of several variables \(u\)\. Pass one of them"),
        (torch.utils.data.DataLoader([1.0]), "is a DataLoader. Pass all rows as arrays or tensors; batch_size="),
        (torch.utils.data.TensorDataset(torch.ones(2)), "is a TensorDataset"),
    ],
)
def test_other_data_are_refused_with_the_place(value, sentence: str) -> None:
    with pytest.raises(DataError, match=sentence):
        converted(value)


def test_a_sparse_matrix_is_refused() -> None:
    class Sparse:
        nnz = 1

        def toarray(self):
            return VALUES

    with pytest.raises(DataError, match=r"is a sparse matrix\. Pass the dense one, \.toarray\(\)"):
        converted(Sparse())
