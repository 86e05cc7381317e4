"""What Hamiltonian kernels share: metrics, energies and the leapfrog step."""

import pytest
import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import Metric, Phase, drift, energy, momentum_from, velocity
from bnnzoo.inference.markov.metrics import metric_of
from tests.helpers.samplers import log_density, log_density_gradient

COVARIANCE = torch.tensor(
    [[2.0, 0.5, 0.0, 0.1], [0.5, 1.0, 0.2, 0.0], [0.0, 0.2, 0.5, 0.1], [0.1, 0.0, 0.1, 1.5]], dtype=torch.float64
)


def dense() -> Metric:
    inverse = torch.linalg.inv(COVARIANCE)
    return Metric(COVARIANCE, torch.linalg.cholesky(inverse))


def diagonal() -> Metric:
    return Metric(COVARIANCE.diagonal(), COVARIANCE.diagonal().rsqrt())


def low_rank() -> Metric:
    """Return the metric of a scaled matrix with two stretched axes, as it is built up from what a run keeps of it."""
    axes = torch.linalg.qr(COVARIANCE[:, :2]).Q
    kept = {"inverse_mass": COVARIANCE.diagonal(), "directions": axes, "eigenvalues": torch.tensor([1.5, 0.5]).double()}
    metrics = metric_of({name: value[None] for name, value in kept.items()})
    return pytree.tree_map(lambda value: value[0], metrics)


def start() -> Phase:
    theta, momentum = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return Phase(theta, momentum, log_density_gradient(theta), log_density(theta))


def leapfrog(metric: Metric, phase: Phase, step_size: Tensor) -> Phase:
    theta, halfway = drift(metric, phase, step_size)
    gradient = log_density_gradient(theta)
    return Phase(theta, halfway + 0.5 * step_size * gradient, gradient, log_density(theta))


def travelled(metric: Metric, phase: Phase, num_steps: int, step_size: float) -> Phase:
    for _ in range(num_steps):
        phase = leapfrog(metric, phase, torch.tensor(step_size, dtype=torch.float64))
    return phase


@pytest.mark.parametrize("metric", [diagonal(), dense(), low_rank()], ids=["diagonal", "dense", "low rank"])
def test_the_integrator_is_time_reversible(metric: Metric) -> None:
    begin = start()
    end = travelled(metric, begin, 20, 0.2)
    assert float((end.theta - begin.theta).abs().max()) > 0.5
    back = travelled(metric, end, 20, -0.2)
    torch.testing.assert_close(back.theta, begin.theta)
    torch.testing.assert_close(back.momentum, begin.momentum)


@pytest.mark.parametrize("metric", [diagonal(), dense(), low_rank()], ids=["diagonal", "dense", "low rank"])
def test_energy_errors_fall_with_the_square_of_the_step(metric: Metric) -> None:
    def error(num_steps: int) -> float:
        return float(energy(metric, travelled(metric, start(), num_steps, 2.0 / num_steps)) - energy(metric, start()))

    assert abs(error(80)) < 0.01
    assert error(40) / error(80) == pytest.approx(4.0, rel=0.1)


@pytest.mark.parametrize("metric", [diagonal(), dense(), low_rank()], ids=["diagonal", "dense", "low rank"])
def test_momenta_have_the_mass_matrix_as_covariance(metric: Metric) -> None:
    eye = torch.eye(4, dtype=torch.float64)
    root = torch.stack([momentum_from(metric, row) for row in eye], 1)
    inverse_mass = torch.stack([velocity(metric, row) for row in eye], 1)
    torch.testing.assert_close(root @ root.mT @ inverse_mass, eye)


def test_energy_is_kinetic_less_log_density_and_never_nan() -> None:
    phase = start()
    expected = 0.5 * phase.momentum @ COVARIANCE @ phase.momentum - phase.log_density
    torch.testing.assert_close(energy(dense(), phase), expected)
    nowhere = phase._replace(log_density=torch.tensor(torch.nan, dtype=torch.float64))
    assert float(energy(dense(), nowhere)) == torch.inf
