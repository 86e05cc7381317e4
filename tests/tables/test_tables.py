"""Tables: what is refused and in which words, what is estimated from where, and the way back to original units."""

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
import xarray as xr

from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.tables import TableError, check_table, infer_task, prepare, read_table, restore_units
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_posterior


@pytest.fixture
def frame() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "age": rng.normal(50.0, 10.0, 40),
            "colour": rng.choice(["red", "green", "blue"], 40),
            "constant": 3.0,
            "smoker": rng.random(40) < 0.5,
            "y": rng.normal(100.0, 20.0, 40),
        }
    )


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "data.csv"
    path.write_text(text)
    return path


def test_inputs_are_standardised_with_the_training_part(frame):
    table = prepare(frame, "y", seed=1)
    held_out = table.test_rows - 1
    train = np.setdiff1d(np.arange(40), held_out)
    age = frame["age"].to_numpy()
    expected = (age[held_out] - age[train].mean()) / age[train].std()
    assert np.allclose(table.x_test[:, table.features.index("age")], expected)
    assert np.allclose(table.x_train[:, table.features.index("age")].mean(), 0.0, atol=1e-12)
    assert np.isclose(table.y_loc, frame["y"].to_numpy()[train].mean())
    assert np.allclose(table.y_test * table.y_scale + table.y_loc, frame["y"].to_numpy()[held_out])


def test_every_row_is_in_one_part(frame):
    table = prepare(frame, "y", test_size=0.25)
    assert len(table.y_train) == 30
    assert len(table.y_test) == 10


def test_categories_become_one_input_each_and_constants_zero(frame):
    table = prepare(frame, "y")
    assert {"colour=red", "colour=green", "colour=blue", "constant"} < set(table.features)
    one_hot = table.x_train[:, [table.features.index(f"colour={c}") for c in ("red", "green", "blue")]]
    assert np.array_equal(one_hot.sum(1), np.ones(len(one_hot)))
    assert not table.x_train[:, table.features.index("constant")].any()


def test_a_category_seen_only_in_the_held_out_part_is_all_zeros(frame):
    held_out = prepare(frame, "y").test_rows - 1
    frame.loc[held_out[0], "colour"] = "purple"
    table = prepare(frame, "y")
    colours = [i for i, name in enumerate(table.features) if name.startswith("colour=")]
    assert len(colours) == 3
    assert not table.x_test[0, colours].any()


def test_classes_are_coded_in_order_and_stratified(frame):
    frame["kind"] = ["b"] * 10 + ["a"] * 30
    table = prepare(frame.drop(columns="y"), "kind")
    assert table.task == "classification"
    assert table.classes == ("a", "b")
    assert np.bincount(table.y_train).tolist() == [24, 8]
    assert (table.y_loc, table.y_scale) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("values", "task"),
    [
        (["yes", "no"], "classification"),
        ([True, False], "classification"),
        ([0, 1, 2], "classification"),
        ([0.0, 1.0, 1.0], "classification"),
        (list(range(11)), "regression"),
        ([0.5, 1.0], "regression"),
    ],
)
def test_task_is_inferred_from_the_target(values, task):
    assert infer_task(pd.Series(values)) == task


def test_task_can_be_overruled(frame):
    frame["y"] = np.arange(40) % 5
    assert prepare(frame, "y").task == "classification"
    assert prepare(frame, "y", task="regression").task == "regression"


def test_columns_can_be_dropped(frame):
    assert not any(name.startswith("colour") for name in prepare(frame, "y", drop=["colour"]).features)


def test_the_same_seed_gives_the_same_split(frame):
    splits = [prepare(frame, "y", seed=seed).test_rows.tolist() for seed in (0, 0, 1)]
    assert splits[0] == splits[1] != splits[2]


def test_a_missing_value_is_refused_by_row_and_column(frame):
    frame.loc[6, "age"] = np.nan
    frame.loc[9, "age"] = np.nan
    with pytest.raises(TableError, match=r"Column 'age' has 2 missing value\(s\), the first in row 7"):
        prepare(frame, "y")


def test_a_missing_category_or_target_is_refused_as_well(frame):
    frame.loc[0, "colour"] = None
    with pytest.raises(TableError, match="Column 'colour' has 1 missing value"):
        prepare(frame, "y")
    frame["colour"], frame["y"] = "red", np.nan
    with pytest.raises(TableError, match="Column 'y' has 40 missing value"):
        prepare(frame, "y")


def test_an_infinite_value_is_refused_by_row_and_column(frame):
    frame.loc[3, "age"] = -np.inf
    with pytest.raises(TableError, match="Column 'age' has the value -inf in row 4; values must be finite"):
        prepare(frame, "y")


def test_a_column_of_numbers_with_stray_text_is_refused(frame):
    frame["age"] = frame["age"].astype(str)
    frame.loc[11, "age"] = "about 50"
    with pytest.raises(TableError, match="Column 'age' mixes numbers with text: row 12 has 'about 50'"):
        prepare(frame, "y")


def test_an_identifier_is_refused(frame):
    frame = pd.concat([frame] * 2, ignore_index=True).assign(name=[f"patient {i}" for i in range(80)])
    with pytest.raises(TableError, match=r"Text column 'name' has 80 different values in 80 rows.*--drop 'name'"):
        prepare(frame, "y")


def test_a_missing_target_column_is_refused_with_a_guess(frame):
    with pytest.raises(TableError, match=r"no target column 'Age' among the columns age, colour.*Did you mean 'age'\?"):
        check_table(frame, "Age")


@pytest.mark.parametrize("size", [0.0, 1.0, -0.5, 7.0])
def test_the_held_out_share_must_be_a_share(frame, size):
    with pytest.raises(TableError, match=f"test_size must lie strictly between 0 and 1, not {size}"):
        prepare(frame, "y", test_size=size)


def test_an_unknown_task_is_refused(frame):
    with pytest.raises(TableError, match="task must be 'regression' or 'classification', not 'ranking'"):
        prepare(frame, "y", task="ranking")  # type: ignore[arg-type]


def test_dropping_what_is_not_there_or_is_needed_is_refused(frame):
    with pytest.raises(TableError, match="Column 'size' cannot be dropped: the columns are age, colour"):
        prepare(frame, "y", drop=["size"])
    with pytest.raises(TableError, match="The target column 'y' cannot be dropped"):
        prepare(frame, "y", drop=["y"])


def test_a_table_without_inputs_is_refused(frame):
    with pytest.raises(TableError, match="There are no input columns besides the target 'y'"):
        prepare(frame[["y"]], "y")


def test_regression_on_text_is_refused(frame):
    with pytest.raises(
        TableError, match=r"Target column 'colour' contains text such as '.*', so regression is impossible"
    ):
        prepare(frame, "colour", task="regression")


def test_a_constant_target_is_refused(frame):
    with pytest.raises(TableError, match=r"Target column 'constant' is constant \(3\) in the training part"):
        prepare(frame, "constant", task="regression")


def test_a_single_class_is_refused(frame):
    with pytest.raises(TableError, match="Target column 'constant' has a single class, 3"):
        prepare(frame, "constant")


def test_a_class_with_one_row_is_refused(frame):
    frame["kind"] = ["a"] * 39 + ["b"]
    with pytest.raises(TableError, match="Class 'b' of target column 'kind' has one row"):
        prepare(frame, "kind")


def test_too_few_rows_are_refused(frame):
    with pytest.raises(TableError, match=r"2 rows with test_size 0\.5 leave 1 for training; at least 2 are needed"):
        prepare(frame.head(2), "y", test_size=0.5)
    with pytest.raises(TableError, match=r"1 rows cannot be split with test_size 0\.5"):
        prepare(frame.head(1), "y", test_size=0.5)


def test_a_table_is_read_as_it_stands(tmp_path):
    frame = read_table(write(tmp_path, "a,b,y\n1,x,2.5\n2,z,3.5\n"))
    assert frame.shape == (2, 3)
    assert list(read_table(write(tmp_path, "a;y\n1;2\n"), separator=";").columns) == ["a", "y"]


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "is empty; a header line and one line per observation are needed"),
        ("a;y\n1;2\n", "has one column when split at ',', header 'a;y'; .* say so with --separator"),
        ("a,a,y\n1,2,3\n", "Column 'a' appears more than once in the header"),
        ("a,y\n1,2\n1,2,3,4\n", "cannot be read as a CSV file in UTF-8: .*line 3"),
        ("a,y\n", "has a header but no rows"),
    ],
)
def test_a_malformed_file_is_refused(tmp_path, text, sentence):
    with pytest.raises(TableError, match=sentence):
        read_table(write(tmp_path, text))


def test_a_file_that_is_not_there_or_no_table_is_refused(tmp_path):
    with pytest.raises(TableError, match=r"There is no file '.*missing\.csv'"):
        read_table(tmp_path / "missing.csv")
    with pytest.raises(TableError, match="is a folder; give the path of a CSV file"):
        read_table(tmp_path)
    (tmp_path / "binary.csv").write_bytes(bytes(range(256)) * 4)
    with pytest.raises(TableError, match="cannot be read as a CSV file in UTF-8"):
        read_table(tmp_path / "binary.csv")


def test_original_units_are_those_of_a_model_of_the_original_target():
    target = linear_gaussian(num_inputs=2)
    posterior, (x, y) = exact_posterior(target), target.data
    frame = pd.DataFrame(x.numpy(), columns=["a", "b"]).assign(y=7.0 + 5.0 * y.numpy())
    table = prepare(frame, "y", task="regression")
    tree = predict(posterior, x[:6], y[:6], num_draws=20)
    restored = restore_units(tree, table)
    loc, scale = table.y_loc, table.y_scale
    w = torch.from_numpy(tree["posterior"]["w"].to_numpy())
    normal = torch.distributions.Normal(loc + scale * (w @ x[:6].T), scale * target.noise)
    original = loc + scale * y[:6]
    assert np.allclose(restored["predictions_log_likelihood"]["y"], normal.log_prob(original))
    assert np.allclose(restored["conditional"]["mean"], normal.mean)
    assert np.allclose(restored["conditional"]["variance"], normal.variance)
    assert np.allclose(restored["conditional"]["entropy"], normal.entropy())
    assert np.allclose(restored["predictions_observed_data"]["y"], original)
    assert np.allclose(restored["predictions"]["y"], loc + scale * tree["predictions"]["y"])
    assert restored["posterior"].identical(tree["posterior"])
    assert restored.attrs == tree.attrs


def test_restoring_units_leaves_the_given_tree_alone():
    target = linear_gaussian(num_inputs=2)
    tree = posterior_predictive(exact_posterior(target), *target.data, num_draws=5)
    before = tree.copy(deep=True)
    frame = pd.DataFrame(target.data[0].numpy(), columns=["a", "b"]).assign(y=3.0 * target.data[1].numpy())
    restored = restore_units(tree, prepare(frame, "y", task="regression"))
    assert tree.identical(before)
    xr.testing.assert_identical(restored["constant_data"].to_dataset(), tree["constant_data"].to_dataset())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a,y\n1,2,\n3,4,\n", r"line 2 has 3 fields, but the header has 2\. 2 lines differ.*ends with a separator"),
        ("a,y\n0,1,2\n1,3,4\n", r"line 2 has 3 fields, but the header has 2.*a name, also one of row numbers"),
        ("a,b,y\n1,2,3\n1,2\n", r"line 3 has 2 fields, but the header has 3\. Write a separator for each field"),
        ('a,y\n1,"2\n3"\n1,2,3\n', "line 4 has 3 fields"),
    ],
)
def test_lines_longer_or_shorter_than_the_header_are_refused_by_number(tmp_path, text, sentence):
    with pytest.raises(TableError, match=sentence):
        read_table(write(tmp_path, text))


def test_quoted_separators_blank_lines_and_compressed_files_are_read(tmp_path):
    path = write(tmp_path, '\ufeffa,y\n"1,5",2\n\n"x",3\n')
    assert read_table(path)["a"].tolist() == ["1,5", "x"]
    (tmp_path / "data.csv.gz").write_bytes(gzip.compress(path.read_bytes()))
    assert read_table(tmp_path / "data.csv.gz").equals(read_table(path))


@pytest.mark.parametrize(
    ("marks", "sentence"),
    [
        (("", "."), r"--separator must be one character, such as ',' or ';' or '\\t', not ''"),
        (("||", "."), "--separator must be one character"),
        ((",", "'"), "--decimal must be '.' or ','"),
        ((",", ","), "--decimal and --separator are both ','.*usually --separator ';'"),
    ],
)
def test_marks_that_cannot_be_are_refused(tmp_path, marks, sentence):
    with pytest.raises(TableError, match=sentence):
        read_table(write(tmp_path, "a,y\n1,2\n"), *marks)


def test_decimal_commas_are_read_and_otherwise_pointed_out(tmp_path):
    path = write(tmp_path, "a;y\n" + "\n".join(f"{i},5;{i}" for i in range(80)))
    assert read_table(path, ";", ",")["a"].tolist() == [i + 0.5 for i in range(80)]
    with pytest.raises(
        TableError, match=r"Column 'a' holds numbers with decimal commas, such as '0,5'; use --decimal ','"
    ):
        prepare(read_table(path, ";"), "y")
    with pytest.raises(TableError, match=r"seem to be separated by ';': use --separator ';', and --decimal ','"):
        read_table(path)


def test_few_decimal_commas_do_not_become_categories(frame):
    frame["dose"] = ["1,5", "2"] * 20
    with pytest.raises(TableError, match="Column 'dose' holds numbers with decimal commas, such as '1,5'"):
        prepare(frame, "y")


def test_dates_become_days(frame):
    days = pd.date_range("2024-02-27", periods=40)
    for dates in (days, days.strftime("%Y-%m-%d"), days.strftime("%Y-%m-%dT%H:%M:%S")):
        table = prepare(frame.assign(seen=dates), "y")
        train = np.setdiff1d(np.arange(40), table.test_rows - 1)
        assert np.allclose(table.x_train[:, table.features.index("seen")], (train - train.mean()) / train.std())
        assert table.notes == ("Dates in column 'seen' became a number of days.",)


@pytest.mark.parametrize(
    ("dates", "sentence"),
    [
        (["31.12.2023", "1.1.2024"], "Column 'seen' holds dates such as '31.12.2023'; write them as year-month-day"),
        (["12/31/2023", "1/1/24"], "Column 'seen' holds dates such as '12/31/2023'"),
        (["2024-02-29", "2023-02-29"], r"Column 'seen' holds dates, but there is no '2023-02-29' \(row 2\)"),
    ],
)
def test_other_dates_are_refused(frame, dates, sentence):
    with pytest.raises(TableError, match=sentence):
        prepare(frame.assign(seen=dates * 20), "y")


def test_a_target_of_dates_is_refused(frame):
    with pytest.raises(TableError, match="Target column 'y' holds dates such as '2024-02-27'; write it as a number"):
        prepare(frame.assign(y=["2024-02-27", "2024-02-28"] * 20), "y")


def test_rows_with_missing_values_can_be_dropped(frame):
    complete = prepare(frame.drop(index=[6, 9]), "y")
    frame.loc[6, "age"] = np.nan
    frame.loc[9, "y"] = np.nan
    table = prepare(frame, "y", missing="drop")
    assert np.array_equal(table.x_train, complete.x_train)
    assert np.array_equal(table.y_test, complete.y_test)
    assert np.array_equal(table.test_rows, np.setdiff1d(np.arange(40), [6, 9])[complete.test_rows - 1] + 1)
    assert table.notes == ("2 of 40 rows have missing values and were left out.",)


def test_missing_inputs_can_be_imputed_from_the_training_part(frame):
    held_out = prepare(frame, "y").test_rows - 1
    train = np.setdiff1d(np.arange(40), held_out)
    frame.loc[[train[0], held_out[0]], "age"] = np.nan
    frame.loc[train[:3], "colour"] = None
    table = prepare(frame, "y", missing="impute")
    age = frame["age"].fillna(frame["age"].iloc[train].median()).to_numpy()
    expected = (age[held_out] - age[train].mean()) / age[train].std()
    assert np.allclose(table.x_test[:, table.features.index("age")], expected)
    assert np.flatnonzero(table.x_train[:, table.features.index("age=missing")] > 0).tolist() == [0]
    assert np.flatnonzero(table.x_train[:, table.features.index("colour=missing")]).tolist() == [0, 1, 2]
    assert any("2 missing value(s) of 'age' became the training median" in note for note in table.notes)


def test_a_missing_target_is_never_imputed(frame):
    frame.loc[3, "y"], frame.loc[5, "age"] = np.nan, np.nan
    table = prepare(frame, "y", missing="impute")
    assert len(table.y_train) + len(table.y_test) == 39 and 4 not in table.test_rows
    assert table.notes[0] == "1 of 40 rows have no 'y' and were left out."
    assert any("1 missing value(s) of 'age' became" in note for note in table.notes)


def test_a_column_without_values_is_refused_by_every_treatment(frame):
    for missing in ("drop", "impute"):
        with pytest.raises(TableError, match=r"40 missing value.*and no others; leave it out with --drop 'empty'"):
            prepare(frame.assign(empty=np.nan), "y", missing=missing)


def test_a_column_without_a_name_is_refused(frame):
    with pytest.raises(TableError, match="Column 1 has no name in the header; name it, or use --drop 'Unnamed: 0'"):
        prepare(pd.concat([pd.Series(range(40), name="Unnamed: 0"), frame], axis=1), "y")


@pytest.mark.parametrize("seed", [-1, 2**32, 1.5, True])
def test_the_seed_is_blamed_for_itself(frame, seed):
    with pytest.raises(TableError, match=f"seed must be a whole number from 0 to 4294967295, not {seed}"):
        prepare(frame, "y", seed=seed)


def test_all_problems_are_said_at_once(frame):
    frame = pd.concat([frame] * 2).assign(name=[f"patient {i}" for i in range(80)], seen=["1.2.2024", "2.2.2024"] * 40)
    frame["age"] = frame["age"].where(frame["age"] > 45)
    frame["smoker"] = frame["smoker"].astype(float).replace(1.0, np.inf)
    with pytest.raises(TableError) as refusal:
        prepare(frame, "Y", test_size=2.0, drop=["weight"])
    found = refusal.value.problems
    starts = [
        "test_size",
        "Column 'weight'",
        "There is no target",
        "Column 'age'",
        "Column 'smoker'",
        "Text column 'name'",
    ]
    assert [any(p.startswith(start) for p in found) for start in starts] == [True] * 6
    assert len(found) == 7
    assert str(refusal.value).startswith("There are 7 problems:\n  1. test_size")


def test_an_unknown_treatment_of_missing_values_is_refused(frame):
    with pytest.raises(TableError, match="missing must be 'refuse', 'drop' or 'impute', not 'mean'"):
        prepare(frame, "y", missing="mean")  # type: ignore[arg-type]


def counted():
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        {
            "x": rng.normal(size=20),
            "days": rng.integers(1, 9, 20),
            "running": rng.random(20) < 0.5,
            "site": list("ab") * 10,
            "y": rng.poisson(5.0, 20) + 20 * np.arange(20),
        }
    )


def test_columns_beside_the_target_keep_their_values():
    frame = counted()
    table = prepare(frame, "y", beside=("days", "running"), standardize_target=False)
    assert table.features == ("x", "site=a", "site=b")
    held_out = table.test_rows - 1
    for found, rows in ((table.beside_test, held_out), (table.beside_train, np.setdiff1d(np.arange(20), held_out))):
        np.testing.assert_array_equal(found["days"], frame["days"].to_numpy()[rows])
        np.testing.assert_array_equal(found["running"], frame["running"].to_numpy()[rows])
        assert found["running"].dtype == bool
    np.testing.assert_array_equal(table.y_test, frame["y"].to_numpy()[held_out])
    assert (table.y_loc, table.y_scale) == (0.0, 1.0)


@pytest.mark.parametrize(
    ("change", "arguments", "message"),
    [
        (
            {},
            {"beside": ["time"]},
            "Column 'time' cannot be kept beside the target: the other columns are x, days, running",
        ),
        ({}, {"beside": ["y"]}, "Column 'y' cannot be kept beside the target"),
        ({}, {"beside": ["site"]}, "Column 'site' is kept beside the target and must be numeric, but holds 'a'"),
        (
            {"days": [np.nan] * 2 + [1.0] * 18},
            {"beside": ["days"], "missing": "impute"},
            "is never imputed, .* missing='drop'",
        ),
        (
            {},
            {"beside": ["x", "days", "running", "site"], "drop": ["site"]},
            "There are no input columns|cannot be kept",
        ),
    ],
)
def test_columns_that_cannot_stand_beside_the_target_are_refused(change, arguments, message):
    with pytest.raises(TableError, match=message):
        prepare(counted().assign(**change), "y", **arguments)
