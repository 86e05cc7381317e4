"""What every inference method returns: draws of ``theta``, however they came about."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, runtime_checkable

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.covariance import Covariance
from bnnzoo.core.density import LogDensity

__all__ = ["Draws", "FitInfo", "Gaussian", "Mixture", "Posterior"]

DEFAULT_DRAWS = 1000


@dataclass(frozen=True)
class FitInfo:
    """How a posterior came about.

    Attributes
    ----------
    method : str
        Class name of the method.
    sampling : {"mcmc", "iid", "ensemble"}
        What the draws are: correlated draws of a Markov chain, independent ones, or members of an ensemble.
    seed : int
    num_gradients : int
        Gradients of the log density over all observations of the batch, summed over chains.
    seconds : float
        Wall time of the fit.
    complete : bool
        False where the run was interrupted.
    config : mapping
        The method's hyperparameters, ready for JSON.
    sample_stats : mapping of str to Tensor
        One value ``[C, S]`` for each draw, under ArviZ's names.
    fit_stats : mapping of str to Tensor
        Traces ``[C, num_steps]`` of the optimisation: ``elbo`` or ``loss``.
    """

    method: str
    sampling: Literal["mcmc", "iid", "ensemble"]
    seed: int = 0
    num_gradients: int = 0
    seconds: float = 0.0
    complete: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    sample_stats: Mapping[str, Tensor] = field(default_factory=dict)
    fit_stats: Mapping[str, Tensor] = field(default_factory=dict)


@runtime_checkable
class Posterior(Protocol):
    """An approximation of, or draws from, the posterior of ``density`` over ``theta[P]``."""

    @property
    def density(self) -> LogDensity: ...
    @property
    def info(self) -> FitInfo: ...
    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor: ...
    def log_prob(self, theta: Tensor) -> Tensor | None: ...
    def as_guide(self) -> Callable[..., dict[str, Tensor]]: ...


@dataclass(frozen=True)
class Draws:
    """Draws of Markov chains, or members of an ensemble.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    theta : Tensor
        Draws ``[C, S, P]``.
    """

    density: LogDensity
    info: FitInfo
    theta: Tensor

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return ``num_draws`` evenly spaced draws of every chain ``[C, S, P]``, all of them by default.

        Raises
        ------
        ValueError
            If more draws are asked for than there are.
        """
        available = self.theta.shape[1]
        if num_draws is None or num_draws == available:
            return self.theta
        if num_draws > available:
            raise ValueError(f"num_draws={num_draws}, but each chain has {available} draws; fit with a larger num_draws.")
        return self.theta[:, torch.linspace(0, available - 1, num_draws).round().long()]

    def log_prob(self, theta: Tensor) -> None:
        """Return None: the density of a Markov chain's draws is not known."""

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that picks one of the draws at random."""
        flat = self.theta.flatten(0, 1)

        def pick() -> Tensor:
            return flat[int(torch.randint(len(flat), ()))]

        return _guide_of_draws(self.density, pick)


@dataclass(frozen=True)
class Gaussian:
    """A Gaussian over ``theta``: mean-field and full-rank VI, Laplace, SWAG.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    loc : Tensor
        Mean ``[P]``.
    covariance : Covariance
    """

    density: LogDensity
    info: FitInfo
    loc: Tensor
    covariance: Covariance

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        generator = torch.Generator(self.loc.device).manual_seed(self.info.seed if seed is None else seed)
        shape = (1, num_draws or DEFAULT_DRAWS, self.covariance.rank)
        noise = torch.randn(shape, generator=generator, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.covariance.sqrt_matmul(noise)

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the Gaussian."""
        distance = self.covariance.mahalanobis(theta - self.loc)
        return -0.5 * (distance + self.covariance.logdet() + self.covariance.rank * math.log(2 * math.pi))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return the Pyro guide of this Gaussian: an auxiliary site for ``theta`` and a point mass for each latent site.

        Its log density counts the transforms' Jacobians, so that Pyro's ELBO with it is the ELBO of this Gaussian.
        """

        def guide(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
            theta = pyro.sample("_theta", _Vector(self), infer={"is_auxiliary": True})
            return _sample_point_masses(self.density, theta)

        return guide


@dataclass(frozen=True)
class Mixture:
    """Equally weighted posteriors, one a chain: VI restarts, MultiSWAG, mixtures of Laplace approximations.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    components : tuple of Gaussian
    """

    density: LogDensity
    info: FitInfo
    components: tuple[Gaussian, ...]

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return independent draws ``[C, S, P]``, one component a chain."""
        first = self.info.seed if seed is None else seed
        return torch.cat([c.draws(num_draws, first + i) for i, c in enumerate(self.components)])

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the mixture."""
        terms = torch.stack([component.log_prob(theta) for component in self.components])
        return terms.logsumexp(0) - math.log(len(self.components))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that draws from a component picked at random."""

        def pick() -> Tensor:
            component = self.components[int(torch.randint(len(self.components), ()))]
            return component.draws(1, int(torch.randint(2**31, ())))[0, 0]

        return _guide_of_draws(self.density, pick)


class _Vector(dist.TorchDistribution):
    """A :class:`Gaussian` posterior as a Pyro distribution over ``theta[P]``."""

    support = dist.constraints.real_vector
    arg_constraints: dict[str, Any] = {}
    has_rsample = True

    def __init__(self, gaussian: Gaussian) -> None:
        self.gaussian = gaussian
        super().__init__(torch.Size(), gaussian.loc.shape, validate_args=False)

    def rsample(self, sample_shape: torch.Size = torch.Size()) -> Tensor:
        """Return draws ``[*sample_shape, P]``."""
        loc, covariance = self.gaussian.loc, self.gaussian.covariance
        return loc + covariance.sqrt_matmul(torch.randn(*sample_shape, covariance.rank).to(loc))

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``value[..., P]``."""
        return self.gaussian.log_prob(value)

    def expand(self, batch_shape: torch.Size, _instance: Any = None) -> "_Vector":
        """Return this distribution; only the empty batch shape is possible."""
        if torch.Size(batch_shape):
            raise NotImplementedError("The distribution over all latent sites cannot be placed in a plate.")
        return self


def _sample_point_masses(density: LogDensity, theta: Tensor) -> dict[str, Tensor]:
    """Sample every latent site at the value ``theta`` gives it, minus the log-Jacobian of the way there."""
    values = density.constrain(theta)
    for site in density.sites:
        free, value = site.unflatten(theta), values[site.name]
        jacobian = site.transform.inv.log_abs_det_jacobian(value, free)
        log_density = jacobian.sum() if jacobian.ndim else jacobian
        pyro.sample(site.name, dist.Delta(value, log_density=log_density, event_dim=value.ndim))
    return values


def _guide_of_draws(density: LogDensity, pick: Callable[[], Tensor]) -> Callable[..., dict[str, Tensor]]:
    """Return a guide that can be sampled, for ``Predictive``, but whose density is not that of its draws."""

    def guide(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        values = density.constrain(pick())
        return {name: pyro.sample(name, dist.Delta(value, event_dim=value.ndim)) for name, value in values.items()}

    return guide
