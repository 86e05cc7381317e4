import numpy as np
import pytest
from sklearn.linear_model import LinearRegression

from bnnzoo.datasets import uci, uci_split

TABLE = np.array([[1.0, 2.0, 10.0], [3.0, 4.0, 20.0], [5.0, 6.0, 30.0], [7.0, 8.0, 40.0]])


@pytest.fixture
def folder(tmp_path):
    made = tmp_path / "toy"
    made.mkdir()
    np.savetxt(made / "data.txt", TABLE)
    for name, rows in {"features": [0, 1], "target": [2], "train_0": [3, 0], "test_0": [1, 2]}.items():
        np.savetxt(made / f"index_{name}.txt", rows, fmt="%d")
    return made


def test_columns_are_those_of_the_index_files(folder):
    data = uci(folder)
    assert data.name == "toy"
    np.testing.assert_array_equal(data.x, TABLE[:, :2])
    np.testing.assert_array_equal(data.y, TABLE[:, 2])


def test_rows_are_those_of_the_split(folder):
    split = uci_split(folder, 0)
    np.testing.assert_array_equal(split.y_train, [40.0, 10.0])
    np.testing.assert_array_equal(split.x_test, [[3.0, 4.0], [5.0, 6.0]])


def test_rows_may_lie_in_another_folder(folder, tmp_path):
    for name, rows in {"train_0": [0, 1, 2], "test_0": [3]}.items():
        np.savetxt(tmp_path / f"index_{name}.txt", rows, fmt="%d")
    np.testing.assert_array_equal(uci_split(folder, 0, rows=tmp_path).y_test, [40.0])


def test_a_folder_that_does_not_exist_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"There is no file .*nowhere.data.txt: give the folder of a UCI table"):
        uci(tmp_path / "nowhere")


def test_a_split_that_does_not_exist_lists_those_that_do(folder):
    with pytest.raises(FileNotFoundError, match=r"toy has no split 7: its splits are 0\."):
        uci_split(folder, 7)


def test_text_in_the_table_is_refused(folder):
    (folder / "data.txt").write_text("1.0 two 3.0\n")
    with pytest.raises(ValueError, match=r"data.txt must hold numbers separated by blanks"):
        uci(folder)


def test_values_that_are_not_finite_are_refused(folder):
    np.savetxt(folder / "data.txt", np.where(TABLE == 6.0, np.nan, TABLE))
    with pytest.raises(ValueError, match=r"data.txt has a value that is not finite in row 2"):
        uci(folder)


@pytest.mark.parametrize("rows", [[0, 4], [-1, 0], [0.5, 1]])
def test_rows_out_of_range_are_refused(folder, rows):
    np.savetxt(folder / "index_train_0.txt", rows)
    with pytest.raises(ValueError, match=r"index_train_0.txt must hold integers from 0 to 3, but holds"):
        uci_split(folder, 0)


def test_a_row_in_both_parts_is_refused(folder):
    np.savetxt(folder / "index_test_0.txt", [2, 3], fmt="%d")
    with pytest.raises(ValueError, match="has row 3 in both its training and its test part"):
        uci_split(folder, 0)


def test_two_targets_are_refused(folder):
    np.savetxt(folder / "index_target.txt", [1, 2], fmt="%d")
    with pytest.raises(ValueError, match=r"index_target.txt must hold one column number, but holds 2"):
        uci(folder)


@pytest.mark.reference
@pytest.mark.parametrize(("name", "rmse"), [("concrete", 10.314), ("energy", 3.056), ("yacht", 8.970)])
def test_least_squares_reaches_the_published_floor(bnnzoo_data, name, rmse):
    errors = []
    for number in range(10):
        split = uci_split(bnnzoo_data / "uci" / name, number).standardized()
        predicted = LinearRegression().fit(split.x_train, split.y_train).predict(split.x_test)
        errors.append(split.y_scale * np.sqrt(np.mean((predicted - split.y_test) ** 2)))
    # The published average is over more splits than these ten.
    assert abs(np.mean(errors) - rmse) < 3 * np.std(errors, ddof=1) / np.sqrt(10)


@pytest.mark.reference
def test_gap_splits_hold_out_the_middle_third(bnnzoo_data):
    table = bnnzoo_data / "uci" / "concrete"
    for column in range(8):
        split = uci_split(table, column, rows=bnnzoo_data / "uci_gap" / "concrete")
        low, high = split.x_test[:, column].min(), split.x_test[:, column].max()
        assert not np.any((split.x_train[:, column] > low) & (split.x_train[:, column] < high))
