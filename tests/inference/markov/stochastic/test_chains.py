"""Runs of stochastic-gradient chains: settings, starts, thinning, schedules, executors, and what is refused."""

from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import DivergenceWarning
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import build_density
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.sites import ModelError
from bnnzoo.engine.choose import Engine
from bnnzoo.inference import MAP, PSGLD, SGHMC, SGLD, CyclicalSGMCMC, StochasticMCLMC, fit
from bnnzoo.inference.markov.stochastic import minibatch_starts
from bnnzoo.inference.markov.stochastic.cyclical import cycles_of
from bnnzoo.inference.markov.stochastic.minibatch_starts import optimised_starts
from bnnzoo.inference.markov.stochastic.sghmc import UnderdampedLangevin
from bnnzoo.inference.markov.stochastic.sgld import Langevin
from bnnzoo.inference.markov.stochastic.stochastic_dynamics import Measured
from bnnzoo.inference.markov.stochastic.stochastic_program import Units
from bnnzoo.inference.markov.stochastic.stochastic_sampler import StochasticChains
from bnnzoo.inference.markov.stochastic.stochastic_settings import plan_of, rows_of_batch, steps_between_draws
from bnnzoo.inference.markov.stochastic.tuning import adopted
from bnnzoo.inference.optimise.schedules import LinearWarmup, WarmRestarts
from bnnzoo.inference.optimise.train import train
from bnnzoo.inference.optimise.training_run import Trained
from bnnzoo.inference.starts import starts_of_model
from bnnzoo.testing import linear_gaussian, skewed
from tests.helpers.executors import InProcess

TARGET = linear_gaussian()
QUICK: dict[str, Any] = {"num_chains": 3, "num_warmup": 20, "num_draws": 6, "optimise_steps": 50, "batch_size": 10}
KINDS: list[Any] = [SGLD, PSGLD, SGHMC, StochasticMCLMC, CyclicalSGMCMC]
FEW_BY_DEFAULT = [
    SGLD,
    StochasticMCLMC,
    *(pytest.param(k, marks=pytest.mark.slow) for k in (PSGLD, SGHMC, CyclicalSGMCMC)),
]


def quick(kind: Any, **settings: Any) -> Any:
    cycles = {"num_cycles": 2} if kind is CyclicalSGMCMC else {}
    return kind(**QUICK | cycles | settings)


def fitted(method: Any, **settings: Any) -> Posterior:
    return fit(TARGET.model, method, *TARGET.data, progress=False, **{"seed": 3} | settings)


@pytest.mark.parametrize("kind", FEW_BY_DEFAULT)
def test_an_executor_gives_the_chains_of_one_process(kind: Any) -> None:
    together, apart = fitted(quick(kind)), fitted(quick(kind), executor=InProcess())
    torch.testing.assert_close(apart.draws(), together.draws(), rtol=1e-6, atol=1e-6)
    assert together.info.sampling == "mcmc" and together.info.complete


@pytest.mark.parametrize("kind", FEW_BY_DEFAULT)
def test_a_chain_does_not_depend_on_the_others(kind: Any) -> None:
    starts = torch.randn(3, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    three, one = (fitted(quick(kind, num_chains=c, init=starts[:c]), dtype=torch.float64) for c in (3, 1))
    torch.testing.assert_close(one.draws()[0], three.draws()[0], rtol=1e-6, atol=1e-6)


REFUSED: list[tuple[Any, str]] = [
    (SGLD(temperature=-1.0), r"SGLD\(temperature=-1\.0\): write a positive number\."),
    (SGHMC(temperature=0.0), r"SGHMC\(temperature=0\.0\): write a positive number\."),
    (SGLD(batch_size=41), r"SGLD\(batch_size=41\): the data have 40 observations\. Write 40 for all of them"),
    (SGLD(batch_size=0), r"SGLD\(batch_size=0\): write 1 or more or None\."),
    (SGLD(step_size=0.0), r"SGLD\(step_size=0\.0\): write a positive number or None\."),
    (SGLD(variance_bias=1.0), r"SGLD\(variance_bias=1\.0\): write a number between 0 and 1\."),
    (SGLD(steps_per_draw=0), r"SGLD\(steps_per_draw=0\): write 1 or more or None\."),
    (SGLD(svrg_period=5), r"SGLD\(svrg_period=5\) has no effect: write control_variates='svrg'"),
    (SGLD(num_warmup=0), r"SGLD\(num_warmup=0\) tunes nothing"),
    (
        SGLD(num_warmup=0, step_size=0.1),
        r"SGLD\(num_warmup=0\) cannot estimate the scales .* write preconditioning=None",
    ),
    (SGLD(optimise_steps=-1), r"SGLD\(optimise_steps=-1\): write 0 or more\."),
    (SGLD(schedule=LinearWarmup(1.5)), r"LinearWarmup\(fraction=1\.5\): write a number between 0 and 1\."),
    (PSGLD(decay=1.0), r"PSGLD\(decay=1\.0\): write a number between 0 and 1\."),
    (PSGLD(damping=0.0), r"PSGLD\(damping=0\.0\): write a positive number\."),
    (SGHMC(momentum_decay=1.0), r"SGHMC\(momentum_decay=1\.0\): write a number between 0 and 1\."),
    (CyclicalSGMCMC(exploration=1.0), r"CyclicalSGMCMC\(exploration=1\.0\): write a number between 0 and 1\."),
    (CyclicalSGMCMC(num_draws=50, num_cycles=20), r"each cycle has the same number of draws\. Write num_draws=60\."),
    (StochasticMCLMC(energy_variance=0.0), r"StochasticMCLMC\(energy_variance=0\.0\): write a positive number\."),
    (StochasticMCLMC(noise_ratio=0.0), r"StochasticMCLMC\(noise_ratio=0\.0\): write a positive number\."),
]


@pytest.mark.parametrize(("method", "sentence"), REFUSED)
def test_invalid_settings_are_refused(method: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        fitted(method)


def test_a_direction_needs_two_parameters() -> None:
    target = skewed()
    with pytest.raises(ValueError, match=r"StochasticMCLMC changes the direction .* has 1 unconstrained parameter"):
        fit(target.model, StochasticMCLMC(), *target.data)


def test_mini_batches_of_a_model_without_rows_are_refused() -> None:
    def model(y: dict[str, Tensor]) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        with pyro.plate("rows", 20):
            pyro.sample("y", dist.Normal(z.sum(), 1.0), obs=y["y"])

    with pytest.raises(ValueError, match=r"batch_size=5, but no argument of the model has one row"):
        fit(model, SGLD(batch_size=5), {"y": torch.zeros(20)})


def test_mini_batches_of_sites_of_other_numbers_of_rows_are_refused_by_their_numbers() -> None:
    def model(x: Tensor, y: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.sample("total", dist.Normal(z.sum(), 1.0), obs=torch.tensor(0.5))
        with pyro.plate("rows", len(y)):
            pyro.sample("y", dist.Normal(z.sum() * x, 1.0), obs=y)

    with pytest.raises(
        ValueError, match=r"for each of its 21 observations \(1 of 'total', 20 of 'y'\)\. Leave batch_size out"
    ):
        fit(model, SGLD(batch_size=5), torch.zeros(20), torch.zeros(20))


def test_a_chain_that_diverges_is_named_with_what_to_change() -> None:
    method = quick(SGLD, step_size=100.0, preconditioning=None, steps_per_draw=300)
    with pytest.raises(FloatingPointError, match=r"Chain 0 left the region .* draw 0 of warm-up .* Lower step_size"):
        fitted(method)


def with_a_hole(y: Tensor) -> None:
    """Stand for a model that cannot be evaluated where its first parameter is above one."""
    z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
    pyro.factor("hole", 1e-6 * (1.0 - z[0]).sqrt())
    with pyro.plate("rows", len(y)):
        pyro.sample("y", dist.Normal(0.1 * z[1], 1.0), obs=y)


@pytest.mark.filterwarnings("ignore::bnnzoo.core.fit_warnings.ChainsApartWarning")
@pytest.mark.filterwarnings("ignore::bnnzoo.core.fit_warnings.FewEffectiveDrawsWarning")
@pytest.mark.parametrize("engine", ["native", pytest.param("graph", marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [SGLD, SGHMC])
def test_a_chain_in_a_hole_repeats_its_draw_and_is_counted(kind: Any, engine: Engine) -> None:
    start = torch.zeros(2, 2, dtype=torch.float64)
    method = kind(
        num_chains=2, num_warmup=0, num_draws=600, steps_per_draw=10, step_size=0.2, preconditioning=None, init=start
    )
    with pytest.warns(DivergenceWarning, match=r"trajectories diverged .* Take shorter steps, use NUTS\(\), or repar"):
        posterior = fit(
            with_a_hole, method, torch.zeros(20, dtype=torch.float64), seed=0, progress=False, engine=engine
        )
    z, diverged = posterior.draws()[..., 0], posterior.info.sample_stats["diverging"]
    assert diverged.dtype == torch.bool and 10 < int(diverged.sum()) == posterior.info.num_rejected
    assert bool((z < 1.0).all())
    assert bool((z[:, 1:] == z[:, :-1])[diverged[:, 1:]].all()) and not bool(
        (z[:, 1:] == z[:, :-1])[~diverged[:, 1:]].any()
    )


@pytest.mark.parametrize("kind", [SGLD, SGHMC])
def test_a_chain_whose_steps_are_too_long_stays_where_the_posterior_is(kind: Any) -> None:
    mode = fit(TARGET.model, MAP(), *TARGET.data, progress=False, dtype=torch.float64).draws()[:, 0].expand(2, -1)
    method = kind(
        num_chains=2, num_warmup=0, num_draws=20, steps_per_draw=10, step_size=5.0, preconditioning=None, init=mode
    )
    posterior = fit(TARGET.model, method, *TARGET.data, progress=False, dtype=torch.float64)
    assert int(posterior.info.sample_stats["diverging"].sum()) > 20
    density = build_density(TARGET.model, *TARGET.data, dtype=torch.float64)
    values = torch.tensor(
        [[float(density.log_joint(theta, *TARGET.data)) for theta in chain] for chain in posterior.draws()]
    )
    assert bool((values[:, 1:] > values[:, :-1] - (1000 + 10 * len(TARGET.data[0]) + 3)).all())


def test_a_density_that_is_not_finite_names_the_site() -> None:
    def model(x: Tensor) -> None:
        z = pyro.sample("z", dist.Normal(0.0, 1.0).expand([2]).to_event(1))
        pyro.factor("hole", z.sum() + torch.full((), -torch.inf))
        with pyro.plate("rows", len(x)):
            pyro.sample("y", dist.Normal(z.sum(), 1.0), obs=x)

    with pytest.raises(ModelError, match=r"not finite at the start of chain 0: site 'hole'"):
        fit(model, quick(SGLD), torch.zeros(20), progress=False)


def test_chains_start_at_optimised_members_unless_told_where() -> None:
    density = build_density(TARGET.model, *TARGET.data)
    mode, given = TARGET.mean["w"].expand(3, 3), torch.ones(3, 3)
    optimised = optimised_starts(SGLD(**QUICK | {"optimise_steps": 1000}), density, FitContext(1))
    assert float(((optimised - mode) / TARGET.sd["w"]).abs().max()) < 1
    assert torch.equal(optimised_starts(SGLD(**QUICK, init=given), density, FitContext(1)), given)
    random = optimised_starts(SGLD(**QUICK | {"optimise_steps": 0}), density, FitContext(1))
    assert torch.equal(random, density.init(3, 1))
    at_mode = optimised_starts(SGLD(**QUICK, init=MAP(num_members=3)), density, FitContext(1))
    torch.testing.assert_close(at_mode, mode, rtol=1e-4, atol=1e-4)


def test_defaults_depend_on_the_number_of_rows() -> None:
    densities = [build_density(TARGET.model, torch.randn(n, 3), torch.randn(n)) for n in (40, 5000)]
    assert [rows_of_batch(SGLD(), each) for each in densities] == [40, 256]
    assert [steps_between_draws(SGLD(), each) for each in densities] == [10, 20]
    assert steps_between_draws(SGLD(batch_size=1), densities[1]) == 100


def test_schedules_and_thinning_are_in_the_statistics() -> None:
    posterior = fitted(quick(SGLD, steps_per_draw=4, schedule=WarmRestarts(8)))
    assert posterior.info.sample_stats["n_steps"].unique().tolist() == [4.0]
    assert posterior.draws().isfinite().all()


def test_cycles_explore_without_noise_before_their_draws() -> None:
    density = build_density(TARGET.model, *TARGET.data)
    plan = cycles_of(CyclicalSGMCMC(num_draws=6, num_cycles=2, steps_per_draw=10, exploration=0.75), density)
    assert plan.steps_of_draws == (100, 10, 10) * 2
    assert plan.noise.tolist() == ([0.0] * 90 + [1.0] * 30) * 2
    assert plan.factors[0] == 1 and plan.factors[119] < 1e-3 and plan.factors[120] == 1


def test_gradients_of_control_variates_count_twice() -> None:
    plain, anchored = (fitted(quick(SGLD, control_variates=c)).info.num_gradients for c in (None, "map"))
    assert anchored > 1.9 * plain


def test_single_precision_and_all_rows() -> None:
    posterior = fitted(quick(StochasticMCLMC, batch_size=40), dtype=torch.float32)
    assert posterior.draws().dtype == torch.float32 and posterior.draws().isfinite().all()


def chains_of(method: Any, dynamics: Any = Langevin(1.0, 0.025, True)) -> StochasticChains:
    density = build_density(TARGET.model, *TARGET.data)
    start = TARGET.mean["w"].expand(3, 3)
    return StochasticChains(dynamics, plan_of(method, density), density, method, start, 0)


def with_step_sizes(chains: StochasticChains, sizes: list[float]) -> None:
    resting = chains.fleet.resting
    units = resting.units._replace(step_size=torch.tensor(sizes).to(resting.units.step_size))
    chains.fleet.write(resting=resting._replace(units=units))


def draw_once(chains: StochasticChains) -> Any:
    """Let the chains wait after their next draw, and return their state there."""
    resting = chains.fleet.resting
    until = resting.counters.draws + 1
    chains.fleet.write(resting=resting._replace(schedule=resting.schedule._replace(until=until)))
    while int(chains.fleet.resting.counters.draws[0]) < int(until[0]):
        chains.advance()
    return chains.fleet.moving.theta.clone(), chains.fleet.resting.units.step_size.tolist()


def test_a_chain_that_diverges_in_warm_up_is_reset_with_a_shorter_step() -> None:
    chains = chains_of(SGLD(**QUICK, steps_per_draw=400))
    start = chains.fleet.moving.theta.clone()
    with_step_sizes(chains, [0.1, 1e3, 0.1])
    theta, sizes = draw_once(chains)
    assert theta.isfinite().all() and torch.equal(theta[1], start[1])
    assert sizes == pytest.approx([0.1, 250.0, 0.1])


def test_a_chain_that_does_not_get_away_after_warm_up_takes_shorter_steps() -> None:
    """The step size at the end of warm-up was unstable elsewhere, and a chain repeated one draw for ever."""
    chains = chains_of(SGLD(**QUICK | {"num_warmup": 0, "num_draws": 8}, steps_per_draw=400))
    start = chains.fleet.moving.theta.clone()
    with_step_sizes(chains, [0.1, 1e3, 0.1])
    found = [draw_once(chains) for _ in range(7)]
    assert [sizes[1] for _, sizes in found] == [1e3, 1e3, 250.0, 250.0, 250.0, 62.5, 62.5]
    theta, _ = found[-1]
    assert torch.equal(theta[1], start[1]) and not torch.equal(theta[0], start[0])
    with_step_sizes(chains, [0.1, 0.1, 0.1])
    theta, _ = draw_once(chains)
    assert chains.fleet.resting.counters.in_a_row.tolist() == [0, 0, 0] and not torch.equal(theta[1], start[1])


def test_gradients_that_overflow_leave_the_step_size_as_it_was() -> None:
    ones = torch.ones(3, 3)
    before, overflowed = Units(0.1 * ones[0], 3 * ones, ones), torch.stack([ones[0], torch.inf * ones[0], ones[0]])
    after = adopted(before, Measured(overflowed, ones, 2 * ones, ones[:, 0]), 0.5 * ones[:, 0])
    assert after.step_size[0] == 0.5 and after.step_size[1] == before.step_size[1]
    assert torch.equal(after.scale[1], before.scale[1]) and torch.equal(after.scale[2], 2 * ones[2])


def test_a_chain_that_is_reset_leaves_in_the_opposite_direction() -> None:
    chains = chains_of(SGHMC(**QUICK, steps_per_draw=400), UnderdampedLangevin(1.0, 0.025, True, 0.1, False))
    before = chains.fleet.resting.left.evaluated[1].clone()  # the momentum beside the position
    with_step_sizes(chains, [0.1, 1e3, 0.1])
    draw_once(chains)
    assert float(before[1].abs().min()) > 0.0
    assert torch.equal(chains.fleet.moving.carried[0][1], -before[1])


def holed(x: Tensor) -> None:
    """Half of the usual starts are where nothing can be evaluated, and halving them leads nowhere else."""
    z = pyro.sample("z", dist.Normal(1.0, 0.5))
    with pyro.plate("rows", len(x)):
        pyro.sample("y", dist.Normal(z.sqrt(), 1.0), obs=x)


@pytest.mark.parametrize("batch_size", [None, 5])
def test_chains_begin_where_the_model_can_be_evaluated(batch_size: int | None) -> None:
    method = SGLD(num_chains=8, num_warmup=5, num_draws=5, optimise_steps=30, batch_size=batch_size)
    posterior = fit(holed, method, torch.ones(20), progress=False)
    assert bool((posterior.draws() > 0).all())


def test_a_chain_trained_into_a_hole_begins_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def into_hole(*args: Any, **settings: Any) -> Trained:
        found = train(*args, **settings)
        trace = found.trace.clone()
        trace[0, -1] = torch.nan
        return replace(found, params=-found.params, last_good=torch.ones_like(found.params), trace=trace)

    monkeypatch.setattr(minibatch_starts, "train", into_hole)
    density = build_density(holed, torch.ones(20))
    theta = optimised_starts(SGLD(num_chains=3, optimise_steps=30), density, FitContext())
    assert float(theta[0]) == 1.0 and bool((theta[1:] < 0).all())


def test_interrupted_on_the_way_to_a_mode_no_chain_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Training swallowed Ctrl-C, and the chains ran."""
    monkeypatch.setattr(
        minibatch_starts, "train", lambda *args, **settings: replace(train(*args, **settings), complete=False)
    )
    with pytest.raises(KeyboardInterrupt, match="before the chains began"):
        fit(holed, SGLD(num_chains=3, optimise_steps=30), torch.ones(20), progress=False)


def test_starts_on_a_mini_batch_are_drawn_again_on_it() -> None:
    x = torch.linspace(0.0, 3.0, 20)
    density, batch = build_density(holed, x), (x[:5],)
    found = starts_of_model(8, density, FitContext(), *batch)
    assert not torch.equal(found.theta, density.init(8, 0))  # some were drawn again
    wanted = torch.stack([density.log_joint(theta, *batch) for theta in found.theta])
    torch.testing.assert_close(found.value, wanted)
