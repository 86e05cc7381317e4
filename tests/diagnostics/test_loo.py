"""Leave-one-out cross-validation against closed forms, for every kind of draws that a tree may hold."""

import math
import warnings

import arviz as az
import numpy as np
import pyro
import pyro.distributions as dist
import pytest
import torch
import xarray as xr

import bnnzoo as bz
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.diagnostics import UnreliableLooWarning, loo, psis_resample
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import chains, exact_loo, exact_posterior, narrow_posterior, network, two_sites

NUM_DRAWS = 1000
REPLICATES = 8


def factorised(target, sd, shift=0.0):
    """Return a factorised Gaussian, as mean-field VI fits it."""
    density = build_density(target.model, *target.data)
    return Gaussian(density, FitInfo("iid", method="MeanFieldVI"), target.mean["w"] + shift * sd, Diagonal(sd))


def tree_of(log_likelihood, sampling=None, log_q=None, **groups):
    """Return a tree of another library with one site, or the sites given."""
    sites = log_likelihood if isinstance(log_likelihood, dict) else {"y": log_likelihood}
    datasets = {name: (("chain", "draw", "obs_id", "output_id")[: v.ndim], v) for name, v in sites.items()}
    shape = next(iter(sites.values())).shape[:2]
    normal = np.random.default_rng(1).normal(size=shape)
    stats = (
        {}
        if log_q is None
        else {"sample_stats": xr.Dataset({"lp": (("chain", "draw"), normal), "log_q": (("chain", "draw"), log_q)})}
    )
    posterior = xr.Dataset({"a": (("chain", "draw"), normal)})
    tree = xr.DataTree.from_dict({"posterior": posterior, "log_likelihood": xr.Dataset(datasets), **stats, **groups})
    tree.attrs = {} if sampling is None else {"sampling": sampling, "inference_method": "Some"}
    return tree


def some(rows=6, chains=2, draws=200, seed=0):
    return np.random.default_rng(seed).normal(-1.0, 0.3, (chains, draws, rows))


@pytest.mark.parametrize("kind", ["mcmc", "laplace", "wider"])
def test_exact_values(kind):
    """The mean over replicates is the closed form, within four Monte Carlo standard errors of that mean."""
    target = linear_gaussian()
    exact = exact_posterior(target)
    posterior = factorised(target, 1.4 * target.sd["w"], 0.2) if kind == "wider" else exact
    found = []
    for seed in range(REPLICATES):
        if kind == "mcmc":
            draws = chains(exact, num_draws=NUM_DRAWS)
            draws = type(draws)(draws.density, draws.info, exact.draws(NUM_DRAWS, seed))
            tree = bz.posterior_predictive(draws, *target.data)
        else:
            tree = bz.posterior_predictive(posterior, *target.data, num_draws=NUM_DRAWS, seed=seed)
        found.append(loo_quietly(tree))
    elpds = np.array([one.elpd for one in found])
    expected = exact_loo(target)
    assert abs(elpds.mean() - float(expected.sum())) < 4 * elpds.std(ddof=1) / math.sqrt(REPLICATES)
    pointwise = np.array([one.elpd_i.values for one in found])
    errors = np.abs(pointwise.mean(0) - expected.numpy()) / (pointwise.std(0, ddof=1) / math.sqrt(REPLICATES))
    assert np.median(errors) < 1.5  # of Student's t with seven degrees of freedom it is 0.71
    assert np.mean([one.pareto_k.values > 0.7 for one in found]) < 0.01


def test_of_chains_it_is_arvizs():
    tree = bz.posterior_predictive(chains(exact_posterior(linear_gaussian())), *linear_gaussian().data)
    found, expected = loo(tree), az.loo(tree)
    assert (found.elpd, found.se, found.p) == (expected.elpd, expected.se, expected.p)
    assert found.elpd_i.identical(expected.elpd_i.rename(found.elpd_i.name))


def test_chains_without_latent_values_count_as_independent_draws():
    tree = tree_of(some())
    expected = az.loo(tree, reff=1.0)
    del tree["posterior"]
    assert loo(tree).elpd == expected.elpd


def test_of_a_fitted_laplace_approximation():
    target = linear_gaussian()
    posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    found = loo(bz.posterior_predictive(posterior, *target.data))
    assert found.elpd == pytest.approx(float(exact_loo(target).sum()), abs=0.1)
    assert found.n_data_points == 40


def test_a_mean_field_approximation_of_a_correlated_posterior_is_flagged():
    target = linear_gaussian(correlation=0.97)
    tree = bz.posterior_predictive(factorised(target, target.mean_field_sd()), *target.data, num_draws=2000)
    assert bool((az.loo(tree).pareto_k < 0.7).all())  # which sees nothing
    sentence = (
        r"the Pareto k of \d+ of 40 observations is above 0\.70 or NaN\. The approximation is too far from the posterior: "
        r"use a richer family, such as FullRankVI, or NUTS, or compare held-out log scores, bnnzoo\.calibration\.nll\("
    )
    with pytest.warns(UnreliableLooWarning, match=sentence):
        found = loo(tree)
    assert int((found.pareto_k > 0.7).sum()) > 15


def test_outliers_of_chains_are_counted():
    values = some(draws=1000)
    values[..., 2] = -5 * np.random.default_rng(0).exponential(size=(2, 1000))
    values[0, 0, 4] = np.nan
    with pytest.warns(UnreliableLooWarning, match=r"of 2 of 6 observations is above 0\.70 or NaN\. Refit without each"):
        loo(tree_of(values))


def test_several_sites_are_left_out_together():
    x = torch.linspace(-1, 1, 30)
    posterior = narrow_posterior(two_sites, x, 0.5 * x, torch.arange(30.0) % 3, scale=0.1)
    tree = bz.posterior_predictive(chains(posterior), x, 0.5 * x, torch.arange(30.0) % 3)
    sites = tree["log_likelihood"].to_dataset()
    assert len(sites.data_vars) == 2
    rows = sum(
        site.sum([d for d in site.dims if d not in ("chain", "draw", "obs_id")]) for site in sites.data_vars.values()
    )
    together = tree.assign({"log_likelihood": xr.DataTree(rows.to_dataset(name="y"))})
    found = loo(tree)
    assert found.elpd == az.loo(together).elpd
    assert found.n_data_points == 30
    wide = {"a": some(), "b": np.stack([some(seed=1), some(seed=2)], -1)}
    expected = loo(tree_of(wide["a"] + wide["b"].sum(-1)))
    assert loo(tree_of(wide)).elpd == pytest.approx(expected.elpd)
    wide["b"][:, :, 3] = np.nan  # masked
    assert loo(tree_of(wide)).elpd_i[3] == pytest.approx(float(loo(tree_of(wide["a"])).elpd_i[3]))
    wide["b"][0, 0, 4] = np.nan
    with pytest.warns(UnreliableLooWarning, match="of 1 of 6 observations"):
        loo(tree_of(wide))


def test_rows_of_two_plates_are_left_out_one_by_one():
    def model(men, women):
        a = pyro.sample("a", dist.Normal(0.0, 1.0))
        with pyro.plate("men", len(men)):
            pyro.sample("y", dist.Normal(a, 1.0), obs=men)
            pyro.sample("z", dist.Normal(2 * a, 1.0), obs=men)
        with pyro.plate("women", len(women)):
            pyro.sample("w", dist.Normal(-a, 1.0), obs=women)

    data = torch.randn(20), torch.randn(20)
    tree = bz.posterior_predictive(bz.fit(model, bz.Laplace(), *data, progress=False), *data)
    found = loo(tree)
    assert found.n_data_points == 40
    sites = tree["log_likelihood"]
    joint = sites["y"] + sites["z"]
    assert found.elpd_i.size == 40 and joint.sizes["obs_id"] == 20
    assert found.elpd == pytest.approx(float(found.elpd_i.sum()))
    assert np.allclose(found.elpd_i[:20], joint.mean(("chain", "draw")), atol=1.0)
    assert np.allclose(found.elpd_i[20:], sites["w"].mean(("chain", "draw")), atol=1.0)


def test_a_negative_number_of_parameters_is_told():
    """Rows whose log likelihood is higher where the posterior has little mass, to which the weights go."""
    rng = np.random.default_rng(0)
    log_q = rng.normal(size=(1, 2000))
    tree = tree_of(-1.0 + 0.15 * rng.normal(size=(1, 2000, 8)), "iid", log_q)
    tree["sample_stats"]["lp"] = tree["sample_stats"]["log_q"] + 2.0 * tree["log_likelihood"]["y"].sum("obs_id")
    with pytest.warns(
        UnreliableLooWarning, match=r"its effective number of parameters is negative, -\d\S*\. The approx"
    ):
        assert loo(tree).p < 0


@pytest.mark.parametrize("masked", [0.0, np.nan])
@pytest.mark.parametrize(
    "log_q", [None, np.random.default_rng(2).normal(size=(2, 200))], ids=["chains", "approximation"]
)
def test_masked_rows_are_left_out(masked, log_q):
    values = some()
    expected = loo_quietly(tree_of(values[..., [0, 2, 3, 5]], log_q=log_q))
    values[..., [1, 4]] = masked
    found = loo_quietly(tree_of(values, log_q=log_q))
    assert found.elpd == pytest.approx(expected.elpd, abs=1e-12)
    assert (found.n_data_points, found.elpd_i.sizes["obs_id"]) == (4, 4)
    outputs = np.stack([values, some(seed=1)], -1)
    assert loo_quietly(tree_of(outputs, log_q=log_q)).n_data_points == 10
    with pytest.raises(ValueError, match="log likelihood of all is zero or NaN"):
        loo(tree_of(np.zeros((2, 200, 3))))


def loo_quietly(tree):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableLooWarning)
        return loo(tree)


def test_rows_on_which_all_draws_agree():
    values = some()
    expected = loo(tree_of(values[..., 1:]))
    values[..., 0] = -1.5
    found = loo(tree_of(values))
    assert found.elpd == pytest.approx(expected.elpd - 1.5)
    assert found.p == pytest.approx(expected.p)
    assert (found.elpd_i[0], found.pareto_k[0], found.n_data_points) == (pytest.approx(-1.5), -np.inf, 6)


def test_a_chain_that_stands_still_has_no_tail_to_fit():
    """A sampler that repeats its worst draw: the largest weights are equal, and their k-hat is infinite."""
    values = some(chains=1)
    values[:, 100:, 2:] = np.linspace(-5.0, -4.0, 4)
    with pytest.warns(UnreliableLooWarning, match="of 4 of 6 observations is above 0.57 or NaN"):
        found = loo(tree_of(values))
    expected = loo(tree_of(some(chains=1)))
    assert (found.pareto_k[2:] == np.inf).all()
    np.testing.assert_allclose(found.elpd_i[:2], expected.elpd_i[:2])  # the others are ArviZ's
    np.testing.assert_allclose(found.pareto_k[:2], expected.pareto_k[:2])
    harmonic = -np.log(np.exp(-values[..., 2:]).mean((0, 1)))  # of weights that nothing smooths
    np.testing.assert_allclose(found.elpd_i[2:], harmonic)
    two = np.concatenate([values, some(chains=1, seed=3)])
    with pytest.warns(UnreliableLooWarning, match="of 4 of 6"):
        assert (loo(tree_of(two)).pareto_k[2:] == np.inf).all()


def test_certain_classes_are_observations():
    values = some()
    values[..., 0] = 0.0
    probs = np.full((2, 200, 6, 2), 0.5)
    probs[:, :, 0] = [1.0, 0.0]
    dims = ("chain", "draw", "obs_id", "class_id")
    found = loo(tree_of(values, conditional=xr.Dataset({"probs": (dims, probs)})))
    assert found.n_data_points == 6
    assert float(found.elpd_i[0]) == pytest.approx(0.0, abs=1e-12)


def test_results_can_be_compared():
    target = linear_gaussian()
    exact = exact_posterior(target)
    trees = {
        "chains": bz.posterior_predictive(chains(exact, num_draws=500), *target.data),
        "laplace": bz.posterior_predictive(exact, *target.data),
    }
    table = az.compare({name: loo(tree) for name, tree in trees.items()})
    assert set(table.index) == {"chains", "laplace"}
    assert abs(float(table["elpd_diff"].iloc[-1])) < 0.2


def test_linearised_predictions_are_corrected_by_the_linearised_density():
    target = linear_gaussian()
    tree = bz.posterior_predictive(factorised(target, 1.3 * target.sd["w"]), *target.data)
    expected = loo(tree)
    lp, log_likelihood = tree["sample_stats"]["lp"], tree["log_likelihood"]["y"]
    log_jacobian = lp.copy(data=np.random.default_rng(0).normal(size=lp.shape))
    tree["log_prior"] = xr.DataTree(xr.Dataset({"w": lp - log_likelihood.sum("obs_id") - log_jacobian}))
    stats = tree["sample_stats"].to_dataset().assign(lp=lp**2, log_jacobian=log_jacobian)
    other = tree.assign({"sample_stats": xr.DataTree(stats)})
    other.attrs = tree.attrs | {"linearized": "yes"}
    assert loo(other).elpd == pytest.approx(expected.elpd)
    other.attrs["linearized"] = "no"
    assert loo_quietly(other).elpd != pytest.approx(expected.elpd)


def test_constrained_parameters_of_a_linearised_model_count_with_their_jacobian():
    """The density of a model that is linear, but for a scale that is not linearised, is that of its linearisation."""
    x, generator = torch.randn(30, 2), torch.Generator().manual_seed(1)
    y = x[:, 0] + torch.randn(30, generator=generator)
    model = bz.models.supervised(torch.nn.Linear(2, 1), bz.priors.normal(1.0), bz.likelihoods.gaussian())
    tree = bz.posterior_predictive(bz.fit(model, bz.Laplace(), x, y, seed=0), x, y, num_draws=200)
    assert tree.attrs["linearized"] == "yes" and float(tree["sample_stats"]["log_jacobian"].std()) > 0.05
    as_it_is = tree.copy()
    as_it_is.attrs = tree.attrs | {"linearized": "no"}
    assert loo_quietly(tree).elpd == pytest.approx(loo_quietly(as_it_is).elpd, abs=1e-6)


def test_what_has_no_leave_one_out_is_refused():
    x, y = torch.randn(30, 3, generator=torch.Generator().manual_seed(0)), torch.linspace(-1, 1, 30)
    model = network(bz.likelihoods.gaussian(scale=0.5))
    members = bz.posterior_predictive(bz.fit(model, bz.MAP(num_members=2, num_steps=5), x, y, progress=False), x, y)
    with pytest.raises(
        ValueError, match=r"Members of an ensemble \(MAP\) are not draws .* compare held-out log scores inst"
    ):
        loo(members)
    with pytest.raises(ValueError, match="draws are those of the prior, which has seen no data to leave out"):
        loo(bz.prior_predictive(model, x, y, num_draws=30))
    target = linear_gaussian()
    posterior = exact_posterior(target)
    with pytest.raises(
        ValueError, match=r"no group 'log_likelihood' \(groups: .*of new data take bnnzoo.calibration.nll"
    ):
        loo(bz.predict(posterior, *target.data))
    with pytest.raises(ValueError, match=r"no group 'log_likelihood' .*: pass bnnzoo.posterior_predictive"):
        loo(bz.to_datatree(posterior))
    tree = bz.posterior_predictive(posterior, *target.data)
    resampled = psis_resample(tree)
    assert float(loo(resampled).elpd) == pytest.approx(float(loo(tree).elpd), abs=0.2)
    resampled.attrs["psis_pareto_k"] = 0.8
    with pytest.raises(ValueError, match=r"'sample_stats' has no 'log_q': pass .* as it was before any resampling, or"):
        loo(resampled)
    with pytest.raises(ValueError, match=r"LOO needs 25 draws or more, but there are 5"):
        loo(bz.posterior_predictive(posterior, *target.data, num_draws=5))
    log_q = np.zeros((2, 200))
    log_q[0, 1] = np.inf
    with pytest.raises(ValueError, match="lp - log_q is not finite in 1 of 400 draws"):
        loo(tree_of(some(), sampling="iid", log_q=log_q))


@pytest.mark.parametrize("shape", [(2, 100), (2, 100, 1)])
def test_a_single_observation_cannot_be_left_out(shape):
    values = np.random.default_rng(0).normal(size=shape)
    with pytest.raises(ValueError, match=r"LOO needs two observations or more.*\.to_event\(\).*Gaussian process"):
        loo(tree_of(values))


def test_a_site_without_rows_is_one_observation_and_no_part_of_every_row():
    def model(y, total):
        mu = pyro.sample("mu", dist.Normal(0.0, 3.0))
        pyro.sample("total", dist.Normal(mu, 1.0), obs=total)
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, 1.0), obs=y)

    y, total = torch.randn(20, generator=torch.Generator().manual_seed(0)), torch.tensor(2.5)
    apart = bz.fit(model, bz.NUTS(num_chains=2, num_warmup=200, num_draws=1000), y, total, progress=False)
    tree = bz.posterior_predictive(apart, y, total)
    found = loo(tree)
    rows = tree.copy()
    rows["log_likelihood"] = tree["log_likelihood"].to_dataset()[["y"]]
    of_rows = loo(rows)
    assert (found.n_data_points, of_rows.n_data_points) == (21, 20)
    np.testing.assert_allclose(found.elpd_i[:20], of_rows.elpd_i, rtol=1e-6)
    precision = 20 + 1 / 9  # of mu without the total
    exact = dist.Normal(y.sum() / precision, math.sqrt(1 + 1 / precision)).log_prob(total)
    assert abs(float(found.elpd_i[20]) - float(exact)) < 0.1


def test_draws_without_a_density_are_refused() -> None:
    log_q = np.random.default_rng(0).normal(size=(1, 100))
    tree = tree_of(-np.ones((1, 100, 4)), "iid", log_q)
    tree["sample_stats"]["lp"][0, 7] = -np.inf
    with pytest.raises(ValueError, match=r"not finite in 1 of 100 draws, at which .* fit with dtype=torch\.float64"):
        bz.diagnostics.loo(tree)
