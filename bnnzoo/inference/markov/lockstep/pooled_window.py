"""Windows of warm-up of chains in lockstep, and the mass matrix estimated from the draws of all of them."""

from typing import Any, NamedTuple

from torch import Tensor

from bnnzoo.engine import pytree
from bnnzoo.inference.markov.adaptation import no_moments, observe, pooled_variances
from bnnzoo.inference.markov.hamiltonian.adaptation_windows import FEWEST_DRAWS, OF_DRAWS_ALONE
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.markov.metrics import (
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

__all__ = ["Estimate", "PooledWindow", "start_of"]


class Estimate(NamedTuple):
    """A mass matrix ``[1, ...]``, the factor by which steps can grow under it, and whether more warm-up would change little."""

    metric: Metric
    growth: float
    has_converged: bool = False


class PooledWindow:
    """Draws of chains ``[C]`` in the open window and the one before it, gradients and log densities there.

    Where variances are all that is estimated, moments of the draws in the open window take their place. Differences between
    chains are left out: the posterior of a network has many equivalent modes, and scales that spanned them would be far too wide
    for any one mode.

    Parameters
    ----------
    mass_matrix : MassMatrix
    ends : tuple of int
        Numbers of draws after which windows end; at the first one collecting begins.
    theta : Tensor
        Starting points ``[C, P]``.
    """

    def __init__(self, mass_matrix: MassMatrix, ends: tuple[int, ...], theta: Tensor) -> None:
        self.mass_matrix, self.ends, self.count = mass_matrix, ends, 0
        most = max((end - ends[max(i - 2, 0)] for i, end in enumerate(ends)), default=0)
        draws = theta.new_zeros(len(theta), 0 if mass_matrix == "diagonal" else most, theta.shape[1])
        self.collected = [draws, draws.clone(), draws[..., :1].clone()]
        self.moments = no_moments(theta)

    def observe(self, theta: Tensor, gradient: Tensor, log_density: Tensor) -> None:
        """Add the latest draws ``[C, P]``, gradients there and log densities ``[C]``."""
        if self.mass_matrix == "diagonal":
            self.moments = observe(self.moments, theta)
            return
        for each, values in zip(self.collected, (theta, gradient, log_density[:, None]), strict=True):
            each[:, self.count] = values
        self.count += 1

    def close(self, old: Metric, end: int) -> Estimate | None:
        """Return what is estimated at the end of a window in place of ``old[1, ...]``, None if no chain has arrived.

        Estimates are made in units of the mass matrix before: what they are shrunk towards suits posteriors of any width.
        """
        unit = _scales_of(old)
        if self.mass_matrix == "diagonal":
            moments, self.moments = self.moments, no_moments(self.moments.mean)
            change = pooled_variances(moments._replace(second=moments.second / unit.square()))
            return Estimate(_in_units(metric_of({"inverse_mass": change[None]}), unit), float(change.rsqrt().max()))
        new = end - self.ends[self.ends.index(end) - 1]
        draws, gradients, values = (each[:, : self.count].clone() for each in self.collected)
        on_the_way = drifts(values[..., 0], len(unit)) & (end != self.ends[-1])
        self._keep(0 if end == self.ends[-1] or bool(on_the_way.all()) else new)
        if bool(on_the_way.all()):
            return None
        theta, slopes = draws[~on_the_way], finite_gradients(gradients[~on_the_way])
        estimate, is_gaussian = metrics_from(_pooled(theta / unit), _pooled(slopes * unit), self.mass_matrix)
        found = _in_units(estimate, unit)
        growth = growth_of_step(old, found, _pooled(slopes))
        has_time = FEWEST_DRAWS <= end < self.ends[-1] and new < draws.shape[1] and not bool(on_the_way.any())
        if self.mass_matrix in OF_DRAWS_ALONE or not has_time or not bool(is_gaussian.all()):
            return Estimate(found, float(growth))
        olds, founds, growths = (_of_each(tree, len(theta)) for tree in (old, found, growth))
        return Estimate(found, float(growth), bool(has_converged(olds, founds, theta, growths, new).all()))

    def resumable(self) -> tuple[Any, ...]:
        """Return what a checkpoint needs."""
        return self.moments, *(each[:, : self.count] for each in self.collected)

    def resume(self, found: tuple[Any, ...]) -> None:
        """Take what a checkpoint has."""
        self.moments, *collected = found
        self.count = collected[0].shape[1]
        for each, values in zip(self.collected, collected, strict=True):
            each[:, : self.count] = values

    def _keep(self, number: int) -> None:
        """Forget all draws but the last ones."""
        for each in self.collected:
            each[:, :number] = each[:, self.count - number : self.count].clone()
        self.count = number


def start_of(mass_matrix: MassMatrix, theta: Tensor, scale: Tensor | None) -> Metric:
    """Return the mass matrix ``[1, ...]`` with which chains at ``theta[C, P]`` start: the identity in units of ``scale[P]``."""
    metric = identity_metric(theta[:1], mass_matrix)
    return metric if scale is None else _in_units(metric, scale.to(theta))


def _of_each(tree: Any, number: int) -> Any:
    """Return what chains have in common, ``[1, ...]``, for each of them."""
    return pytree.tree_map(lambda value: value.expand(number, *value.shape[1:]), tree)


def _pooled(values: Tensor) -> Tensor:
    """Return values ``[C, n, P]`` as those of one chain in the order of draws, each chain centred."""
    return (values - values.mean(1, keepdim=True)).transpose(0, 1).flatten(0, 1)[None]


def _scales_of(metric: Metric) -> Tensor:
    """Return the units ``[P]`` of the parameters under one mass matrix ``[1, ...]``."""
    variances = inverse_mass_of(metric)["inverse_mass"][0]
    return (variances if variances.ndim == 1 else variances.diagonal()).sqrt()


def _in_units(metric: Metric, unit: Tensor) -> Metric:
    """Return a mass matrix estimated in units of ``unit[P]`` in those of the model."""
    parts = inverse_mass_of(metric)
    square = unit.square() if parts["inverse_mass"].ndim == 2 else unit[:, None] * unit
    return metric_of({**parts, "inverse_mass": parts["inverse_mass"] * square})
