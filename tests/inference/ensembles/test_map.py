"""The mode, from many starts at once."""

import json
import math
import multiprocessing
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import JointModeWarning, NotConvergedWarning
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.verdict.several_modes import beside_modes
from bnnzoo.inference import MAP, fit
from bnnzoo.inference.optimise import pathfinder
from bnnzoo.inference.optimise.pathfinder import uphill
from bnnzoo.testing.isolation import leaves_no_trace
from bnnzoo.testing.targets import linear_gaussian, skewed
from tests.helpers.counting import Counting
from tests.helpers.executors import InProcess


@pytest.mark.parametrize("method", [MAP(), MAP(polish_steps=0, learning_rate=0.1), MAP(batch_size=7, num_steps=200)])
def test_finds_the_mode_of_a_gaussian(method: MAP) -> None:
    target = linear_gaussian()
    posterior = fit(target.model, method, *target.data)
    tolerance = 1e-8 if method.polish_steps else 1e-3
    torch.testing.assert_close(posterior.theta[0, 0], target.mean["w"], rtol=tolerance, atol=tolerance)


def test_mini_batches_alone_come_close() -> None:
    target = linear_gaussian()
    posterior = fit(target.model, MAP(batch_size=8, polish_steps=0, num_steps=2000), *target.data)
    error = (posterior.theta[0, 0] - target.mean["w"]).abs() / target.sd["w"]
    assert error.max() < 0.5  # unscaled mini-batches would let the prior win


def test_mode_in_unconstrained_space_includes_the_jacobian() -> None:
    target = skewed()
    posterior = fit(target.model, MAP(), *target.data)
    rate = posterior.density.constrain(posterior.theta)["rate"].squeeze()
    # the mode of log(rate) for rate ~ Gamma(a, b) is log(a / b): the mean, not the mode (a - 1) / b of the rate itself
    torch.testing.assert_close(rate, target.mean["rate"], rtol=1e-7, atol=0)


def test_members_are_draws_of_an_ensemble() -> None:
    def two_modes(y: Tensor) -> None:
        a = pyro.sample("a", dist.Normal(0.0, 2.0))
        with pyro.plate("data", len(y)):
            pyro.sample("y", dist.Normal(a**2, 0.5), obs=y)

    posterior = fit(two_modes, MAP(num_members=20), torch.full((10,), 1.0), seed=3)
    found = posterior.draws()
    assert found.shape == (1, 20, 1)
    assert posterior.info.sampling == "ensemble"
    assert set(found.sign().flatten().tolist()) == {-1.0, 1.0}
    torch.testing.assert_close(found.abs().amin(), found.abs().amax(), rtol=1e-6, atol=0)
    assert posterior.info.sample_stats["gradient_norm"].shape == (1, 20)
    assert posterior.info.sample_stats["gradient_norm"].max() < 1e-4
    assert posterior.info.fit_stats["loss"].shape == (20, 1000)


def test_members_do_not_depend_on_each_other() -> None:
    target = linear_gaussian()
    start = torch.randn(3, 3, generator=torch.Generator().manual_seed(5))
    together = fit(target.model, MAP(num_members=3, init=start, num_steps=50, polish_steps=5), *target.data)
    for i, row in enumerate(start):
        alone = fit(target.model, MAP(init=row[None], num_steps=50, polish_steps=5), *target.data)
        torch.testing.assert_close(together.theta[0, i], alone.theta[0, 0], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    "settings", [{"num_steps": 60}, {"num_steps": 60, "batch_size": 9, "polish_steps": 0}, {"num_steps": 0}]
)
def test_members_on_an_executor_are_those_of_one_batch(settings) -> None:
    target, executor = linear_gaussian(), InProcess()
    method = MAP(num_members=3, **settings)
    together = fit(target.model, method, *target.data, seed=5)
    apart = fit(target.model, method, *target.data, seed=5, executor=executor)
    assert executor.num_tasks == 3
    # the order of summation differs between a batch of three and one, so that bits may
    torch.testing.assert_close(apart.theta, together.theta, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(apart.info.sample_stats["lp"], together.info.sample_stats["lp"], rtol=1e-9, atol=1e-9)
    assert apart.info.fit_stats.keys() == together.info.fit_stats.keys()
    for name, trace in together.info.fit_stats.items():
        torch.testing.assert_close(apart.info.fit_stats[name], trace, rtol=1e-9, atol=1e-8)
    assert apart.info.complete


def test_members_that_stay_where_they_are_need_no_executor() -> None:
    target, executor = linear_gaussian(), InProcess()
    start = torch.randn(2, 3)
    method = MAP(num_members=2, num_steps=0, polish_steps=0, init=start)
    posterior = fit(target.model, method, *target.data, executor=executor)
    assert executor.num_tasks == 0
    assert torch.equal(posterior.theta[0], start)


@pytest.mark.slow
def test_members_in_a_process_pool() -> None:
    target, method = linear_gaussian(), MAP(num_members=2, num_steps=60)
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as pool:
        apart = fit(target.model, method, *target.data, executor=pool, dtype=torch.float64)
    together = fit(target.model, method, *target.data, dtype=torch.float64)
    torch.testing.assert_close(apart.theta, together.theta, rtol=1e-6, atol=1e-6)


def test_model_is_called_eight_times_in_a_thousand_steps() -> None:
    target = linear_gaussian()
    model = Counting(target.model)
    fit(model, MAP(num_steps=1000), *target.data)
    assert model.calls <= 8  # twice to be remembered, and for a Hessian


def test_leaves_global_state_alone_and_is_reproducible() -> None:
    target = linear_gaussian()
    method = MAP(num_members=2, num_steps=30, batch_size=10, polish_steps=0)
    with leaves_no_trace("MAP"):
        first = fit(target.model, method, *target.data, seed=4)
    assert torch.equal(first.theta, fit(target.model, method, *target.data, seed=4).theta)
    assert not torch.equal(first.theta, fit(target.model, method, *target.data, seed=5).theta)
    json.dumps(dict(first.info.config))


def test_single_precision() -> None:
    target = linear_gaussian()
    torch.set_default_dtype(torch.float32)  # the model makes tensors of its own
    posterior = fit(target.model, MAP(), *target.data, dtype=torch.float32)
    assert posterior.theta.dtype == torch.float32
    torch.testing.assert_close(posterior.theta[0, 0].double(), target.mean["w"], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("method", "sentence"),
    [
        (MAP(num_members=0), r"MAP\(num_members=0\): write 1 or more"),
        (MAP(num_steps=-1), r"MAP\(num_steps=-1\): write 0 or more"),
        (MAP(learning_rate=0.0), r"MAP\(learning_rate=0.0\): write a positive number"),
        (MAP(batch_size=0), r"MAP\(batch_size=0\): write 1 or more or None"),
        (MAP(polish_steps=-1), r"MAP\(polish_steps=-1\): write 0 or more"),
        (MAP(tolerance=-1.0), r"MAP\(tolerance=-1.0\): write 0 or more"),
        (MAP(init=torch.zeros(2, 3)), r"init has shape \(2, 3\)"),
    ],
)
def test_refuses_impossible_settings(method: MAP, sentence: str) -> None:
    target = linear_gaussian()
    with pytest.raises(ValueError, match=sentence):
        fit(target.model, method, *target.data)


@pytest.mark.filterwarnings("ignore::bnnzoo.core.program.sites.ModelWarning")
def test_refuses_batches_of_a_model_without_rows() -> None:
    def model(y: Tensor) -> None:
        mu = pyro.sample("mu", dist.Normal(0.0, 1.0))
        pyro.sample("y", dist.Normal(mu, 1.0).expand([4]).to_event(1), obs=y)

    with pytest.raises(ValueError, match="no argument of the model has one row for each of its 1 observations"):
        fit(model, MAP(batch_size=2), torch.zeros(4))


def line(year: Tensor, income: Tensor) -> None:
    """Income in dollars by calendar year."""
    a, b = pyro.sample("a", dist.Normal(0.0, 1e6)), pyro.sample("b", dist.Normal(0.0, 1e4))
    s = pyro.sample("s", dist.HalfNormal(1e4))
    with pyro.plate("rows", len(year)):
        pyro.sample("income", dist.Normal(a + b * year, s), obs=income)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_in_raw_units_the_mode_is_reached(dtype: torch.dtype) -> None:
    """Where L-BFGS ends the slope is 19 in single precision, of 500, and the gradient no larger than elsewhere."""
    year = torch.linspace(1950, 2020, 60, dtype=torch.float64)
    income = 500 * (year - 1950) + 20_000 + 3000 * torch.randn(60, generator=torch.Generator().manual_seed(0)).double()
    posterior = fit(line, MAP(), year, income, dtype=dtype)
    design = torch.stack([torch.ones(60, dtype=torch.float64), year], 1)
    noise = float(posterior.draws()[0, 0, 2].double().exp())
    precision = design.mT @ design / noise**2 + torch.diag(torch.tensor([1e-12, 1e-8], dtype=torch.float64))
    wanted = torch.linalg.solve(precision, design.mT @ income / noise**2)
    sd = torch.linalg.inv(precision).diagonal().sqrt()
    assert float(((posterior.draws()[0, 0, :2].double() - wanted) / sd).abs().max()) < 0.02
    assert float(posterior.info.sample_stats["newton_decrement"]) < 0.1


def test_a_hierarchy_without_a_joint_mode_is_said_to_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []

    def recorded(density: LogDensity, theta: Tensor, max_steps: int) -> tuple[Tensor, float, int]:
        steps.append(max_steps)
        return uphill(density, theta, max_steps)

    monkeypatch.setattr("bnnzoo.inference.ensembles.map.uphill", recorded)
    y = torch.tensor([28.0, 8.0, -3.0, 7.0, -1.0, 1.0, 18.0, 12.0])

    def schools(y: Tensor) -> None:
        mu, tau = pyro.sample("mu", dist.Normal(0.0, 5.0)), pyro.sample("tau", dist.HalfCauchy(5.0))
        with pyro.plate("schools", 8):
            pyro.sample("y", dist.Normal(pyro.sample("theta", dist.Normal(mu, tau)), 12.0), obs=y)

    with pytest.warns(JointModeWarning, match=r"no maximum: .* depends on tau, .* use HierarchicalLaplace\(\)"):
        posterior = fit(schools, MAP(), y)
    assert float(posterior.info.sample_stats["newton_decrement"]) == float("inf")
    assert steps == [0]  # nothing is climbed towards a scale of zero


def test_a_search_that_ends_beside_the_mode_says_so() -> None:
    target = linear_gaussian()
    found = fit(target.model, MAP(), *target.data)
    assert not list(beside_modes(found))
    stats = {"newton_decrement": torch.tensor([[0.01, 2.5]])}
    (trouble,) = beside_modes(replace(found, info=replace(found.info, sample_stats=stats)))
    assert trouble.kind is NotConvergedWarning
    assert (
        "ended at a point 2.50 posterior standard deviations from the mode. Write a larger num_steps (now"
        in trouble.message
    )
    stats = {"newton_decrement": torch.tensor([[math.inf]])}
    (trouble,) = beside_modes(replace(found, info=replace(found.info, sample_stats=stats)))
    assert "a point that is no maximum: the density curves upwards there" in trouble.message


def test_every_gradient_of_newtons_method_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own were not, whatever their number."""
    calls: list[int] = []
    newton = pathfinder._newton

    def counted(density: LogDensity, evaluate: Callable[..., Any], *args: Any) -> Any:
        def evaluated(rows: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
            calls.append(len(rows))
            value, gradient = evaluate(rows, *data)
            return value, gradient

        return newton(density, evaluated, *args)

    target, method = linear_gaussian(), MAP(num_members=2, num_steps=20, polish_steps=2)
    monkeypatch.setattr(pathfinder, "_newton", counted)
    found = fit(target.model, method, *target.data, progress=False)
    monkeypatch.setattr(pathfinder, "_has_curvature", lambda density: False)
    without = fit(target.model, method, *target.data, progress=False)
    assert len(calls) >= 4
    assert found.info.num_gradients == without.info.num_gradients + sum(calls) + 2  # and one at each mode
