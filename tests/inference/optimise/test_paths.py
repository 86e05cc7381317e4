"""Gaussians along L-BFGS, against BFGS written out and against Gaussians that are known."""

import math

import torch
from torch import Tensor

from bnnzoo.core.posterior.covariance import LowRankPrecision
from bnnzoo.inference.optimise.paths import Normals, normals_at, paths_from

SCALES = torch.logspace(0, 3, 20, dtype=torch.float64)


def quadratic(theta: Tensor) -> tuple[Tensor, Tensor]:
    return -(SCALES * theta**2).sum(1) / 2, -SCALES * theta


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def covariance(normals: Normals, row: int) -> Tensor:
    scale, vectors, values = (each[row] for each in normals[1:])
    return LowRankPrecision(scale, vectors, -values / (1 + values)).dense()


def updated(inverse: Tensor, step: Tensor, change: Tensor) -> Tensor:
    """Return the inverse Hessian after an update of BFGS (Nocedal and Wright 2006, equation 6.17)."""
    rho = 1 / (step @ change)
    left = torch.eye(len(step)).to(step) - rho * torch.outer(step, change)
    return left @ inverse @ left.mT + rho * torch.outer(step, step)


def test_the_covariance_is_the_inverse_hessian_of_bfgs_and_the_mean_a_newton_step_away() -> None:
    for size, history in ((9, 3), (4, 3), (1, 2)):  # of more parameters than columns, and of fewer
        hessian = random(size, size)
        hessian = hessian @ hessian.mT + torch.eye(size).double()
        steps = random(2, size, history, seed=1)
        variances, theta, gradient = random(2, size, seed=2).exp(), random(2, size, seed=3), random(2, size, seed=4)
        normals = normals_at(theta, gradient, variances, steps, hessian @ steps)
        for row in range(2):
            expected = torch.diag(variances[row])
            for step in steps[row].mT:
                expected = updated(expected, step, hessian @ step)
            torch.testing.assert_close(covariance(normals, row), expected, rtol=1e-7, atol=1e-8)
            torch.testing.assert_close(normals.loc[row], theta[row] + expected @ gradient[row], rtol=1e-7, atol=1e-8)


def test_steps_that_are_not_there_change_nothing() -> None:
    steps = torch.zeros(1, 5, 3).double()
    steps[..., -1] = random(1, 5)
    rest = (torch.zeros(1, 5).double(), random(1, 5, seed=1), random(1, 5, seed=2).exp())
    some = normals_at(*rest, steps, 2 * steps)
    one = normals_at(*rest, steps[..., -1:], 2 * steps[..., -1:])
    torch.testing.assert_close(covariance(some, 0), covariance(one, 0))


def test_draws_and_their_densities_are_those_of_the_covariance() -> None:
    steps = random(1, 6, 2)
    normals = normals_at(random(1, 6, seed=1), random(1, 6, seed=2), random(1, 6, seed=3).exp(), steps, 3 * steps)
    exact = torch.distributions.MultivariateNormal(normals.loc[0], covariance(normals, 0))
    noise = random(1, 40_000, 6, seed=4)
    draws = normals.draws(noise)
    torch.testing.assert_close(normals.log_density(noise)[0], exact.log_prob(draws[0]))
    errors = (torch.cov(draws[0].mT) - exact.covariance_matrix).abs() / exact.variance.sqrt().outer(
        exact.variance.sqrt()
    )
    assert float(errors.max()) < 5 * math.sqrt(2 / 40_000)


def found(start: Tensor, **settings: int) -> Normals:
    noise = random(1, 8, start.shape[1], seed=7).expand(len(start), -1, -1)
    wanted = {"max_steps": 200, "history": 6, **settings}
    return paths_from(quadratic, lambda theta: quadratic(theta)[0], start, noise, **wanted).best


def test_the_diagonal_learns_scales_that_differ_by_thousands() -> None:
    best = found(torch.ones(1, 20, dtype=torch.float64))
    ratio = covariance(best, 0).diagonal() * SCALES
    assert float(ratio.log().abs().max()) < 1.0  # of variances, which differ by a factor of a thousand
    assert float((best.loc * SCALES.sqrt()).abs().max()) < 0.1


def test_paths_do_not_depend_on_each_other() -> None:
    start = torch.stack([torch.ones(20), torch.linspace(-3, 2, 20)]).double()
    together = found(start)
    for row in range(2):
        alone = found(start[row : row + 1])
        torch.testing.assert_close(covariance(together, row), covariance(alone, 0), rtol=1e-6, atol=1e-9)


def test_the_bound_of_the_best_is_the_highest_and_below_the_evidence() -> None:
    noise = random(1, 200, 20, seed=7)
    paths = paths_from(
        quadratic, lambda theta: quadratic(theta)[0], torch.ones(1, 20).double(), noise, max_steps=200, history=6
    )
    evidence = 10 * math.log(2 * math.pi) - 0.5 * float(SCALES.log().sum())
    assert float(paths.elbo) == float(paths.trace.nan_to_num(-math.inf).max())
    assert evidence - 2.0 < float(paths.elbo) < evidence + 0.1
    assert paths.num_values == 200 * paths.trace.shape[1]


def test_a_path_on_a_plane_has_no_bound() -> None:
    def slope(theta: Tensor) -> tuple[Tensor, Tensor]:
        return theta.sum(1) * torch.nan, torch.full_like(theta, torch.nan)

    paths = paths_from(
        slope, lambda theta: slope(theta)[0], torch.ones(2, 3).double(), random(2, 4, 3), max_steps=5, history=2
    )
    assert paths.elbo.tolist() == [-math.inf, -math.inf]
