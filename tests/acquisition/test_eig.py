"""Information gains against brute force and closed forms."""

import numpy as np
import pytest
import xarray as xr

from bnnzoo.acquisition import bald, eig_linear_gaussian, eig_nested_monte_carlo, epig

DIMS = ("chain", "draw", "obs_id", "class_id")


def some(draws=7, rows=4, classes=3, seed=0):
    return xr.DataArray(np.random.default_rng(seed).dirichlet(np.full(classes, 0.4), (1, draws, rows)), dims=DIMS)


def test_epig_against_plain_loops():
    pool, target = some(), some(rows=3, classes=2, seed=1)
    found = epig(pool, target)
    for row in range(4):
        total = 0.0
        for other in range(3):
            joint = np.einsum("sk,sj->kj", pool.values[0, :, row], target.values[0, :, other]) / 7
            apart = joint.sum(1, keepdims=True) * joint.sum(0, keepdims=True)
            total += (joint * np.log(joint / apart)).sum() / 3
        assert float(found[row]) == pytest.approx(total, abs=1e-12)


def test_epig_is_at_most_bald_and_nothing_for_unrelated_targets():
    pool = some()
    assert (epig(pool, some(seed=2)) <= bald(pool) + 1e-12).all()
    constant = some().copy(data=np.broadcast_to(some().values[:, :1], some().shape))
    np.testing.assert_allclose(epig(pool, constant), 0.0, atol=1e-12)


def test_blocks_of_the_pool_change_nothing(monkeypatch):
    whole = epig(some(), some(seed=1))
    monkeypatch.setattr("bnnzoo.acquisition.eig.MAX_BLOCK", 1)
    np.testing.assert_allclose(epig(some(), some(seed=1)), whole)


def test_linear_gaussian_gain_is_the_fall_of_entropy():
    rng = np.random.default_rng(0)
    factor = rng.normal(size=(3, 3))
    covariance, design, noise = factor @ factor.T, rng.normal(size=(5, 3)), 0.7
    found = eig_linear_gaussian(xr.DataArray(design, dims=("obs_id", "param")), covariance, noise)
    for row, x in enumerate(design):
        after = np.linalg.inv(np.linalg.inv(covariance) + np.outer(x, x) / noise**2)
        fall = 0.5 * (np.linalg.slogdet(covariance)[1] - np.linalg.slogdet(after)[1])
        assert float(found[row]) == pytest.approx(fall)


def test_nested_monte_carlo_agrees_with_the_closed_form():
    rng = np.random.default_rng(0)
    x, noise = np.array([1.0, -2.0]), 0.8
    theta = rng.normal(size=(4000, 2))

    def log_likelihood(y, theta):
        return -0.5 * ((y[:, None] - theta @ x) / noise) ** 2 - np.log(noise) - 0.5 * np.log(2 * np.pi)

    found = eig_nested_monte_carlo(log_likelihood, lambda theta, rng: rng.normal(theta @ x, noise), theta)
    exact = float(eig_linear_gaussian(xr.DataArray(x[None], dims=("obs_id", "param")), np.eye(2), noise)[0])
    assert abs(float(found["value"]) - exact) < 4 * float(found["mcse"]) + 0.01


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="the same draws of pool and target, but there are 1 x 7 and 1 x 5"):
        epig(some(), some(draws=5))
    with pytest.raises(ValueError, match="epig compares draws"):
        epig(some(draws=1), some(draws=1))
    design = xr.DataArray(np.ones((1, 2)), dims=("obs_id", "param"))
    with pytest.raises(ValueError, match=r"The design has 2 columns, but the covariance has shape \(3, 3\)"):
        eig_linear_gaussian(design, np.eye(3), 1.0)
    with pytest.raises(ValueError, match="noise_scale must be positive, but is 0"):
        eig_linear_gaussian(design, np.eye(2), 0)
    with pytest.raises(ValueError, match="num_outer=1000 must be between 2 and the number of draws, which is 3"):
        eig_nested_monte_carlo(lambda y, t: y, lambda t, rng: t, np.zeros((3, 1)))
