"""The marginal posterior of hyperparameters by the Laplace estimate of the evidence, its mode, and which sites they are."""

import warnings
from contextlib import suppress
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.core.method import FitContext
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.parameters.hierarchy import given_sites, has_weights, hyperparameter_sites, is_real, multiplying_sites
from bnnzoo.core.parameters.selection import index_of_sites
from bnnzoo.core.posterior.covariance import Covariance, Diagonal, Embedded
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.sites import ModelError
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.evidence import log_marginal_likelihood
from bnnzoo.inference.laplace.family import LaplaceError, LaplaceMethod, refuse_other_methods
from bnnzoo.inference.laplace.integration import MAX_INTEGRATED, MAX_OTHERS, integrated
from bnnzoo.inference.laplace.refine import STEPS_PER_UPDATE, preconditioned_lbfgs

__all__ = [
    "MAX_FITS",
    "TOLERANCE",
    "HyperparameterMarginal",
    "default_sites",
    "integrated_sites",
    "marginal_mode",
    "over_scales",
]

TOLERANCE, MAX_FITS = 1e-3, 500  # of the search


class HyperparameterMarginal:
    """Minus the approximate log marginal density of hyperparameters ``phi[H]`` and the data; it keeps the best fit."""

    def __init__(self, method: LaplaceMethod, density: LogDensity, context: FitContext, index: Tensor) -> None:
        self._density, self._context, self._index = density, context, index
        is_other = torch.ones(density.num_params, dtype=torch.bool, device=index.device)
        is_other[index] = False
        self.others = is_other.nonzero()[:, 0]
        self._names = [site.name for site in density.sites if not is_other[site.span.start]]
        self._method, self._value_and_grad = method, density.value_and_grad.repeated()
        self._best: Gaussian | None = None
        self.size = len(index)
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

        def evaluate(rows: Tensor) -> tuple[Tensor, Tensor]:  # of the others [1, R], hyperparameters being fixed
            point = theta.index_copy(0, self.others, rows[0])[None]
            value, gradient = self._value_and_grad(point, *self._density.data)
            return value, gradient[:, self.others]

        converged = False
        while left > 0 and not converged:
            start, converged, count = preconditioned_lbfgs(covariance, evaluate, start, min(length, left))
            left -= length
            self.num_gradients += count
            if left > 0 and not converged:
                with suppress(LaplaceError), warnings.catch_warnings():
                    warnings.simplefilter("ignore", NotConvergedWarning)  # this is not the mode yet
                    covariance = self._approximate(_fixed_at(start), inner).covariance
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


def _fixed_at(point: Tensor) -> MAP:
    return MAP(init=point[None], num_steps=0, polish_steps=0)


def marginal_mode(marginal: HyperparameterMarginal, tolerance: float, max_fits: int) -> Gaussian:
    """Return the approximation of the others at the mode of the hyperparameters' marginal density."""
    point = np.zeros(marginal.size)
    marginal(point, first=True)
    if marginal.size:
        # imported here: 0.25 s, and only this method needs it
        from scipy.optimize import minimize  # noqa: PLC0415

        options = {"initial_tr_radius": max(1.0, tolerance), "final_tr_radius": tolerance}
        found = minimize(marginal, point, method="COBYQA", options={**options, "maxfev": max_fits})
        if not found.success:
            warnings.warn(
                f"The hyperparameters had not converged after max_fits={max_fits}. Write a larger max_fits or tolerance.",
                NotConvergedWarning,
                stacklevel=2,
            )
    best = marginal.at_best()
    trace = {"log_evidence": torch.tensor([marginal.trace], dtype=best.loc.dtype)}
    return replace(best, info=replace(best.info, num_gradients=marginal.num_gradients, fit_stats=trace))


def over_scales(method: LaplaceMethod, damping: float, density: LogDensity, context: FitContext) -> Mixture | None:
    """Return the posterior integrated over the scales of a hierarchy; None without one, or where that is not possible."""
    names = integrated_sites(density)
    index = index_of_sites(names, density, "hyperparameters") if names else torch.arange(0)
    if not 0 < len(index) <= MAX_INTEGRATED or not 0 < density.num_params - len(index) <= MAX_OTHERS:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", NotConvergedWarning)
            marginal = HyperparameterMarginal(refuse_other_methods(method, "{}"), density, context, index)
            best = marginal_mode(marginal, TOLERANCE, MAX_FITS)
            found = integrated(density, best, index, marginal.others, damping)
    except (LaplaceError, ModelError, NotConvergedWarning):  # the joint mode says what is wrong
        return None
    return found


def integrated_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the sites over which to integrate: hyperparameters, and noise scales and the like, whose modes are no means.

    Empty for models without a hierarchy, and with networks.
    """
    first = () if has_weights(density) else default_sites(density)
    more = tuple(s.name for s in density.sites if s.name in first or not is_real(s)) if first else ()
    sizes = {site.name: site.span.stop - site.span.start for site in density.sites}
    return more if sum(sizes[name] for name in more) <= MAX_INTEGRATED else first


def default_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the sites that set the priors of others, and those that only matter through others."""
    names = {*hyperparameter_sites(density), *multiplying_sites(density)}
    return tuple(site.name for site in density.sites if site.name in names)
