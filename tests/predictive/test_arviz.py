"""ArviZ on what every kind of method returns: chains, independent draws and ensembles, with and without networks."""

from dataclasses import replace

import arviz as az
import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo import models
from bnnzoo.predictive import posterior_predictive, predict
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import chains, exact_posterior, narrow_posterior, network, two_sites


@pytest.fixture(autouse=True)
def _without_windows():
    with mpl.rc_context({"backend": "agg"}):
        yield
    plt.close("all")


def linear(kind: str) -> xr.DataTree:
    """The tree of a linear-Gaussian model."""
    target = linear_gaussian()
    posterior = exact_posterior(target)
    if kind == "mcmc":
        posterior = chains(posterior, num_draws=250)
    if kind == "ensemble":
        members = chains(posterior, num_chains=1, num_draws=30)
        posterior = replace(members, info=replace(members.info, method="DeepEnsemble", sampling="ensemble"))
    return posterior_predictive(posterior, *target.data)


@pytest.mark.parametrize("kind", ["iid", "mcmc"])
def test_sensitivity_to_the_prior_is_found(kind):
    table = az.psense_summary(linear(kind))
    assert len(table) == 3
    assert np.isfinite(table[["prior", "likelihood"]].to_numpy()).all()
    assert (table["likelihood"] > table["prior"]).all()  # forty observations against one prior


def test_distributions_under_a_stronger_and_a_weaker_prior_are_plotted():
    data = torch.randn(8), torch.randn(8), torch.ones(8)
    tree = posterior_predictive(narrow_posterior(two_sites, *data), *data, num_draws=300)
    assert has_content(az.plot_psense_dist(tree, likelihood_var_names=["y"], backend="matplotlib"))


def test_prior_and_posterior_are_plotted_together():
    target = linear_gaussian()
    tree = posterior_predictive(exact_posterior(target), *target.data, num_prior_draws=200)
    assert tree["prior"].sizes["draw"] == tree["prior_predictive"].sizes["draw"] == 200
    assert has_content(az.plot_prior_posterior(tree, backend="matplotlib"))
    assert has_content(az.plot_ppc_dist(tree, group="prior_predictive", num_samples=10, backend="matplotlib"))


@pytest.mark.parametrize("columns", [1, 2])
def test_predictions_are_plotted_against_an_input(columns):
    target = linear_gaussian(num_inputs=columns)
    tree = posterior_predictive(exact_posterior(target), *target.data, num_draws=100)
    by_row = {} if columns == 1 else {"plot_dim": "obs_id"}
    assert has_content(az.plot_lm(tree, x="x", y="y", **by_row, backend="matplotlib"))


def test_diagnose_of_chains_without_hamiltonian_energy_says_nothing_of_it(capsys):
    target = linear_gaussian()
    posterior = chains(exact_posterior(target), num_draws=250)
    stats = {name: value for name, value in posterior.info.sample_stats.items() if name != "energy"}
    microcanonical = replace(
        posterior, info=replace(posterior.info, sample_stats=stats | {"energy_error": stats["lp"]})
    )
    az.diagnose(posterior_predictive(microcanonical, *target.data))
    assert "BFMI" not in capsys.readouterr().out


def classifier() -> xr.DataTree:
    """The tree of a network without latent sites beside its weights."""
    x, y = torch.randn(30, 3), torch.randint(3, (30,))
    return posterior_predictive(narrow_posterior(network(models.likelihoods.categorical(), out_features=3), x, y), x, y)


TREES = {kind: lambda kind=kind: linear(kind) for kind in ("iid", "mcmc", "ensemble")} | {"classifier": classifier}


@pytest.fixture(params=TREES)
def tree(request) -> xr.DataTree:
    return TREES[request.param]()


def test_summary_has_a_row_for_every_latent_number(tree):
    size = sum(values.isel(chain=0, draw=0).size for values in tree["posterior"].data_vars.values())
    assert len(az.summary(tree)) == size


@pytest.mark.filterwarnings("ignore:Estimated shape parameter of Pareto:UserWarning")  # thirty members are few
def test_loo_counts_every_row(tree):
    found = az.loo(tree)
    assert found.n_data_points == tree["observed_data"].sizes["obs_id"]
    assert found.elpd < 0


def test_trees_of_different_methods_are_compared():
    table = az.compare({kind: linear(kind) for kind in ("iid", "mcmc")})
    # both hold draws of one posterior, so their difference is Monte Carlo error
    assert abs(table["elpd_diff"].iloc[1]) < 0.5


@pytest.mark.parametrize("plot", [az.plot_trace_dist, az.plot_forest])
def test_plots_of_the_posterior_have_content(tree, plot):
    assert has_content(plot(tree, backend="matplotlib"))


@pytest.mark.parametrize("kind", ["iid", "mcmc"])
def test_posterior_predictive_check_has_content(kind):
    assert has_content(az.plot_ppc_dist(linear(kind), num_samples=10, backend="matplotlib"))


@pytest.mark.parametrize("plot", [az.plot_energy, az.plot_rank])
def test_plots_about_chains_have_content(plot):
    assert has_content(plot(linear("mcmc"), backend="matplotlib"))


@pytest.mark.filterwarnings("ignore:In a future version of xarray:FutureWarning")  # how ArviZ puts models together
def test_forest_shows_methods_with_different_numbers_of_draws():
    trees = {kind: linear(kind) for kind in ("iid", "mcmc")}
    skip = {"skipna": True}
    stats = {"trunk": skip, "twig": skip, "point_estimate": skip}
    plots = az.plot_forest(trees, combined=True, stats=stats, backend="matplotlib")
    estimates = plots.viz["point_estimate"]["w"]
    assert estimates.sizes["model"] == 2
    assert all(np.isfinite(point.get_offsets().data).all() for point in estimates.to_numpy().ravel())


def test_new_data_cannot_be_mistaken_for_training_data():
    target = linear_gaussian()
    tree = predict(exact_posterior(target), *target.data)
    with pytest.raises((TypeError, KeyError, ValueError), match="log likelihood not found"):
        az.loo(tree)


def has_content(plots: az.PlotCollection) -> bool:
    """Whether something was drawn on some axes."""
    figure = plots.viz["figure"].item()
    return any(axes.lines or axes.collections or axes.patches for axes in figure.axes)


@pytest.mark.filterwarnings("ignore:Your data appears to have a single value")
def test_the_diagonal_of_a_correlation_matrix_is_one_and_can_be_drawn() -> None:
    def model() -> None:
        pyro.sample("corr", dist.LKJ(3, 1.0))
        root = pyro.sample("root", dist.LKJCholesky(3, 1.0))
        pyro.deterministic("product", root @ root.mT)

    posterior = bz.fit(model, bz.NUTS(num_chains=2, num_warmup=100, num_draws=100), progress=False)
    tree = bz.to_datatree(posterior)
    for name in ("corr", "product"):
        assert (np.diagonal(tree["posterior"][name].to_numpy(), axis1=-2, axis2=-1) == 1.0).all()
        assert bool((tree["posterior"][name].std(("chain", "draw")) > 0.1).sum() == 6)
    az.plot_trace_dist(tree, var_names=["corr"])
