"""Closed-form splits against Monte Carlo from the second-order distributions."""

import numpy as np
import pytest
import scipy.stats
import xarray as xr

from bnnzoo.uncertainty import (
    decompose,
    decompose_dirichlet,
    decompose_dirichlet_ensemble,
    decompose_normal_inverse_gamma,
    decompose_normal_inverse_gamma_ensemble,
)

CLASSES = ("obs_id", "class_id")


@pytest.mark.parametrize("concentration", [[1.0, 1.0], [10.0, 3.0, 0.5], [200.0, 200.0, 200.0]])
def test_dirichlet_is_the_limit_of_draws(concentration):
    draws = np.random.default_rng(0).dirichlet(concentration, (1, 100_000, 1))
    sampled = decompose(xr.DataArray(draws, dims=("chain", "draw", *CLASSES)))
    closed = decompose_dirichlet(xr.DataArray([concentration], dims=CLASSES))
    entropy = -(draws * np.log(np.maximum(draws, 1e-300))).sum(-1)
    error = scipy.stats.sem(entropy.ravel())
    assert abs(float(closed["aleatoric"][0] - sampled["aleatoric"][0])) < 5 * error
    assert float(closed["total"][0]) == pytest.approx(float(sampled["total"][0]), abs=0.005)
    assert float(closed["epistemic"][0]) == pytest.approx(float(sampled["epistemic"][0]), abs=0.01)


def test_dirichlet_limits():
    """Much evidence leaves no epistemic uncertainty; none leaves all of it epistemic."""
    much = decompose_dirichlet(xr.DataArray([[1e6, 1e6, 1e6]], dims=CLASSES))
    none = decompose_dirichlet(xr.DataArray([[1e-6, 1e-6, 1e-6]], dims=CLASSES))
    assert float(much["epistemic"][0]) < 1e-5
    np.testing.assert_allclose([none["epistemic"][0], none["aleatoric"][0]], [np.log(3), 0.0], atol=1e-4)


def test_normal_inverse_gamma_is_the_limit_of_draws():
    rng = np.random.default_rng(0)
    nu, alpha, beta = 2.0, 9.0, 4.0
    variance = beta / rng.gamma(alpha, size=200_000)
    mean = rng.normal(0.0, np.sqrt(variance / nu))
    arrays = [xr.DataArray([value], dims="obs_id") for value in (nu, alpha, beta)]
    closed = decompose_normal_inverse_gamma(*arrays)
    assert abs(float(closed["aleatoric"][0]) - variance.mean()) < 5 * scipy.stats.sem(variance)
    assert abs(float(closed["epistemic"][0]) - mean.var()) < 5 * scipy.stats.sem(mean**2)
    assert float(closed["total"][0]) == float(closed["aleatoric"][0] + closed["epistemic"][0])


def test_bad_input_is_named():
    one = xr.DataArray([1.0], dims="obs_id")
    with pytest.raises(ValueError, match="concentration must be above 0, but its smallest value is -1"):
        decompose_dirichlet(xr.DataArray([[1.0, -1.0]], dims=CLASSES))
    with pytest.raises(ValueError, match="along 'class_id', but the dims are obs_id"):
        decompose_dirichlet(one)
    with pytest.raises(ValueError, match="alpha must be above 1, but its smallest value is 1"):
        decompose_normal_inverse_gamma(one, one, one)


def test_three_parts_of_an_ensemble_of_dirichlets():
    members = xr.DataArray(np.random.default_rng(0).gamma(2.0, size=(1, 4, 5, 3)), dims=("chain", "draw", *CLASSES))
    parts, each = decompose_dirichlet_ensemble(members), decompose_dirichlet(members)
    np.testing.assert_allclose(parts["total"], parts["aleatoric"] + parts["distributional"] + parts["model"])
    np.testing.assert_allclose(parts["distributional"], each["epistemic"].mean(("chain", "draw")))
    point = decompose(members / members.sum("class_id"))  # as if each member had reported its mean alone
    np.testing.assert_allclose(parts["model"], point["epistemic"])
    same = xr.concat([members.isel(draw=[0])] * 2, "draw")
    np.testing.assert_allclose(decompose_dirichlet_ensemble(same)["model"], 0.0, atol=1e-12)


def test_three_parts_of_an_ensemble_of_normal_inverse_gammas():
    """Against draws of y from the mixture of the members."""
    rng = np.random.default_rng(1)
    gamma, nu, alpha, beta = np.array([-2.0, 1.0, 4.0]), 2.0, 9.0, 4.0
    variance = beta / rng.gamma(alpha, size=(300_000, 3))
    y = rng.normal(rng.normal(gamma, np.sqrt(variance / nu)), np.sqrt(variance)).ravel()
    arrays = [
        xr.DataArray(np.broadcast_to(value, 3)[None, :, None], dims=("chain", "draw", "obs_id"))
        for value in (gamma, nu, alpha, beta)
    ]
    parts = decompose_normal_inverse_gamma_ensemble(*arrays)
    assert abs(float(parts["total"][0]) - y.var()) < 5 * scipy.stats.sem((y - y.mean()) ** 2)
    assert float(parts["model"][0]) == pytest.approx(6.0)


def test_an_ensemble_needs_members():
    with pytest.raises(ValueError, match="members of an ensemble along chain and draw, but 'chain' is missing"):
        decompose_dirichlet_ensemble(xr.DataArray([[1.0, 1.0]], dims=CLASSES))
    one = xr.DataArray([[[1.5]]], dims=("chain", "draw", "obs_id"))
    with pytest.raises(ValueError, match="decompose_normal_inverse_gamma_ensemble compares draws"):
        decompose_normal_inverse_gamma_ensemble(one, one, one, one)
