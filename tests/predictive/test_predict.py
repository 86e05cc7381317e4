"""Trees of predictions: what is in them, that it is right, and that it hangs on nothing it should not."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr
from torch import Tensor

import bnnzoo as bz
from bnnzoo import models
from bnnzoo.core.data import sizes
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.inference import Laplace, fit
from bnnzoo.predictive import posterior_predictive, predict, prior_predictive, to_datatree
from bnnzoo.predictive.prediction_arguments import refuse_no_posterior, refuse_not_positive, refuse_words
from bnnzoo.testing import check_moments, funnel, leaves_no_trace, linear_gaussian
from tests.helpers.exact import chains, exact_posterior, narrow_posterior, network, standardising, two_sites

TRAINING = {
    "posterior",
    "log_prior",
    "sample_stats",
    "fit_stats",
    "posterior_predictive",
    "conditional",
    "log_likelihood",
    "observed_data",
    "constant_data",
}


@pytest.fixture(scope="module")
def target():
    return linear_gaussian(num_inputs=3)


@pytest.fixture(scope="module")
def posterior(target):
    return exact_posterior(target)


def test_training_tree_has_the_groups_and_dims_of_the_schema(target, posterior):
    tree = posterior_predictive(posterior, *target.data, num_draws=20)
    assert set(tree.children) == TRAINING
    for group in ("posterior_predictive", "log_likelihood"):
        assert tree[group]["y"].dims == ("chain", "draw", "obs_id")
    assert tree["conditional"]["mean"].dims == ("chain", "draw", "obs_id")
    assert tree["posterior"]["w"].dims == ("chain", "draw", "w_dim_0")
    assert tree["observed_data"]["y"].dims == ("obs_id",)
    assert tree["constant_data"]["x"].dims == ("obs_id", "x_dim_0")
    assert tree["fit_stats"]["loss"].dims == ("chain", "step")
    assert "sample" not in {dim for node in tree.children.values() for dim in node.dims}


def test_new_data_has_its_own_group_names(target, posterior):
    x, y = target.data
    tree = predict(posterior, x[:5], y[:5], num_draws=20)
    expected = {"predictions", "predictions_log_likelihood", "predictions_observed_data", "predictions_constant_data"}
    assert expected <= set(tree.children)
    assert not {"posterior_predictive", "log_likelihood", "observed_data", "constant_data"} & set(tree.children)


def test_predicting_without_observations_gives_no_log_likelihood(target, posterior):
    x, _ = target.data
    for data in ((x[:5],), (x[:5], None)):
        tree = predict(posterior, *data, num_draws=20)
        assert "predictions_log_likelihood" not in tree.children
        assert "predictions_observed_data" not in tree.children
        assert tree["predictions"].sizes["obs_id"] == 5


def test_predictive_moments_are_the_closed_form(target, posterior):
    x = torch.linspace(-2.0, 2.0, 12).reshape(4, 3)
    tree = predict(posterior, x, num_draws=4000)
    mean, variance = target.predictive(x)
    check_moments("y", tree["predictions"]["y"].to_numpy(), mean, variance.sqrt())
    spread = (x @ target.covariance * x).sum(-1).sqrt()
    check_moments("f", tree["conditional"]["mean"].to_numpy(), mean, spread)
    assert np.allclose(tree["conditional"]["variance"], target.noise**2)


def test_log_likelihood_is_the_density_of_each_observation(target, posterior):
    x, y = target.data
    tree = posterior_predictive(posterior, x, y, num_draws=10)
    w = torch.from_numpy(tree["posterior"]["w"].to_numpy())
    expected = torch.distributions.Normal(w @ x.T, target.noise).log_prob(y)
    assert np.allclose(tree["log_likelihood"]["y"], expected, atol=1e-12)


def test_lp_and_log_q_are_the_densities_of_the_draws(target, posterior):
    tree = to_datatree(posterior, num_draws=50)
    # the posterior is exact here, so log p(w, y) - log q(w) is the log evidence whatever the draw
    difference = tree["sample_stats"]["lp"] - tree["sample_stats"]["log_q"]
    assert np.allclose(difference, target.log_evidence, atol=1e-9)


def test_to_datatree_has_no_predictions(posterior):
    assert set(to_datatree(posterior).children) == {"posterior", "log_prior", "sample_stats", "fit_stats"}


def test_seed_decides_the_tree_and_nothing_else_does(target, posterior):
    with leaves_no_trace("posterior_predictive"):
        first = posterior_predictive(posterior, *target.data, num_draws=30, seed=5)
    torch.rand(7)
    assert first.identical(posterior_predictive(posterior, *target.data, num_draws=30, seed=5))
    other = posterior_predictive(posterior, *target.data, num_draws=30, seed=6)
    assert not np.allclose(first["posterior_predictive"]["y"], other["posterior_predictive"]["y"])


@pytest.mark.parametrize("chunk_size", [1, 7, 1000])
def test_chunk_size_changes_nothing(chunk_size):
    x, y = torch.randn(300, 3), torch.randn(300)
    posterior = narrow_posterior(network(models.likelihoods.gaussian()), x, y)
    whole = predict(posterior, x[: 300 if chunk_size > 7 else 4], num_draws=9)
    chunked = predict(posterior, x[: 300 if chunk_size > 7 else 4], num_draws=9, chunk_size=chunk_size)
    assert whole["predictions"].identical(chunked["predictions"])
    xr.testing.assert_allclose(whole["conditional"].to_dataset(), chunked["conditional"].to_dataset(), rtol=1e-12)


def test_rows_that_depend_on_each_other_are_kept_together():
    x, y = torch.randn(700), torch.randn(700)
    posterior = narrow_posterior(standardising, x, y)
    tree = posterior_predictive(posterior, x, y, num_draws=5, chunk_size=100)
    slope = tree["posterior"]["slope"].to_numpy()
    assert np.allclose(tree["conditional"]["mean"], slope[..., None] * (x - x.mean()).numpy())


def test_chains_keep_their_statistics_when_thinned(target, posterior):
    sampled = chains(posterior)
    tree = posterior_predictive(sampled, *target.data, num_draws=10)
    assert tree["sample_stats"].sizes == {"chain": 4, "draw": 10}
    kept = [int(np.flatnonzero((sampled.theta[0] == row).all(-1))[0]) for row in sampled.draws(10)[0]]
    assert np.array_equal(tree["sample_stats"]["lp"][0], sampled.info.sample_stats["lp"][0, kept])
    assert "log_q" not in tree["sample_stats"]
    assert tree["sample_stats"]["diverging"].dtype == bool


def test_weights_are_kept_apart_and_can_be_left_out(target):
    x, y = torch.randn(20, 3), torch.randn(20)
    posterior = narrow_posterior(network(models.likelihoods.gaussian()), x, y)
    tree = to_datatree(posterior, num_draws=5)
    assert set(tree["posterior"].data_vars) == {"sigma"}
    assert tree["weights"]["net.0.weight"].dims == ("chain", "draw", "net.0.weight_dim_0", "net.0.weight_dim_1")
    assert "weights" not in to_datatree(posterior, num_draws=5, weights=False).children


def test_weights_beyond_the_limit_are_kept_only_when_asked_for(monkeypatch):
    x, y = torch.randn(20, 3), torch.randn(20)
    posterior = narrow_posterior(network(models.likelihoods.gaussian()), x, y)
    monkeypatch.setattr("bnnzoo.predictive.latent.MAX_LATENT_NUMBERS", 10)
    assert "weights" not in to_datatree(posterior, num_draws=5).children
    assert "weights" in to_datatree(posterior, num_draws=5, weights=True).children


def test_a_network_without_other_latent_sites_shows_the_norm_of_its_weights():
    x, y = torch.randn(20, 3), torch.randint(3, (20,))
    posterior = narrow_posterior(network(models.likelihoods.categorical(), out_features=3), x, y)
    tree = to_datatree(posterior, num_draws=5)
    norm = np.sqrt(
        sum((tree["weights"][name] ** 2).sum(list(tree["weights"][name].dims[2:])) for name in tree["weights"])
    )
    assert np.allclose(tree["posterior"]["net.norm"], norm)


def test_classes_have_a_dimension_of_their_own():
    x, y = torch.randn(20, 3), torch.randint(3, (20,))
    posterior = narrow_posterior(network(models.likelihoods.categorical(), out_features=3), x, y)
    tree = posterior_predictive(posterior, x, y, num_draws=50)
    probs = tree["conditional"]["probs"]
    assert probs.dims == ("chain", "draw", "obs_id", "class_id")
    assert np.allclose(probs.sum("class_id"), 1.0)
    assert tree["posterior_predictive"]["y"].dtype.kind == "i"
    chosen = np.take_along_axis(probs.to_numpy(), y.numpy()[None, None, :, None], -1)[..., 0]
    assert np.allclose(np.log(chosen), tree["log_likelihood"]["y"])


@pytest.mark.parametrize(
    ("likelihood", "kind"),
    [
        (models.likelihoods.bernoulli(), "binary"),
        (models.likelihoods.poisson(), "count"),
        (models.likelihoods.student_t(), "real"),
        (models.likelihoods.laplace(), "real"),
    ],
)
def test_draws_of_every_likelihood_have_the_moments_that_it_states(likelihood, kind):
    x = torch.randn(6, 3)
    y = {"binary": torch.ones(6), "count": torch.ones(6), "real": torch.randn(6)}[kind]
    posterior = narrow_posterior(network(likelihood), x, y, scale=1e-6)
    tree = posterior_predictive(posterior, x, y, num_draws=3000)
    given = tree["conditional"].isel(draw=0, chain=0)
    mean = given["probs"][:, 1] if kind == "binary" else given["mean"]
    variance = mean * (1 - mean) if kind == "binary" else given["variance"]
    finite = np.isfinite(variance.to_numpy())
    draws = tree["posterior_predictive"]["y"].to_numpy().astype(float)[..., finite]
    if finite.any():
        check_moments("y", draws, mean[finite], np.sqrt(variance[finite]))


def test_a_distribution_that_vmap_cannot_draw_from_is_drawn_in_a_loop():
    def model(y: Tensor) -> None:
        shape = pyro.sample("shape", dist.LogNormal(0.0, 1.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Beta(shape, 2.0), obs=y)

    y = torch.rand(5)
    tree = posterior_predictive(narrow_posterior(model, y, scale=1e-9), y, num_draws=500)
    check_moments("y", tree["posterior_predictive"]["y"].to_numpy(), 1 / 3, np.sqrt(2 / 9 / 4))


def test_several_observed_sites_are_told_apart_by_name():
    x, y, count = torch.randn(8), torch.randn(8), torch.ones(8)
    tree = posterior_predictive(narrow_posterior(two_sites, x, y, count), x, y, count, num_draws=4)
    assert set(tree["log_likelihood"].data_vars) == {"y", "count"}
    assert {"y.mean", "count.mean"} <= set(tree["conditional"].data_vars)
    assert set(tree["constant_data"].data_vars) == {"x"}
    assert np.allclose(tree["posterior"]["intercept"], 2 * tree["posterior"]["slope"])


def test_one_of_two_observations_may_be_missing_from_new_data():
    x, y, count = torch.randn(8), torch.randn(8), torch.ones(8)
    tree = predict(narrow_posterior(two_sites, x, y, count), x, y, num_draws=4)
    assert set(tree["predictions"].data_vars) == {"y", "count"}
    assert set(tree["predictions_log_likelihood"].data_vars) == {"y"}


def test_a_model_without_data_has_a_tree_of_its_latent_sites():
    target = funnel()
    tree = to_datatree(narrow_posterior(target.model), num_draws=5)
    assert set(tree["posterior"].data_vars) == {"v", "x"}
    assert set(posterior_predictive(narrow_posterior(target.model), num_draws=5).children) == set(tree.children)


def test_frames_and_arrays_give_the_same_tree_and_name_the_columns(target, posterior):
    x, y = target.data
    frame = pd.DataFrame(x.numpy(), columns=["age", "height", "weight"])
    tree = posterior_predictive(posterior, frame, pd.Series(y.numpy()), num_draws=5)
    assert list(tree["constant_data"]["x_dim_0"].to_numpy()) == ["age", "height", "weight"]
    plain = posterior_predictive(posterior, x.numpy(), y.numpy(), num_draws=5)
    assert plain["log_likelihood"].identical(tree["log_likelihood"])


def test_attributes_are_strings_and_numbers(posterior):
    attributes = to_datatree(posterior, num_draws=5).attrs
    assert all(isinstance(value, (str, int, float)) and not isinstance(value, bool) for value in attributes.values())
    assert attributes["inference_method"] == "Laplace"
    assert attributes["sampling"] == "iid"
    assert json.loads(attributes["config"]) == {"damping": None, "dense": True, "map": {"num_steps": 100}}


def test_trees_survive_netcdf(target, posterior, tmp_path: Path):
    tree = posterior_predictive(chains(posterior), *target.data)
    tree.to_netcdf(tmp_path / "tree.nc", engine="h5netcdf")
    with xr.open_datatree(tmp_path / "tree.nc", engine="h5netcdf") as loaded:
        assert tree.identical(loaded.load())


def test_prior_predictive_draws_from_the_prior(target):
    with leaves_no_trace("prior_predictive"):
        tree = prior_predictive(target.model, *target.data, num_draws=2000)
    x = target.data[0]
    check_moments("w", tree["prior"]["w"].to_numpy(), np.zeros(3), np.ones(3))
    sd = ((x**2).sum(-1) + target.noise**2).sqrt()
    check_moments("y", tree["prior_predictive"]["y"].to_numpy(), np.zeros(len(x)), sd)
    assert set(tree.children) == {"prior", "prior_predictive", "conditional", "observed_data", "constant_data"}


def test_prior_predictive_is_the_same_for_the_same_seed(target):
    trees = [prior_predictive(target.model, *target.data, num_draws=10, seed=seed) for seed in (0, 0, 1)]
    assert trees[0].identical(trees[1])
    assert not trees[0]["prior"].identical(trees[2]["prior"])


@pytest.mark.parametrize("call", [{"num_draws": 0}, {"chunk_size": 0}, {"num_draws": -3}])
def test_counts_must_be_positive(target, posterior, call):
    with pytest.raises(ValueError, match=f"{next(iter(call))}={next(iter(call.values()))}; write a positive number"):
        predict(posterior, *target.data, **call)


def test_more_draws_than_a_chain_has_are_refused(target, posterior):
    with pytest.raises(ValueError, match="num_draws=101, but each chain has 100 draws"):
        predict(chains(posterior), *target.data, num_draws=101)


def test_training_data_without_observations_is_refused(target, posterior):
    with pytest.raises(ValueError, match=r"site 'y' has none: pass them as the fit got them, or use predict"):
        posterior_predictive(posterior, target.data[0])


def test_arguments_of_different_lengths_are_refused(target, posterior):
    x, y = target.data
    with pytest.raises(ValueError, match="argument 1 of the model has 40, argument 2 of the model has 39"):
        predict(posterior, x, y[:-1])


def test_missing_values_in_new_data_are_refused(target, posterior):
    x = target.data[0].clone()
    x[2, 1] = torch.nan
    with pytest.raises(ValueError, match="argument 1 of the model holds nan at row 2, column 1"):
        predict(posterior, x)


def test_inputs_of_another_width_are_refused(target, posterior):
    with pytest.raises(ValueError, match=r"argument 1 has shape \(5, 2\), but the model was fitted to \(40, 3\)"):
        predict(posterior, torch.zeros(5, 2))


def test_prior_predictive_needs_to_know_what_is_observed(target):
    with pytest.raises(ValueError, match="cannot tell the observation from the latent sites w, y"):
        prior_predictive(target.model, target.data[0])


def test_prior_predictive_asks_for_the_outcomes_of_counts():
    """They were taken for latent ones, to be integrated out by hand."""

    def model(x: Tensor, y: Tensor | None = None) -> None:
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Poisson((slope * x).exp()), obs=y)

    with pytest.raises(
        ValueError, match=r"If it is the outcome, pass its values too, as in prior_predictive\(model, x, y\)"
    ):
        prior_predictive(model, torch.ones(4))
    assert prior_predictive(model, torch.ones(4), torch.ones(4), num_draws=3)["prior_predictive"].sizes["obs_id"] == 4


def test_noise_of_predictions_is_the_posteriors_not_the_priors():
    def model(x: Tensor, y: Tensor | None = None) -> None:
        sigma = pyro.sample("sigma", dist.HalfNormal(100.0))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(0.0 * x, sigma), obs=y)

    x = torch.zeros(50)
    learnt = Draws(build_density(model, x, x), FitInfo("mcmc", method="NUTS"), torch.full((1, 200, 1), 0.1).log())
    tree = predict(learnt, x)
    np.testing.assert_allclose(tree["conditional"]["variance"], 0.01)
    assert abs(float(tree["predictions"]["y"].std()) - 0.1) < 5 * 0.1 / (2 * 200 * 50) ** 0.5


@pytest.mark.parametrize("function", ["predict", "posterior_predictive", "to_datatree"])
def test_what_is_no_posterior_is_refused(function):
    with pytest.raises(
        TypeError, match=rf"^{function} takes the posterior that bnnzoo\.fit returned, .* of type DataTree"
    ):
        refuse_no_posterior(function, xr.DataTree())  # by itself: the tests' own check of types would speak first


def test_predictions_beyond_the_memory_are_refused_with_their_size(monkeypatch):
    posterior = exact_posterior(linear_gaussian())
    data = posterior.density.data
    with pytest.raises(
        ValueError, match=r"num_draws=100000000000000 of 3 parameters take .* GB, .* Choose a smaller num_draws"
    ):
        predict(posterior, data[0], num_draws=10**14)
    monkeypatch.setattr(sizes, "free_memory", lambda: 10**4)
    with pytest.raises(
        ValueError, match=r"50 draws x 40 rows take .* GB, but .* or predict some of the rows at a time"
    ):
        predict(posterior, data[0], num_draws=50)


@pytest.mark.parametrize("seed", [-1, 2**70])
def test_seeds_of_draws_are_refused_like_those_of_a_fit(seed):
    posterior = exact_posterior(linear_gaussian())
    with pytest.raises(ValueError, match=rf"^predict\(seed={seed}\): write a number from 0"):
        predict(posterior, posterior.density.data[0], seed=seed)


@pytest.mark.parametrize("value", [1.5, "4", True])
def test_a_number_of_draws_is_whole(value):
    with pytest.raises(TypeError, match=f"^num_draws={value!r}: write a whole number"):
        refuse_not_positive("num_draws", value)


@pytest.mark.parametrize("option", ["weights", "linearized"])
def test_words_other_than_auto_are_refused(option):
    with pytest.raises((TypeError, ValueError), match=rf"predict\({option}='yes'\): write True or False or 'auto'"):
        refuse_words("predict", **{option: "yes"})


def test_rows_in_a_mapping_that_were_not_fitted_are_refused():
    """Leave-one-out cross-validation of rows that were not fitted would be one call away."""

    def model(batch, y=None):
        slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
        with pyro.plate("data", len(batch["x"])):
            pyro.sample("y", dist.Normal(slope * batch["x"], 1.0), obs=y)

    x, y = torch.randn(10), torch.randn(10)
    posterior = fit(model, Laplace(), {"x": x}, y, progress=False)
    assert posterior_predictive(posterior, {"x": x}, y)["log_likelihood"].sizes["obs_id"] == 10
    with pytest.raises(ValueError, match=r"argument \"batch\['x'\]\" differs from what the fit got \(in 10 of 10 rows"):
        posterior_predictive(posterior, {"x": x + 1.0}, y)


def test_the_size_of_class_probabilities_counts(monkeypatch):
    model = bz.models.supervised(bz.models.mlp(2, (3,), 10), bz.priors.normal(1.0), bz.likelihoods.categorical())
    x, y = torch.randn(200, 2), torch.arange(200) % 10
    posterior = bz.fit(model, bz.MAP(num_steps=2, polish_steps=0), x, y, progress=False)
    made = 200 * (10 + 1 + 1) * posterior.theta.element_size()  # probabilities, entropy, outcome
    monkeypatch.setattr(sizes, "free_memory", lambda: round(0.9 * made))
    with pytest.raises(ValueError, match=r"1 draws x 200 rows take .* GB, but"):
        predict(posterior, x)
    monkeypatch.setattr(sizes, "free_memory", lambda: round(1.1 * made))
    predict(posterior, x)


def test_draws_from_the_prior_have_the_precision_that_is_asked_for() -> None:
    """Whatever torch's default: a prior of plain numbers beside inputs in double precision."""

    def model(x, y=None):
        b = pyro.sample("b", dist.Normal(0.0, 1.0).expand([3]).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ b, 1.0), obs=y)

    x, y = torch.randn(20, 3, dtype=torch.float64), torch.randn(20, dtype=torch.float64)
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        tree = bz.prior_predictive(model, x, y, num_draws=5, dtype=torch.float64)
    finally:
        torch.set_default_dtype(before)
    assert tree["prior"]["b"].dtype == np.float64 and tree["prior_predictive"].sizes["draw"] == 5
