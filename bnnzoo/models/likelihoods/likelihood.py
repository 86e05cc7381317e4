"""The interface of a likelihood: a callable that samples or observes the target given a network's output."""

from typing import Protocol, runtime_checkable

import pyro
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor

from bnnzoo.models.placement import place

__all__ = ["Likelihood", "observe", "targets_shape", "value_or_site"]


@runtime_checkable
class Likelihood(Protocol):
    """A likelihood for `bnnzoo.models.supervised`: samples or observes the target given a network's output.

    Write a frozen dataclass with ``__call__`` that samples its parameters, opens the plate over observations and
    samples the site of the target. If it has an argument ``offset``, the model takes an offset, and likewise ``censored``.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> import pyro, torch
    >>> import pyro.distributions as dist
    >>> @dataclass(frozen=True)
    ... class Gamma:
    ...     def __call__(self, output, y=None):
    ...         shape = pyro.sample("shape", dist.HalfNormal(5.0))
    ...         with pyro.plate("data", len(output)):
    ...             return pyro.sample("y", dist.Gamma(shape, shape * torch.exp(-output.squeeze(-1))), obs=y)
    >>> Gamma()(torch.zeros(4, 1)).shape
    torch.Size([4])
    """

    def __call__(self, output: Tensor, y: Tensor | None = None) -> Tensor:
        """Sample the target [N] or [N, D], or observe it if `y` is given.

        Parameters
        ----------
        output : Tensor
            Output of the network, [N, outputs].
        y : Tensor, optional
            The target.

        Returns
        -------
        Tensor
            `y`, or a draw of it.
        """
        ...


def observe(distribution: TorchDistributionMixin, y: Tensor | None) -> Tensor:
    """Sample site ``"y"``, with batch shape [N], in the plate ``"data"``."""
    with pyro.plate("data", distribution.batch_shape[0], dim=-1):
        value: Tensor = pyro.sample("y", distribution, obs=y)
    return value


def targets_shape(loc: Tensor) -> Tensor:
    """Return [N, 1] as [N], and anything else unchanged."""
    return loc.squeeze(-1) if loc.ndim == 2 and loc.shape[-1] == 1 else loc


def value_or_site(
    name: str, value: float | Tensor | TorchDistributionMixin, shape: tuple[int, ...] = ()
) -> Tensor | float:
    """Return a fixed number, or a draw from a distribution at the latent site `name`, independent over `shape`."""
    if not isinstance(value, TorchDistributionMixin):
        return value
    prior = place(value)
    sampled: Tensor = pyro.sample(name, prior.expand(shape).to_event(len(shape)) if shape else prior)
    return sampled
