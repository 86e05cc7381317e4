"""Pathfinder against posteriors that are known, and what it says where it fails."""

import dataclasses
import math
import re
import statistics
import warnings
from pathlib import Path

import pyro
import pyro.distributions as dist
import pytest
import torch

import bnnzoo as bz
from bnnzoo.core.model.log_joints import log_joint_as_graph, log_joint_at
from bnnzoo.core.posterior.posterior import Draws, Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.verdict.verdict import troubles
from bnnzoo.inference import FewEffectiveDrawsWarning, NotConvergedWarning, ParetoKWarning
from bnnzoo.inference.many import seed_of_fit
from bnnzoo.inference.variational.pathfinder_vi import Resampled
from bnnzoo.models import likelihoods, mlp, priors, supervised
from bnnzoo.testing.targets import banana, linear_gaussian


def fitted(target=None, method=None, **settings):
    target = target or linear_gaussian()
    return bz.fit(target.model, method or bz.Pathfinder(**settings), *target.data, progress=False)


def test_recovers_a_correlated_posterior() -> None:
    target = linear_gaussian()
    posterior = fitted(target)
    assert isinstance(posterior, Resampled)
    config, draws = posterior.info.config, posterior.draws()[0]
    error = math.sqrt(1 / config["psis_ess"])
    assert config["psis_pareto_k"] < 0.5 and config["psis_ess"] > 500
    assert float(((draws.mean(0) - target.mean["w"]) / target.sd["w"]).abs().max()) < 4 * error
    assert float((draws.std(0) / target.sd["w"]).log().abs().max()) < 4 * error / math.sqrt(2)
    assert len(config["elbo"]) == 8
    assert statistics.median(config["elbo"]) == pytest.approx(float(target.log_evidence), abs=0.2)
    assert posterior.info.num_gradients < 200 and config["num_values"] < 2000


def test_columns_in_units_that_differ_by_a_hundred_thousand() -> None:
    target = linear_gaussian(num_inputs=8, num_data=60, correlation=0.5)
    units = torch.logspace(-2, 3, 8)
    x, *rest = target.data
    posterior = bz.fit(target.model, bz.Pathfinder(), x * units, *rest, progress=False)
    assert posterior.info.config["psis_ess"] > 300 and posterior.info.num_gradients < 1000


def test_without_resampling_it_is_a_mixture_with_a_density_a_chain_for_each_path() -> None:
    target = linear_gaussian()
    posterior = fitted(target, resample=False)
    assert isinstance(posterior, Mixture) and posterior.draws(10).shape == (8, 10, 3)
    assert posterior.info.tuning["inverse_mass"].shape == (8, 3)
    rows = zip(posterior.components, posterior.info.tuning["inverse_mass"], strict=True)
    for component, variances in rows:
        assert isinstance(component, Gaussian)
        torch.testing.assert_close(component.covariance.diagonal(), variances)
    assert isinstance(fitted(target, resample=False, num_paths=1), Gaussian)
    found = bz.diagnostics.psis(bz.to_datatree(posterior))
    assert float(found["pareto_k"]) < 0.7


def test_draws_come_as_often_as_their_weights_say() -> None:
    posterior = fitted()
    theta = torch.arange(4.0)[:, None].expand(4, 3)
    weighted = Resampled(
        posterior.density, posterior.info, posterior.proposal, theta, torch.tensor([0.1, 0.2, 0.3, 0.4]).log()
    )
    (draws,) = weighted.draws(1000)
    assert draws[:, 0].long().bincount().tolist() == [100, 200, 300, 400]
    assert torch.equal(weighted.draws(50, seed=3), weighted.draws(50, seed=3))
    assert not torch.equal(weighted.draws(50, seed=3), weighted.draws(50, seed=4))


def test_it_warns_where_weights_cannot_correct_it() -> None:
    def funnel():
        scale = pyro.sample("scale", dist.Normal(0.0, 3.0))
        pyro.sample("x", dist.Normal(torch.zeros(9), (scale / 2).exp()).to_event(1))

    with pytest.warns(
        ParetoKWarning, match=r"too far from the posterior for importance weights .* Pareto k is .*NUTS\("
    ):
        bz.fit(funnel, bz.Pathfinder(), progress=False)


def test_few_independent_draws_and_weights_without_a_tail_are_said() -> None:
    posterior = fitted()

    def said(k: float, ess: float) -> list[tuple[type, str]]:
        config = {**posterior.info.config, "psis_pareto_k": k, "psis_ess": ess}
        found = troubles(dataclasses.replace(posterior, info=dataclasses.replace(posterior.info, config=config)))
        return [(each.kind, each.message) for each in found]

    assert said(0.7, 100.0) == []
    ((kind, message),) = said(0.6, 99.7)
    assert kind is FewEffectiveDrawsWarning and "worth 99.7 independent ones, and moments need 100" in message
    assert "larger num_draws (now 1000)" in message
    ((kind, message),) = said(math.nan, 500.0)
    assert kind is ParetoKWarning and "their Pareto k cannot be computed, and the weighted draws" in message
    ((kind, message),) = said(0.7004, 500.0)
    assert kind is ParetoKWarning and "Pareto k is 0.7004, above 0.7" in message


@pytest.mark.parametrize(("scale", "is_told"), [(0.6, True), (1.0, False)])
def test_draws_that_weights_leave_too_narrow_are_said(scale: float, is_told: bool) -> None:
    posterior = fitted()
    config = {**posterior.info.config, "psis_pareto_k": 0.6}
    centre = posterior.theta.mean(0)
    drawn = dataclasses.replace(
        posterior,
        info=dataclasses.replace(posterior.info, config=config),
        theta=centre + scale * (posterior.theta - centre),
    )
    found = [(each.kind, each.message) for each in troubles(drawn)]
    if not is_told:
        assert found == []
        return
    ((kind, message),) = found
    assert kind is ParetoKWarning
    assert "weighted draws are not those of the posterior" in message
    ratio = re.search(
        r"their standard deviation of 'w'\[\d\] is (\S+) times the posterior's \(Pareto k 0\.60\)", message
    )
    assert ratio is not None and float(ratio[1]) == pytest.approx(0.6, abs=0.06)


def test_weights_correct_it_on_a_banana() -> None:
    target = banana()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        posterior = fitted(target, num_draws=4000)
    tree = bz.to_datatree(posterior)
    assert tree.attrs["psis_pareto_k"] == posterior.info.config["psis_pareto_k"]
    assert "log_q" not in tree["sample_stats"]


def test_paths_that_fail_are_said() -> None:
    def model():
        x = pyro.sample("x", dist.Normal(0.0, 1.0))
        pyro.factor("plain", torch.where(x > 15.0, 0.5 * x**2, 0.0 * x))  # flat from there on

    start = torch.tensor([[0.5], [-1.0], [20.0]])
    with pytest.warns(NotConvergedWarning, match=r"1 of the 3 paths of Pathfinder failed \(numbers 2\)"):
        posterior = bz.fit(model, bz.Pathfinder(num_paths=3, init=start), progress=False)
    assert len(posterior.proposal.components) == 2
    assert posterior.info.config["elbo"][2] == -math.inf
    assert abs(float(posterior.draws().mean())) < 0.15


def test_all_paths_that_fail_are_an_error() -> None:
    def model():
        x = pyro.sample("x", dist.Normal(0.0, 1.0))
        pyro.factor("flat", 0.5 * x**2)

    with pytest.raises(ModelError, match=r"None of the 8 paths of Pathfinder found a Gaussian .*init=.*NUTS\(\)"):
        bz.fit(model, bz.Pathfinder(), progress=False)


def test_a_mode_in_which_every_second_path_ends_is_not_missed() -> None:
    """Of two modes, 40 nats apart and 60 standard deviations, paths end in either one."""

    def model():
        x = pyro.sample("x", dist.Normal(0.0, 50.0))
        left, right = ((x - place) / 0.1 for place in (-3.0, 3.0))
        wells = [-0.5 * z**2 - 0.02 * z**4 for z in (left, right)]
        pyro.factor("wells", torch.logaddexp(wells[0] - 40.0, wells[1]))

    for seed in range(6):
        posterior = bz.fit(model, bz.Pathfinder(), seed=seed, progress=False)
        assert float(posterior.draws().mean()) == pytest.approx(3.0, abs=0.02)


def test_settings_are_checked() -> None:
    target = linear_gaussian()
    for settings, message in (
        ({"num_paths": 0}, "num_paths"),
        ({"num_draws": 10}, "num_draws"),
        ({"history": -1}, "history"),
    ):
        with pytest.raises(ValueError, match=message):
            fitted(target, **settings)


def test_thousands_of_weights_in_single_precision() -> None:
    x = torch.linspace(-2, 2, 60)[:, None]
    model = supervised(mlp(1, (60, 60)), priors.fan_in(), likelihoods.gaussian(scale=0.1))
    posterior = bz.fit(model, bz.Pathfinder(max_steps=60), x, x[:, 0].sin(), dtype=torch.float32, progress=False)
    assert isinstance(posterior, Mixture) and posterior.density.num_params > 3500
    draws = posterior.draws(20)
    assert draws.dtype == torch.float32 and bool(draws.isfinite().all())
    assert float(posterior.log_prob(draws[0, :2]).isfinite().all())
    tree = bz.predict(posterior, x, num_draws=20)
    assert float(abs(tree["predictions"]["y"].mean(("chain", "draw")) - x[:, 0].sin().numpy()).mean()) < 0.3


def test_leave_one_out_takes_its_draws_for_the_posteriors_and_refuses_those_of_no_use() -> None:
    target = linear_gaussian()
    exact = bz.diagnostics.loo(bz.posterior_predictive(fitted(target, bz.Laplace()), *target.data, num_draws=4000))
    tree = bz.posterior_predictive(fitted(target), *target.data)
    found = bz.diagnostics.loo(tree)
    assert float(found.elpd) == pytest.approx(float(exact.elpd), abs=0.15)
    tree.attrs["psis_pareto_k"] = 0.9
    with pytest.raises(ValueError, match="log_q"):
        bz.diagnostics.loo(tree)


def test_saved_and_loaded(tmp_path: Path) -> None:
    target = linear_gaussian()
    posterior = fitted(target)
    posterior.save(tmp_path / "paths.bnn")
    loaded = bz.load(tmp_path / "paths.bnn", target.model, *target.data)
    assert torch.equal(loaded.draws(), posterior.draws()) and repr(loaded) == repr(posterior)
    assert torch.equal(loaded.proposal.draws(), posterior.proposal.draws())
    assert "weighted draws worth" in repr(posterior) and "Pareto k" in repr(posterior)


def test_many_fits_are_those_of_fit() -> None:
    target = linear_gaussian()
    x, y = target.data
    (_, second) = bz.fit_many(target.model, bz.Pathfinder(), [(x, y), (x, y + 1)])
    alone = bz.fit(target.model, bz.Pathfinder(), x, y + 1, seed=seed_of_fit(0, 1), progress=False)
    assert torch.equal(second.draws(), alone.draws())


def tempered(**settings):
    return bz.Tempered(bz.HMC(**settings), num_temperatures=3)


@pytest.mark.parametrize(
    "sampler", [bz.NUTS, bz.HMC, bz.MAMS, bz.ChEESHMC, bz.MCLMC, bz.SGHMC, bz.StochasticMCLMC, tempered]
)
@pytest.mark.filterwarnings("ignore::bnnzoo.inference.FitWarning")  # of short runs
def test_every_sampler_starts_there(sampler) -> None:
    posterior = fitted(method=sampler(num_warmup=60, num_draws=20, num_chains=4, init=bz.Pathfinder()))
    assert isinstance(posterior, Draws) and len(posterior.theta) == 4
    assert posterior.info.config["init"]["method"] == "Pathfinder"


@pytest.mark.filterwarnings("ignore::bnnzoo.inference.ParetoKWarning")  # a Gaussian has lighter tails than a scale
def test_points_where_the_model_cannot_be_evaluated_are_avoided_and_counted() -> None:
    def model(y):
        scale = pyro.sample("scale", dist.Normal(1.0, 0.5))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(0.0, scale), obs=y)

    y = 0.8 * torch.randn(50, generator=torch.Generator().manual_seed(0))
    posterior = bz.fit(
        model, bz.Pathfinder(num_paths=4, init=torch.tensor([[0.5], [1.0], [3.0], [2.0]])), y, progress=False
    )
    exact = bz.fit(model, bz.NUTS(init=torch.ones(4, 1)), y, progress=False)
    assert float(posterior.draws().mean()) == pytest.approx(float(exact.draws().mean()), abs=0.02)
    assert bool((posterior.draws() > 0).all())


@pytest.mark.parametrize("seed", [0, 2])
def test_the_scale_of_three_observations_has_a_tail_that_weighted_draws_do_not_reach(seed: int) -> None:
    """Pareto k is small: no weight tells what no draw has seen."""

    def model(y: torch.Tensor) -> None:
        mu, scale = pyro.sample("mu", dist.Normal(0.0, 10.0)), pyro.sample("scale", dist.HalfCauchy(5.0))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(mu, scale), obs=y)

    with pytest.warns(ParetoKWarning, match="weighted draws are not those of the posterior"):
        posterior = bz.fit(model, bz.Pathfinder(), torch.tensor([1.2, 2.9, 0.4]), seed=seed, progress=False)
    assert posterior.info.config["psis_pareto_k"] < 0.7


def test_the_model_does_not_run_at_every_step() -> None:
    runs = 0

    def bent() -> None:
        nonlocal runs
        runs += 1
        x = pyro.sample("x", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(0.1 * x**2, 0.2))

    posterior = bz.fit(bent, bz.Pathfinder(), seed=0, progress=False, dtype=torch.float64)
    before, steps = runs, posterior.info.fit_stats["path_elbo"].shape[1]
    assert before < 20 and steps > 10
    values = log_joint_as_graph(posterior.density, 6)
    theta = posterior.draws()[0, :5]
    first, before = values(theta), runs
    again = values(theta[:2])
    assert runs == before  # one graph for all and for some
    assert torch.allclose(first, log_joint_at(posterior.density, theta), rtol=1e-12) and torch.equal(first[:2], again)


@pytest.mark.filterwarnings("ignore::bnnzoo.engine.torch_private.LoweringWarning")
def test_a_model_that_runs_as_python_has_bounds_too() -> None:
    def by_python() -> None:
        x = pyro.sample("x", dist.Normal(0.0, 1.0))
        assert float(x.detach()) > -math.inf
        pyro.sample("y", dist.Normal(3.0, 0.5))

    posterior = bz.fit(by_python, bz.Pathfinder(num_paths=2), seed=0, progress=False, dtype=torch.float64)
    draws = posterior.draws()[0]
    assert bool((draws.mean(0) - torch.tensor([0.0, 3.0])).abs().max() < 0.15)
    assert bool((draws.std(0) / torch.tensor([1.0, 0.5])).log().abs().max() < 0.15)
