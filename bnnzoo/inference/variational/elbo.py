"""The evidence lower bound of any reparametrised family over ``theta``."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Covariance
from bnnzoo.core.types import Data

__all__ = [
    "Bound",
    "GaussianFamily",
    "InvertibleFamily",
    "PathwiseBound",
    "Reparametrised",
    "VariationalFamily",
    "elbo",
    "mean_over_particles",
]


@runtime_checkable
class Reparametrised(Protocol):
    """Distributions over ``theta[P]`` with their parameters in one vector ``params[Q]``.

    A draw is a function of the parameters and of standard normal ``noise[R]``.
    """

    def start(self, loc: Tensor, scale: float) -> Tensor: ...
    def noise_size(self, num_params: int) -> int: ...
    def draw(self, params: Tensor, noise: Tensor) -> Tensor: ...


@runtime_checkable
class VariationalFamily(Reparametrised, Protocol):
    """Reparametrised distributions that have a density."""

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor: ...


@runtime_checkable
class GaussianFamily(VariationalFamily, Protocol):
    """Gaussians over ``theta[P]``."""

    def gaussian(self, params: Tensor) -> tuple[Tensor, Covariance]: ...


@runtime_checkable
class InvertibleFamily(GaussianFamily, Protocol):
    """Gaussians whose draws are an invertible function of ``noise[P]``."""

    def whiten(self, params: Tensor, theta: Tensor) -> Tensor: ...
    def at(self, params: Tensor, frame: Any) -> Tensor: ...


@runtime_checkable
class Bound(Protocol):
    """One particle's estimate of the evidence lower bound.

    ``num_extra`` counts the standard normal numbers it uses beyond those of the family.
    """

    @property
    def num_extra(self) -> int: ...

    def __call__(
        self, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return the estimate ``[]`` at ``params[Q]`` with ``noise[R + num_extra]`` and the weight of the divergence."""
        ...


@dataclass(frozen=True)
class PathwiseBound:
    """The estimate of the bound that :func:`elbo` averages over particles."""

    density: LogDensity
    family: VariationalFamily

    num_extra: ClassVar[int] = 0

    def __call__(
        self, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None, temperature: float = 1.0
    ) -> Tensor:
        """Return the estimate ``[]`` for parameters ``[Q]`` and noise ``[R]`` of one particle."""
        density = self.density
        theta = self.family.draw(params, noise)
        log_q = temperature * self.family.log_prob(params.detach(), theta)
        joint = density.log_joint(theta, *batch)
        return joint - log_q if weight is None else joint + (weight - 1) * density.log_prior(theta) - weight * log_q


def elbo(
    density: LogDensity, family: VariationalFamily, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None,
    temperature: float = 1.0, looped: bool = False,
) -> Tensor:  # fmt: skip
    r"""Return the evidence lower bound ``[]`` at ``params[Q]``, estimated with ``noise[K, R]``.

    .. math::
        \frac{1}{K} \sum_k \log p(y \mid \theta_k) + \beta \left( \log p(\theta_k) - T \log q_\phi(\theta_k) \right),
        \qquad \theta_k = \theta(\phi, \epsilon_k)

    The likelihood of a mini-batch of B of the N rows counts N/B times, prior and entropy count once and whole, so
    that the mean over the batches of an epoch is the bound on all data. The gradient leaves out the direct dependence
    of :math:`\log q_\phi` on :math:`\phi`, whose mean is zero: what remains has no noise where q is the posterior.

    Parameters
    ----------
    density : LogDensity
    family : VariationalFamily
    params : Tensor [Q]
    noise : Tensor [K, R]
    batch : tuple
        Arguments of the model, all rows or some.
    weight : Tensor [], optional
        :math:`\beta`, for annealing; default: 1.
    temperature : float
        T. The bound's target is the density to the power 1/T.
    looped : bool
        Evaluate particles one after another, for models that cannot be batched.

    References
    ----------
    Roeder, Wu and Duvenaud (2017), Sticking the landing, NeurIPS.
    """
    bound = PathwiseBound(density, family)
    return mean_over_particles(lambda row: bound(params, row, batch, weight, temperature), noise, looped)


def mean_over_particles(term: Callable[[Tensor], Tensor], noise: Tensor, looped: bool = False) -> Tensor:
    """Return the mean ``[]`` of a function of each particle's noise, given ``noise[K, R]``."""
    return (torch.stack([term(row) for row in noise]) if looped else vmap(term)(noise)).mean()
