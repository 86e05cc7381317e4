import numpy as np
import pytest
import scipy.stats

from bnnzoo import datasets

SIMULATED = [datasets.gap, datasets.heteroscedastic, datasets.two_clusters, datasets.moons]
SIMULATED += [datasets.binary, datasets.cubic, datasets.spiral]


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


def test_the_cubic_is_that_of_the_practical() -> None:
    data = datasets.cubic()
    legacy = np.random.RandomState(173)
    x = [legacy.uniform(-4, 4) for _ in range(40)]
    noise = [legacy.normal(0, 3) for _ in range(40)]
    np.testing.assert_allclose(data.x[:, 0], x)
    np.testing.assert_allclose(data.y, np.array(x) ** 3 + noise)


def test_losses_of_constant_predictions_on_the_cubic_are_those_of_the_practical() -> None:
    """Of the noise alone, of a constant Gaussian with the variance of the population, and of one with that of these data."""
    losses = [0.5 * np.log(2 * np.pi * variance) + 0.5 for variance in (9, 4**6 / 7 + 9, datasets.cubic().y.var())]
    np.testing.assert_allclose(losses, [2.52, 4.61, 4.577], atol=0.005)
    assert losses[2] == pytest.approx(4.577, abs=5e-4)


def test_the_spiral_has_the_angles_of_the_practical() -> None:
    data = datasets.spiral()
    radius = np.linspace(0, 1, 1000)
    ranges = [(-0.621, 9.161), (7.507, 16.883), (15.192, 25.213)]
    for arm, (low, high) in enumerate(ranges):
        x = data.x[data.y == arm]
        np.testing.assert_allclose(np.linalg.norm(x, axis=1), radius, atol=1e-12)
        centre = np.linspace(8 * arm, 8 * (arm + 1), 1000)
        angle = np.arctan2(x[:, 0], x[:, 1])[1:]
        turned = angle + 2 * np.pi * np.round((centre[1:] - angle) / (2 * np.pi))  # noise is below half a turn
        assert turned[0:].max() == pytest.approx(high, abs=5e-4)
        assert turned.min() == pytest.approx(low, abs=5e-4)


def test_the_binary_problem_has_a_clean_stretch_a_gap_between_classes_and_an_overlap() -> None:
    data = datasets.binary(4000)
    x, y = data.x[:, 0], data.y
    assert x.min() >= -6 and ((x >= -6) & (x <= -4)).sum() > 100
    assert not ((x > -2) & (x < 2)).any()
    assert y[x < 0].max() == 0 and y[(x > 0) & (x < 3.5)].min() == 1 and y[x > 4.5].max() == 0
    mixed = y[(x > 3.5) & (x < 4.5)]
    assert abs(mixed.mean() - 0.5) < 4 * 0.5 / len(mixed) ** 0.5


@pytest.mark.parametrize("simulate", SIMULATED)
def test_too_few_observations_are_refused(simulate) -> None:
    with pytest.raises(ValueError, match=rf"^{simulate.__name__}\(num_data=0\): write [123] or more\.$"):
        simulate(0)
