import numpy as np
import pytest
import scipy.stats

from bnnzoo import datasets

SIMULATED = [datasets.gap, datasets.heteroscedastic, datasets.two_clusters, datasets.moons]


@pytest.mark.parametrize("simulate", SIMULATED)
def test_seeds_fix_the_data(simulate):
    first, same, other = simulate(seed=1), simulate(seed=1), simulate(seed=2)
    np.testing.assert_array_equal(first.x, same.x)
    np.testing.assert_array_equal(first.y, same.y)
    assert not np.array_equal(first.x, other.x)


@pytest.mark.parametrize("simulate", SIMULATED)
def test_num_data_and_names(simulate):
    data = simulate(num_data=30)
    assert data.x.shape == (30, len(data.features))
    assert data.y.shape == (30,)


def test_the_gap_is_empty_and_both_sides_are_not():
    x = datasets.gap(num_data=100).x[:, 0]
    assert ((x >= -3) & (x <= -1)).sum() == ((x >= 1) & (x <= 3)).sum() == 50


@pytest.mark.parametrize(
    ("data", "noise"),
    [
        (datasets.gap(4000), lambda x, y: (y - np.sin(2 * x[:, 0]) - 0.3 * x[:, 0]) / 0.1),
        (datasets.two_clusters(4000), lambda x, y: (y - np.sin(3 * x[:, 0]) - x[:, 1] ** 2) / 0.1),
        (
            datasets.heteroscedastic(4000),
            lambda x, y: (y - np.sin(2 * x[:, 0])) / (0.05 + 0.15 * (x[:, 0] + 3) / 2),
        ),
    ],
    ids=["gap", "two_clusters", "heteroscedastic"],
)
def test_the_noise_is_that_of_the_docstring(data, noise):
    assert scipy.stats.kstest(noise(data.x, data.y), "norm").pvalue > 0.001


def test_moons_has_two_equal_classes():
    np.testing.assert_array_equal(np.bincount(datasets.moons(100).y), [50, 50])
