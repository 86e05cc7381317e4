"""Information gains against brute force and closed forms."""

import numpy as np
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.acquisition import bald, eig_linear_gaussian, eig_nested_monte_carlo, epig
from tests.helpers.exact import chains, narrow_posterior, network

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


@pytest.fixture(scope="module")
def posterior():
    x, y = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)), torch.arange(20) % 3
    return narrow_posterior(network(bz.likelihoods.categorical(), out_features=3), x, y, scale=1.0)


def at(posterior, rows, **settings):
    return bz.predict(posterior, torch.linspace(-1, 1, 3 * rows).reshape(rows, 3), **settings)


def test_epig_needs_joint_draws(posterior):
    pool, target = at(posterior, 5, num_draws=200), at(posterior, 4, num_draws=200)
    together = epig(pool, target)
    apart = at(posterior, 4, num_draws=200, seed=8)
    # without the trees' word for it the draws are taken for joint, and nearly all information is lost
    assert (epig(pool["conditional"]["probs"], apart["conditional"]["probs"]) < 0.5 * together).all()
    with pytest.raises(ValueError, match=r"log densities \('lp'\) differ \(draw_seed 3 and 8\): predict both with one"):
        epig(pool, apart)
    with pytest.raises(ValueError, match="there are 1 x 200 and 1 x 100"):
        epig(pool, at(posterior, 4, num_draws=100))
    halves = [
        tree.isel(draw=half, missing_dims="ignore") for tree in (pool, target) for half in (slice(100), slice(100, 200))
    ]
    assert np.isfinite(epig(halves[0], halves[2])).all()
    with pytest.raises(ValueError, match=r"log densities \('lp'\) differ: predict"):
        epig(halves[0], halves[3])


def test_draws_of_chains_do_not_depend_on_a_seed(posterior):
    mcmc = chains(posterior, num_draws=30)
    found = epig(at(mcmc, 5, seed=1), at(mcmc, 4, seed=2))
    np.testing.assert_array_equal(found, epig(at(mcmc, 5, seed=2), at(mcmc, 4, seed=2)))


@pytest.mark.parametrize("name", ["inference_method", "config", "seed", "draw_seed"])
def test_without_log_densities_attributes_must_agree(posterior, name):
    trees = [at(posterior, rows, num_draws=20) for rows in (5, 4)]
    without = [xr.DataTree.from_dict({"conditional": tree["conditional"].to_dataset()}) for tree in trees]
    expected = epig(*trees)
    np.testing.assert_array_equal(epig(*without), expected)  # of another library, say
    for tree in without:
        tree.attrs = dict(trees[0].attrs)
    np.testing.assert_array_equal(epig(*without), expected)
    without[1].attrs[name] = "another"
    with pytest.raises(
        ValueError, match=rf"same draws of pool and target, but their {name} is .* and 'another': predict"
    ):
        epig(*without)
