"""The Laplace estimate of the evidence, and the hyperparameters that maximise it (empirical Bayes)."""

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from bnnzoo.core.fit_warnings import NotConvergedWarning
from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Gaussian, Mixture
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.settings import Count, Positive, check_argument
from bnnzoo.core.types import Model
from bnnzoo.inference.ensembles.map import MAP
from bnnzoo.inference.fit import fit
from bnnzoo.inference.laplace.family import LaplaceError, LaplaceMethod, laplace_evidence, refuse_other_methods

__all__ = ["EvidenceMaximum", "log_marginal_likelihood", "maximise_evidence"]

FIRST_FACTOR = 4.0  # by which a hyperparameter is first multiplied and divided


@one_at_a_time
def log_marginal_likelihood(posterior: Gaussian | Mixture) -> Tensor:
    r"""Return the Laplace estimate of the log evidence ``[]``.

    .. math:: \log p(y) \approx \log p(y, \theta^*) + \frac{R}{2} \log 2 \pi + \frac{1}{2} \log |\Sigma|

    where R is the number of entries that vary. It is exact for a linear model with Gaussian prior and noise.

    Parameters
    ----------
    posterior : Gaussian or Mixture
        From a Laplace method. Where it is integrated over hyperparameters, so is the evidence.

    Raises
    ------
    ValueError
        If it is a mixture of another kind, which has no evidence.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data)
    >>> bool(torch.isclose(log_marginal_likelihood(posterior), target.log_evidence))
    True
    """
    density = posterior.density
    if isinstance(posterior, Mixture):
        if "log_evidence" not in posterior.info.config:
            raise ValueError(
                f"log_marginal_likelihood takes the posterior of a Laplace method, not the mixture of {posterior.info.method}."
            )
        return torch.tensor(posterior.info.config["log_evidence"], dtype=density.dtype, device=density.device)
    with torch.no_grad():
        joint = density.log_joint(posterior.loc, *density.data)
    return laplace_evidence(joint, posterior.covariance)


@dataclass(frozen=True)
class EvidenceMaximum:
    """Where the evidence is highest.

    Attributes
    ----------
    values : mapping of str to float
        The hyperparameters.
    log_evidence : float
        Log evidence at these values.
    posterior : Gaussian
        Laplace approximation of the model with these values.
    path : tuple of (mapping of str to float, float)
        Every set of values that was tried, with its log evidence.
    """

    values: Mapping[str, float]
    log_evidence: float
    posterior: Gaussian
    path: tuple[tuple[Mapping[str, float], float], ...]


@one_at_a_time
def maximise_evidence(
    model_of: Callable[..., Model],
    method: Method,
    *data: Any,
    start: Mapping[str, float],
    refit: bool = True,
    tolerance: float = 0.02,
    max_fits: int = 100,
    seed: int = 0,
) -> EvidenceMaximum:
    """Choose positive hyperparameters by the Laplace estimate of the evidence: type-II maximum likelihood.

    A compass search over their logarithms: each hyperparameter is multiplied and divided by a factor and the better
    value is kept; when no value is better, the factor moves closer to one. No held-out data are used.

    Parameters
    ----------
    model_of : callable
        Makes the model, ``model_of(**values)``.
    method : Laplace, LowRankLaplace, DiagonalLaplace, KFACLaplace, LastLayerLaplace or SubsetLaplace
        Any Laplace approximation. Its ``map`` finds the first mode.
    *data
        Arguments of the model.
    start : mapping of str to float
        Initial value of each hyperparameter.
    refit : bool
        Optimise from the best mode so far to the mode of each new model. False keeps the first mode fixed, which is
        faster and serves to choose hyperparameters after training.
    tolerance : float
        Relative tolerance of the hyperparameters: the search stops when changing any of them by this fraction does not
        increase the evidence.
    max_fits : int
        Largest number of fits.
    seed : int
        Seed of the fits.

    Returns
    -------
    EvidenceMaximum

    Raises
    ------
    ValueError
        If a starting value, ``tolerance`` or ``max_fits`` is not positive, or ``method`` is not a Laplace method.
    LaplaceError
        If there is no Laplace approximation at the starting values.

    References
    ----------
    MacKay (1992), Bayesian interpolation, Neural Computation 4. Immer et al. (2021), Scalable marginal likelihood
    estimation for model selection in deep learning, ICML.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> x = torch.randn(30, 2, generator=torch.Generator().manual_seed(0))
    >>> net = torch.nn.Linear(2, 1)
    >>> def model_of(noise):
    ...     return bz.models.supervised(net, bz.priors.normal(1.0), bz.likelihoods.gaussian(scale=noise))
    >>> method, y = bz.Laplace(bz.MAP(num_steps=50)), x[:, 0].sin()
    >>> found = maximise_evidence(model_of, method, x, y, start={"noise": 1.0}, max_fits=3)
    >>> found.values["noise"] < 1.0
    True
    """
    if not start:
        raise ValueError("start is empty: name the hyperparameters, such as start={'scale': 1.0}.")
    for name, value in start.items():
        if not (value > 0 and math.isfinite(value)):
            raise ValueError(f"start[{name!r}]={value}: write a positive number; the search is over logarithms.")
    check_argument("maximise_evidence", "tolerance", tolerance, Positive)
    check_argument("maximise_evidence", "max_fits", max_fits, Count)
    search = _Search(model_of, refuse_other_methods(method, "maximise_evidence(method={})"), data, refit, seed)
    best, factor = dict(start), FIRST_FACTOR
    search.evidence(best, first=True)
    while factor >= 1 + tolerance and len(search.path) < max_fits:
        moved = False
        for name in best:
            tried = ({**best, name: best[name] * by} for by in (factor, 1 / factor))
            better = next((values for values in tried if search.improves(values, max_fits)), None)
            best, moved = better or best, moved or better is not None
        factor = factor if moved else math.sqrt(factor)
    return search.result(best)


class _Search:
    """The evidence of all values tried so far, and the best posterior, from whose mode the next optimisation starts."""

    def __init__(
        self, model_of: Callable[..., Model], method: LaplaceMethod, data: tuple[Any, ...], refit: bool, seed: int
    ) -> None:
        self._model_of, self._method, self._data, self._refit, self._seed = model_of, method, data, refit, seed
        self.path: list[tuple[Mapping[str, float], float]] = []
        self._known: dict[tuple[int, ...], float] = {}
        self._best = -math.inf
        self._posterior: Gaussian | None = None

    def improves(self, values: Mapping[str, float], max_fits: int) -> bool:
        """Tell whether values have a higher evidence than all before; False for values tried before, or with no fit left."""
        if _rounded(values) in self._known or len(self.path) >= max_fits:
            return False
        before = self._best
        return self.evidence(values) > before

    def evidence(self, values: Mapping[str, float], *, first: bool = False) -> float:
        """Fit the model of these values and return its log evidence, minus infinity where there is no approximation."""
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", NotConvergedWarning)  # the last fit warns
                posterior = self._fit(values)
            found = float(log_marginal_likelihood(posterior))
        except LaplaceError:
            if first:
                raise
            found = -math.inf
        self.path.append((dict(values), found))
        self._known[_rounded(values)] = found
        if found > self._best:
            self._best, self._posterior = found, posterior
        return found

    def result(self, values: Mapping[str, float]) -> EvidenceMaximum:
        """Fit once more at the best values, now with every warning."""
        posterior = self._fit(values)
        return EvidenceMaximum(dict(values), float(log_marginal_likelihood(posterior)), posterior, tuple(self.path))

    def _fit(self, values: Mapping[str, float]) -> Gaussian:
        method = self._method
        if self._posterior is not None:
            steps = max(method.map.polish_steps, 1) if self._refit else 0
            start = MAP(init=self._posterior.loc[None], num_steps=0, polish_steps=steps, tolerance=method.map.tolerance)
            method = replace(method, map=start)
        posterior = fit(self._model_of(**values), method, *self._data, seed=self._seed, progress=False)
        assert isinstance(posterior, Gaussian)
        return posterior


def _rounded(values: Mapping[str, float]) -> tuple[int, ...]:
    """Return the same integers for values that differ by rounding error alone."""
    return tuple(round(1e6 * math.log(value)) for value in values.values())
