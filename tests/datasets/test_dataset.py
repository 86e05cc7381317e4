import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from bnnzoo.datasets import Dataset, Split


def regression():
    generator = np.random.default_rng(0)
    return Dataset("made", generator.normal(3.0, 2.0, (50, 3)), generator.normal(100.0, 7.0, 50), ("a", "b", "c"))


def test_a_split_has_every_row_once():
    data = regression()
    split = data.split(test_size=0.3, seed=1)
    assert len(split.y_train) == 35
    assert len(split.y_test) == 15
    np.testing.assert_array_equal(np.sort(np.concatenate([split.y_train, split.y_test])), np.sort(data.y))


def test_a_split_is_fixed_by_its_seed():
    first, same, other = (regression().split(seed=seed).y_test for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert not np.array_equal(first, other)


def test_data_sets_are_printed_in_one_line():
    assert repr(regression()) == "Dataset(made: 50 rows, 3 inputs (a, b, c))"
    pictures = Dataset("made", np.zeros((9, 4, 4)), np.arange(9) % 3, (), ("no", "yes", "perhaps"))
    assert repr(pictures) == "Dataset(made: 9 rows, 4 x 4 inputs, 3 classes (no, yes, perhaps))"
    assert repr(Dataset("wide", np.zeros((2, 5)), np.zeros(2), tuple("abcde"))).endswith("5 inputs (a, b, c, d, ...))")


def test_classes_keep_their_shares():
    data = Dataset("made", np.zeros((100, 1)), np.repeat([0, 1], [90, 10]), ("a",), ("no", "yes"))
    assert data.split(test_size=0.2).y_test.sum() == 2


def test_standardising_uses_the_training_part_alone():
    split = regression().split()
    found = split.standardized()
    np.testing.assert_allclose(found.x_test, StandardScaler().fit(split.x_train).transform(split.x_test))
    np.testing.assert_allclose([found.y_train.mean(), found.y_train.std()], [0.0, 1.0], atol=1e-12)
    np.testing.assert_allclose(found.y_test * found.y_scale + found.y_loc, split.y_test)


def test_standardising_twice_changes_nothing():
    once = regression().split().standardized()
    twice = once.standardized()
    for name in ("x_train", "y_train", "x_test", "y_test"):
        np.testing.assert_allclose(getattr(twice, name), getattr(once, name), atol=1e-12)
    assert (twice.y_loc, twice.y_scale) == pytest.approx((once.y_loc, once.y_scale))


def test_a_constant_input_or_target_does_not_divide_by_zero():
    found = Split(np.ones((4, 2)), np.full(4, 5.0), np.full((1, 2), 3.0), np.array([6.0])).standardized()
    np.testing.assert_array_equal(found.x_train, 0.0)
    np.testing.assert_array_equal(found.x_test, 2.0)
    np.testing.assert_array_equal(found.y_test, 1.0)


def test_labels_are_not_standardised():
    split = Split(np.eye(4), np.array([0, 1, 1, 2]), np.eye(4), np.array([2, 1, 0, 0])).standardized()
    np.testing.assert_array_equal(split.y_train, [0, 1, 1, 2])
    assert (split.y_loc, split.y_scale) == (0.0, 1.0)


def test_a_calibration_part_is_taken_from_the_training_part():
    data = regression()
    two, three = data.split(test_size=0.3, seed=1), data.split(test_size=0.3, seed=1, calibration_size=0.2)
    np.testing.assert_array_equal(three.x_test, two.x_test)
    np.testing.assert_array_equal(three.y_test, two.y_test)
    assert [len(part) for part in (three.y_train, three.y_calibration, three.y_test)] == [25, 10, 15]
    parts = [three.y_train, three.y_calibration, three.y_test]
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), np.sort(data.y))
    assert two.x_calibration.size == two.y_calibration.size == 0


def test_a_calibration_part_keeps_the_shares_of_classes():
    data = Dataset("made", np.zeros((100, 1)), np.repeat([0, 1], [90, 10]), ("a",), ("no", "yes"))
    assert data.split(calibration_size=0.2).y_calibration.sum() == 2


def test_a_calibration_part_is_standardised_by_the_training_part():
    split = regression().split(calibration_size=0.2)
    found = split.standardized()
    np.testing.assert_allclose(found.x_calibration, StandardScaler().fit(split.x_train).transform(split.x_calibration))
    np.testing.assert_allclose(found.y_calibration * found.y_scale + found.y_loc, split.y_calibration)


@pytest.mark.parametrize("size", [-0.1, 0.8, 1.5])
def test_a_calibration_part_leaves_rows_for_training(size):
    with pytest.raises(ValueError, match=rf"calibration_size={size}\) leaves no observations for training: write a"):
        regression().split(calibration_size=size)
