"""Curvature at several points: one batch, and one by one where a point has none."""

from typing import Any

import pyro
import pyro.distributions as dist
import pytest
import torch
from torch import Tensor

from bnnzoo.core.model import hessian, log_joints
from bnnzoo.core.model.density import build_density
from bnnzoo.core.model.hessian import hessian_of, hessians_of
from bnnzoo.core.model.kinds import first_of_kind
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.inference.optimise import pathfinder

POINTS = torch.tensor([[1.0, 0.5], [-1.0, 0.2], [2.0, -0.3], [0.5, 0.1]])


def root(y: Tensor) -> None:
    """Observe a Gaussian process whose covariance cannot be factorised where the first parameter is negative."""
    theta = pyro.sample("theta", dist.Normal(torch.zeros(2), 1.0).to_event(1))
    covariance = theta[0] * torch.eye(len(y)) + theta[1] ** 2
    pyro.sample("y", dist.MultivariateNormal(torch.zeros(len(y)), covariance, validate_args=False), obs=y)


def density_of(y: Any = (0.1, -0.4, 0.3)) -> Any:
    return build_density(root, torch.tensor(y))


def second_derivatives(density: Any, theta: Tensor) -> Tensor:
    found = torch.autograd.functional.hessian(lambda point: density.log_joint(point, *density.data), theta)
    assert isinstance(found, Tensor)
    return found


@pytest.mark.parametrize("is_one_of_many", [False, True])
@pytest.mark.parametrize("together", [2**20, 4])
def test_hessians_of_several_points_are_those_of_each(
    is_one_of_many: bool, together: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hessian, "VALUES_AT_A_TIME", together)
    density = first_of_kind(density_of()) if is_one_of_many else density_of()
    points = POINTS[POINTS[:, 0] > 0]
    expected = torch.stack([second_derivatives(density, point) for point in points])
    torch.testing.assert_close(hessians_of(density, points), expected)
    torch.testing.assert_close(hessian_of(density, points[1]), expected[1])


def test_a_point_without_curvature_takes_that_of_no_other() -> None:
    density = density_of()
    found = pathfinder._curvatures(density, POINTS)
    assert [each is None for each in found] == [False, True, False, False]
    for place in (0, 2, 3):
        (one,) = pathfinder._curvatures(density, POINTS[place : place + 1])
        assert found[place] is not None and one is not None
        torch.testing.assert_close(found[place][0].root, one[0].root)
        assert torch.equal(found[place][0].loc, POINTS[place])
        precision = -second_derivatives(density, POINTS[place])
        values, vectors = torch.linalg.eigh(precision)
        frame, is_peak = found[place]
        assert is_peak == bool((values > 0).all())
        covariance = vectors @ (values.abs().reciprocal()[:, None] * vectors.mT)
        if is_peak:
            torch.testing.assert_close(frame.root @ frame.root.mT, covariance)


def test_log_ratios_of_several_gaussians_are_those_of_each() -> None:
    density = density_of()
    frames = [found[0] for found in pathfinder._curvatures(density, POINTS) if found is not None]
    for frame, together in zip(frames, pathfinder._log_ratios(density, frames), strict=True):
        torch.testing.assert_close(together, pathfinder.log_ratios(density, frame))
    assert pathfinder._log_ratios(density, []) == ()


def test_points_that_fail_are_found_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    density, alone = density_of(), log_joints._of_one
    evaluated: list[Tensor] = []
    monkeypatch.setattr(log_joints, "_of_one", lambda density, row: (evaluated.append(row), alone(density, row))[1])
    theta = torch.rand(500, 2) + 0.1
    theta[[7, 400], 0] = -1.0
    found = log_joint_at(density, theta)
    assert found.isneginf().nonzero()[:, 0].tolist() == [7, 400]
    assert 2 <= len(evaluated) <= 2 * log_joints.SMALL_BLOCK
    good = found.isfinite()
    torch.testing.assert_close(found[good], log_joint_at(density, theta[good]))
