"""Means and variances of what every sampler draws, in native code and in one batch, on a density that is known in closed form."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.inference import HMC, MAMS, MCLMC, NUTS, ChEESHMC, fit
from bnnzoo.inference.markov.chain_settings import HamiltonianSettings, LockstepSettings
from bnnzoo.inference.markov.hamiltonian.hamiltonian_sampler import HamiltonianSampler
from bnnzoo.inference.markov.hamiltonian.hmc import HMCKernel
from bnnzoo.inference.markov.hamiltonian.kernel import Kernel
from bnnzoo.inference.markov.hamiltonian.nuts import NUTSKernel
from bnnzoo.inference.markov.lockstep.dynamics import Dynamics, Microcanonical, Newtonian
from bnnzoo.inference.markov.lockstep.langevin_chains import LangevinSampler, LangevinSettings
from bnnzoo.inference.markov.lockstep.trajectory_chains import TrajectorySampler
from bnnzoo.inference.markov.protocols import Loop, Sampler
from bnnzoo.inference.markov.trajectory_length import squared_jump
from tests.helpers.closed_forms import COVARIANCE, check_draws, closed_form, density, exact_draws
from tests.helpers.native import when_native_pays

VARIANCES = COVARIANCE.diagonal()
SCALE = VARIANCES.sqrt()
EIGENVALUES, AXES = torch.linalg.eigh(COVARIANCE / SCALE / SCALE[:, None])
MASSES: dict[str, dict[str, Tensor]] = {
    "diagonal": {"inverse_mass": VARIANCES},
    "dense": {"inverse_mass": COVARIANCE},
    "low_rank": {"inverse_mass": VARIANCES, "directions": AXES, "eigenvalues": EIGENVALUES},
}
"""What is known of mass matrices; of those of low rank so much that the inverse is the covariance."""

ENGINES: dict[str, Any] = {"native": "native", "batched": "graph"}
LENGTHS = {"native": (4, 20_000), "batched": (256, 60)}
"""Chains and draws, about as many gradients as a second allows."""


def run(sampler: Sampler, how: str, **tuning: Any) -> Loop:
    """Run chains from exact draws, with the tuning given: what is tested is the sampler, whatever its warm-up does."""
    num_chains, num_draws = LENGTHS[how]
    loop = sampler.begin(density(), exact_draws(num_chains), 1, 0)
    numbers = {name: torch.as_tensor(value).double() for name, value in tuning.items()}
    loop.adopt({name: value.expand(num_chains, *value.shape).clone() for name, value in numbers.items()})
    while int(loop.counts.min()) < num_draws:
        loop.advance()
    assert loop.log.report().engine == ENGINES[how]
    return loop


def settings_of(how: str) -> dict[str, int]:
    num_chains, num_draws = LENGTHS[how]
    return {"num_chains": num_chains, "num_warmup": 0, "num_draws": num_draws}


@pytest.mark.parametrize("how", LENGTHS)
@pytest.mark.parametrize("kernel", [NUTSKernel(10), HMCKernel(1.5, 0.5, 1000)])
@pytest.mark.parametrize(("mass", "step_size"), [("diagonal", 0.35), ("dense", 0.7), ("low_rank", 0.7)])
def test_hamiltonian(kernel: Kernel, mass: Any, step_size: float, how: str) -> None:
    settings = HamiltonianSettings(**settings_of(how), mass_matrix=mass, step_size=step_size)
    sampler = HamiltonianSampler(kernel, settings, ENGINES[how])
    check_draws(run(sampler, how, step_size=step_size, **MASSES[mass]).draws)


@pytest.mark.parametrize("how", LENGTHS)
@pytest.mark.parametrize("mass", MASSES)
@pytest.mark.parametrize(("dynamics", "step_size", "length"), [(Newtonian(), 0.4, 1.5), (Microcanonical(), 1.0, 4.0)])
def test_trajectories_in_lockstep(dynamics: Dynamics, step_size: float, length: float, mass: Any, how: str) -> None:
    settings = LockstepSettings(**settings_of(how), step_size=step_size, trajectory_length=length, mass_matrix=mass)
    sampler = TrajectorySampler(dynamics, squared_jump, settings, engine=ENGINES[how])
    check_draws(run(sampler, how, step_size=step_size, **MASSES[mass], trajectory_length=length).draws)


@pytest.mark.parametrize("how", LENGTHS)
@pytest.mark.parametrize("mass", MASSES)
def test_langevin(mass: Any, how: str) -> None:
    """Short steps: nothing is rejected, so that a bias remains."""
    settings = LangevinSettings(
        **settings_of(how), step_size=0.25, decoherence_length=3.0, steps_per_draw=10, mass_matrix=mass
    )
    tuning = {"step_size": 0.25, "decoherence_length": 3.0, "steps_per_draw": 10, **MASSES[mass]}
    check_draws(run(LangevinSampler(settings, engine=ENGINES[how]), how, **tuning).draws, accuracy=0.01)


LONG: dict[str, Any] = {"num_chains": 4, "num_warmup": 500, "num_draws": 10_000}


@pytest.mark.parametrize(
    ("method", "accuracy"),
    [
        (NUTS(**LONG), 0.0),
        (NUTS(**LONG, mass_matrix="dense"), 0.0),
        (NUTS(**LONG, mass_matrix="low_rank"), 0.0),
        (NUTS(**LONG, mass_matrix="diagonal"), 0.0),
        (HMC(**LONG), 0.0),
        (ChEESHMC(**LONG), 0.0),
        (MAMS(**LONG), 0.0),
        (MCLMC(**LONG, energy_variance=1e-5), 0.02),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, float) else "",
)
def test_after_warm_up(method: Any, accuracy: float, monkeypatch: pytest.MonkeyPatch) -> None:
    when_native_pays(monkeypatch, 0)
    check_draws(fit(closed_form, method, seed=1, dtype=torch.float64).draws(), accuracy=accuracy)
