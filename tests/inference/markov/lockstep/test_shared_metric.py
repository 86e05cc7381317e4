"""The mass matrix of chains in lockstep: what is estimated from the draws of all, and when warm-up may end."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import applied
from bnnzoo.inference.markov.lockstep.shared_metric import SharedMetric

NUM_CHAINS, NUM_WARMUP = 4, 1000
ROOT = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.3, 0.0], [0.0, 0.0, 1e-4]], dtype=torch.float64)
COVARIANCE = ROOT @ ROOT.mT
WIDTHS = COVARIANCE.diagonal().sqrt()
CORRELATION = COVARIANCE / WIDTHS / WIDTHS[:, None]


def gaussian(seed: int, mean: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return exact draws ``[C, P]`` of a Gaussian, gradients there and log densities."""
    noise = torch.randn(NUM_CHAINS, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theta = noise @ ROOT.mT
    return theta + mean, -theta @ torch.linalg.inv(COVARIANCE), -0.5 * noise.square().sum(1)


def filled(kind: Any, until: int = 100, root: Tensor | None = None, **how: Any) -> SharedMetric:
    """Return what has seen draws of an open window."""
    shared = SharedMetric(kind, NUM_WARMUP, torch.zeros(NUM_CHAINS, 3, dtype=torch.float64), root)
    for draw in range(until):
        shared.observe(max(draw, shared.ends[0]), *gaussian(draw, **how))
    return shared


def covariance_of(shared: SharedMetric) -> Tensor:
    """Return ``B B^T`` of the matrix by which chains move."""
    root = applied(pytree.tree_map(lambda value: value[0], shared.root), torch.eye(3, dtype=torch.float64)).mT
    return root @ root.mT


@pytest.mark.parametrize("kind", ["low_rank", "auto"])
def test_draws_and_gradients_of_a_gaussian_say_all_there_is_to_say(kind: Any) -> None:
    shared = filled(kind)
    torch.testing.assert_close(covariance_of(shared), torch.eye(3).double())
    assert not shared.close(100).has_converged
    torch.testing.assert_close(covariance_of(shared), COVARIANCE, rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("kind", ["diagonal", "dense", "fisher"])
def test_draws_of_all_chains_count(kind: Any) -> None:
    shared = filled(kind, root=WIDTHS)
    shared.close(100)
    estimate, expected = covariance_of(shared) / WIDTHS / WIDTHS[:, None], CORRELATION
    if kind == "fisher":  # between the variances and those given the other parameters
        expected = (expected.diag() / torch.linalg.inv(expected).diag()).sqrt().diag()
    expected = expected.diag().diag() if kind == "diagonal" else expected
    torch.testing.assert_close(estimate, expected, rtol=0.2, atol=0.1)


@pytest.mark.parametrize("kind", ["diagonal", "dense", "fisher", "low_rank"])
def test_positions_in_units_of_the_posterior(kind: Any) -> None:
    shared, steps = filled(kind, root=WIDTHS), torch.randn(5, 3, generator=torch.Generator().manual_seed(0)).double()
    shared.close(100)
    root = pytree.tree_map(lambda value: value[0], shared.root)
    torch.testing.assert_close(applied(shared.units, applied(root, steps)), steps)


@pytest.mark.parametrize("kind", ["diagonal", "dense", "low_rank"])
def test_differences_between_chains_count_for_nothing(kind: Any) -> None:
    apart = torch.arange(NUM_CHAINS).double()[:, None] * torch.tensor([100.0, 0.0, 5.0], dtype=torch.float64)
    near, far = filled(kind), filled(kind, mean=apart)
    for each in (near, far):
        each.close(100)
    torch.testing.assert_close(covariance_of(far), covariance_of(near), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [("diagonal", 100.0), ("low_rank", 100.0 / float(torch.linalg.eigvalsh(CORRELATION).min()) ** 0.5)],
)
def test_steps_grow_by_what_the_steepest_direction_gains(kind: Any, expected: float) -> None:
    """Of scales alone that is the largest factor; directions take the narrow one between two parameters away besides."""
    shared = filled(kind, root=100 * WIDTHS)
    assert shared.close(100).growth == pytest.approx(expected, rel=0.1)
    for draw in range(100, 200):
        shared.observe(draw, *gaussian(draw))
    assert shared.close(150).growth == pytest.approx(1.0, rel=0.2)


def test_variances_are_shrunk_in_units_of_those_before() -> None:
    """Five draws' weight of 0.001 would make 1e-8 wide by a factor of a hundred."""
    shared = filled("diagonal", root=WIDTHS)
    shared.close(100)
    assert float(covariance_of(shared)[2, 2]) == pytest.approx(1e-8, rel=0.2)


def test_chains_on_their_way_are_left_out_and_warm_up_goes_on() -> None:
    shared = filled("low_rank", until=0)
    for draw in range(100):
        theta, gradient, value = gaussian(draw)
        theta[1], value[1] = theta[1] + 1e3 * draw, -1e6 / (1 + draw)
        shared.observe(draw, theta, gradient, value)
    shared.close(100)
    torch.testing.assert_close(covariance_of(shared), COVARIANCE, rtol=1e-2, atol=1e-6)
    lost = filled("low_rank", until=0)
    before = covariance_of(lost)
    for draw in range(100):
        theta, gradient, value = gaussian(draw)
        lost.observe(draw, theta, gradient, value.fill_(-1e6 / (1 + draw)))
    assert lost.close(100) == (1.0, False) and lost.count == 0
    assert torch.equal(covariance_of(lost), before)


@pytest.mark.parametrize("number", [0, 1])
def test_draws_that_failed_leave_the_mass_matrix_as_it_was(number: int) -> None:
    shared = filled("auto", until=number, root=WIDTHS)
    before = covariance_of(shared)
    assert shared.close(850) == (1.0, False)
    assert torch.equal(covariance_of(shared), before)


@pytest.mark.parametrize("moves", [False, True])
@pytest.mark.parametrize(("num_chains", "end"), [(4, 150), (3, 337)])
def test_warm_up_ends_when_all_chains_stay_where_they_were(moves: bool, num_chains: int, end: int) -> None:
    """One of four chains that jumps by three standard deviations late is enough for it to go on; fewer chains take longer."""
    start, converged = torch.zeros(num_chains, 3, dtype=torch.float64), []
    shared = SharedMetric("low_rank", NUM_WARMUP, start)
    for draw in range(end):
        theta, gradient, value = (each[:num_chains] for each in gaussian(draw))
        theta[2] += 3 * moves * (draw >= 0.78 * end) * WIDTHS
        shared.observe(draw, theta, gradient, value)
        if draw + 1 in shared.ends:
            converged.append(shared.close(draw + 1).has_converged)
    assert not any(converged[:-1]) and converged[-1] == (not moves)


@pytest.mark.parametrize("kind", ["diagonal", "low_rank"])
def test_a_window_goes_on_from_a_checkpoint(kind: Any) -> None:
    whole, half, resumed = filled(kind), filled(kind, until=80), filled(kind, until=0)
    resumed.resume(half.resumable())
    for draw in range(80, 100):
        resumed.observe(draw, *gaussian(draw))
    assert resumed.close(100) == whole.close(100)
    assert torch.equal(covariance_of(resumed), covariance_of(whole))


@pytest.mark.parametrize("kind", ["auto", "low_rank"])
def test_chains_start_with_the_directions_of_a_gaussian(kind: Any) -> None:
    torch.testing.assert_close(covariance_of(filled(kind, until=0, root=ROOT)), COVARIANCE, rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("kind", ["diagonal", "fisher", "dense"])
def test_other_mass_matrices_start_with_its_widths(kind: Any) -> None:
    torch.testing.assert_close(covariance_of(filled(kind, until=0, root=ROOT)), COVARIANCE.diag().diag())


@pytest.mark.parametrize(
    ("kind", "num_warmup", "root", "expected"),
    [
        ("auto", 1000, None, 100),
        ("diagonal", 1000, None, 100),
        ("auto", 30, None, 26),
        ("auto", 0, None, math.inf),
        ("auto", 1000, WIDTHS, 0),
        ("diagonal", 1000, ROOT, 0),
    ],
)
def test_when_a_mass_matrix_can_be_relied_on(kind: Any, num_warmup: int, root: Tensor | None, expected: float) -> None:
    """From the start if that is a Gaussian: trajectories need not be short, nor tuned anew after the first windows."""
    assert SharedMetric(kind, num_warmup, torch.zeros(NUM_CHAINS, 3, dtype=torch.float64), root).known_at == expected
