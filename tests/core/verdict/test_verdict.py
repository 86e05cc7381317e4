"""What a posterior says about its own fit, and that it says nothing of a good one."""

import re
from dataclasses import replace

import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo import inference
from bnnzoo.core import fit_warnings
from bnnzoo.core.fit_warnings import told
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.covariance import Diagonal
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.core.verdict import quantities
from bnnzoo.core.verdict.importance import drawn_from
from bnnzoo.core.verdict.pareto import pareto_k
from bnnzoo.core.verdict.verdict import troubles
from bnnzoo.testing import linear_gaussian
from tests.helpers.exact import chains, exact_posterior, narrow_posterior, network

CONFIG = {"num_warmup": 500, "num_draws": 500, "max_tree_depth": 10, "target_accept": 0.8}


def sampled(theta=None, config=CONFIG, **stats):
    """Chains of 500 independent draws, with other values or statistics."""
    good = chains(exact_posterior(linear_gaussian()), num_draws=500)
    info = replace(good.info, config=config, sample_stats={**good.info.sample_stats, **stats})
    return replace(good, info=info, theta=good.theta if theta is None else theta(good.theta))


def kinds(posterior):
    return [trouble.kind for trouble in troubles(posterior)]


def only(posterior, kind):
    (found,) = troubles(posterior)
    assert found.kind is kind
    return found.message


def test_independent_chains_are_no_trouble():
    assert kinds(sampled()) == []


def test_divergences_are_counted():
    diverging = torch.zeros(4, 500, dtype=torch.bool)
    diverging[1, :6] = True
    message = only(sampled(diverging=diverging), inference.DivergenceWarning)
    assert message.startswith("6 of 2000 trajectories diverged (0.003 of all): the draws may avoid a part")
    diverging[1, :60] = True
    assert "(0.03 of all): the draws avoid a part" in only(sampled(diverging=diverging), inference.DivergenceWarning)
    assert "target_accept (now 0.8), or reparametrise" in message


@pytest.mark.parametrize(
    ("config", "targets", "now"),
    [
        (CONFIG, [0.8, 0.8], "now 0.8"),
        (CONFIG, [0.8, 0.95], "now 0.8, which warm-up raised to 0.95"),
        ({"target_accept": 0.99996}, [0.99996], "now 0.99996"),
        ({"sampler": CONFIG, "num_temperatures": 3}, [[0.8, 0.9]], "now 0.8, which warm-up raised to 0.9"),  # tempered
    ],
)
def test_divergences_name_the_target_that_warm_up_ended_with(config, targets, now):
    diverging = torch.zeros(4, 500, dtype=torch.bool)
    diverging[1, 0] = True
    posterior = sampled(config=config, diverging=diverging)
    tuning = {"target_accept": torch.tensor(targets, dtype=torch.float32)}  # in which 0.8 is a little more
    posterior = replace(posterior, info=replace(posterior.info, tuning=tuning))
    message = only(posterior, inference.DivergenceWarning)
    assert f"Write a larger target_accept ({now}), or reparametrise" in message


def test_superchains_are_judged_by_nested_rhat():
    def apart(theta):
        short = theta.reshape(40, 50, -1)[:32]
        return short + (torch.arange(32) // 16)[:, None, None] * 3.0

    found = {
        each.kind: each.message for each in troubles(sampled(apart, {**CONFIG, "num_chains": 32, "num_superchains": 2}))
    }
    assert found[inference.ChainsApartWarning].startswith("The superchains disagree: nested R-hat of 'w' is 2.")


def test_saturated_trees_are_told():
    depth = torch.full((4, 500), 5)
    depth[:, :100] = 10
    message = only(sampled(tree_depth=depth), inference.TreeDepthWarning)
    assert "20% of the trajectories ended at the largest tree depth, 10" in message
    depth[:, 20:] = 5
    assert kinds(sampled(tree_depth=depth)) == []


@pytest.mark.parametrize(("barrier", "advice"), [(9.2, "num_temperatures=20 (now 4)"), (0.4, "a larger num_draws")])
def test_few_round_trips_between_prior_and_posterior_are_told(barrier, advice):
    said = {"round_trips": 49, "communication_barrier": barrier, "inverse_temperatures": [[0.0, 0.1, 0.5, 1.0]] * 4}
    message = only(sampled(config=CONFIG | {"tempering": said}), inference.FewRoundTripsWarning)
    assert message.startswith(
        "Only 49 states went from the prior to the posterior and back; the weights of modes need 50."
    )
    assert f"communication barrier of {barrier}, write {advice}" in message
    assert kinds(sampled(config=CONFIG | {"tempering": said | {"round_trips": 50}})) == []


def test_a_chain_apart_is_told():
    def shift(theta):
        return theta + torch.tensor([0.5, 0.0, 0.0, 0.0])[:, None, None]

    found = {trouble.kind: trouble.message for trouble in troubles(sampled(shift))}
    assert set(found) >= {inference.ChainsApartWarning}
    assert "R-hat of 'w' is" in found[inference.ChainsApartWarning]
    assert "num_warmup (now 500)" in found[inference.ChainsApartWarning]


def of_two_sites() -> None:
    pyro.sample("place", dist.Normal(torch.zeros(3), 1.0).to_event(1))
    pyro.sample("size", dist.LogNormal(0.0, 1.0))


@pytest.mark.parametrize("site", ["place", "size"])
def test_the_site_that_chains_differ_in_is_named(site: str) -> None:
    """All sites are judged at once."""
    density = build_density(of_two_sites)
    theta = torch.randn(4, 500, 4, generator=torch.Generator().manual_seed(0))
    span = next(each.span for each in density.sites if each.name == site)
    theta[:, :, span.stop - 1] += torch.arange(4.0)[:, None]
    found = {each.kind: each.message for each in troubles(replace(sampled(), density=density, theta=theta))}
    assert f"R-hat of {site!r} is" in found[inference.ChainsApartWarning]
    assert f"draws of {site!r} are worth" in found[inference.FewEffectiveDrawsWarning]


@pytest.mark.parametrize(
    ("gap", "advice", "silence"),
    [
        (0.25, "Run longer (num_warmup, num_draws: now 500 and 500).", "modes"),
        (0.9, "or reparametrise the model so that chains move faster.", "modes"),
        (3.0, "standard deviations apart: the posterior has several modes", "Run longer"),
    ],
)
def test_the_advice_is_graded_by_how_far_chains_are_apart(gap, advice, silence):
    def shift(theta):
        return theta + gap * theta.std((0, 1)) * torch.tensor([1.0, 0.0, 0.0, 0.0])[:, None, None]

    found = {trouble.kind: trouble.message for trouble in troubles(sampled(shift))}[inference.ChainsApartWarning]
    assert advice in found and silence not in found


def test_chains_of_other_scales_disagree():
    def widen(theta):
        centre = theta.mean((0, 1))
        return centre + (theta - centre) * torch.tensor([3.0, 1.0, 1.0, 1.0])[:, None, None]

    assert inference.ChainsApartWarning in kinds(sampled(widen))


def test_a_number_has_the_digits_that_its_limit_needs():
    assert [told(value, 1.01) for value in (1.0104, 1.00999996, 1.52, 1.01)] == [
        "1.0104",
        "1.00999996",
        "1.520",
        "1.010",
    ]
    assert [told(value, 400, 0) for value in (399.96, 12.0)] == ["399.96", "12"]


def test_few_effective_draws_are_told():
    def sticky(theta):  # each value is repeated twenty times
        return theta.repeat_interleave(20, 1)[:, :500]

    found = {trouble.kind: trouble.message for trouble in troubles(sampled(sticky))}
    assert "The 2000 draws of 'w' are worth " in found[inference.FewEffectiveDrawsWarning]
    assert (
        "need 400. Write a larger num_draws (now 500 for each of 4 chains)" in found[inference.FewEffectiveDrawsWarning]
    )


def test_runs_too_short_to_judge_and_interrupted_runs_say_nothing():
    bad = torch.ones(4, 500, dtype=torch.bool)
    posterior = sampled(diverging=bad)
    assert kinds(replace(posterior, info=replace(posterior.info, complete=False))) == []
    short = replace(posterior, theta=posterior.theta[:, :20])
    assert kinds(short) == []


def test_weights_of_networks_are_not_compared_but_the_log_density_is(monkeypatch):
    """Functions are compared as well, of networks that are not too large."""
    x, y = torch.randn(20, 3), torch.randint(3, (20,))
    posterior = narrow_posterior(network(bz.likelihoods.categorical(), out_features=3), x, y)
    apart = chains(posterior, num_draws=300)
    apart = replace(apart, theta=apart.theta + torch.arange(4.0)[:, None, None])
    assert kinds(apart) == [inference.ChainsApartWarning]
    monkeypatch.setattr(quantities, "ROWS", 0)
    assert kinds(apart) == []
    stats = apart.info.sample_stats
    info = replace(apart.info, sample_stats={**stats, "lp": stats["lp"] + torch.arange(4.0)[:, None]})
    assert inference.ChainsApartWarning in kinds(replace(apart, info=info))


def narrow_weights(monkeypatch):
    """An approximation that is judged by its optimisation alone, as those of large networks are."""
    monkeypatch.setattr(quantities, "ROWS", 0)
    return narrow_posterior(
        network(bz.likelihoods.categorical(), out_features=3), torch.randn(20, 3), torch.arange(20) % 3
    )


@pytest.mark.parametrize(("name", "sign"), [("elbo", 1.0), ("loss", -1.0)])
def test_an_objective_that_still_improves_is_told(name, sign, monkeypatch):
    steps = torch.arange(2000.0)
    noise = torch.randn(2000)
    of_weights = narrow_weights(monkeypatch)

    def with_trace(trace, polish=0):
        stats = {name: (sign * trace + noise)[None]}
        return replace(of_weights, info=replace(of_weights.info, config={"polish_steps": polish}, fit_stats=stats))

    assert f"the {name} improved by " in only(with_trace(0.1 * steps), inference.StillImprovingWarning)
    assert kinds(with_trace(100 * (1 - torch.exp(-steps / 100)))) == []
    assert kinds(with_trace(0.0 * steps)) == []
    assert (kinds(with_trace(0.1 * steps, polish=500)) == []) == (name == "loss")


@pytest.mark.parametrize(("name", "sign"), [("elbo", 1.0), ("loss", -1.0)])
def test_an_objective_that_got_worse_is_told(name, sign, monkeypatch):
    of_weights, noise = narrow_weights(monkeypatch), torch.randn(2000)
    fall = -3000 * (torch.arange(2000.0) > 500)

    def with_trace(trace, **config):
        stats = {name: (sign * trace + noise)[None]}
        return replace(of_weights, info=replace(of_weights.info, config={"polish_steps": 0} | config, fit_stats=stats))

    message = only(with_trace(fall), inference.NotConvergedWarning)
    assert (
        f"ended worse than it began: the {name} of its last tenth is worse than that of its first by 3e+03" in message
    )
    assert "init=MAP()" in message
    assert kinds(with_trace(fall, kl_annealing=0.2)) == []
    assert kinds(with_trace(-fall)) == []


@pytest.mark.slow
def test_fit_raises_each_kind_once_at_the_end():
    method = bz.NUTS(num_chains=2, num_warmup=0, num_draws=500, step_size=1.0, max_tree_depth=3)
    with pytest.warns(bz.FitWarning) as record:
        bz.fit(funnel, method, progress=False)
    found = [warning.category for warning in record if issubclass(warning.category, bz.FitWarning)]
    assert inference.DivergenceWarning in found
    assert len(found) == len({*found})


def test_a_variational_fit_that_is_too_short_warns_and_a_long_one_does_not():
    target = linear_gaussian(correlation=0.0)
    with pytest.warns(inference.StillImprovingWarning, match="the elbo improved by"):
        bz.fit(
            target.model,
            bz.MeanFieldVI(num_steps=500, learning_rate=1e-3, schedule="constant", init_scale=0.1),
            *target.data,
            progress=False,
        )
    bz.fit(target.model, bz.MeanFieldVI(), *target.data, progress=False)


def on_its_own_scale(y):
    """Observations far from zero, which Adam's memory of the first steep gradients is slow to reach."""
    mean = pyro.sample("mean", dist.Normal(0.0, 100.0))
    scale = pyro.sample("scale", dist.HalfNormal(100.0))
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mean, scale), obs=y)


def test_a_variational_fit_that_stopped_on_its_way_is_told():
    y = 20.0 + 6.0 * torch.linspace(-1.6, 1.6, 15)
    with pytest.warns(
        inference.StillImprovingWarning, match=r"the elbo would rise if 'mean' moved by \d+\.\d of its standard"
    ):
        short = bz.fit(on_its_own_scale, bz.MeanFieldVI(num_steps=2000, init_scale=0.1), y, progress=False)
    longer = bz.fit(on_its_own_scale, bz.MeanFieldVI(num_steps=10_000, init_scale=0.1), y, progress=False)
    assert float(short.loc[0]) < 10 < 19 < float(longer.loc[0]) < 21


def test_every_kind_of_warning_is_public_and_has_one_base():
    names = [name for name in fit_warnings.__all__ if name.endswith("Warning")]
    for name in names:
        assert issubclass(getattr(fit_warnings, name), bz.FitWarning)
        assert getattr(inference, name) is getattr(fit_warnings, name)


def funnel():
    v = pyro.sample("v", dist.Normal(0.0, 3.0))
    pyro.sample("x", dist.Normal(torch.zeros(5), (v / 2).exp()).to_event(1))


def test_a_gaussian_far_from_the_posterior_is_told_and_the_exact_one_is_not():
    with pytest.warns(
        inference.ParetoKWarning, match=r"\(its Pareto k is \d\.\d+, and weights can correct it up to 0\.7\)"
    ):
        bz.fit(funnel, bz.MeanFieldVI(num_steps=1000), progress=False)
    assert kinds(exact_posterior(linear_gaussian())) == []


def test_a_laplace_approximation_is_judged_and_names_what_is_there():
    with pytest.warns(inference.ParetoKWarning, match=r"Do not trust its intervals: use NUTS\(\)\."):
        bz.fit(heavy_tailed, bz.Laplace(), progress=False)
    info = FitInfo("iid", method="Laplace", config={"curvature": "hessian"})
    wide = []
    for model in (centred_schools, schools):
        density = build_density(model, torch.ones(8))
        loc = torch.zeros(density.num_params)
        wide.append(Gaussian(density, info, loc, Diagonal(torch.full_like(loc, 2.0))))
    assert "use HierarchicalLaplace() or NUTS()." in only(wide[0], inference.ParetoKWarning)
    assert kinds(wide[1]) == []  # its JointModeWarning has said so


def centred_schools(y):
    tau = pyro.sample("tau", dist.HalfNormal(1.0))
    eta = pyro.sample("eta", dist.Normal(torch.zeros(8), tau).to_event(1))
    with pyro.plate("data", 8):
        pyro.sample("y", dist.Normal(eta, 1.0), obs=y)


def schools(y):
    tau, eta = (
        pyro.sample("tau", dist.HalfNormal(1.0)),
        pyro.sample("eta", dist.Normal(torch.zeros(8), 1.0).to_event(1)),
    )
    with pyro.plate("data", 8):
        pyro.sample("y", dist.Normal(tau * eta, 1.0), obs=y)


def heavy_tailed():
    pyro.sample("x", dist.StudentT(3.0, torch.zeros(3), 1.0).to_event(1))


def test_draws_of_a_network_that_do_not_fit_the_data_are_told():
    x = torch.linspace(-1.0, 1.0, 30)[:, None]
    density = build_density(exploding, x, torch.zeros(30))
    loc = torch.zeros(density.num_params)

    def of_scale(scale, **changes):
        return Gaussian(
            density, FitInfo("iid", method="Laplace"), loc, Diagonal(torch.full_like(loc, scale)), **changes
        )

    message = only(of_scale(8.0), inference.ParetoKWarning)
    assert re.search(r"their mean log likelihood is -\S+ an observation, where their mean has -1.42", message)
    assert kinds(of_scale(0.1)) == []
    assert kinds(of_scale(8.0, linearize_at=loc)) == []  # its predictions are not those of these draws


def exploding(x, y):
    net = bz.random_module("net", torch.nn.Linear(1, 1), bz.priors.normal(1.0))
    log_scale = net(x).squeeze(-1)
    with pyro.plate("data", len(x)):
        pyro.sample("y", dist.Normal(1.0, log_scale.exp()), obs=y)


def test_many_rejected_points_are_told():
    exact = exact_posterior(linear_gaussian())

    def with_rejected(count):
        return replace(
            exact, info=replace(exact.info, num_rejected=count, num_gradients=2000, rejected_at="site 'y' has nan")
        )

    message = only(with_rejected(300), inference.RejectedPointsWarning)
    assert "could not be evaluated at 300 of the points that the optimisation tried: site 'y' has nan." in message
    assert kinds(with_rejected(9)) == []


def test_networks_are_not_judged_by_the_pareto_k_of_their_weights():
    x, y = torch.randn(20, 3), torch.randint(3, (20,))
    posterior = narrow_posterior(network(bz.likelihoods.categorical(), out_features=3), x, y)
    assert kinds(posterior) == []
    assert pareto_k(drawn_from(posterior).log_ratios) > 0.7


def test_an_r_hat_without_bound_is_told_in_a_word() -> None:
    assert fit_warnings.told(float("inf"), 1.01) == "infinite" and fit_warnings.told(3.2e7, 1.01) == "3.2e+07"
