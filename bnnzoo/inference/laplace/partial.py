"""Laplace approximations over some of the parameters, with all others fixed at the mode."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from bnnzoo.core.covariance import Dense, Embedded
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.posterior import Gaussian
from bnnzoo.core.selection import index_of_sites, last_layer_index
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import Curvature, choose_curvature, precision
from bnnzoo.inference.laplace.laplace import (
    best_member,
    damped,
    laplace_posterior,
    positive_definite_scale_tril,
    refuse_reparametrised,
    refuse_too_large,
)

__all__ = ["LastLayerLaplace", "SubsetLaplace"]


@dataclass(frozen=True)
class SubsetLaplace:
    """Laplace approximation over chosen latent sites; the others are fixed at the mode.

    Its precision is the block of the full one that belongs to those sites: a posterior given all other parameters. Its
    evidence is that of the model with the others known.

    Parameters
    ----------
    sites : sequence of str
        Names of latent sites; a name ending in ``*`` means all that begin like it, ``"net.4.*"``.
    map, curvature, damping, max_bytes
        As for :class:`bnnzoo.inference.Laplace`.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, SubsetLaplace(sites=("w",)), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance))
    True
    """

    sites: Sequence[str] = ("*",)
    map: MAP = field(default_factory=MAP)
    curvature: Curvature | None = None
    damping: float = 0.0
    max_bytes: float | None = None

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the curvature of the chosen sites there; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a site does not exist.
        LaplaceError
            If the matrix would not fit into memory, or is not positive definite.
        """
        return laplace_over(self, index_of_sites(self.sites, density), density, context)


@dataclass(frozen=True)
class LastLayerLaplace:
    """Laplace approximation over the last layer of a network and whatever is no weight, such as the noise scale.

    The layers before are fixed at the mode, so the network is linear in what varies and the linearised predictive is
    the network itself, where the last layer has no nonlinearity after it.

    Parameters
    ----------
    map, curvature, damping, max_bytes
        As for :class:`bnnzoo.inference.Laplace`.

    References
    ----------
    Kristiadi, Hein and Hennig (2020), Being Bayesian, even just a bit, fixes overconfidence in ReLU networks, ICML.
    Daxberger et al. (2021), Laplace redux, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> x, y = torch.randn(20, 2), torch.randn(20)
    >>> model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.5))
    >>> posterior = bz.fit(model, LastLayerLaplace(), x, y)
    >>> posterior.covariance.rank < posterior.density.num_params
    True
    """

    map: MAP = field(default_factory=MAP)
    curvature: Curvature | None = None
    damping: float = 0.0
    max_bytes: float | None = None

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the curvature of the last layer there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If the matrix would not fit into memory, or is not positive definite.
        """
        refuse_reparametrised(density, "LastLayerLaplace")
        return laplace_over(self, last_layer_index(density), density, context)


def laplace_over(
    method: SubsetLaplace | LastLayerLaplace, index: Tensor, density: LogDensity, context: FitContext
) -> Gaussian:
    """Return the Laplace approximation over the entries ``index[R]`` of theta."""
    refuse_too_large(len(index), density.dtype, method.max_bytes)
    found = method.map.run(density, context)
    theta, _ = best_member(found)
    curvature = choose_curvature(method.curvature, density)
    matrix = damped(precision(density, theta, curvature, index), method.damping)
    covariance = Embedded(Dense(positive_definite_scale_tril(matrix, curvature)), index, density.num_params)
    return laplace_posterior(density, found, curvature, theta, covariance)
