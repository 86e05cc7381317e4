"""Laplace approximation of a hierarchical model: hyperparameters at the mode of their marginal, the rest given them."""

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.optimize import minimize
from torch import Tensor

from bnnzoo.core.covariance import Covariance, Diagonal, Embedded
from bnnzoo.core.density import LogDensity
from bnnzoo.core.hierarchy import given_sites, hyperparameter_sites
from bnnzoo.core.method import FitContext, Method, Need
from bnnzoo.core.posterior import Gaussian
from bnnzoo.core.selection import index_of_sites
from bnnzoo.core.sites import ModelError
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.laplace.diagonal import DiagonalLaplace
from bnnzoo.inference.laplace.evidence import LaplaceMethod
from bnnzoo.inference.laplace.kfac import KFACLaplace
from bnnzoo.inference.laplace.laplace import Laplace, LaplaceError, NotConvergedWarning, log_marginal_likelihood
from bnnzoo.inference.laplace.low_rank import LowRankLaplace
from bnnzoo.inference.laplace.partial import LastLayerLaplace, SubsetLaplace
from bnnzoo.inference.optimise.lbfgs import Evaluate, lbfgs

__all__ = ["HierarchicalLaplace"]

MAX_HYPERPARAMETERS = 50  # of a search without gradients
NEAR = 1e-4  # a climb ends at this gradient in units of posterior sds: so far from the mode, and 1e-8 below it
ROUND = 25  # steps of a climb with one approximation
FITS = 14  # that the search takes for a hyperparameter, about


@dataclass(frozen=True)
class HierarchicalLaplace:
    r"""Laplace approximation given the hyperparameters, which are put at the mode of their approximate marginal.

    .. math::
        \phi^* = \arg\max_\phi \; \log p(\phi) + \log \hat p(y \mid \phi), \qquad q(w) = \hat p(w \mid y, \phi^*)

    with the Laplace estimate of the evidence. The joint mode of weights and the scale of their prior is no substitute:
    towards scale zero the joint density of a centred model grows without bound. Hyperparameters are
    unconstrained here as everywhere, so that :math:`\log p(\phi)` counts the Jacobian; their uncertainty is left out.
    The search takes no gradients: each step is a climb to the mode of the weights, from the one before, and a curvature there.

    Parameters
    ----------
    laplace : Laplace, LowRankLaplace, DiagonalLaplace, KFACLaplace, LastLayerLaplace or SubsetLaplace
        Over what is no hyperparameter. Its ``map`` finds the first mode.
    hyperparameters : sequence of str, optional
        Names of latent sites; a name ending in ``*`` means all that begin like it. By default every site that the prior
        of another one depends on. The noise scale may be named, too.
    tolerance : float
        The search stops where it would move by less than this, in unconstrained space.
    max_fits : int
        Stop after as many.

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4. Rue, Martino and Chopin (2009), Approximate Bayesian
    inference for latent Gaussian models by using integrated nested Laplace approximations, JRSS B 71. Ragonneau and
    Zhang (2024), COBYQA (the search).

    Examples
    --------
    >>> import bnnzoo as bz
    >>> x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    >>> net = torch.nn.Linear(2, 1, bias=False)
    >>> model = bz.models.supervised(net, bz.priors.layerwise(), bz.likelihoods.gaussian(scale=0.1))
    >>> method = HierarchicalLaplace(bz.Laplace(bz.MAP(num_steps=50)), tolerance=0.5)
    >>> posterior = bz.fit(model, method, x, 3 * x[:, 0])
    >>> bool(posterior.density.constrain(posterior.loc)["net.weight.scale"] > 1)
    True
    """

    laplace: Method = field(default_factory=Laplace)
    hyperparameters: Sequence[str] | None = None
    tolerance: float = 1e-3
    max_fits: int = 500

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> Gaussian:
        """Search the hyperparameters, then approximate the rest given them; see :func:`bnnzoo.fit`.

        Raises
        ------
        ModelError
            If a site does not exist, none is left, or the hyperparameters are too many.
        LaplaceError
            If there is no Laplace approximation where the search starts.
        ValueError
            If ``laplace`` is no Laplace method, or a setting out of range.
        """
        laplace = self._suitable_laplace()
        names = hyperparameter_sites(density) if self.hyperparameters is None else self.hyperparameters
        index = index_of_sites(names, density, "hyperparameters") if names else torch.arange(0, device=density.device)
        _refuse_sites(index, density)
        marginal = _Marginal(laplace, density, context, index)
        point = np.zeros(len(index))
        marginal(point, first=True)
        if len(index):
            options = {"initial_tr_radius": max(1.0, self.tolerance), "final_tr_radius": self.tolerance}
            found = minimize(marginal, point, method="COBYQA", options={**options, "maxfev": self.max_fits})
            _warn_if_not_settled(bool(found.success), self.max_fits)
        best = marginal.at_best()
        info = replace(
            best.info,
            num_gradients=marginal.num_gradients,
            fit_stats={"log_evidence": torch.tensor([marginal.trace], dtype=density.dtype)},
        )
        return replace(best, info=info)

    def _suitable_laplace(self) -> LaplaceMethod:
        if not self.tolerance > 0:
            raise ValueError(f"tolerance={self.tolerance}: write a positive number, such as 0.001.")
        if self.max_fits < 1:
            raise ValueError(f"max_fits={self.max_fits}: write 1 or more.")
        method = self.laplace
        if isinstance(
            method, Laplace | LowRankLaplace | DiagonalLaplace | KFACLaplace | LastLayerLaplace | SubsetLaplace
        ):
            return method
        raise ValueError(f"HierarchicalLaplace(laplace={type(method).__name__}()): write Laplace() or one like it.")


class _Marginal:
    """Minus the approximate log marginal density of hyperparameters ``phi[H]`` and the data; it remembers the best."""

    def __init__(self, method: LaplaceMethod, density: LogDensity, context: FitContext, index: Tensor) -> None:
        self._density, self._context, self._index = density, context, index
        is_other = torch.ones(density.num_params, dtype=torch.bool, device=index.device)
        is_other[index] = False
        self._others = is_other.nonzero()[:, 0]
        self._names = [site.name for site in density.sites if not is_other[site.span.start]]
        self._method = method
        self._best: Gaussian | None = None
        self.trace: list[float] = []
        self.num_gradients = 0

    def __call__(self, phi: NDArray[np.floating], *, first: bool = False) -> float:
        """Return minus the log marginal density; infinity where there is no approximation."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # the last fit says so
                found = self._fit(torch.as_tensor(phi).to(dtype=self._density.dtype, device=self._density.device))
        except LaplaceError:
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
        theta = torch.zeros(self._density.num_params).to(phi).index_copy(0, self._index, phi)
        values = self._density.constrain(theta)
        inner = (
            given_sites(self._density, {name: values[name] for name in self._names}) if self._names else self._density
        )
        found = self._at(self._climbed(theta, inner), inner)
        self.num_gradients += found.info.num_gradients
        covariance: Covariance = found.covariance
        if self._names:
            covariance = Embedded(covariance, self._others, self._density.num_params)
        whole = theta.index_copy(0, self._others, found.loc)
        linearize_at = None if found.linearize_at is None else whole
        return Gaussian(self._density, found.info, whole, covariance, linearize_at)

    def _at(self, climb: MAP, inner: LogDensity) -> Gaussian:
        """Return the approximation of all but the hyperparameters where a climb ends."""
        return replace(self._method, map=climb).run(inner, self._context)

    def _climbed(self, theta: Tensor, inner: LogDensity) -> MAP:
        """Return what finds the mode given hyperparameters: at first the method's own way, then a climb from the best one.

        That climb is on the density of all sites, which need be traced only once, and in units of an approximation's standard
        deviations, in which no direction is much steeper than another; every few steps the approximation is made anew.
        """
        climb = self._method.map
        if self._best is None:
            return climb
        start, left = self._best.loc[self._others], max(climb.polish_steps, 1)
        units, length = self._best.covariance, ROUND
        if self._names:
            assert isinstance(units, Embedded)
            units = units.covariance
        if isinstance(units, Embedded):  # of some weights only, and the climb is over all
            units, length = Diagonal(torch.ones_like(start)), left
        num_calls = left * FITS * max(1, len(self._index))
        whole = self._density.value_and_grad.specialize(theta[None], *self._density.data, num_calls=num_calls)

        def evaluate(rows: Tensor) -> tuple[Tensor, Tensor]:
            value, gradient = whole(theta.index_copy(0, self._others, rows[0])[None], *self._density.data)
            return value, gradient[:, self._others]

        arrived = False
        while left > 0 and not arrived:
            start, arrived, count = _climb_in_units_of(units, evaluate, start, min(length, left))
            left -= length
            self.num_gradients += count
            if left > 0 and not arrived:
                units = self._covariance_at(start, inner) or units
        return _staying_at(start)

    def _covariance_at(self, point: Tensor, inner: LogDensity) -> Covariance | None:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # on the way it need not have
                found = self._at(_staying_at(point), inner)
        except LaplaceError:
            return None
        self.num_gradients += found.info.num_gradients
        return found.covariance


def _staying_at(point: Tensor) -> MAP:
    return MAP(init=point[None], num_steps=0, polish_steps=0)


def _climb_in_units_of(
    covariance: Covariance, evaluate: Evaluate, start: Tensor, steps: int
) -> tuple[Tensor, bool, int]:
    """Return where L-BFGS leads, whether that is as good as the mode, and how many evaluations it took."""

    def white(rows: Tensor) -> tuple[Tensor, Tensor]:
        value, gradient = evaluate(start + covariance.sqrt_matmul(rows))
        return value, covariance.sqrt_rmatmul(gradient)

    here = start.new_zeros(1, covariance.rank)
    scale = max(1.0, abs(float(white(here)[0])))  # by which L-BFGS multiplies its tolerance
    found = lbfgs(white, here, steps, NEAR / scale)
    arrived = bool(found.gradient.abs().max() <= NEAR)
    return start + covariance.sqrt_matmul(found.theta[0]), arrived, 1 + found.num_evaluations


def _refuse_sites(index: Tensor, density: LogDensity) -> None:
    if len(index) == density.num_params:
        names = ", ".join(site.name for site in density.sites)
        raise ModelError(f"hyperparameters= names every latent site ({names}); leave out those to be approximated.")
    if len(index) > MAX_HYPERPARAMETERS:
        names = ", ".join(s.name for s in density.sites if bool((index == s.span.start).any()))
        raise ModelError(
            f"HierarchicalLaplace searches {MAX_HYPERPARAMETERS} hyperparameters or fewer, and {names} have {len(index)}. "
            f"Name some of them, hyperparameters=(...,); the others then belong to what is approximated."
        )


def _warn_if_not_settled(settled: bool, max_fits: int) -> None:
    if not settled:
        warnings.warn(
            f"The hyperparameters had not settled after max_fits={max_fits}. Write a larger max_fits or tolerance.",
            NotConvergedWarning,
            stacklevel=3,
        )
