"""Ladders: what copies know of where they are after exchanges, who went where, and that numbers belong to a ladder alone."""

from itertools import pairwise
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.tempering.ladder import BLOCK, Ladders
from bnnzoo.inference.markov.tempering.path import TemperedProgram, path_gradient, prior_points
from bnnzoo.inference.markov.tempering.round_trips import RoundTrips
from bnnzoo.inference.markov.tempering.temperatures import equalised, first_temperatures, rounds

KERNEL = HMCKernel(1.5, 0.5, 100)
Y = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def model(y: Tensor) -> None:
    mu = pyro.sample("mu", dist.Normal(0.0, 2.0))
    scale = pyro.sample("scale", dist.Gamma(2.0, 1.0))
    pyro.factor("pull", -0.1 * mu)
    with pyro.plate("data", len(y)):
        pyro.sample("y", dist.Normal(mu, scale), obs=y)


def density() -> LogDensity:
    return build_density(model, Y, dtype=torch.float64)


def ladders(num: int = 2, first: int = 0, num_warmup: int = 40, seed: int = 0, engine: Any = "graph") -> Ladders:
    settings = HamiltonianSettings(num_chains=num, num_warmup=num_warmup, num_draws=20)
    return Ladders(KERNEL, density(), settings, 4, torch.zeros(num, 2).double(), seed, first, engine)


def advanced(loop: Ladders, count: int) -> Ladders:
    while int(loop.counts.min()) < count:
        loop.advance()
    return loop


def terms(theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return the log prior of the sites and the rest, written by hand in unconstrained space."""
    mu, log_scale = theta
    scale = log_scale.exp()
    prior = dist.Normal(0.0, 2.0).log_prob(mu) + dist.Gamma(2.0, 1.0).log_prob(scale) + log_scale
    return prior, dist.Normal(mu, scale).log_prob(Y).sum() - 0.1 * mu


@pytest.mark.parametrize("how", ["single", "batched", "looped"])
def test_the_gradient_of_the_path_is_that_of_prior_and_likelihood(how: str) -> None:
    theta, path = torch.tensor([0.3, -0.4], dtype=torch.float64), path_gradient(density())
    if how == "single":
        value, gradient = path.single(theta, *path.data)
    else:
        function = path.batched if how == "batched" else path.looped
        (value,), (gradient,) = function(theta[None], *path.data)
    slopes = torch.autograd.functional.jacobian(terms, theta)
    prior, rest = terms(theta)
    torch.testing.assert_close(value, prior)
    torch.testing.assert_close(gradient, torch.cat([*slopes, rest[None]]))


@pytest.mark.parametrize("beta", [0.0, 0.3, 1.0])
def test_the_force_is_the_gradient_of_the_target_at_the_temperature(beta: float) -> None:
    def target(theta: Tensor) -> Tensor:
        prior, rest = terms(theta)
        return prior + beta * rest

    theta, path = torch.tensor([0.3, -0.4], dtype=torch.float64), path_gradient(density())
    value, gradient = path.single(theta, *path.data)
    program = TemperedProgram(KERNEL)
    torch.testing.assert_close(program.value(beta, value, gradient), target(theta))
    torch.testing.assert_close(program.force(beta, gradient), torch.autograd.functional.jacobian(target, theta))


@pytest.mark.parametrize("count", [1, 2, 45])
def test_after_exchanges_copies_know_log_density_and_gradients_where_they_are(count: int) -> None:
    """With the temperature of the copy, whoever was there before, and after temperatures were moved."""
    loop = advanced(ladders(), count)
    proposal, path = loop.fleet.resting.trajectory.proposal, path_gradient(density())
    prior, gradient = path.batched(proposal.theta, *path.data)
    torch.testing.assert_close(proposal.gradient, gradient)
    beta = loop.temperatures[:, 1:].flatten()
    torch.testing.assert_close(loop.fleet.resting.tempering, beta)
    torch.testing.assert_close(proposal.log_density, prior + beta * gradient[:, -1])
    assert float(loop.temperatures[0, -1]) == 1.0 and bool((loop.temperatures.diff() > 0).all())


def test_even_and_odd_pairs_take_turns() -> None:
    loop = ladders()
    for count in range(1, 30):
        before = loop.trips.states.clone()
        advanced(loop, count)
        pairs = {(0, 1), (2, 3)} if count % 2 == 0 else {(1, 2)}
        for old, new in zip(before, loop.trips.states, strict=True):
            places = [int((new == state).nonzero()) for state in old]  # where the state at each temperature went
            assert all(
                place == level or (min(level, place), max(level, place)) in pairs for level, place in enumerate(places)
            )


def test_a_round_trip_is_counted_when_a_state_is_back_at_the_prior() -> None:
    low, middle, high = ([1, 0, 2, 3], [0, 2, 1, 3], [0, 1, 3, 2])
    trips, found = RoundTrips.of(1, 4), []
    for places in ([0, 1, 2, 3], low, middle, high, high, middle, low, low, low):
        trips = trips.followed(torch.tensor([places]), counts=True)
        found.append(int(trips.round_trips))
    assert found == [0] * 6 + [1] * 3  # it has been to both ends, and is back


def test_random_numbers_belong_to_one_copy_of_one_ladder() -> None:
    loop = ladders(3)
    keys = torch.cat([loop.keys.flatten(), loop._exchange_keys.flatten(), loop._prior_keys])
    assert loop.keys.shape == (9, 4) and len(keys.unique()) == len(keys)
    draws = []
    for loop._count in (1, 2, BLOCK, BLOCK + 1):
        draws.append(loop._prior_points().theta.clone())
    assert len(torch.cat(draws).unique(dim=0)) == 12


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_draws_of_the_prior_have_the_type_of_the_fit(dtype: torch.dtype) -> None:
    def line(x: Tensor, y: Tensor) -> None:
        w = pyro.sample("w", dist.Normal(torch.zeros(2), 1.0).to_event(1))
        with pyro.plate("data", len(x)):
            pyro.sample("y", dist.Normal(x @ w, 1.0), obs=y)

    density, default = (
        build_density(line, torch.ones(3, 2, dtype=dtype), torch.ones(3, dtype=dtype), dtype=dtype),
        torch.get_default_dtype(),
    )
    points = prior_points(density, path_gradient(density), [1, 2], 50)
    assert points.theta.dtype == points.gradient.dtype == dtype and torch.get_default_dtype() == default
    prior, gradient = path_gradient(density).batched(points.theta, *density.data)
    torch.testing.assert_close(points.value, prior)
    torch.testing.assert_close(points.gradient, gradient)
    assert float(points.theta.std()) == pytest.approx(1.0, abs=0.2)


def test_a_ladder_does_not_depend_on_those_beside_it() -> None:
    together, alone = advanced(ladders(3, num_warmup=20), 22), advanced(ladders(1, first=2, num_warmup=20), 22)
    torch.testing.assert_close(together.temperatures[2:], alone.temperatures, rtol=1e-6, atol=1e-9)
    torch.testing.assert_close(together.draws[2:, :2], alone.draws[:, :2], rtol=1e-4, atol=1e-5)
    assert not torch.equal(together.draws[0, :2], together.draws[1, :2])


def test_engines_agree() -> None:
    native, graph = (advanced(ladders(num_warmup=20, engine=engine), 22) for engine in ("native", "graph"))
    assert native.fleet.how == "compiled"
    torch.testing.assert_close(native.draws[:, :2], graph.draws[:, :2], rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(native.stats[:, :2], graph.stats[:, :2], rtol=1e-4, atol=1e-5)


def test_rounds_double() -> None:
    ends = rounds(800)
    assert ends[-1] == 400 and all(after in (2 * before, 2 * before + 1) for before, after in pairwise(ends))
    assert rounds(0) == rounds(10) == ()


def test_temperatures_are_spread_evenly_along_the_barrier() -> None:
    """A barrier of 3 times the square root of beta is found, and then stays where it is."""
    temperatures = first_temperatures(10)
    for _ in range(6):
        temperatures = equalised(temperatures, 3 * temperatures.sqrt().diff())
    torch.testing.assert_close(temperatures, (torch.arange(10).double() / 9) ** 2, rtol=0.01, atol=1e-3)


def test_pairs_that_reject_nothing_do_not_collapse() -> None:
    found = equalised(first_temperatures(5), torch.tensor([1.0, 0.0, 0.0, 0.0], dtype=torch.float64))
    assert bool((found.diff() > 0).all()) and float(found[-2]) < 0.01
