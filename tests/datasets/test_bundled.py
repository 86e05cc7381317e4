import numpy as np
import pytest
from sklearn.datasets import load_diabetes

from bnnzoo import datasets


@pytest.mark.parametrize(
    ("load", "shape", "num_classes"),
    [
        (datasets.diabetes, (442, 10), 0),
        (datasets.breast_cancer, (569, 30), 2),
        (datasets.digits, (1797, 64), 10),
        (datasets.iris, (150, 4), 3),
        (datasets.wine, (178, 13), 3),
    ],
)
def test_shapes_names_and_kinds(load, shape, num_classes):
    data = load()
    assert data.x.shape == shape
    assert data.y.shape == shape[:1]
    assert len(data.features) == shape[1]
    assert len(data.classes) == num_classes
    assert data.x.dtype == np.float64
    assert data.y.dtype == (np.int64 if num_classes else np.float64)
    if num_classes:
        np.testing.assert_array_equal(np.unique(data.y), np.arange(num_classes))


def test_diabetes_is_in_original_units():
    data = datasets.diabetes()
    age = data.x[:, data.features.index("age")]
    assert 18 < age.min() < age.max() < 80
    np.testing.assert_array_equal(data.y, load_diabetes().target)
