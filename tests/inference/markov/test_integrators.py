"""Steps of the samplers as they run, in native code and in one batch: reversible, of second order, turned as often as said."""

from collections.abc import Callable
from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import build_density
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, LockstepSettings
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianChains
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Phase, energy
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Microcanonical, Newtonian, Point
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinChains, LangevinSettings
from bnnzoo.inference.markov.lockstep.lockstep_chains import LockstepChains
from bnnzoo.inference.markov.lockstep.motions import LockstepState
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectoryChains
from bnnzoo.inference.markov.metrics import metric_of
from bnnzoo.inference.markov.trajectory_length import squared_jump
from tests.helpers.closed_forms import COVARIANCE, density, exact_draws

NUM_PARAMS = len(COVARIANCE)
KERNEL = HMCKernel(1.5, 0.5, 1000)
SCALE = COVARIANCE.diagonal().sqrt()
EIGENVALUES, AXES = torch.linalg.eigh(COVARIANCE / SCALE / SCALE[:, None])
METRICS: dict[str, dict[str, Tensor]] = {
    "diagonal": {"inverse_mass": COVARIANCE.diagonal()},
    "dense": {"inverse_mass": COVARIANCE},
    "low_rank": {"inverse_mass": COVARIANCE.diagonal(), "directions": AXES, "eigenvalues": EIGENVALUES},
}
TIME, NUM_STEPS = 2.0, 40

type Travel[State] = Callable[[State, int, float], State]
"""``(state, number of steps, step size) -> state``; a negative size goes backward in time."""


def noise(seed: int = 1) -> Tensor:
    return torch.randn(NUM_PARAMS, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def leaps(mass: Any, engine: Any) -> Travel[Phase]:
    """Return leapfrog steps as the engine runs them, of one chain."""
    settings = HamiltonianSettings(num_warmup=0, num_draws=1, step_size=0.1, mass_matrix=mass)
    chains = HamiltonianChains(KERNEL, density(), settings, exact_draws(1), 0, 0, engine)
    assert chains.fleet.how == ("compiled" if engine == "native" else "traced")
    chains.adopt({"step_size": torch.ones(1).double(), **{name: value[None] for name, value in METRICS[mass].items()}})

    def travelled(phase: Phase, num_steps: int, step_size: float) -> Phase:
        end, trajectory = vmap(KERNEL.finished_trajectory)(Phase(*(part[None] for part in phase)))
        going = trajectory._replace(control=without_end(trajectory.control, step_size), done=torch.tensor([False]))
        moving, resting = chains.fleet.moving, chains.fleet.resting
        adaptation = resting.adaptation._replace(step_size=torch.tensor([abs(step_size)]).double())
        moving, resting = moving._replace(end=end), resting._replace(trajectory=going, adaptation=adaptation)
        for _ in range(num_steps):
            moving = chains.fleet.tried(moving, resting)
        return Phase(*(part[0].clone() for part in moving.end.phase))

    return travelled


def without_end(control: Any, step_size: float) -> Any:
    """Return the control of a trajectory that goes on however far it has come."""
    return control._replace(
        energy=torch.full_like(control.energy, torch.inf),
        direction=torch.full_like(control.direction, 1.0 if step_size > 0 else -1.0),
        length=torch.full_like(control.length, 1 << 30),
    )


@pytest.mark.parametrize("engine", ["native", "graph"])
@pytest.mark.parametrize("mass", METRICS)
def test_leapfrog_steps_are_reversible_and_of_second_order(mass: str, engine: str) -> None:
    travelled = leaps(mass, engine)
    (theta,) = exact_draws(1, seed=1)
    value, gradient = density().value_and_grad(theta[None])
    begin = Phase(theta, noise(), gradient[0], value[0])
    kept = {name: value[None] for name, value in METRICS[mass].items()}
    metric = pytree.tree_map(lambda value: value[0], metric_of(kept))
    end = travelled(begin, NUM_STEPS, TIME / NUM_STEPS)
    assert float((end.theta - begin.theta).abs().max()) > 0.5
    back = travelled(end, NUM_STEPS, -TIME / NUM_STEPS)
    torch.testing.assert_close(back.theta, begin.theta, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(back.momentum, begin.momentum, rtol=1e-10, atol=1e-10)
    wrong, right = (float(energy(metric, travelled(begin, n, TIME / n)) - energy(metric, begin)) for n in (80, 160))
    assert 0 < abs(right) < 0.01 and wrong / right == pytest.approx(4.0, rel=0.05)


def moved(chains: LockstepChains[Any], point: Point, num_steps: int, step_size: float) -> LockstepState:
    """Return where steps of chains in lockstep lead as the engine runs them."""
    chains.step_size, state = step_size, LockstepState(point, torch.zeros_like(point.work))
    common = chains._common()
    for _ in range(num_steps):
        state = chains._moved(state.point, common)
        state = pytree.tree_map(torch.clone, state)
    return state


def steps_of(dynamics: Dynamics, engine: Any) -> Travel[Point]:
    """Return steps of trajectories in lockstep, of one chain."""
    settings = LockstepSettings(num_warmup=0, num_draws=1, step_size=0.1, trajectory_length=1.0)
    chains = TrajectoryChains(dynamics, squared_jump, density(), settings, exact_draws(1), 0, 0, engine, SCALE)
    assert chains.fleet.how == ("compiled" if engine == "native" else "traced")
    return lambda point, num_steps, step_size: moved(chains, point, num_steps, step_size).point


def started(dynamics: Dynamics) -> Point:
    theta = exact_draws(1, seed=1)
    value, gradient = density().value_and_grad(theta)
    return Point(theta, dynamics.refresh(noise())[None], gradient, value, torch.zeros_like(value))


@pytest.mark.parametrize("engine", ["native", "graph"])
@pytest.mark.parametrize(("dynamics", "time"), [(Newtonian(), 2.0), (Microcanonical(), 5.0)])
def test_steps_in_lockstep_are_reversible_and_of_second_order(dynamics: Dynamics, time: float, engine: str) -> None:
    travelled, begin = steps_of(dynamics, engine), started(dynamics)
    end = travelled(begin, NUM_STEPS, time / NUM_STEPS)
    assert float((end.theta - begin.theta).abs().max()) > 0.5
    back = travelled(end._replace(momentum=-end.momentum, work=0 * end.work), NUM_STEPS, time / NUM_STEPS)
    torch.testing.assert_close(back.theta, begin.theta, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(-back.momentum, begin.momentum, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(back.work, -end.work, rtol=1e-9, atol=1e-9)

    def error(num_steps: int) -> float:
        found = travelled(begin, num_steps, time / num_steps)
        return float(found.work - (found.log_density - begin.log_density))

    assert 0 < abs(error(160)) < 0.01 and error(80) / error(160) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("engine", ["native", "graph"])
def test_langevin_steps_without_noise_have_energy_errors_of_third_order(engine: Any) -> None:
    settings = LangevinSettings(num_warmup=0, num_draws=1, step_size=0.1, decoherence_length=1e300)
    chains = LangevinChains(density(), settings, exact_draws(1), 0, 0, engine, SCALE)
    assert float(chains._common().nu) < 1e-100

    def error(step_size: float) -> float:
        return float(moved(chains, started(Microcanonical()), 1, step_size).squares.sqrt())

    assert error(0.1) / error(0.05) == pytest.approx(8.0, rel=0.1)


def test_directions_decohere_over_the_length_that_is_asked_for() -> None:
    """Without a force the cosine falls to 1 / e over the decoherence length: by ``exp(-time / length)``."""

    def flat() -> None:
        pyro.sample("z", dist.Normal(0.0, 1e9).expand([100]).to_event(1))

    length, num_chains = 3.0, 40
    settings = LangevinSettings(num_warmup=0, num_draws=1, step_size=0.1, decoherence_length=length, steps_per_draw=30)
    theta = torch.zeros(num_chains, 100).double()
    chains = LangevinChains(build_density(flat, dtype=torch.float64), settings, theta, 0, engine="graph")
    before = chains.fleet.resting.drawn.momentum.clone()
    chains.advance()
    cosines = (chains.fleet.resting.drawn.momentum * before).sum(1)
    error = float(cosines.std()) / num_chains**0.5
    assert error < 0.02 and abs(float(cosines.mean()) - torch.tensor(-1.0).exp()) < 5 * error
