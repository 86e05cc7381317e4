"""Scores of real predictions against scoringrules and properscoring, and that they are proper."""

import numpy as np
import pytest
import scoringrules
import xarray as xr

from bnnzoo.calibration import crps, energy_score, interval_score
from bnnzoo.testing import check_measure, example_tree

DIMS = ("chain", "draw", "obs_id", "output_id")


def of(draws, y):
    """Label draws [S, rows(, outputs)] and observations."""
    draws, y = np.asarray(draws), np.asarray(y)
    return xr.DataArray(draws[None], dims=DIMS[: draws.ndim + 1]), xr.DataArray(y, dims=DIMS[2 : y.ndim + 2])


@pytest.mark.parametrize("measure", [crps, interval_score])
def test_conformance(measure):
    check_measure(measure, example_tree("regression"))


def test_crps_is_that_of_scoringrules():
    rng = np.random.default_rng(0)
    draws, y = rng.normal(size=(40, 6)), rng.normal(size=6)
    expected = scoringrules.crps_ensemble(y, draws.T, estimator="fair")
    np.testing.assert_allclose(crps(*of(draws, y)), expected, atol=1e-12)


def test_crps_of_many_draws_is_the_closed_form():
    rng = np.random.default_rng(0)
    draws, y = rng.normal(1.0, 2.0, size=(50_000, 3)), np.array([-1.0, 0.5, 4.0])
    np.testing.assert_allclose(crps(*of(draws, y)), scoringrules.crps_normal(y, 1.0, 2.0), atol=0.03)


def test_energy_score_is_that_of_scoringrules_and_the_crps_for_one_output():
    rng = np.random.default_rng(0)
    draws, y = rng.normal(size=(20, 5, 3)), rng.normal(size=(5, 3))
    biased = scoringrules.es_ensemble(y, draws.transpose(1, 0, 2), estimator="nrg")
    pairs = np.linalg.norm(draws[:, None] - draws[None], axis=-1).sum((0, 1))
    expected = biased + pairs / (2 * 20**2) - pairs / (2 * 20 * 19)  # of different draws only
    np.testing.assert_allclose(energy_score(*of(draws, y)), expected, atol=1e-12)
    one = energy_score(*of(draws[..., :1], y[:, :1]))
    np.testing.assert_allclose(one, crps(*of(draws[..., 0], y[:, 0])), atol=1e-12)


def test_interval_score_is_that_of_scoringrules():
    rng = np.random.default_rng(0)
    draws, y = rng.normal(size=(99, 8)), rng.normal(0, 3, size=8)
    low, high = np.quantile(draws, [0.1, 0.9], axis=0)
    np.testing.assert_allclose(
        interval_score(of(draws, y)[0], 0.8, of(draws, y)[1]),
        scoringrules.interval_score(y, low, high, 0.2),
        atol=1e-12,
    )


@pytest.mark.parametrize("score", [crps, lambda draws, y: interval_score(draws, 0.8, y)], ids=["crps", "interval"])
def test_the_true_distribution_scores_best(score):
    rng = np.random.default_rng(0)
    loc, y_noise, noise = rng.normal(size=1500), rng.normal(size=1500), rng.normal(size=(200, 1500))
    y = loc + y_noise
    truth = score(*of(loc + noise, y))
    for wrong in (loc + 0.5 * noise, loc + 2.0 * noise, loc + 0.5 + noise):
        difference = score(*of(wrong, y)) - truth
        assert float(difference.mean() / difference.std()) * np.sqrt(1500) > 3


def test_the_true_joint_distribution_has_the_best_energy_score():
    """Of predictions with the same margins, those with the wrong correlation lose too."""
    rng = np.random.default_rng(0)
    factor = np.linalg.cholesky([[1.0, 0.9], [0.9, 1.0]])
    y, noise = rng.normal(size=(800, 2)) @ factor.T, rng.normal(size=(30, 800, 2))
    truth = energy_score(*of(noise @ factor.T, y))
    for wrong in (noise, 0.5 * noise @ factor.T, noise @ factor.T + 0.5):
        difference = energy_score(*of(wrong, y)) - truth
        assert float(difference.mean() / difference.std()) * np.sqrt(800) > 3


def test_bad_input_is_named():
    draws, y = of(np.zeros((1, 2)), [0.0, 1.0])
    with pytest.raises(ValueError, match="crps needs at least 2 draws of y, but there is only 1"):
        crps(draws, y)
    with pytest.raises(ValueError, match=r"level=1\.5; write a probability between 0 and 1"):
        interval_score(draws, 1.5, y)
    with pytest.raises(ValueError, match=r"along 'output_id', but the dims are chain, draw, obs_id: .*use crps"):
        energy_score(*of(np.zeros((2, 2)), [0.0, 1.0]))
    with pytest.raises(ValueError, match=r"crps needs draws of y, but the tree has neither .* \(groups: none\)"):
        crps(xr.DataTree(), y)
    with pytest.raises(ValueError, match="needs draws of one site, but there are a, b"):
        crps(xr.Dataset({"a": draws, "b": draws}), y)
    with pytest.raises(ValueError, match=r"'chain' is missing \(dims: draw, obs_id\): add it"):
        crps(draws.isel(chain=0), y)
