"""Importance weights against tails that are known exactly, and resampled draws against exact posteriors."""

import warnings

import arviz as az
import numpy as np
import pytest
import torch
import xarray as xr
from arviz_stats.base import array_stats

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.diagnostics import psis, psis_resample
from bnnzoo.diagnostics.pareto_smoothing import PoorApproximationWarning
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import exact_loo

NUM_DRAWS = 4000


def tree_of(log_ratios: np.ndarray) -> xr.DataTree:
    dims = ("chain", "draw")
    stats = xr.Dataset({"lp": (dims, log_ratios - 3.0), "log_q": (dims, np.zeros_like(log_ratios))})
    return xr.DataTree.from_dict({"sample_stats": stats})


def approximation(scale: float, shift: float = 0.0, correlation: float = 0.0) -> tuple[Gaussian, bz.testing.Target]:
    """Return a factorised Gaussian beside an exact posterior: its sds times a number, its mean some sds off."""
    target = linear_gaussian(correlation=correlation)
    density = build_density(target.model, *target.data)
    sd = target.sd["w"]
    return Gaussian(
        density, FitInfo("iid", method="MeanFieldVI"), target.mean["w"] + shift * sd, Diagonal(scale * sd)
    ), target


@pytest.mark.parametrize("k", [0.2, 0.5, 1.2])
def test_shape_of_a_known_tail(k: float) -> None:
    # exp(k E) with E exponential is Pareto with shape k; the fit's asymptotic sd is (1 + k) / sqrt(tail)
    log_ratios = k * np.random.default_rng(0).exponential(size=(2, NUM_DRAWS // 2))
    found = psis(tree_of(log_ratios))
    assert abs(float(found["pareto_k"]) - k) < 3 * (1 + k) / np.sqrt(3 * NUM_DRAWS**0.5)
    # what takes the logarithms for weights sees nothing wrong
    if k == 1.2:
        wrong = array_stats.pareto_khat(log_ratios, log_weights=True)
        assert wrong < 0.5
        assert found["pareto_k"] > 1 > found["good_k"]


def test_bounded_weights_have_no_tail() -> None:
    log_ratios = -1.2 * np.random.default_rng(0).exponential(size=(1, NUM_DRAWS))
    assert psis(tree_of(log_ratios))["pareto_k"] < 0.1  # with the sign turned around it would be 1.2


def test_exact_approximation_has_equal_weights() -> None:
    posterior, _ = approximation(1.0)
    found = psis(bz.to_datatree(posterior, num_draws=NUM_DRAWS))
    np.testing.assert_allclose(found["log_weights"], -np.log(NUM_DRAWS), atol=1e-6)
    assert found["ess"] == pytest.approx(NUM_DRAWS)


def test_rounding_errors_have_no_tail() -> None:
    # of an exact approximation in single precision; the fit to them alone may find any shape
    found = psis(tree_of(1e-6 * np.random.default_rng(0).standard_cauchy(size=(1, NUM_DRAWS)).clip(-9, 9)))
    assert found["pareto_k"] == -np.inf
    assert found["ess"] == pytest.approx(NUM_DRAWS)


def test_largest_weights_that_are_equal_have_no_tail_to_fit() -> None:
    ratios = np.random.default_rng(0).normal(size=(1, NUM_DRAWS)).clip(-9, 0.5)
    found = psis(tree_of(ratios))
    assert found["pareto_k"] == np.inf
    np.testing.assert_allclose(np.exp(found["log_weights"]), np.exp(ratios) / np.exp(ratios).sum())


def test_too_narrow_a_gaussian_has_the_tail_of_its_variance_ratio() -> None:
    posterior, _ = approximation(0.6)  # log w is (1 - s^2) / 2 times a chi-square: k tends to 1 - s^2
    narrow = float(psis(bz.to_datatree(posterior, num_draws=NUM_DRAWS))["pareto_k"])
    assert 0.45 < narrow < 0.9
    wide, _ = approximation(1.5)
    assert psis(bz.to_datatree(wide, num_draws=NUM_DRAWS))["pareto_k"] < 0.1


def test_resampling_moves_predictions_to_the_exact_posterior() -> None:
    posterior, target = approximation(1.2, shift=0.4)
    x = target.data[0][:5]
    tree = bz.predict(posterior, x, num_draws=NUM_DRAWS)
    better = psis_resample(tree)
    exact, variance = target.predictive(x)
    sd = (variance - target.noise**2).sqrt().numpy()
    mcse = 1 / np.sqrt(better.attrs["psis_ess"])
    off = {name: (t["conditional"]["mean"].mean(("chain", "draw")) - exact.numpy()) / sd for name, t in
           {"before": tree, "after": better}.items()}  # fmt: skip
    assert np.abs(off["before"]).max() > 10 * mcse
    assert np.abs(off["after"]).max() < 5 * mcse
    spread = better["conditional"]["mean"].std(("chain", "draw")) / sd
    np.testing.assert_allclose(spread, 1.0, atol=5 * mcse)


def test_resampled_tree_is_a_tree_like_any_other(tmp_path) -> None:
    posterior, target = approximation(1.1)
    density, info = posterior.density, posterior.info
    restarts = Mixture(density, info, (posterior, Gaussian(density, info, posterior.loc + 0.01, posterior.covariance)))
    tree = bz.posterior_predictive(restarts, *target.data, num_draws=200)
    tree["fit_stats"] = xr.DataTree(xr.Dataset({"elbo": (("chain", "step"), np.zeros((2, 7)))}))
    better = psis_resample(tree, num_draws=300, seed=1)
    assert dict(better["log_likelihood"].sizes) == {"chain": 1, "draw": 300, "obs_id": 40}
    assert better["conditional"]["mean"].dims == tree["conditional"]["mean"].dims
    assert dict(better["fit_stats"].sizes) == {"chain": 2, "step": 7}
    assert better["observed_data"].identical(tree["observed_data"])
    # draws keep together: a prediction still belongs to its parameters
    w, mean = (better[group][name][0].to_numpy() for group, name in (("posterior", "w"), ("conditional", "mean")))
    np.testing.assert_allclose(mean, w @ target.data[0].numpy().T, atol=1e-10)
    assert az.loo(better).elpd < 0
    better.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    again = psis_resample(tree, num_draws=300, seed=1)
    assert again.identical(better)
    with pytest.raises(ValueError, match="need 'log_q' in the group 'sample_stats', which has lp"):
        psis(better)


def test_loo_of_an_approximation_is_corrected_for_it() -> None:
    posterior, target = approximation(1.3, shift=0.5)
    tree = bz.posterior_predictive(posterior, *target.data, num_draws=NUM_DRAWS)
    stats = tree["sample_stats"]
    found = az.loo_approximate_posterior(tree, stats["lp"], stats["log_q"], pointwise=True)
    exact = float(exact_loo(target).sum())
    assert abs(found.elpd - exact) < 0.1
    assert abs(az.loo(tree).elpd - exact) > 0.3
    assert float(found.pareto_k.max()) < 0.7


@pytest.mark.parametrize(
    "method", [bz.MeanFieldVI(num_steps=30), bz.LastLayerLaplace()], ids=lambda m: type(m).__name__
)
def test_loo_works_on_what_methods_return(method) -> None:
    x, y = torch.randn(20, 2), torch.randn(20)
    model = bz.models.supervised(bz.models.mlp(2, (3,)), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.5))
    tree = bz.posterior_predictive(bz.fit(model, method, x, y, progress=False), x, y, num_draws=50)
    stats = tree["sample_stats"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # fifty draws of a rough approximation: k is high
        found = az.loo_approximate_posterior(tree, stats["lp"], stats["log_q"])
    assert np.isfinite(found.elpd)


def test_says_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="need 'lp' in the group 'sample_stats', which has nothing"):
        psis(xr.DataTree.from_dict({"posterior": xr.Dataset()}))
    with pytest.raises(ValueError, match="need 25 draws or more, but there are 10"):
        psis(tree_of(np.zeros((1, 10))))
    ratios = np.random.default_rng(0).normal(size=(1, 50))
    with pytest.raises(ValueError, match=r"num_draws=0: write a positive number"):
        psis_resample(tree_of(ratios), num_draws=0)
    ratios[0, 3] = np.nan
    with pytest.raises(
        ValueError,
        match=r"not finite in 1 of 50 draws, at which .* or cannot be computed: fit with dtype=torch.float64",
    ):
        psis(tree_of(ratios))
    heavy = 1.2 * np.random.default_rng(0).exponential(size=(1, 1000))
    with pytest.warns(PoorApproximationWarning, match=r"Pareto k 1\.\d\d, above 0.67. Use a richer family"):
        psis_resample(tree_of(heavy))
