"""A window of warm-up of chains in lockstep, and the mass matrix estimated from the draws of all of them."""

from typing import Any

from torch import Tensor

from bnnzoo.inference.markov.adaptation import no_moments, observe, pooled_variances
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.metrics import (
    MassMatrix,
    finite_gradients,
    growth_of_step,
    identity_metric,
    inverse_mass_of,
    metric_of,
    metrics_from,
)

__all__ = ["PooledWindow", "scales_of", "start_of"]


class PooledWindow:
    """Draws and gradients of chains ``[C]`` in the open window, or the moments of draws alone where these are all it takes.

    Differences between chains are left out: the posterior of a network has many equivalent modes, and scales that spanned them
    would be far too wide for any one mode.

    Parameters
    ----------
    mass_matrix : MassMatrix
    longest : int
        Draws of the longest window.
    theta : Tensor
        Starting points ``[C, P]``.
    """

    def __init__(self, mass_matrix: MassMatrix, longest: int, theta: Tensor) -> None:
        self.mass_matrix, self.moments = mass_matrix, no_moments(theta)
        longest = 0 if mass_matrix == "diagonal" else longest
        self.draws, self.count = theta.new_zeros(2, longest, *theta.shape), 0  # theta and gradients, draw by draw

    def observe(self, theta: Tensor, gradient: Tensor) -> None:
        """Add the latest draws ``[C, P]`` and the gradients there."""
        if self.mass_matrix == "diagonal":
            self.moments = observe(self.moments, theta)
        else:
            self.draws[0, self.count], self.draws[1, self.count] = theta, gradient
            self.count += 1

    def close(self, metric: Metric) -> tuple[Metric, float]:
        """Return the mass matrix of the window in place of ``metric[1, ...]``, by which steps can grow, and forget the draws.

        Estimates are made in units of the mass matrix before, towards which they are shrunk.
        """
        unit = scales_of(metric)
        if self.mass_matrix == "diagonal":
            moments, self.moments = self.moments, no_moments(self.moments.mean)
            change = pooled_variances(moments._replace(second=moments.second / unit.square()))
            found = _in_units(metric_of({"inverse_mass": change[None]}), unit)
            return found, float(change.rsqrt().max())
        draws, gradient = self.draws[:, : self.count]
        gradient = finite_gradients(gradient.transpose(0, 1)).transpose(0, 1)
        self.count = 0
        rows = [(each - each.mean(0)).flatten(0, 1)[None] for each in (draws / unit, gradient * unit)]
        estimate, _ = metrics_from(rows[0], rows[1], self.mass_matrix)
        found = _in_units(estimate, unit)
        return found, float(growth_of_step(metric, found, rows[1] / unit))

    def resumable(self) -> tuple[Any, ...]:
        """Return what a checkpoint needs."""
        return self.moments, self.draws[:, : self.count]

    def resume(self, found: tuple[Any, ...]) -> None:
        """Take what a checkpoint has."""
        self.moments, draws = found
        self.count = draws.shape[1]
        self.draws[:, : self.count] = draws


def start_of(mass_matrix: MassMatrix, theta: Tensor, scale: Tensor | None) -> Metric:
    """Return the mass matrix ``[1, ...]`` with which chains at ``theta[C, P]`` start: the identity in units of ``scale[P]``."""
    metric = identity_metric(theta[:1], mass_matrix)
    return metric if scale is None else _in_units(metric, scale.to(theta))


def scales_of(metric: Metric) -> Tensor:
    """Return the units ``[P]`` of the parameters under one mass matrix ``[1, ...]``."""
    variances = inverse_mass_of(metric)["inverse_mass"][0]
    return (variances if variances.ndim == 1 else variances.diagonal()).sqrt()


def _in_units(metric: Metric, unit: Tensor) -> Metric:
    """Return a mass matrix estimated in units of ``unit[P]`` in those of the model."""
    parts = inverse_mass_of(metric)
    square = unit.square() if parts["inverse_mass"].ndim == 2 else unit[:, None] * unit
    return metric_of({**parts, "inverse_mass": parts["inverse_mass"] * square})
