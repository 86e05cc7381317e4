"""Every function of ArviZ that the page on ArviZ names, on trees of every kind of draws and of every method."""

import inspect
import re
import warnings
from dataclasses import replace
from pathlib import Path

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.method import Need
from bnnzoo.predictive import posterior_predictive
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import chains, exact_posterior, narrow_posterior
from tests.helpers.methods import METHODS, TARGETS, method_named


def pairs(tree: xr.DataTree) -> list[int]:
    """Return superchains of two chains each."""
    return [chain // 2 for chain in range(tree["posterior"].sizes["chain"])]


PAGE = (Path(__file__).parents[2] / "docs" / "arviz.md").read_text()
NO_PICTURE = {"backend": "none"}

# What each function is called with; trees are of a regression with one scalar latent site and three weights beside it.
OF_ANY_DRAWS = {
    "summary": az.summary,
    "ess": lambda tree: az.ess(tree["posterior"].to_dataset()),
    "mcse": lambda tree: az.mcse(tree["posterior"].to_dataset()),
    "hdi": lambda tree: az.hdi(tree["posterior"].to_dataset()),
    "eti": lambda tree: az.eti(tree["posterior"].to_dataset()),
    "thin": lambda tree: az.thin(tree["posterior"].to_dataset(), factor=2),
    "psense_summary": az.psense_summary,
    "plot_dist": az.plot_dist,
    "plot_dgof": az.plot_dgof,
    "plot_dgof_dist": az.plot_dgof_dist,
    "plot_forest": az.plot_forest,
    "plot_ridge": az.plot_ridge,
    "plot_pair": az.plot_pair,
    "plot_pair_focus": lambda tree, **kw: az.plot_pair_focus(tree, focus_var="scale", **kw),
    "plot_parallel": az.plot_parallel,
    "plot_trace": az.plot_trace,
    "plot_trace_dist": az.plot_trace_dist,
    "plot_mcse": az.plot_mcse,
    "plot_ppc_dist": lambda tree, **kw: az.plot_ppc_dist(tree, num_samples=10, **kw),
    "plot_ppc_dist_pit": az.plot_ppc_dist_pit,
    "plot_ppc_pit": az.plot_ppc_pit,
    "plot_ppc_interval": az.plot_ppc_interval,
    "plot_ppc_tstat": az.plot_ppc_tstat,
    "plot_lm": lambda tree, **kw: az.plot_lm(tree, x="x", y="y", plot_dim="obs_id", **kw),
    "plot_prior_posterior": az.plot_prior_posterior,
    "plot_psense_dist": lambda tree, **kw: az.plot_psense_dist(tree, likelihood_var_names=["y"], **kw),
    "plot_psense_quantities": lambda tree, **kw: az.plot_psense_quantities(tree, likelihood_var_names=["y"], **kw),
}
OF_KNOWN_DENSITY = {
    "compare": lambda tree: az.compare({"one": bz.diagnostics.loo(tree), "other": bz.diagnostics.loo(tree)}),
    "plot_khat": lambda tree, **kw: az.plot_khat(bz.diagnostics.loo(tree), **kw),
    "plot_compare": lambda tree, **kw: az.plot_compare(
        az.compare({"one": bz.diagnostics.loo(tree), "other": bz.diagnostics.loo(tree)}), **kw
    ),
}
OF_CHAINS = {
    "loo": lambda tree: az.loo(tree, pointwise=True),
    "loo_pit": az.loo_pit,
    "loo_expectations": az.loo_expectations,
    "loo_metrics": az.loo_metrics,
    "loo_score": az.loo_score,
    "rhat": lambda tree: az.rhat(tree["posterior"].to_dataset()),
    "rhat_nested": lambda tree: az.rhat_nested(tree["posterior"].to_dataset(), superchain_ids=pairs(tree)),
    "diagnose": az.diagnose,
    "plot_loo_pit": az.plot_loo_pit,
    "plot_loo_interval": az.plot_loo_interval,
    "plot_autocorr": az.plot_autocorr,
    "plot_convergence_dist": az.plot_convergence_dist,
    "plot_ess": az.plot_ess,
    "plot_ess_evolution": az.plot_ess_evolution,
    "plot_rank": az.plot_rank,
    "plot_rank_dist": az.plot_rank_dist,
}
OF_HAMILTONIAN_CHAINS = {"bfmi": az.bfmi, "plot_energy": az.plot_energy}
OF_BINARY_DATA = {
    "plot_ppc_pava": az.plot_ppc_pava,
    "plot_ppc_pava_residuals": lambda tree, **kw: az.plot_ppc_pava_residuals(tree, x_var="x", **kw),
    "plot_loo_pava": az.plot_loo_pava,
}
OF_COUNTS = {
    "plot_ppc_rootogram": lambda tree, **kw: az.plot_ppc_rootogram(
        tree.map_over_datasets(lambda group: group.astype(int)), **kw
    )
}
# A single mode has no spread, of which most functions say nothing.
WITH_SPREAD = {"MAP": bz.MAP(num_members=20), "DeepEnsemble": bz.DeepEnsemble(num_members=20)}
EVERY = OF_ANY_DRAWS | OF_KNOWN_DENSITY | OF_CHAINS | OF_HAMILTONIAN_CHAINS | OF_BINARY_DATA | OF_COUNTS


def usable(tree: xr.DataTree) -> dict:
    """Return the functions that the page promises for the draws of a tree."""
    kind, stats = tree.attrs["sampling"], tree["sample_stats"] if "sample_stats" in tree.children else {}
    found = dict(OF_ANY_DRAWS)
    if kind == "mcmc" or (kind == "iid" and "log_q" in stats and "has_atoms" not in tree.attrs):
        found |= OF_KNOWN_DENSITY
    if kind == "mcmc":
        found |= OF_CHAINS
    return found | (OF_HAMILTONIAN_CHAINS if "energy" in stats else {})


def failures(tree: xr.DataTree, functions: dict) -> dict[str, str]:
    """Return what fails, with its message."""
    found = {}
    for name, function in functions.items():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about few draws
            try:
                function(tree, **(NO_PICTURE if name.startswith("plot_") else {}))
            except Exception as error:
                found[name] = f"{type(error).__name__}: {str(error)[:200]}"
    return found


def linear(kind: str) -> xr.DataTree:
    """The tree of a linear model with exact draws, dressed up as those of each kind."""
    target = linear_gaussian()
    posterior = exact_posterior(target)
    if kind == "mcmc":
        posterior = chains(posterior, num_draws=60)
    if kind == "ensemble":
        members = chains(posterior, num_chains=1, num_draws=30)
        posterior = replace(members, info=replace(members.info, method="DeepEnsemble", sampling="ensemble"))
    tree = posterior_predictive(posterior, *target.data, num_prior_draws=60)
    tree["posterior"]["scale"] = np.exp(
        tree["posterior"]["w"].isel(w_dim_0=0)
    )  # plots of sensitivity need two variables
    return tree


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mcmc", "iid", "ensemble"])
def test_functions_work_on_each_kind_of_draws(kind):
    tree = linear(kind)
    assert failures(tree, usable(tree)) == {}


def of_layers():
    """The same regression as that of `linear_gaussian`, as a layer of a network, with noise to be inferred."""
    layer = torch.nn.Linear(3, 1, bias=False)
    return bz.models.supervised(layer, bz.priors.normal(1.0), bz.likelihoods.gaussian())


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")
@pytest.mark.parametrize("name", [name for name in METHODS if name not in TARGETS])
def test_functions_work_on_the_tree_of_every_method(name):
    target = linear_gaussian()
    method = WITH_SPREAD.get(name, method_named(name))
    needs_layers = Need.NETWORK in method.needs
    posterior = bz.fit(of_layers() if needs_layers else target.model, method, *target.data, progress=False)
    num_draws = min(60, posterior.draws().shape[1])
    tree = posterior_predictive(posterior, *target.data, num_draws=num_draws, num_prior_draws=60)
    scalar = tree["posterior"]["sigma"] if needs_layers else tree["posterior"]["w"].isel(w_dim_0=0)
    tree["posterior"]["scale"] = np.exp(scalar)
    assert failures(tree, usable(tree)) == {}


def binary(x, y=None):
    """A logistic regression."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Bernoulli(logits=slope * x), obs=None if y is None else y.to(x))


def counts(x, y=None):
    """A Poisson regression."""
    slope = pyro.sample("slope", dist.Normal(0.0, 1.0))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Poisson((slope * x).exp()), obs=y)


@pytest.mark.slow
@pytest.mark.parametrize(("model", "functions"), [(binary, OF_BINARY_DATA), (counts, OF_COUNTS)])
def test_functions_work_on_other_likelihoods(model, functions):
    x = torch.linspace(-1.0, 1.0, 40)
    data = x, (x + 0.3 * torch.randn(40) > 0).long()
    tree = posterior_predictive(chains(narrow_posterior(model, *data), num_draws=60), *data)
    assert failures(tree, functions) == {}


def test_some_functions_work_on_chains():
    tree = linear("mcmc")
    chosen = ("summary", "psense_summary", "plot_forest", "plot_rank", "plot_energy", "loo")
    assert failures(tree, {name: usable(tree)[name] for name in chosen}) == {}


def test_the_page_names_every_function_and_no_other():
    named = set(re.findall(r"`az\.(\w+)`", PAGE))
    refused = set(re.findall(r"`az\.(\w+)`", PAGE.partition("## What is not for these trees")[2]))
    elsewhere = {"plot_ecdf_pit"}  # in tests/validation/test_sbc.py
    assert named - refused == {*EVERY, *elsewhere} - refused
    assert {*EVERY} <= named
    assert [name for name in named if not hasattr(az, name)] == []
    every = {name for name, value in vars(az).items() if name.startswith("plot_") and inspect.isfunction(value)}
    assert sorted(every - named) == []
