"""What every inference method returns: draws of ``theta``, however they came about."""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import pyro
import pyro.distributions as dist
import torch
from torch import Tensor

from bnnzoo.core.covariance import Covariance
from bnnzoo.core.density import LogDensity
from bnnzoo.core.replay import Node, discover
from bnnzoo.core.sites import Site

__all__ = ["Component", "Draws", "FitInfo", "Gaussian", "Mixture", "Posterior", "guide_of", "noise_of_draws"]

DEFAULT_DRAWS = 1000
NO_SHAPE = torch.Size()


@dataclass(frozen=True)
class FitInfo:
    """How a posterior came about: what the method reports, and what :func:`bnnzoo.fit` adds.

    Attributes
    ----------
    sampling : {"mcmc", "iid", "ensemble"}
        What the draws are: correlated draws of a Markov chain, independent ones, or members of an ensemble.
    num_gradients : int
        Gradients of the log density over all observations of the batch, summed over chains.
    complete : bool
        False where the run was interrupted.
    config : mapping
        The method's hyperparameters, ready for JSON; a method reports those that it chose itself, ``fit`` adds the others.
    sample_stats : mapping of str to Tensor
        One value ``[C, S]`` for each draw, under ArviZ's names.
    fit_stats : mapping of str to Tensor
        Traces ``[C, num_steps]`` of the optimisation: ``elbo`` or ``loss``.
    method : str
        Class name of the method. Added by ``fit``, as are the next two.
    seed : int
    seconds : float
        Wall time of the fit.
    """

    sampling: Literal["mcmc", "iid", "ensemble"]
    num_gradients: int = 0
    complete: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    sample_stats: Mapping[str, Tensor] = field(default_factory=dict)
    fit_stats: Mapping[str, Tensor] = field(default_factory=dict)
    method: str = ""
    seed: int = 0
    seconds: float = 0.0


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
            raise ValueError(
                f"num_draws={num_draws}, but each chain has {available} draws; fit with a larger num_draws."
            )
        return self.theta[:, torch.linspace(0, available - 1, num_draws).round().long()]

    def log_prob(self, theta: Tensor) -> None:
        """Return None: the density of a Markov chain's draws is not known."""

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that picks a draw at random, for ``Predictive``; its log density counts as 0."""
        flat = self.theta.flatten(0, 1)

        def sample(shape: torch.Size) -> Tensor:
            return flat[torch.randint(len(flat), shape, device=flat.device)]

        return guide_of(self.density, sample, lambda theta: theta.new_zeros(theta.shape[:-1]))


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
    linearize_at : Tensor, optional
        Where ``[P]`` the model's outputs are linearised for prediction: the mode, if the curvature is Gauss-Newton's. None
        where the Gaussian approximates the posterior of the model itself.
    """

    density: LogDensity
    info: FitInfo
    loc: Tensor
    covariance: Covariance
    linearize_at: Tensor | None = None

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        noise = noise_of_draws(self.loc, self.covariance.rank, num_draws, self.info.seed if seed is None else seed)
        return self.loc + self.covariance.sqrt_matmul(noise)

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the Gaussian."""
        distance = self.covariance.mahalanobis(theta - self.loc)
        return -0.5 * (distance + self.covariance.logdet() + self.covariance.rank * math.log(2 * math.pi))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return this Gaussian as a Pyro guide: an auxiliary site for ``theta``, a point mass for each latent site.

        Its log density counts the transforms' Jacobians, so that Pyro's ELBO with it is the ELBO of this Gaussian.
        """

        return guide_of(self.density, self.sample, self.log_prob)

    def sample(self, shape: torch.Size) -> Tensor:
        """Return draws ``[*shape, P]``, using torch's global random stream."""
        noise = torch.randn(*shape, self.covariance.rank, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.covariance.sqrt_matmul(noise)


@runtime_checkable
class Component(Posterior, Protocol):
    """What a mixture is made of: a posterior that has a density."""

    def log_prob(self, theta: Tensor) -> Tensor: ...
    def sample(self, shape: torch.Size) -> Tensor: ...


@dataclass(frozen=True)
class Mixture:
    """Equally weighted posteriors, one a chain: VI restarts, MultiSWAG, mixtures of Laplace approximations.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    components : tuple of Component
    """

    density: LogDensity
    info: FitInfo
    components: tuple[Component, ...]

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return independent draws ``[C, S, P]``, one component a chain."""
        first = self.info.seed if seed is None else seed
        return torch.cat([c.draws(num_draws, first + i) for i, c in enumerate(self.components)])

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the mixture."""
        terms = torch.stack([component.log_prob(theta) for component in self.components])
        return terms.logsumexp(0) - math.log(len(self.components))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return the Pyro guide of this mixture; see :meth:`Gaussian.as_guide`."""

        def sample(shape: torch.Size) -> Tensor:
            each = torch.stack([component.sample(shape) for component in self.components])
            picked = torch.randint(len(self.components), (1, *shape, 1), device=each.device)
            return each.take_along_dim(picked.expand(1, *each.shape[1:]), 0)[0]

        return guide_of(self.density, sample, self.log_prob)


class _Vector(dist.TorchDistribution):
    """A distribution over ``theta[P]``, given by a function that samples and one that is its log density."""

    support = dist.constraints.real_vector
    arg_constraints: ClassVar[dict[str, Any]] = {}
    has_rsample = True

    def __init__(
        self,
        sample: Callable[[torch.Size], Tensor],
        log_prob: Callable[[Tensor], Tensor],
        num_params: int,
        batch_shape: torch.Size = NO_SHAPE,
    ) -> None:
        self._sample, self._log_prob = sample, log_prob
        super().__init__(batch_shape, torch.Size([num_params]), validate_args=False)

    def rsample(self, sample_shape: Sequence[int] = NO_SHAPE) -> Tensor:
        """Return draws ``[*sample_shape, *batch_shape, P]``."""
        return self._sample(torch.Size(sample_shape) + self.batch_shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``value[..., P]``."""
        return self._log_prob(value)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> "_Vector":
        """Return independent copies, as plates over particles ask for."""
        return _Vector(self._sample, self._log_prob, self.event_shape[0], torch.Size(batch_shape))


def noise_of_draws(like: Tensor, size: int, num_draws: int | None, seed: int) -> Tensor:
    """Return standard normal numbers ``[1, S, size]`` of the type of ``like``, the same for the same seed."""
    generator = torch.Generator(like.device).manual_seed(seed)
    shape = (1, num_draws or DEFAULT_DRAWS, size)
    return torch.randn(shape, generator=generator, dtype=like.dtype, device=like.device)


def guide_of(
    density: LogDensity, sample: Callable[[torch.Size], Tensor], log_prob: Callable[[Tensor], Tensor]
) -> Callable[..., dict[str, Tensor]]:
    """Return a Pyro guide: an auxiliary site for ``theta`` and, in the model's plates, a point mass for each site."""
    nodes = discover(density.model, density.data, density.device)

    def guide(*args: Any, **kwargs: Any) -> dict[str, Tensor]:
        theta = pyro.sample("_theta", _Vector(sample, log_prob, density.num_params), infer={"is_auxiliary": True})
        return {site.name: _sample_point_mass(site, nodes[site.name], theta) for site in density.sites}

    return guide


def _sample_point_mass(site: Site, node: Node, theta: Tensor) -> Tensor:
    """Sample a latent site at the value ``theta[..., P]`` gives it, minus the log-Jacobian of the way there.

    Plates around the whole guide, such as one over particles, have put their dimensions in front of ``theta``'s last;
    those of the site's own plates are among them, with size 1, or still to come.
    """
    event_dim = node["fn"].event_dim
    free_event_dim = event_dim + len(site.unconstrained_shape) - len(site.shape)
    lead = theta.shape[:-1] + (1,) * free_event_dim
    free = theta[..., site.span].reshape(torch.broadcast_shapes(site.unconstrained_shape, lead))
    value = site.transform(free)
    jacobian = site.transform.inv.log_abs_det_jacobian(value, free)
    event_dims = tuple(range(value.ndim - event_dim, jacobian.ndim))
    log_density = jacobian.sum(event_dims) if event_dims else jacobian
    with ExitStack() as stack:
        for frame in node["cond_indep_stack"]:
            if frame.vectorized:
                stack.enter_context(pyro.plate(frame.name, frame.size, dim=frame.dim))
        drawn: Tensor = pyro.sample(site.name, dist.Delta(value, log_density=log_density, event_dim=event_dim))
    return drawn
