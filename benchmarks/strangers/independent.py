"""Pyro's own density of a model, a Newton search on it, and the Gaussians that are nearest to it.

Nothing here calls the library: it is what the library's approximations are held against.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any, NamedTuple

import numpy as np
import pyro
import torch
from pyro import poutine
from pyro.poutine.util import site_is_subsample
from scipy.optimize import minimize
from scipy.stats import norm, qmc
from torch import Tensor
from torch.distributions import biject_to
from torch.func import vmap

from benchmarks.strangers.catalogue import Stranger
from benchmarks.strangers.namespaces import pyro_names

NUM_FACTORISED, NUM_FULL = 256, 1024
"""Quasi-random draws over which the bound of a Gaussian is averaged."""

DEGREES = 5
"""Degrees of freedom of the proposal of importance sampling."""


@dataclass(frozen=True)
class Site:
    """A latent site, its transform from unconstrained space, its shapes there and as the model has it, and its place in theta."""

    name: str
    transform: Any
    shape: torch.Size
    value_shape: torch.Size
    span: slice


class Unconstrained:
    """Log density of a model in double precision, over the unconstrained values of its latent sites in the order of sampling."""

    def __init__(self, stranger: Stranger) -> None:
        names = pyro_names()
        data = [torch.as_tensor(each) for each in stranger.data]
        self.data = [each.double() if each.is_floating_point() else each for each in data]
        self.model = lambda *data: stranger.text(names, *data)
        with double_precision():
            nodes = poutine.trace(self.model).get_trace(*self.data).nodes.values()
        self.sites: list[Site] = []
        for node in nodes:
            if node["type"] == "sample" and not node["is_observed"] and not site_is_subsample(node):
                transform = biject_to(node["fn"].support)
                shape = transform.inv(node["value"]).shape
                span = slice(self.size, self.size + prod(shape))
                self.sites.append(Site(node["name"], transform, shape, node["value"].shape, span))

    @property
    def size(self) -> int:
        """Length of the flat vector."""
        return self.sites[-1].span.stop if self.sites else 0

    def prior_median(self, count: int = 101) -> Tensor:
        """Return the medians ``[P]`` of prior draws."""
        rows = []
        with torch.random.fork_rng(), double_precision():
            torch.manual_seed(0)
            for _ in range(count):
                nodes = poutine.trace(self.model).get_trace(*self.data).nodes
                rows.append(torch.cat([s.transform.inv(nodes[s.name]["value"]).flatten() for s in self.sites]))
        return torch.stack(rows).median(0).values

    def values(self, theta: Tensor) -> dict[str, Tensor]:
        """Return the sites' values at ``theta[..., P]``."""
        return {s.name: s.transform(theta[..., s.span].reshape(*theta.shape[:-1], *s.shape)) for s in self.sites}

    def __call__(self, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` at ``theta[P]``, Jacobians included, as Pyro counts it."""
        values, jacobian = {}, theta.new_zeros(())
        for site in self.sites:
            raw = theta[site.span].reshape(site.shape)
            values[site.name] = site.transform(raw)
            jacobian = jacobian + site.transform.log_abs_det_jacobian(raw, values[site.name]).sum()
        trace = poutine.trace(poutine.condition(self.model, values)).get_trace(*self.data)
        found: Tensor = trace.log_prob_sum() + jacobian
        return found


@contextmanager
def double_precision() -> Iterator[None]:
    """Make numbers that a model creates double, and leave arguments unchecked, which batches cannot be."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    with pyro.validation_enabled(False):
        try:
            yield
        finally:
            torch.set_default_dtype(before)


def newton(density: Callable[[Tensor], Tensor], start: Tensor, max_steps: int = 200) -> tuple[Tensor, Tensor]:
    """Climb from ``start[P]`` to a mode by Newton's steps, and return it with minus the Hessian ``[P, P]`` there.

    Steps go along the eigenvectors of the Hessian with its eigenvalues made positive, and are halved until the density rises.

    Raises
    ------
    ArithmeticError
        If no step in ``max_steps`` is below 1e-10 of the Gaussian's standard deviations.
    """
    theta = start.detach().double()
    with double_precision():
        for _ in range(max_steps):
            value, gradient = value_and_gradient(density, theta)
            hessian = torch.autograd.functional.hessian(density, theta)
            curvature, basis = torch.linalg.eigh(-(hessian + hessian.mT) / 2)
            along = basis.mT @ gradient
            step = along / curvature.abs().clamp(min=1e-8)
            decrement = float((along * step).sum().sqrt())
            if decrement < 1e-10:
                return theta, -(hessian + hessian.mT) / 2
            scale = 1.0
            while scale > 1e-8 and not float(density(theta + scale * basis @ step)) > float(value):
                scale /= 2
            if scale <= 1e-8:  # as high as rounding lets it be seen
                if decrement < 1e-6:
                    return theta + basis @ step, -(hessian + hessian.mT) / 2
                break
            theta = theta + scale * basis @ step
    raise ArithmeticError(f"Newton's method ended with a step of {decrement:.1e} standard deviations.")


def value_and_gradient(density: Callable[[Tensor], Tensor], theta: Tensor) -> tuple[Tensor, Tensor]:
    """Return a density ``[]`` and its gradient ``[P]``."""
    theta = theta.detach().requires_grad_()
    value = density(theta)
    (gradient,) = torch.autograd.grad(value, theta)
    return value.detach(), gradient


class Importance(NamedTuple):
    """Draws ``[S, P]`` and their normalised weights ``[S]``."""

    theta: Tensor
    weights: Tensor


@dataclass(frozen=True)
class NearestGaussian:
    """A Gaussian by its mean ``[P]`` and a root ``[P, P]`` of its covariance, and its bound on the log evidence."""

    loc: Tensor
    root: Tensor
    bound: float

    def draws(self, count: int) -> Tensor:
        """Return quasi-random draws ``[count, P]``."""
        return self.loc + normal_points(count, len(self.loc), seed=1) @ self.root.mT


def nearest_gaussian(
    density: Callable[[Tensor], Tensor], loc: Tensor, root: Tensor, factorised: bool
) -> NearestGaussian:
    """Maximise the evidence lower bound over Gaussians, or over factorised ones, deterministically.

    The expectation is over fixed quasi-random points, and L-BFGS maximises it, from ``loc[P]`` and in units of the lower
    triangular ``root[P, P]``, which is diagonal for factorised ones.

    References
    ----------
    Giordano, Ingram and Broderick (2024), Black box variational inference with a deterministic objective, JMLR 25.
    """
    size = len(loc)
    loc, root = loc.double(), root.double()
    points = normal_points(NUM_FACTORISED if factorised else NUM_FULL, size, seed=0)
    below = torch.tril_indices(size, size, -1)[:, : 0 if factorised else None]
    if not factorised:  # points with correlations would be fitted as the posterior's
        points = points @ torch.linalg.inv(torch.linalg.cholesky(torch.cov(points.mT, correction=0))).mT

    def placed(free: Tensor) -> tuple[Tensor, Tensor]:
        own = free[size : 2 * size].exp().diag().index_put(tuple(below), free[2 * size :])
        return loc + root @ free[:size], root @ own

    def loss(flat: np.ndarray) -> tuple[float, np.ndarray]:
        free = torch.as_tensor(flat).requires_grad_()
        centre, spread = placed(free)
        with double_precision():
            bound = at_each(density, centre + points @ spread.mT).mean() + free[size : 2 * size].sum()
        (gradient,) = torch.autograd.grad(-bound, free)
        if not bool(bound.isfinite()) or not bool(gradient.isfinite().all()):
            return 1e30, np.zeros_like(flat)
        return -bound.item(), gradient.numpy()

    start, limits = np.zeros(2 * size + below.shape[1]), {"maxiter": 1000, "ftol": 1e-13}
    found = minimize(loss, start, jac=True, method="L-BFGS-B", options=limits)
    bound = -float(found.fun) + float(root.diagonal().log().sum())
    return NearestGaussian(*placed(torch.as_tensor(found.x)), bound)


def importance_draws(density: Callable[[Tensor], Tensor], mode: Tensor, precision: Tensor, count: int) -> Importance:
    """Draw ``[count, P]`` from Student's t with five degrees of freedom around a mode, and weigh the draws by the density."""
    generator = torch.Generator().manual_seed(0)
    normal = torch.randn(count, len(mode), generator=generator, dtype=torch.float64)
    chi = torch.distributions.Chi2(torch.tensor(float(DEGREES), dtype=torch.float64))
    with torch.random.fork_rng():
        torch.manual_seed(0)
        z = normal * (DEGREES / chi.sample((count, 1))).sqrt()
    theta = mode + torch.linalg.solve_triangular(torch.linalg.cholesky(precision).mT, z.mT, upper=True).mT
    log_q = -0.5 * (DEGREES + len(mode)) * torch.log1p(z.square().sum(1) / DEGREES)
    with double_precision(), torch.no_grad():
        log_p = torch.cat([at_each(density, part) for part in theta.split(1000)])
    log_ratios = (log_p - log_q).nan_to_num(-torch.inf, -torch.inf, -torch.inf)
    return Importance(theta, (log_ratios - log_ratios.logsumexp(0)).exp())


def at_each(density: Callable[[Tensor], Tensor], theta: Tensor) -> Tensor:
    """Return a density ``[M]`` at each row of ``theta[M, P]``, in one batch where the model can be batched."""
    try:
        return vmap(density)(theta)
    except RuntimeError:
        return torch.stack([density(row) for row in theta])


def normal_points(count: int, size: int, seed: int) -> Tensor:
    """Return ``[count, size]`` scrambled Sobol points of a standard normal, centred and of unit variance."""
    points = torch.as_tensor(norm.ppf(qmc.Sobol(size, seed=seed).random(count).clip(1e-12, 1 - 1e-12)))
    points = points - points.mean(0)
    return points / points.std(0, correction=0)
