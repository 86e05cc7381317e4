"""Laplace approximation of a hierarchical model: the marginal posterior of its hyperparameters, and the rest given them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.method import Declared, FitContext, Method, Need, starting_at
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.hierarchy import has_weights
from bnnzoo.core.parameters.selection import index_of_sites
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.core.settings import Count, Positive
from bnnzoo.inference.laplace.family import LaplaceMethod, refuse_other_methods
from bnnzoo.inference.laplace.hyperparameter_marginal import (
    MAX_FITS,
    TOLERANCE,
    HyperparameterMarginal,
    default_sites,
    integrated_sites,
    marginal_mode,
)
from bnnzoo.inference.laplace.integration import MAX_INTEGRATED, MAX_OTHERS, integrated
from bnnzoo.inference.laplace.laplace import Laplace

__all__ = ["HierarchicalLaplace"]

MAX_HYPERPARAMETERS = 50  # for a search without gradients


@dataclass(frozen=True)
class HierarchicalLaplace(Declared):
    r"""Laplace approximation given the hyperparameters, which are integrated over or set to the mode of their marginal posterior.

    .. math:: \hat p(\phi \mid y) \propto p(\phi) \, \hat p(y \mid \phi), \qquad
        q(\phi, w) = \sum_i \omega_i \, N(\phi; \phi_i, K_i) \, \hat p(w \mid y, \phi)

    with the Laplace estimate of the evidence. The joint mode of weights and prior scale is no substitute: the joint
    density of a centred model is unbounded towards scale zero (no useful mode). Hyperparameters are unconstrained here
    as everywhere, so :math:`p(\phi)` includes the Jacobian. The search for the mode of the marginal uses no gradients: each step
    finds the mode of the weights, starting from the best one so far, and the curvature there. Around that mode the marginal is
    integrated: points :math:`\phi_i` on a grid along the axes of its curvature, or quasi-random from four dimensions on, each
    with the mode and the curvature of the weights found anew, and their means corrected for skewness. The posterior is a mixture.

    Parameters
    ----------
    laplace : Laplace, LowRankLaplace, DiagonalLaplace, KFACLaplace, LastLayerLaplace or SubsetLaplace
        Any Laplace approximation, for all sites that are not hyperparameters. Its ``map`` finds the first mode.
    hyperparameters : sequence of str, optional
        Names of latent sites; a name that ends in ``*`` stands for all sites that start like it. Default: every site on
        which the prior of another site depends, a location that only moves it left out, and in models without networks
        every site that only matters through others, as the scale of a non-centred effect. Where they are integrated over,
        scales of noise and other sites of bounded support, too, if that makes six numbers or fewer.
    integrate : bool, optional
        Integrate over the hyperparameters; False sets them to the mode, so that their uncertainty is ignored and the posterior is
        one Gaussian. Default: integrate for models without networks, under ``laplace=Laplace()`` with the exact Hessian, six
        numbers or fewer, and 500 other parameters or fewer.
    tolerance : float
        Absolute tolerance of the hyperparameters in unconstrained space: the search stops when its steps are shorter.
    max_fits : int
        Largest number of fits.

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4. Rue, Martino and Chopin (2009), Approximate Bayesian
    inference for latent Gaussian models by using integrated nested Laplace approximations, JRSS B 71. van Niekerk and Rue
    (2024), Low-rank variational Bayes correction to the Laplace method, JMLR 25. Ragonneau and Zhang (2024), COBYQA (the search).

    Examples
    --------
    >>> import bnnzoo as bz
    >>> x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> model = bz.models.supervised(net, bz.priors.layerwise(), bz.likelihoods.gaussian(scale=0.1))
    >>> method = HierarchicalLaplace(bz.Laplace(bz.MAP(num_steps=20)), tolerance=1.0)
    >>> posterior = bz.fit(model, method, x, 3 * x[:, 0])
    >>> bool(posterior.density.constrain(posterior.loc)["net.weight.scale"] > 1)
    True
    """

    laplace: Method = field(default_factory=Laplace)
    hyperparameters: Sequence[str] | None = None
    integrate: bool | None = None
    tolerance: Positive = TOLERANCE
    max_fits: Count = MAX_FITS

    needs: ClassVar[frozenset[Need]] = frozenset()
    stages: ClassVar[tuple[str, ...]] = ("laplace",)

    def starting_at(self, theta: Tensor, *, keep: bool) -> "HierarchicalLaplace":
        """Return the approximation with one Gaussian only, from ``theta[P]``."""
        return replace(self, laplace=starting_at(self.laplace, theta, keep=keep), integrate=False)

    def run(self, density: LogDensity, context: FitContext) -> Gaussian | Mixture:
        """Search the hyperparameters, approximate the rest given them, and integrate; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a site does not exist, no other site is left, or there are too many hyperparameters.
        LaplaceError
            If there is no Laplace approximation at the start of the search.
        ValueError
            If ``laplace`` is not a Laplace method, or ``integrate=True`` is not possible.

        Warns
        -----
        TooNarrowWarning
            If the hyperparameters of a model without a network are left at their mode.
        """
        laplace = refuse_other_methods(self.laplace, "HierarchicalLaplace(laplace={})")
        names = self._names(laplace, density)
        index = index_of_sites(names, density, "hyperparameters") if names else torch.arange(0, device=density.device)
        searched = [s.name for s in density.sites if bool((index == s.span.start).any())]
        if len(index) == density.num_params:
            raise ModelError(
                f"hyperparameters= names every latent site ({', '.join(searched)}); leave out those to approximate."
            )
        if len(index) > MAX_HYPERPARAMETERS:
            raise ModelError(
                f"HierarchicalLaplace searches {MAX_HYPERPARAMETERS} hyperparameters or fewer, and {', '.join(searched)} have "
                f"{len(index)}. Name some of them, hyperparameters=(...,); the others are then approximated."
            )
        others = density.num_params - len(index)
        if not _is_exact(laplace, density):
            obstacle = "it takes laplace=Laplace() with the exact Hessian, and a model without a network"
        elif len(index) > MAX_INTEGRATED:
            obstacle = f"it takes {MAX_INTEGRATED} hyperparameters or fewer, and there are {len(index)}"
        else:
            obstacle = (
                f"it takes {MAX_OTHERS} other parameters or fewer, and there are {others}"
                if others > MAX_OTHERS
                else ""
            )
        if self.integrate and obstacle:
            raise ValueError(f"HierarchicalLaplace(integrate=True): {obstacle}. Leave integrate out, or write NUTS().")
        marginal = HyperparameterMarginal(laplace, density, context, index)
        best = marginal_mode(marginal, self.tolerance, self.max_fits)
        found = None
        if len(index) and self.integrate is not False and not obstacle:
            assert isinstance(laplace, Laplace)
            found = integrated(density, best, index, marginal.others, laplace.damping)
            obstacle = "their marginal posterior has no peak"
        if found is None and len(index) and self.integrate is None and not has_weights(density):
            warnings.warn(
                f"{', '.join(map(repr, searched))} are set to their mode and have no spread, since integration over them is "
                f"not possible: {obstacle}. Write integrate=False to accept this, name fewer with hyperparameters=(...,), or "
                f"use NUTS().",
                TooNarrowWarning,
                stacklevel=2,
            )
        return best if found is None else found

    def _names(self, laplace: LaplaceMethod, density: LogDensity) -> Sequence[str]:
        if self.hyperparameters is not None:
            return self.hyperparameters
        is_integrated = self.integrate is not False and _is_exact(laplace, density)
        return (integrated_sites(density) if is_integrated else ()) or default_sites(density)


def _is_exact(laplace: LaplaceMethod, density: LogDensity) -> bool:
    return isinstance(laplace, Laplace) and laplace.curvature in (None, "hessian") and not has_weights(density)
