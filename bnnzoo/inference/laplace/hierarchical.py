"""Laplace approximation of a hierarchical model: the marginal posterior of its hyperparameters, and the rest given them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.covariance import Covariance, Diagonal, Embedded
from bnnzoo.core.density import LogDensity
from bnnzoo.core.fit_warnings import TooNarrowWarning
from bnnzoo.core.hierarchy import given_sites, has_weights, hyperparameter_sites, is_real, multiplying_sites
from bnnzoo.core.method import FitContext, Method, Need
from bnnzoo.core.posterior import Gaussian, Mixture
from bnnzoo.core.selection import index_of_sites
from bnnzoo.core.settings import Count, Positive
from bnnzoo.core.sites import ModelError
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.evidence import log_marginal_likelihood
from bnnzoo.inference.laplace.family import LaplaceError, LaplaceMethod, NotConvergedWarning, refuse_other_methods
from bnnzoo.inference.laplace.integration import MAX_INTEGRATED, MAX_OTHERS, integrated
from bnnzoo.inference.laplace.laplace import Laplace
from bnnzoo.inference.laplace.refine import STEPS_PER_UPDATE, preconditioned_lbfgs
from bnnzoo.inference.optimise.lbfgs import Evaluate

__all__ = ["HierarchicalLaplace", "over_scales"]

MAX_HYPERPARAMETERS = 50  # for a search without gradients
FITS_PER_HYPERPARAMETER = 14  # that the search needs, roughly


@dataclass(frozen=True)
class HierarchicalLaplace:
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
    tolerance: Positive = 1e-3
    max_fits: Count = 500

    needs: ClassVar[frozenset[Need]] = frozenset()

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
        _refuse_sites(index, density)
        obstacle = _obstacle(laplace, density, index)
        if self.integrate and obstacle:
            raise ValueError(f"HierarchicalLaplace(integrate=True): {obstacle}. Leave integrate out, or write NUTS().")
        marginal = _Marginal(laplace, density, context, index)
        best = self._at_mode(marginal, index)
        found = None
        if len(index) and self.integrate is not False and not obstacle:
            assert isinstance(laplace, Laplace)
            found = integrated(density, best, index, marginal.others, laplace.damping)
            obstacle = "their marginal posterior has no peak"
        if found is None:
            if len(index) and self.integrate is None and not has_weights(density):
                _warn_of_no_spread(density, index, obstacle)
            return best
        config = {"integrated_over": [s.name for s in density.sites if bool((index == s.span.start).any())]}
        info = replace(found.info, config={**found.info.config, **config})
        return replace(found, info=info)

    def _names(self, laplace: LaplaceMethod, density: LogDensity) -> Sequence[str]:
        if self.hyperparameters is not None:
            return self.hyperparameters
        is_integrated = self.integrate is not False and _is_exact(laplace, density)
        return (_integrated_sites(density) if is_integrated else ()) or _default_sites(density)

    def _at_mode(self, marginal: "_Marginal", index: Tensor) -> Gaussian:
        """Return the approximation of the others at the mode of the hyperparameters' marginal density."""
        point = np.zeros(len(index))
        marginal(point, first=True)
        if len(index):
            # imported here: 0.25 s, and only this method needs it
            from scipy.optimize import minimize  # noqa: PLC0415

            options = {"initial_tr_radius": max(1.0, self.tolerance), "final_tr_radius": self.tolerance}
            found = minimize(marginal, point, method="COBYQA", options={**options, "maxfev": self.max_fits})
            _warn_if_not_converged(bool(found.success), self.max_fits)
        best = marginal.at_best()
        trace = {"log_evidence": torch.tensor([marginal.trace], dtype=best.loc.dtype)}
        return replace(best, info=replace(best.info, num_gradients=marginal.num_gradients, fit_stats=trace))


class _Marginal:
    """Minus the approximate log marginal density of hyperparameters ``phi[H]`` and the data; it keeps the best fit."""

    def __init__(self, method: LaplaceMethod, density: LogDensity, context: FitContext, index: Tensor) -> None:
        self._density, self._context, self._index = density, context, index
        is_other = torch.ones(density.num_params, dtype=torch.bool, device=index.device)
        is_other[index] = False
        self.others = is_other.nonzero()[:, 0]
        self._names = [site.name for site in density.sites if not is_other[site.span.start]]
        self._method = method
        self._best: Gaussian | None = None
        self.trace: list[float] = []
        self.num_gradients = 0

    def __call__(self, phi: NDArray[np.floating], *, first: bool = False) -> float:
        """Return minus the log marginal density; infinity where there is no approximation."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # the last fit warns
                found = self._fit(torch.as_tensor(phi).to(dtype=self._density.dtype, device=self._density.device))
        except (LaplaceError, ModelError):  # also where the density is not finite at the start of the search for a mode
            if first:
                raise
            return float("inf")
        value = float(log_marginal_likelihood(found))
        self.trace.append(value)
        if value >= max(self.trace):
            self._best = found
        return -value

    def at_best(self) -> Gaussian:
        """Return the approximation at the best hyperparameters, fitted once more with every warning."""
        assert self._best is not None
        return self._fit(self._best.loc[self._index])

    def _fit(self, phi: Tensor) -> Gaussian:
        """Return the approximation given ``phi[H]``, embedded in the space of all parameters."""
        theta = torch.zeros(self._density.num_params).to(phi).index_copy(0, self._index, phi)
        values = self._density.constrain(theta)
        inner = (
            given_sites(self._density, {name: values[name] for name in self._names}) if self._names else self._density
        )
        found = self._approximate(self._mode_search(theta, inner), inner)
        covariance: Covariance = found.covariance
        if self._names:
            covariance = Embedded(covariance, self.others, self._density.num_params)
        whole = theta.index_copy(0, self.others, found.loc)
        linearize_at = None if found.linearize_at is None else whole
        return Gaussian(self._density, found.info, whole, covariance, linearize_at)

    def _approximate(self, mode_search: MAP, inner: LogDensity) -> Gaussian:
        """Return the approximation of all but the hyperparameters at the mode that ``mode_search`` finds."""
        found = replace(self._method, map=mode_search).run(inner, self._context)
        assert isinstance(found, Gaussian)  # scales are not integrated over inside
        self.num_gradients += found.info.num_gradients
        return found

    def _mode_search(self, theta: Tensor, inner: LogDensity) -> MAP:
        """Return how to find the mode given hyperparameters: the method's own ``map`` at first, then from the best mode so far.

        Later searches run L-BFGS on the density of all sites, which is traced only once, preconditioned by the covariance
        of the last approximation; every few steps the approximation is updated.
        """
        own = self._method.map
        if self._best is None:
            return own
        start, left = self._best.loc[self.others], max(own.polish_steps, 1)
        covariance, length = self._preconditioner(self._best.covariance, left)
        evaluate = self._conditional(theta, left)
        converged = False
        while left > 0 and not converged:
            start, converged, count = preconditioned_lbfgs(covariance, evaluate, start, min(length, left))
            left -= length
            self.num_gradients += count
            if left > 0 and not converged:
                covariance = self._covariance_at(start, inner) or covariance
        return _fixed_at(start)

    def _preconditioner(self, covariance: Covariance, max_steps: int) -> tuple[Covariance, int]:
        """Return the covariance by which to precondition, and after how many steps to update it."""
        if self._names:
            assert isinstance(covariance, Embedded)
            covariance = covariance.covariance
        if isinstance(covariance, Embedded):  # some weights only, where the optimisation is over all of them
            ones = torch.ones(len(self.others), dtype=self._density.dtype, device=self._density.device)
            return Diagonal(ones), max_steps
        return covariance, STEPS_PER_UPDATE

    def _conditional(self, theta: Tensor, max_steps: int) -> Evaluate:
        """Return ``others[1, R] -> ([1], [1, R])``, the log joint density with the hyperparameters of ``theta[P]`` fixed."""
        num_calls = max_steps * FITS_PER_HYPERPARAMETER * max(1, len(self._index))
        whole = self._density.value_and_grad.specialize(theta[None], *self._density.data, num_calls=num_calls)

        def evaluate(rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = whole(theta.index_copy(0, self.others, rows[0])[None], *self._density.data)
            return value, gradient[:, self.others]

        return evaluate

    def _covariance_at(self, point: Tensor, inner: LogDensity) -> Covariance | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # this is not the mode yet
                return self._approximate(_fixed_at(point), inner).covariance
        except LaplaceError:
            return None


def _fixed_at(point: Tensor) -> MAP:
    return MAP(init=point[None], num_steps=0, polish_steps=0)


def _default_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the sites that set the priors of others, and those that only matter through others."""
    names = {*hyperparameter_sites(density), *multiplying_sites(density)}
    return tuple(site.name for site in density.sites if site.name in names)


def _integrated_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the sites over which to integrate: hyperparameters, and noise scales and the like, whose modes are no means.

    Empty for models without a hierarchy, and with networks.
    """
    first = () if has_weights(density) else _default_sites(density)
    more = tuple(s.name for s in density.sites if s.name in first or not is_real(s)) if first else ()
    sizes = {site.name: site.span.stop - site.span.start for site in density.sites}
    return more if sum(sizes[name] for name in more) <= MAX_INTEGRATED else first


def over_scales(method: Laplace, density: LogDensity, context: FitContext) -> Mixture | None:
    """Return the posterior integrated over the scales of a hierarchy; None without one, or where that is not possible."""
    names = _integrated_sites(density)
    sizes = {site.name: site.span.stop - site.span.start for site in density.sites}
    size = sum(sizes[name] for name in names)
    if not 0 < size <= MAX_INTEGRATED or not 0 < density.num_params - size <= MAX_OTHERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotConvergedWarning)
            found = HierarchicalLaplace(method).run(density, context)
    except (LaplaceError, ModelError, NotConvergedWarning):  # the joint mode says what is wrong
        return None
    return found if isinstance(found, Mixture) else None


def _is_exact(laplace: LaplaceMethod, density: LogDensity) -> bool:
    return isinstance(laplace, Laplace) and laplace.curvature in (None, "hessian") and not has_weights(density)


def _obstacle(laplace: LaplaceMethod, density: LogDensity, index: Tensor) -> str:
    """Return why hyperparameters ``index[H]`` cannot be integrated over; empty if they can."""
    others = density.num_params - len(index)
    if not _is_exact(laplace, density):
        return "it takes laplace=Laplace() with the exact Hessian, and a model without a network"
    if len(index) > MAX_INTEGRATED:
        return f"it takes {MAX_INTEGRATED} hyperparameters or fewer, and there are {len(index)}"
    return f"it takes {MAX_OTHERS} other parameters or fewer, and there are {others}" if others > MAX_OTHERS else ""


def _warn_of_no_spread(density: LogDensity, index: Tensor, obstacle: str) -> None:
    names = ", ".join(repr(s.name) for s in density.sites if bool((index == s.span.start).any()))
    warnings.warn(
        f"{names} are set to their mode and have no spread, since integration over them is not possible: {obstacle}. Write "
        f"integrate=False to accept this, name fewer with hyperparameters=(...,), or use NUTS().",
        TooNarrowWarning,
        stacklevel=3,
    )


def _refuse_sites(index: Tensor, density: LogDensity) -> None:
    if len(index) == density.num_params:
        names = ", ".join(site.name for site in density.sites)
        raise ModelError(f"hyperparameters= names every latent site ({names}); leave out those to approximate.")
    if len(index) > MAX_HYPERPARAMETERS:
        names = ", ".join(s.name for s in density.sites if bool((index == s.span.start).any()))
        raise ModelError(
            f"HierarchicalLaplace searches {MAX_HYPERPARAMETERS} hyperparameters or fewer, and {names} have {len(index)}. "
            f"Name some of them, hyperparameters=(...,); the others are then approximated."
        )


def _warn_if_not_converged(converged: bool, max_fits: int) -> None:
    if not converged:
        warnings.warn(
            f"The hyperparameters had not converged after max_fits={max_fits}. Write a larger max_fits or tolerance.",
            NotConvergedWarning,
            stacklevel=3,
        )
