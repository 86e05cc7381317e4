"""L-BFGS on functions whose maxima are known."""

import torch
from torch import Tensor

from bnnzoo.inference.optimise.lbfgs import Limits, ascent, begun, lbfgs

SCALES = torch.logspace(0, 4, 20, dtype=torch.float64)


def quadratic(theta: Tensor) -> tuple[Tensor, Tensor]:
    return -(SCALES * theta**2).sum(1) / 2, -SCALES * theta


def rosenbrock(theta: Tensor) -> tuple[Tensor, Tensor]:
    x, y = theta.unbind(1)
    value = -((1 - x) ** 2) - 100 * (y - x**2) ** 2
    return value, torch.stack([2 * (1 - x) + 400 * x * (y - x**2), -200 * (y - x**2)], 1)


def test_finds_the_top_of_an_ill_conditioned_parabola() -> None:
    found = lbfgs(quadratic, torch.ones(3, 20, dtype=torch.float64), max_steps=500, tolerance=1e-3)
    assert found.gradient.abs().max() <= 1e-3
    assert found.num_evaluations < 400
    torch.testing.assert_close((found.value, found.gradient), quadratic(found.theta))


def test_finds_the_top_of_a_curved_ridge_from_every_start() -> None:
    start = torch.tensor([[-1.2, 1.0], [2.0, -3.0], [0.0, 0.0]], dtype=torch.float64)
    found = lbfgs(rosenbrock, start, max_steps=300, tolerance=1e-9)
    torch.testing.assert_close(found.theta, torch.ones_like(start), rtol=0, atol=1e-6)


def test_rows_do_not_depend_on_each_other() -> None:
    start = torch.tensor([[-1.2, 1.0], [2.0, -3.0]], dtype=torch.float64)
    together = lbfgs(rosenbrock, start, max_steps=25, tolerance=1e-9)
    for row, theta in zip(start, together.theta, strict=True):
        alone = lbfgs(rosenbrock, row[None], max_steps=25, tolerance=1e-9)
        torch.testing.assert_close(theta[None], alone.theta, rtol=1e-10, atol=1e-12)


def test_in_single_precision_it_ends_where_rounding_begins() -> None:
    scales = torch.logspace(0, 4, 20, dtype=torch.float32)

    def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
        return -3e4 - (scales * theta**2).sum(1) / 2, -scales * theta

    found = lbfgs(evaluate, torch.ones(3, 20, dtype=torch.float32), max_steps=2000, tolerance=1e-9)
    assert found.num_evaluations < 500
    assert bool(((found.theta * scales.sqrt()).abs() < 0.1).all())  # in units of sds


def test_points_where_the_value_is_not_finite_are_avoided() -> None:
    def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
        """Return log(x) - x, which is no number left of zero."""
        return (theta.log() - theta).sum(1), 1 / theta - 1

    found = lbfgs(evaluate, torch.tensor([[1e-3], [20.0]], dtype=torch.float64), max_steps=100, tolerance=1e-10)
    torch.testing.assert_close(found.theta, torch.ones(2, 1, dtype=torch.float64), rtol=0, atol=1e-6)


def test_no_steps_is_the_start() -> None:
    start = torch.ones(2, 20, dtype=torch.float64)
    found = lbfgs(quadratic, start, max_steps=0, tolerance=1e-9)
    assert torch.equal(found.theta, start)
    assert found.num_evaluations == 1


def test_gradients_of_rounding_error_are_no_progress() -> None:
    """Near the mode they go up and down at random; a search that counted each fall went on for 70 to 400 evaluations here."""
    noise = torch.Generator().manual_seed(0)

    def evaluate(theta: Tensor) -> tuple[Tensor, Tensor]:
        error = 1e-6 * torch.randn(theta.shape, generator=noise, dtype=torch.float32)
        return -30 - (theta**2).sum(1) / 2, -theta + error

    for _ in range(4):
        found = lbfgs(evaluate, torch.full((1, 3), 1e-4, dtype=torch.float32), max_steps=500, tolerance=1e-9)
        assert found.num_evaluations < 20
        assert found.theta.abs().max() < 1e-5


def test_each_row_has_evaluations_of_its_own() -> None:
    """A row far from its mode took those of its neighbours."""
    start = torch.tensor([[1.0, 1.0 + 1e-3], [-1.2, 1.0]], dtype=torch.float64)
    limits = Limits(200, 1e-9, 0.0, 12)

    def ended(rows: Tensor) -> Tensor:
        return ascent(rosenbrock, begun(rows, *rosenbrock(rows), limits), limits, history=10).point.x

    together = ended(start)
    for row, theta in zip(start, together, strict=True):
        torch.testing.assert_close(theta[None], ended(row[None]), rtol=1e-10, atol=1e-12)


def test_pairs_of_zeros_in_the_memory_change_nothing() -> None:
    start, limits = torch.tensor([[-1.2, 1.0], [2.0, -3.0]], dtype=torch.float64), Limits(9, 1e-9)
    found = [
        ascent(rosenbrock, begun(start, *rosenbrock(start), limits, num_pairs=pairs), limits, history=10).point.x
        for pairs in (0, 10)
    ]
    assert torch.equal(*found)


def test_rows_that_forget_begin_anew_and_others_go_on() -> None:
    start = torch.tensor([[-1.2, 1.0], [2.0, -3.0]], dtype=torch.float64)
    limits = Limits(4, 1e-9)
    memory = ascent(rosenbrock, begun(start, *rosenbrock(start), limits), limits, history=10).memory
    gradient = torch.tensor([[3.0, -4.0], [1.0, 2.0]], dtype=torch.float64)
    found = memory.forgetting(torch.tensor([True, False])).direction(gradient)
    torch.testing.assert_close(found[0], -gradient[0] / 5)
    torch.testing.assert_close(found[1], memory.direction(gradient)[1])
    assert not torch.allclose(memory.direction(gradient)[0], found[0])
