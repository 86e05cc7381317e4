"""Laplace approximations over some of the parameters, with the remaining ones fixed at the mode."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from torch import Tensor

from bnnzoo.core.method import FitContext, Need
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.selection import index_of_sites, last_layer_index
from bnnzoo.core.posterior.posterior import Gaussian
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.curvature import choose_curvature
from bnnzoo.inference.laplace.dense import DenseSettings, dense_posterior, refuse_too_large
from bnnzoo.inference.laplace.family import (
    best_approximation,
    find_modes,
    refuse_reparametrised,
)

__all__ = ["LastLayerLaplace", "SubsetLaplace"]


@dataclass(frozen=True)
class SubsetLaplace(DenseSettings):
    """Laplace approximation over chosen latent sites; the remaining ones are fixed at the mode.

    Its precision is the block of the full precision that belongs to those sites: the posterior conditional on all
    other parameters. Its evidence is that of the model in which they are known.

    Parameters
    ----------
    sites : sequence of str
        Names of latent sites; a name that ends in ``*`` stands for all sites that start like it, ``"net.4.*"``.
    map, curvature, damping, max_bytes
        As for :class:`bnnzoo.inference.Laplace`.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, SubsetLaplace(sites=("w",)), *target.data)
    >>> bool(torch.allclose(posterior.covariance.dense(), target.covariance))
    True
    """

    sites: Sequence[str] = ("*",)
    map: MAP = field(default_factory=MAP)

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the curvature of the chosen sites there; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a site does not exist.
        LaplaceError
            If the matrix does not fit into memory or is not positive definite.
        """
        return _laplace_over(self, index_of_sites(self.sites, density), density, context)


@dataclass(frozen=True)
class LastLayerLaplace(DenseSettings):
    """Laplace approximation over the last layer of a network and all sites that are not weights, such as the noise scale.

    The earlier layers are fixed at the mode. The network is then linear in what varies, and the linearised predictive
    is exact for it, unless a nonlinearity follows the last layer.

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
    >>> import torch
    >>> import bnnzoo as bz
    >>> x, y = torch.randn(20, 2), torch.randn(20)
    >>> model = bz.models.supervised(bz.models.mlp(2), bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=0.5))
    >>> posterior = bz.fit(model, LastLayerLaplace(), x, y)
    >>> posterior.covariance.rank < posterior.density.num_params
    True
    """

    map: MAP = field(default_factory=MAP)

    needs: ClassVar[frozenset[Need]] = frozenset({Need.NETWORK})

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Find the mode and the curvature of the last layer there; see :func:`bnnzoo.fit`.

        Raises
        ------
        LaplaceError
            If the matrix does not fit into memory or is not positive definite.
        """
        refuse_reparametrised(density, "LastLayerLaplace")
        return _laplace_over(self, last_layer_index(density), density, context)


def _laplace_over(
    method: SubsetLaplace | LastLayerLaplace, index: Tensor, density: LogDensity, context: FitContext
) -> Gaussian:
    """Return the Laplace approximation over the entries ``index[R]`` of theta."""
    refuse_too_large(len(index), density.dtype, method.max_bytes)
    modes = find_modes(method, density, context)
    curvature = choose_curvature(method.curvature, density, modes[0].theta, is_exact=True)
    return best_approximation(modes, lambda mode: dense_posterior(method, density, mode, curvature, index))[1]
