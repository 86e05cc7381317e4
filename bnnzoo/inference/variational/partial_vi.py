"""Variational inference over some of the parameters, with all others fixed where another method puts them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

from torch import Tensor

from bnnzoo.core.method import Declared, FitContext, Method, Need, all_rows_read_by
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.selection import index_of_sites, last_layer_index
from bnnzoo.core.posterior.covariance import Covariance, Embedded
from bnnzoo.core.posterior.posterior import Gaussian, Mixture, Posterior
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.variational.elbo import GaussianFamily, PathwiseBound
from bnnzoo.inference.variational.fit_family import GaussianVI, fit_gaussian
from bnnzoo.inference.variational.mean_field_vi import MeanFieldVI

__all__ = ["LastLayerVI", "PartlyFixed", "SubsetVI"]


@dataclass(frozen=True)
class PartlyFixed:
    """A family over the entries ``index[R]`` of ``theta[P]``; the others stay at ``point[P]``."""

    inner: GaussianFamily
    index: Tensor
    point: Tensor

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return the parameters with the means ``loc[P]``, as far as they vary, and one standard deviation."""
        return self.inner.start(loc[self.index], scale)

    def noise_size(self, num_params: int) -> int:
        """Return the number of standard normal numbers a draw takes."""
        return self.inner.noise_size(len(self.index))

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for the inner family's noise."""
        return self.point.index_copy(0, self.index, self.inner.draw(params, noise))

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of the entries of ``theta[P]`` that vary."""
        return self.inner.log_prob(params, theta[self.index])

    def gaussian(self, params: Tensor) -> tuple[Tensor, Covariance]:
        """Return mean ``[P]`` and covariance, zero where nothing varies."""
        loc, covariance = self.inner.gaussian(params)
        embedded = Embedded(covariance, self.index, self.point.numel())
        return self.point.index_copy(0, self.index, loc), embedded


class PartialVI(Declared):
    """Methods that fit another method first, and then approximate the posterior of some parameters given the others."""

    below: Method
    vi: Method
    stages: ClassVar[tuple[str, ...]] = ("below", "vi")

    def reads_all_rows(self) -> str | None:
        """Return what to write so that both methods look at mini-batches only; None if they do."""
        return all_rows_read_by(self.below, self.vi)

    def starting_at(self, theta: Tensor, *, keep: bool) -> "PartialVI":
        """Return the method with ``theta[P]`` for the mode below."""
        below = MAP(init=theta[None], num_steps=0, polish_steps=0)
        return replace(self, below=below)  # type: ignore[type-var]  # methods are dataclasses


@dataclass(frozen=True)
class SubsetVI(PartialVI):
    """Variational inference over chosen latent sites; the others are fixed where another method puts them.

    It approximates the posterior given all other parameters.

    Parameters
    ----------
    sites : sequence of str
        Names of latent sites; a name ending in ``*`` matches every name with that prefix, ``"net.4.*"``.
    below : Method
        Fitted first: the mean of a Gaussian, else the draw or member with the highest density.
    vi : MeanFieldVI, LowRankVI or FullRankVI
        It starts where ``below`` ends.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, SubsetVI(sites=("w",), vi=bz.MeanFieldVI(num_steps=50)), *target.data)
    >>> posterior.covariance.rank
    3
    """

    sites: Sequence[str] = ("*",)
    below: Method = field(default_factory=MAP)
    vi: Method = field(default_factory=MeanFieldVI)

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Fit the method below, then the chosen sites; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a site does not exist.
        ValueError
            If ``vi`` is not a Gaussian variational method, or has a start of its own.
        """
        return vi_over(self, index_of_sites(self.sites, density), density, context)


@dataclass(frozen=True)
class LastLayerVI(PartialVI):
    """Variational inference over the last layer of a network and all parameters that are not weights, such as the noise scale.

    The earlier layers are fixed where another method puts them: a deterministic network with a Bayesian last layer.

    Parameters
    ----------
    below, vi
        As for :class:`bnnzoo.inference.SubsetVI`.

    References
    ----------
    Harrison, Willes and Snoek (2024), Variational Bayesian last layers, ICLR.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> x, y = torch.randn(20, 2), torch.randn(20)
    >>> model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.5))
    >>> posterior = bz.fit(model, LastLayerVI(bz.MAP(num_steps=50), bz.FullRankVI(num_steps=50)), x, y)
    >>> posterior.covariance.rank < posterior.density.num_params
    True
    """

    below: Method = field(default_factory=MAP)
    vi: Method = field(default_factory=MeanFieldVI)

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Fit the method below, then the last layer; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If ``vi`` is not a Gaussian variational method, or has a start of its own.
        """
        return vi_over(self, last_layer_index(density), density, context)


def vi_over(
    method: SubsetVI | LastLayerVI, index: Tensor, density: LogDensity, context: FitContext
) -> Gaussian | Mixture:
    """Return the Gaussian approximation over the entries ``index[R]`` of theta, given the others."""
    vi = _gaussian_vi(method, density)
    found = method.below.run(density, context)
    if not found.info.complete:
        raise KeyboardInterrupt(
            f"{type(method).__name__} was interrupted before the weights that it holds fixed were found."
        )
    point = _point(found, density)
    family = PartlyFixed(vi.family(len(index)), index, point)
    posterior = fit_gaussian(replace(vi, init=point.repeat(vi.num_restarts, 1)), family, density, context)
    info = replace(
        posterior.info,
        num_gradients=found.info.num_gradients + posterior.info.num_gradients,
    )
    if isinstance(posterior, Gaussian):
        return replace(posterior, info=info)
    components = (c for c in posterior.components if isinstance(c, Gaussian))
    return Mixture(density, info, tuple(replace(component, info=info) for component in components))


def _point(found: Posterior, density: LogDensity) -> Tensor:
    """Return where a fit puts theta ``[P]``: a Gaussian's mean, else the draw or member with the highest density."""
    if isinstance(found, Gaussian):
        return found.loc
    theta = found.draws().flatten(0, 1)
    known = found.info.sample_stats.get("lp")
    is_known = known is not None and known.numel() == len(theta)
    value = known.flatten() if known is not None and is_known else density.value_and_grad(theta, *density.data)[0]
    return theta[value.argmax()]


def _gaussian_vi(method: SubsetVI | LastLayerVI, density: LogDensity) -> GaussianVI:
    """Return the method on top, if its family and its bound can be restricted to some entries of theta."""
    name, vi = type(method).__name__, method.vi
    if not isinstance(vi, GaussianVI):
        raise ValueError(f"{name}(vi={type(vi).__name__}()): write MeanFieldVI(), LowRankVI() or FullRankVI().")
    if vi.init is not None:
        raise ValueError(f"{name} starts where the method below ends: leave init out of {type(vi).__name__}.")
    if not isinstance(vi.bound(density, vi.family(density.num_params)), PathwiseBound):
        raise ValueError(f"{name} draws its weights once for all rows: leave estimator and closed_form_kl out.")
    return vi
