"""Posteriors as every inference method returns them: draws of ``theta``, or a distribution from which they are drawn."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.covariance import Covariance
from bnnzoo.core.posterior.guides import guide_of
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.mixing import mixing
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.program.seeds import word_of
from bnnzoo.core.types import Whole

__all__ = [
    "NUMBERS_AT_ONCE",
    "Component",
    "Draws",
    "Gaussian",
    "Mixture",
    "Posterior",
    "noise_of_draws",
]

DEFAULT_DRAWS = 1000
MAX_ENTRIES = 500
"""Parameters whose chains are compared to describe a posterior, evenly spaced."""
MAX_SHOWN = 1e4

MANY_NUMBERS, NUMBERS_AT_ONCE = 2**22, 2**18
"""Numbers beyond which draws are made some at a time, and of how many: several copies are held of what is computed on the way."""


@runtime_checkable
class Posterior(Protocol):
    """An approximation of, or draws from, the posterior of ``density`` over ``theta[P]``."""

    @property
    def density(self) -> LogDensity: ...
    @property
    def info(self) -> FitInfo: ...
    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor: ...
    def log_prob(self, theta: Tensor) -> Tensor | None: ...
    def as_guide(self) -> Callable[..., dict[str, Tensor]]: ...
    def save(self, path: str | Path) -> None: ...


@dataclass(frozen=True, repr=False)
class Draws(StoredPosterior):
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

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
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

    def followed_by(self, more: "Draws") -> "Draws":
        """Return the draws of this run and then those of one that went on from it, chain by chain.

        Parameters
        ----------
        more : Draws
            From the same method with ``num_warmup=0`` and ``init=`` this posterior.

        Raises
        ------
        ValueError
            If it has other parameters or another number of chains.

        Examples
        --------
        >>> import bnnzoo as bz
        >>> from bnnzoo.testing import linear_gaussian
        >>> target = linear_gaussian()
        >>> run = bz.fit(target.model, bz.HMC(num_warmup=50, num_draws=50), *target.data)
        >>> more = bz.fit(target.model, bz.HMC(num_warmup=0, num_draws=100, init=run), *target.data)
        >>> run.followed_by(more).draws().shape
        torch.Size([4, 150, 3])
        """
        ours, theirs = self.theta.shape, more.theta.shape
        if (ours[0], ours[2]) != (theirs[0], theirs[2]):
            raise ValueError(
                f"followed_by joins runs of the same chains: this one has {ours[0]} chains of {ours[2]} parameters, the other "
                f"{theirs[0]} of {theirs[2]}."
            )
        return Draws(self.density, self.info.followed_by(more.info), torch.cat([self.theta, more.theta], 1))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return a Pyro guide that picks a draw at random, for ``Predictive``; its log density counts as 0."""
        flat = self.theta.flatten(0, 1)

        def sample(shape: torch.Size) -> Tensor:
            return flat[torch.randint(len(flat), shape, device=flat.device)]

        return guide_of(self.density, sample, lambda theta: theta.new_zeros(theta.shape[:-1]))

    def _summary(self) -> list[str]:
        chains, draws = self.theta.shape[:2]
        diverging = self.info.sample_stats.get("diverging")
        divergences = 0 if diverging is None else int(diverging.sum())
        return [
            f"{chains} chain{'s' if chains != 1 else ''} x {draws} draw{'s' if draws != 1 else ''}",
            *([f"{divergences} divergence{'s' if divergences != 1 else ''}"] if divergences else []),
            *self._mixed(),
        ]

    def _mixed(self) -> list[str]:
        """Return the worst R-hat and the fewest effective draws of the sites that are no weights."""
        sites = [site for site in self.density.sites if not site.is_weight]
        if self.info.sampling != "mcmc" or not sites:
            return []
        values = torch.cat([self.theta[..., site.span] for site in sites], -1)
        superchains = self.info.num_superchains(len(values))
        found = mixing(values[..., :: -(-values.shape[-1] // MAX_ENTRIES)], superchains)
        rhat, ess = float(found.rhat.nan_to_num(0.0).max()), float(found.ess.nan_to_num(math.inf).min())
        return [
            *([f"R-hat {rhat:.2f}" if rhat < MAX_SHOWN else "R-hat without bound"] if rhat else []),
            *([f"ESS {ess:.0f}"] if math.isfinite(ess) else []),
        ]


@dataclass(frozen=True, repr=False)
class Gaussian(StoredPosterior):
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

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        noise = noise_of_draws(self.loc, self.covariance.rank, num_draws, self.info.seed if seed is None else seed)
        if noise.numel() <= MANY_NUMBERS or noise.shape[-1] != len(self.loc):
            return self.loc + self.covariance.sqrt_matmul(noise)
        # the draws take the place of the noise: there is one copy
        for part in noise.split(max(1, NUMBERS_AT_ONCE // len(self.loc)), 1):
            part.copy_(self.loc + self.covariance.sqrt_matmul(part))
        return noise

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the Gaussian."""
        distance = self.covariance.mahalanobis(theta - self.loc)
        return -0.5 * (distance + self.covariance.logdet() + self.covariance.rank * math.log(2 * math.pi))

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return this Gaussian as a Pyro guide: an auxiliary site for ``theta``, a point mass for each latent site.

        Its log density includes the transforms' Jacobians, so that Pyro's ELBO with it is the ELBO of this Gaussian.
        """

        return guide_of(self.density, self.sample, self.log_prob)

    def sample(self, shape: torch.Size) -> Tensor:
        """Return draws ``[*shape, P]``, using torch's global random stream."""
        noise = torch.randn(*shape, self.covariance.rank, dtype=self.loc.dtype, device=self.loc.device)
        return self.loc + self.covariance.sqrt_matmul(noise)

    def _summary(self) -> list[str]:
        return [f"{type(self.covariance).__name__} covariance"]


@runtime_checkable
class Component(Posterior, Protocol):
    """What a mixture is made of: a posterior from which Pyro can draw."""

    def sample(self, shape: torch.Size) -> Tensor: ...


@dataclass(frozen=True, repr=False)
class Mixture(StoredPosterior):
    """A weighted mixture of posteriors: VI restarts, MultiSWAG, mixtures of Laplace approximations.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    components : tuple of Component
    log_weights : Tensor, optional
        Logarithms ``[C]`` of the components' weights, up to a constant. Default: equal weights.
    """

    density: LogDensity
    info: FitInfo
    components: tuple[Component, ...]
    log_weights: Tensor | None = None

    def __post_init__(self) -> None:
        if self.log_weights is not None:
            count = len(self.components)
            if self.log_weights.shape != (count,):
                raise ValueError(
                    f"Mixture(log_weights=...) has shape {tuple(self.log_weights.shape)}, but there are {count} components: "
                    f"write one log weight for each."
                )
            if bool(self.log_weights.isnan().any()) or not bool(self.log_weights.max().isfinite()):
                raise ValueError(
                    f"Mixture(log_weights={self.log_weights.tolist()}): write finite numbers, or -inf for a component "
                    "of no weight."
                )

    @property
    def weights(self) -> Tensor:
        """Weights ``[C]`` of the components, which sum to one."""
        like = torch.zeros(len(self.components), dtype=self.density.dtype, device=self.density.device)
        return (like if self.log_weights is None else self.log_weights.to(like)).softmax(0)

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return independent, equally weighted draws of ``theta``; the same for the same seed.

        With equal weights they are ``[C, S, P]``, one component in each chain. With others they are one chain ``[1, S, P]``,
        in which :meth:`members` says which component each draw comes from: whatever averages over draws then averages over the
        mixture.
        """
        first = self.info.seed if seed is None else seed
        if self._is_equal:
            return torch.cat([c.draws(num_draws, first + i) for i, c in enumerate(self.components)])
        (members,) = self.members(num_draws, seed)
        found = [c.draws(max(1, int((members == i).sum())), first + i)[0] for i, c in enumerate(self.components)]
        theta = torch.empty(len(members), self.density.num_params).to(found[0])
        for i, rows in enumerate(found):
            theta[members == i] = rows[: int((members == i).sum())]
        return theta[None]

    def members(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        r"""Return the number ``[C, S]`` of the component from which each of :meth:`draws` comes.

        Components of unequal weight get numbers of draws by systematic resampling, :math:`S w_c` rounded up or down, in an
        order drawn at random, so that autocorrelations and tests of convergence see independent draws.

        References
        ----------
        Kitagawa (1996), Monte Carlo filter and smoother for non-Gaussian nonlinear state space models, Journal of
        Computational and Graphical Statistics 5.
        """
        num_draws, count = num_draws or DEFAULT_DRAWS, len(self.components)
        if self._is_equal:
            return torch.arange(count)[:, None].expand(count, num_draws)
        generator = torch.Generator().manual_seed(word_of(self.info.seed if seed is None else seed) + count)
        offset = torch.rand((), generator=generator, dtype=torch.float64)
        bounds = self.weights.cpu().double().cumsum(0)
        places = (torch.arange(num_draws, device=bounds.device) + offset) / num_draws * bounds[-1]
        members = torch.searchsorted(bounds, places, right=True).clamp(max=count - 1)
        return members[torch.randperm(num_draws, generator=generator)][None]

    def log_prob(self, theta: Tensor) -> Tensor | None:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the mixture; None if a component has none."""
        densities = [component.log_prob(theta) for component in self.components]
        if any(each is None for each in densities):
            return None
        terms = torch.stack([each for each in densities if each is not None])
        if self._is_equal:
            return terms.logsumexp(0) - math.log(len(self.components))
        log_weights = self.weights.log().reshape(-1, *(1 for _ in terms.shape[1:]))
        return (terms + log_weights).logsumexp(0)

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return the Pyro guide of this mixture; see :meth:`Gaussian.as_guide`."""

        def sample(shape: torch.Size) -> Tensor:
            each = torch.stack([component.sample(shape) for component in self.components])
            picked = self._picked(shape).to(each.device)[None, ..., None]
            return each.take_along_dim(picked.expand(1, *each.shape[1:]), 0)[0]

        def log_prob(theta: Tensor) -> Tensor:
            found = self.log_prob(theta)
            return theta.new_zeros(theta.shape[:-1]) if found is None else found

        return guide_of(self.density, sample, log_prob)

    def _picked(self, shape: torch.Size) -> Tensor:
        """Return components ``[*shape]`` picked at random, using torch's global random stream."""
        if self._is_equal:
            return torch.randint(len(self.components), shape, device=self.density.device)
        return self.weights.multinomial(shape.numel(), replacement=True).reshape(shape)

    @property
    def _is_equal(self) -> bool:
        return self.log_weights is None or bool((self.log_weights == self.log_weights[0]).all())

    def _summary(self) -> list[str]:
        count = len(self.components)
        kind = type(self.components[0]).__name__ if count else "no"
        return [f"{count} {kind} component{'s' if count != 1 else ''}"]


def noise_of_draws(like: Tensor, size: int, num_draws: int | None, seed: Whole) -> Tensor:
    """Return standard normal numbers ``[1, S, size]`` of the type of ``like``, the same for the same seed on every device."""
    generator = torch.Generator().manual_seed(word_of(seed))
    shape = (1, num_draws or DEFAULT_DRAWS, size)
    return torch.randn(shape, generator=generator, dtype=like.dtype).to(like.device)
