"""The mass matrix that chains in lockstep share, and the windows of warm-up in which it is estimated from the draws of all."""

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import START_BUFFER, no_moments, observe, pooled_variances
from bnnzoo.inference.markov.first_metric import in_form_of
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import FEWEST_DRAWS as FEWEST_DRAWS_ALONE
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import draws_of_two, may_end, windows_for
from bnnzoo.inference.markov.hamiltonian.kernel import Matrix, Metric, root_of, transposed
from bnnzoo.inference.markov.metrics import (
    MOST_DRAWS,
    MassMatrix,
    drifts,
    finite_gradients,
    growth_of_step,
    has_converged,
    identity_metric,
    inverse_mass_of,
    metric_of,
    metrics_from,
)

__all__ = ["FEWEST_CHAINS", "Change", "SharedMetric", "of_all"]

FEWEST_DRAWS, FEWEST_CHAINS = 150, 4
"""Draws that each chain has before warm-up may end, where this many chains or more tell it together; fewer have those of one."""


class Change(NamedTuple):
    """By what factor steps can grow under a new mass matrix, and whether more warm-up would change little."""

    growth: float = 1.0
    has_converged: bool = False


class SharedMetric:
    """A mass matrix, and draws of chains ``[C]`` in the open window and the one before it, gradients and log densities there.

    Where variances are all that is estimated, moments of the draws in the open window take their place. Differences between
    chains are left out: the posterior of a network has many equivalent modes, and scales that spanned them would be far too wide
    for any one mode.

    Parameters
    ----------
    mass_matrix : MassMatrix
    num_draws : int
        Draws of warm-up over which it is adapted.
    theta : Tensor
        Starting points ``[C, P]``.
    root : Tensor [P] or [P, P], or Metric [1, ...], optional
        Widths by which chains move at first, a root of a covariance, or the first mass matrix. Default: the units of the model.

    Attributes
    ----------
    metric : Metric
        Of one chain, with a leading dimension: ``[1, ...]``.
    ends : tuple of int
        Numbers of draws after which windows end; at the first one collecting begins.
    known_at : float
        Draws after which it can be relied on: none if chains start from a Gaussian, else the first windows.
    """

    def __init__(
        self, mass_matrix: MassMatrix, num_draws: int, theta: Tensor, root: Tensor | Metric | None = None
    ) -> None:
        self.mass_matrix, self.ends, self.count = mass_matrix, windows_for(mass_matrix, num_draws), 0
        self._fewest = FEWEST_DRAWS if len(theta) >= FEWEST_CHAINS else FEWEST_DRAWS_ALONE
        known_at = next((end for end in self.ends[1:] if end > START_BUFFER), max(self.ends, default=math.inf))
        self.known_at, self.metric = known_at if root is None else 0, _metric_of_start(mass_matrix, theta, root)
        most = 0 if mass_matrix == "diagonal" else draws_of_two(self.ends)
        draws = theta.new_zeros(len(theta), most, theta.shape[1])
        self.collected = [draws, draws.clone(), draws[..., :1].clone()]
        self.moments, self.num_chains = no_moments(theta), len(theta)
        self._made_of: tuple[Metric | None, Any, Any] = None, None, None

    @property
    def root(self) -> Matrix:
        """A matrix B for each chain ``[C, ...]``, where ``B B^T`` is the posterior's covariance as estimated so far."""
        root: Matrix = self._made()[1]
        return root

    @property
    def units(self) -> Matrix:
        """The inverse of that matrix, by which differences of positions are in units of the posterior."""
        units: Matrix = self._made()[2]
        return units

    def observe(self, draw: int, theta: Tensor, gradient: Tensor, log_density: Tensor) -> None:
        """Add a draw ``[C, P]`` if a window is open, the gradient there and the log density ``[C]``."""
        if not self.ends or not self.ends[0] <= draw < self.ends[-1]:
            return
        if self.mass_matrix == "diagonal":
            self.moments = observe(self.moments, theta)
            return
        for each, values in zip(self.collected, (theta, gradient, log_density[:, None]), strict=True):
            each[:, self.count] = values
        self.count += 1

    def close(self, end: int) -> Change:
        """Estimate the mass matrix at the end of a window, unless all chains are still on their way.

        Estimates are made in units of the one before: what they are shrunk towards suits posteriors of any width.
        """
        old, variances = self.metric, inverse_mass_of(self.metric)["inverse_mass"][0]
        unit = (variances if variances.ndim == 1 else variances.diagonal()).sqrt()  # of each parameter
        if self.mass_matrix == "diagonal":
            moments, self.moments = self.moments, no_moments(self.moments.mean)
            change = pooled_variances(moments._replace(second=moments.second / unit.square()))
            self.metric = _in_units(metric_of({"inverse_mass": change[None]}), unit)
            return Change(float(change.rsqrt().max()))
        new = end - self.ends[self.ends.index(end) - 1]
        draws, gradients, values = (each[:, : self.count].clone() for each in self.collected)
        settled = ~drifts(values[..., 0], len(unit)) | (end == self.ends[-1])
        is_known = self.count > 1 and bool(settled.any())  # draws that failed are not here
        self._keep(new if is_known and end != self.ends[-1] else 0)
        if not is_known:
            return Change()
        theta, slopes = draws[settled], finite_gradients(gradients[settled])
        estimate, is_gaussian = metrics_from(_pooled(theta / unit), _pooled(slopes * unit), self.mass_matrix)
        self.metric = _in_units(estimate, unit)
        growth = growth_of_step(old, self.metric, _pooled(slopes))
        is_long = may_end(self.mass_matrix, end, self.ends[-1], self._fewest) and new < draws.shape[1]
        if not (is_long and bool(settled.all()) and bool(is_gaussian.all())):
            return Change(float(growth))
        before, after, growths = (of_all(tree, len(theta)) for tree in (old, self.metric, growth))
        return Change(float(growth), bool(has_converged(before, after, theta, growths, new).all()))

    def resumable(self) -> tuple[Any, ...]:
        """Return what a checkpoint needs."""
        return self.metric, self.moments, *(each[:, : self.count] for each in self.collected)

    def resume(self, found: tuple[Any, ...]) -> None:
        """Take what a checkpoint has."""
        self.metric, self.moments, *collected = found
        self.count = collected[0].shape[1]
        for each, values in zip(self.collected, collected, strict=True):
            each[:, : self.count] = values

    def _made(self) -> tuple[Metric | None, Any, Any]:
        """Return the mass matrix and what is made of it: asked for after every draw, it changes after few."""
        if self._made_of[0] is not self.metric:
            root = of_all(vmap(root_of)(self.metric), self.num_chains)
            units = transposed(pytree.tree_map(lambda value: value[0], self.metric.mass_sqrt))
            self._made_of = self.metric, root, units
        return self._made_of

    def _keep(self, number: int) -> None:
        """Forget all draws but the last ones."""
        number = min(number, self.count)
        for each in self.collected:
            each[:, :number] = each[:, self.count - number : self.count].clone()
        self.count = number


def of_all(tree: Any, number: int) -> Any:
    """Return what a number of chains have in common, ``[1, ...]``, for each of them."""
    return pytree.tree_map(lambda value: value.expand(number, *value.shape[1:]).clone(), tree)


def _metric_of_start(mass_matrix: MassMatrix, theta: Tensor, root: Tensor | Metric | None) -> Metric:
    """Return the mass matrix ``[1, ...]`` of a Gaussian as far as it can hold it: with directions if it knows any.

    They are found as those of a posterior are: of more draws than parameters, and their gradients, the covariance is exact.
    """
    metric = identity_metric(theta[:1], mass_matrix)
    if root is None:
        return metric
    if isinstance(root, Metric):
        return in_form_of(metric, root)
    unit = (root if root.ndim == 1 else root.square().sum(1).sqrt()).to(theta)
    if root.ndim == 2 and mass_matrix in ("auto", "low_rank"):
        tril = (root / root.square().sum(1, keepdim=True).sqrt()).double().cpu()  # of the correlation
        noise = torch.randn(MOST_DRAWS, len(tril), generator=torch.Generator().manual_seed(0), dtype=torch.float64)
        draws, gradients = noise @ tril.mT, -torch.linalg.solve_triangular(tril, noise, upper=False, left=False)
        metric, _ = metrics_from(draws[None].to(theta), gradients[None].to(theta), "low_rank")
    return _in_units(metric, unit)


def _pooled(values: Tensor) -> Tensor:
    """Return values ``[C, n, P]`` as those of one chain in the order of draws, each chain centred."""
    return (values - values.mean(1, keepdim=True)).transpose(0, 1).flatten(0, 1)[None]


def _in_units(metric: Metric, unit: Tensor) -> Metric:
    """Return a mass matrix estimated in units of ``unit[P]`` in those of the model."""
    parts = inverse_mass_of(metric)
    square = unit.square() if parts["inverse_mass"].ndim == 2 else unit[:, None] * unit
    return metric_of({**parts, "inverse_mass": parts["inverse_mass"] * square})
