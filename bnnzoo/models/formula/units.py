"""Latent sites in the units of the data, whose unconstrained coordinates are near one."""

from collections.abc import Mapping
from typing import Any, ClassVar

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.distributions import biject_to, constraints
from torch.distributions.transforms import AffineTransform, ComposeTransform, ExpTransform, Transform

from bnnzoo.core.likelihood.families import ONE, Shape

__all__ = ["InUnits", "Unit", "in_units"]

type Unit = tuple[float | tuple[float, ...], float | tuple[float, ...]]
"""Where the unconstrained coordinate of a site is zero, and by how much the site changes when it changes by one."""


class InUnits(dist.TorchDistribution):
    r"""A distribution whose unconstrained coordinates have another origin and another unit; its density is unchanged.

    On the real line the site is :math:`x = m + s \theta`, on the positive numbers :math:`x = s e^\theta`. Step sizes, starting
    points
    and the defaults of optimisers are made for coordinates of about one, while coefficients have the units of the data.

    Parameters
    ----------
    base_dist : Distribution
        On the real line or the positive numbers; other supports keep their own coordinates.
    loc, scale : Tensor
        m and s, which broadcast with a value.

    Examples
    --------
    >>> found = InUnits(dist.Normal(0.0, 50.0), torch.tensor(0.0), torch.tensor(20.0))
    >>> biject_to(found.support)(torch.tensor(1.5))
    tensor(30.)
    """

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, base_dist: Any, loc: Tensor, scale: Tensor) -> None:
        self.base_dist, self.loc, self.scale = base_dist, loc, scale
        super().__init__(base_dist.batch_shape, base_dist.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """Support of the distribution, which knows the unit."""
        return _with_unit(self.base_dist.support, self.loc, self.scale)

    def expand(self, batch_shape: Shape, _instance: Any = None) -> "InUnits":
        """Return the distribution with another batch shape."""
        return InUnits(self.base_dist.expand(batch_shape), self.loc, self.scale)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density, that of the distribution itself."""
        found: Tensor = self.base_dist.log_prob(value)
        return found

    def sample(self, sample_shape: Shape = ONE) -> Tensor:
        """Return draws."""
        found: Tensor = self.base_dist.sample(sample_shape)
        return found


class in_units(Messenger):  # a context manager, named like those of Pyro
    """Give latent sites that are sampled within coordinates in their units.

    Parameters
    ----------
    units : mapping of str to Unit
        By the name of the site.
    """

    def __init__(self, units: Mapping[str, Unit]) -> None:
        super().__init__()
        self.units = units

    def _pyro_sample(self, msg: dict[str, Any]) -> None:
        if msg["name"] in self.units and not msg["is_observed"]:
            loc, scale = (torch.tensor(value) for value in self.units[msg["name"]])
            msg["fn"] = InUnits(msg["fn"], loc, scale)


class _RealInUnits(constraints.Constraint):
    def __init__(self, loc: Tensor, scale: Tensor) -> None:
        self.loc, self.scale = loc, scale
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return constraints.real.check(value)


class _PositiveInUnits(constraints.Constraint):
    lower_bound = 0.0

    def __init__(self, scale: Tensor) -> None:
        self.scale = scale
        super().__init__()

    def check(self, value: Tensor) -> Tensor:
        return constraints.positive.check(value)


def _with_unit(support: Any, loc: Tensor, scale: Tensor) -> Any:
    if isinstance(support, constraints.independent):
        return constraints.independent(
            _with_unit(support.base_constraint, loc, scale), support.reinterpreted_batch_ndims
        )
    if support is constraints.real:
        return _RealInUnits(loc, scale)
    is_positive = isinstance(support, type(constraints.positive) | type(constraints.nonnegative))
    return _PositiveInUnits(scale) if is_positive and float(support.lower_bound) == 0 else support


@biject_to.register(_RealInUnits)
def _onto_reals(support: Any) -> Transform:
    return AffineTransform(support.loc, support.scale)


@biject_to.register(_PositiveInUnits)
def _onto_positives(support: Any) -> Transform:
    return ComposeTransform([ExpTransform(), AffineTransform(torch.zeros_like(support.scale), support.scale)])
