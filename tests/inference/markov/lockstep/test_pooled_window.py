"""Windows of warm-up of chains in lockstep: what is estimated from the draws of all, and when warm-up may end."""

from typing import Any

import pytest
import torch
from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import applied, root_of
from bnnzoo.inference.markov.lockstep.pooled_window import PooledWindow, start_of
from bnnzoo.inference.markov.metrics import inverse_mass_of

NUM_CHAINS, ENDS = 4, (0, 100, 200, 300, 450, 850)
ROOT = torch.tensor([[1.0, 0.0, 0.0], [0.9, 0.3, 0.0], [0.0, 0.0, 1e-4]], dtype=torch.float64)
COVARIANCE = ROOT @ ROOT.mT
WIDTHS = COVARIANCE.diagonal().sqrt()
CORRELATION = COVARIANCE / WIDTHS / WIDTHS[:, None]


def gaussian(seed: int, mean: Tensor | float = 0.0) -> tuple[Tensor, Tensor, Tensor]:
    """Return exact draws ``[C, P]`` of a Gaussian, gradients there and log densities."""
    noise = torch.randn(NUM_CHAINS, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    theta = noise @ ROOT.mT
    return theta + mean, -theta @ torch.linalg.inv(COVARIANCE), -0.5 * noise.square().sum(1)


def filled(kind: Any, ends: tuple[int, ...] = ENDS, until: int = 100, first: int = 0, **how: Any) -> PooledWindow:
    window = PooledWindow(kind, ends, torch.zeros(NUM_CHAINS, 3, dtype=torch.float64))
    for draw in range(first, until):
        window.observe(*gaussian(draw, **how))
    return window


def start(kind: Any, scale: Tensor | None = None) -> Any:
    return start_of(kind, torch.zeros(NUM_CHAINS, 3, dtype=torch.float64), scale)


def covariance_of(metric: Any) -> Tensor:
    """Return ``B B^T`` of the matrix by which chains move."""
    root = applied(root_of(pytree.tree_map(lambda value: value[0], metric)), torch.eye(3, dtype=torch.float64)).mT
    return root @ root.mT


@pytest.mark.parametrize("kind", ["low_rank", "auto"])
def test_draws_and_gradients_of_a_gaussian_say_all_there_is_to_say(kind: Any) -> None:
    found = filled(kind).close(start(kind), 100)
    assert found is not None and not found.has_converged
    torch.testing.assert_close(covariance_of(found.metric), COVARIANCE, rtol=1e-3, atol=1e-10)


@pytest.mark.parametrize("kind", ["diagonal", "dense", "fisher"])
def test_draws_of_all_chains_count(kind: Any) -> None:
    found = filled(kind).close(start(kind, WIDTHS), 100)
    assert found is not None
    estimate, expected = (each / WIDTHS / WIDTHS[:, None] for each in (covariance_of(found.metric), COVARIANCE))
    if kind == "fisher":  # between the variances and those given the other parameters
        expected = (expected.diag() / torch.linalg.inv(expected).diag()).sqrt().diag()
    expected = expected.diag().diag() if kind == "diagonal" else expected
    torch.testing.assert_close(estimate, expected, rtol=0.2, atol=0.1)


@pytest.mark.parametrize("kind", ["diagonal", "dense", "low_rank"])
def test_differences_between_chains_count_for_nothing(kind: Any) -> None:
    apart = torch.arange(NUM_CHAINS).double()[:, None] * torch.tensor([100.0, 0.0, 5.0], dtype=torch.float64)
    near, far = (filled(kind, mean=mean).close(start(kind), 100) for mean in (0.0, apart))
    assert near is not None and far is not None
    torch.testing.assert_close(covariance_of(far.metric), covariance_of(near.metric), rtol=1e-6, atol=1e-9)


def test_steps_grow_by_what_the_steepest_direction_gains() -> None:
    """Of scales alone that is the largest factor; directions take the narrow one between two parameters away besides."""
    for kind, expected in (
        ("diagonal", 100.0),
        ("low_rank", 100.0 / float(torch.linalg.eigvalsh(CORRELATION).min()) ** 0.5),
    ):
        found = filled(kind).close(start(kind, 100 * WIDTHS), 100)
        assert found is not None and found.growth == pytest.approx(expected, rel=0.1)
        again = filled(kind, until=200, first=100).close(found.metric, 100)
        assert again is not None and again.growth == pytest.approx(1.0, rel=0.2)


def test_variances_are_shrunk_in_units_of_those_before() -> None:
    """Five draws' weight of 0.001 would make 1e-8 wide by a factor of a hundred."""
    found = filled("diagonal").close(start("diagonal", WIDTHS), 100)
    assert found is not None
    assert float(inverse_mass_of(found.metric)["inverse_mass"][0, 2]) == pytest.approx(1e-8, rel=0.2)


def test_chains_on_their_way_are_left_out_and_warm_up_goes_on() -> None:
    window = filled("low_rank", until=0)
    for draw in range(100):
        theta, gradient, value = gaussian(draw)
        theta[1], value[1] = theta[1] + 1e3 * draw, -1e6 / (1 + draw)
        window.observe(theta, gradient, value)
    found = window.close(start("low_rank"), 100)
    assert found is not None
    torch.testing.assert_close(covariance_of(found.metric), COVARIANCE, rtol=1e-2, atol=1e-6)
    lost = filled("low_rank", until=0)
    for draw in range(100):
        theta, gradient, value = gaussian(draw)
        lost.observe(theta, gradient, value.fill_(-1e6 / (1 + draw)))
    assert lost.close(found.metric, 100) is None and lost.count == 0


def test_warm_up_ends_when_all_chains_stay_where_they_were() -> None:
    window, metric = filled("low_rank", until=0), start("low_rank")
    for draw in range(300):
        window.observe(*gaussian(draw))
        if draw + 1 in ENDS:
            found = window.close(metric, draw + 1)
            assert found is not None and found.has_converged == (draw + 1 == 300)
            metric = found.metric
    moved = filled("low_rank", until=0)
    for draw in range(300):
        theta, *others = gaussian(draw)
        theta[2] += (draw >= 200) * ROOT.sum(1)
        moved.observe(theta, *others)
        if draw + 1 in ENDS:
            found = moved.close(metric, draw + 1)
    assert found is not None and not found.has_converged


@pytest.mark.parametrize("kind", ["diagonal", "low_rank"])
def test_a_window_goes_on_from_a_checkpoint(kind: Any) -> None:
    whole, half = filled(kind), filled(kind, until=40)
    resumed = filled(kind, until=0)
    resumed.resume(half.resumable())
    for draw in range(40, 100):
        resumed.observe(*gaussian(draw))
    expected, found = (each.close(start(kind), 100) for each in (whole, resumed))
    assert expected is not None and found is not None
    torch.testing.assert_close(found, expected, rtol=0.0, atol=0.0)
