"""Leave-one-out by draws that are moved to where the posterior without an observation lies."""

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property, partial

import numpy as np
import torch
import xarray as xr
from arviz_stats.utils import ELPDData
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.log_joints import log_joint_at
from bnnzoo.core.posterior.mixing import mixing
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.settings import check_argument
from bnnzoo.core.types import Whole
from bnnzoo.diagnostics.loo import UnreliableLooWarning, loo
from bnnzoo.diagnostics.pareto_smoothing import smoothed_log_weights
from bnnzoo.predictive import posterior_predictive
from bnnzoo.predictive.prediction_arguments import refuse_no_posterior
from bnnzoo.validation.refits import by_row

__all__ = ["moment_match"]

MAX_STEPS = 30
"""Affine maps of the draws for one observation."""

DRAWS_A_PARAMETER = 10
"""Draws for each parameter from which their covariance is matched, and not only the variances."""

AT_ONCE = 2_000_000
"""Draws times observations whose log likelihood is computed at a time."""


@one_at_a_time
def moment_match(
    posterior: Posterior, *, k_threshold: float | None = None, num_draws: int | None = None, seed: Whole | None = None
) -> ELPDData:
    r"""Return LOO with draws moved by importance-weighted moment matching where importance weights alone are unreliable.

    For an observation whose Pareto k is too high, the draws are shifted to the mean that their weights give them; if that does
    not lower k, also scaled to the weighted standard deviations, or to the weighted covariance; and again, as long as k falls.
    In the end half of the draws are moved and half stay, and all are weighted against the mixture of both. No fit is made: it
    takes some evaluations of the density at all draws for each such observation, where :func:`reloo` takes a fit.

    Parameters
    ----------
    posterior : Posterior
        With its data: Markov chains, or an approximation with a density.
    k_threshold : float, optional
        Pareto k above which an observation is treated; default: ArviZ's ``min(1 - 1 / log10(S), 0.7)`` for S draws.
    num_draws : int, optional
        Draws a chain; default: as for :func:`bnnzoo.predict`.
    seed : int
        Of the draws of an approximation; default: that of the fit.

    Returns
    -------
    ELPDData
        As of :func:`bnnzoo.diagnostics.loo`, by row; ``pareto_k`` is that of the weights that were used.

    Raises
    ------
    ValueError
        If the method has no LOO, as an ensemble has none, rows are masked, or predictions are those of a linearised model.

    Warns
    -----
    UnreliableLooWarning
        If Pareto k of an observation is still too high; :func:`reloo` refits without it.

    References
    ----------
    Paananen, Piironen, Bürkner and Vehtari (2021), Implicitly adaptive importance sampling, Statistics and Computing 31.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> found = moment_match(posterior)
    >>> bool((found.pareto_k < 0.7).all())
    True
    """
    refuse_no_posterior("moment_match", posterior, "posterior")
    check_argument("moment_match", "k_threshold", k_threshold, float | None)
    density = posterior.density
    tree = posterior_predictive(posterior, *density.data, num_draws=num_draws, weights=False, seed=seed)
    if tree.attrs.get("linearized") == "yes":
        raise ValueError(
            f"The predictions of {posterior.info.method} are those of a linearised model, whose density moment matching does not "
            f"have. Use bnnzoo.diagnostics.loo, or bnnzoo.validation.reloo."
        )
    log_likelihood = by_row(tree["log_likelihood"].to_dataset())
    tree = tree.assign({"log_likelihood": xr.DataTree(log_likelihood.to_dataset())})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableLooWarning)  # which moving the draws answers
        found = loo(tree)
    if found.elpd_i.size != density.num_data:
        raise ValueError(
            f"Moment matching needs a log likelihood for each of the {density.num_data} rows, and there are "
            f"{found.elpd_i.size}: leave masked rows out of the data."
        )
    threshold = float(found.good_k if k_threshold is None else k_threshold)
    bad = np.flatnonzero(~(found.pareto_k.to_numpy().ravel() <= threshold))
    if len(bad):
        _match(found, bad, _Source.of(posterior, num_draws, seed), threshold)
    return found


def _match(found: ELPDData, bad: np.ndarray, source: "_Source", threshold: float) -> None:
    """Put the estimates by moved draws in place of those of bad rows, and sum up."""
    elpd, k = found.elpd_i.to_numpy().ravel(), found.pareto_k.to_numpy().ravel()
    before = elpd.sum()
    for row in bad:
        own = source.without(int(row), threshold)
        if own.pareto_k < k[row] or math.isnan(k[row]):
            elpd[row], k[row] = own.elpd, own.pareto_k
    found.elpd_i = found.elpd_i.copy(data=elpd.reshape(found.elpd_i.shape))
    found.pareto_k = found.pareto_k.copy(data=k.reshape(found.pareto_k.shape))
    found.p = found.p + before - elpd.sum()
    found.elpd = found.elpd + elpd.sum() - before
    found.se = math.sqrt(elpd.size * elpd.var())
    found.warning = bool((~(k <= threshold)).any())
    if found.warning:
        left = np.flatnonzero(~(k <= threshold))
        warnings.warn(
            f"LOO is unreliable: the Pareto k of {len(left)} of {len(k)} observations is above {threshold:.2f} also where draws "
            f"were moved (rows {', '.join(map(str, left[:10]))}{', ...' if len(left) > 10 else ''}). Refit without each of "
            f"these, bnnzoo.validation.reloo(model, method, *data).",
            UnreliableLooWarning,
            stacklevel=4,
        )


@dataclass(frozen=True)
class _Matched:
    elpd: float
    pareto_k: float


@dataclass(frozen=True)
class _At:
    """Points ``[S, P]``, log joint density and log likelihood of the row that is left out ``[S]`` there."""

    theta: Tensor
    log_joint: Tensor
    log_likelihood: Tensor


@dataclass(frozen=True)
class _Source:
    """Draws ``[S, P]`` and the log density ``[S]`` from which they come, the posterior's up to a constant or an approximation's.

    ``log_density`` is that density as a function; ``r_eff`` is the relative effective sample size.
    """

    density: LogDensity
    theta: Tensor
    log_density: Callable[[Tensor], Tensor]
    r_eff: float

    @classmethod
    def of(cls, posterior: Posterior, num_draws: int | None, seed: Whole | None) -> "_Source":
        """Return the draws of a posterior."""
        density = posterior.density
        draws = posterior.draws(num_draws, seed)
        theta = draws.flatten(0, 1)
        if isinstance(posterior, Draws) or posterior.log_prob(theta[:1]) is None:
            size = draws.shape[0] * draws.shape[1]
            ess = float(mixing(draws.cpu()).ess.nanmean()) if isinstance(posterior, Draws) else float(size)
            return cls(density, theta, partial(_log_joint, density), min(1.0, ess / size))
        return cls(density, theta, partial(_log_prob, posterior), 1.0)

    def without(self, row: int, threshold: float) -> _Matched:
        """Return the log predictive density of a row given the others, with the Pareto k of the weights."""
        log_q, here = self._log_q, _At(self.theta, self._log_joint, self._log_likelihood[:, row])
        log_weights, k = self._weights(here, log_q)
        shift, root = torch.zeros_like(self.theta[0]), torch.eye(self.theta.shape[1]).to(self.theta)
        best: _Matched | None = None
        for _ in range(MAX_STEPS):
            if k <= threshold:  # of moved draws; that of moved and unmoved ones together may be higher
                tried = self._split(row, shift, root)
                best = tried if best is None or tried.pareto_k < best.pareto_k else best
                if best.pareto_k <= threshold:
                    return best
            for centre, mean, factor in _maps(here.theta, log_weights.exp()):
                moved = self._at(mean + (here.theta - centre) @ factor.mT, row)
                new_weights, new_k = self._weights(moved, log_q)
                if new_k < k:
                    here, log_weights, k = moved, new_weights, new_k
                    shift, root = mean + (shift - centre) @ factor.mT, factor @ root
                    break
            else:
                break
        return self._split(row, shift, root) if best is None else best

    def _split(self, row: int, shift: Tensor, root: Tensor) -> _Matched:
        """Move every other draw by ``root theta + shift``, and weight all against the mixture of both densities."""
        theta = self.theta.clone()
        theta[::2] = self.theta[::2] @ root.mT + shift
        back = torch.linalg.solve(root, (theta - shift).mT).mT
        here = self._at(theta, row)
        log_q = torch.logaddexp(self.log_density(theta), self.log_density(back) - torch.linalg.slogdet(root).logabsdet)
        log_weights, k = self._weights(here, log_q)
        return _Matched(float((log_weights + here.log_likelihood).logsumexp(0)), k)

    def _weights(self, at: _At, log_q: Tensor) -> tuple[Tensor, float]:
        """Return smoothed log weights ``[S]`` of points whose log density is ``log_q[S]``, and Pareto k."""
        ratios = at.log_joint - at.log_likelihood - log_q
        ratios = torch.where(ratios.isfinite(), ratios, -1e300)
        found, k = smoothed_log_weights(ratios.numpy(), self.r_eff)
        return torch.from_numpy(np.asarray(found)), math.inf if math.isnan(k) else k

    def _at(self, theta: Tensor, row: int) -> _At:
        return _At(theta, _log_joint(self.density, theta), _log_likelihood(self.density, theta)[:, row])

    @cached_property
    def _log_q(self) -> Tensor:
        return self.log_density(self.theta)

    @cached_property
    def _log_joint(self) -> Tensor:
        return _log_joint(self.density, self.theta)

    @cached_property
    def _log_likelihood(self) -> Tensor:
        return _log_likelihood(self.density, self.theta)


def _maps(theta: Tensor, weights: Tensor) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield centre, new mean and factor ``[P, P]`` of the maps that match weighted means, also variances, also covariances."""
    weights = weights.to(theta)
    centre, mean = theta.mean(0), weights @ theta
    yield centre, mean, torch.eye(len(centre)).to(theta)
    spread = (weights @ (theta - mean).square()).sqrt() / (theta - centre).square().mean(0).sqrt()
    if bool(spread.isfinite().all()) and bool((spread > 0).all()):
        yield centre, mean, torch.diag(spread)
    if len(theta) >= DRAWS_A_PARAMETER * theta.shape[1]:
        apart = theta - mean
        roots = [
            torch.linalg.cholesky_ex(each)
            for each in (torch.atleast_2d(torch.cov(theta.mT)), (weights * apart.mT) @ apart)
        ]
        if all(int(each.info) == 0 for each in roots):
            own, wanted = (each.L for each in roots)
            yield centre, mean, torch.linalg.solve_triangular(own, wanted, upper=False, left=False)


def _log_joint(density: LogDensity, theta: Tensor) -> Tensor:
    return log_joint_at(density, theta.to(density.dtype)).double().cpu()


def _log_prob(posterior: Posterior, theta: Tensor) -> Tensor:
    with torch.no_grad():
        found = posterior.log_prob(theta.to(posterior.density.dtype))
    assert found is not None
    return found.double().cpu()


def _log_likelihood(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the log likelihood ``[S, N]`` of each row, minus infinity where it cannot be computed."""
    at_once = max(1, AT_ONCE // max(1, density.num_data))
    with torch.no_grad(), isolated(0, density.device):
        function = density.over_points("rows", density.log_likelihood, chunk_size=at_once, randomness="same")
        try:
            found = function(theta.to(density.dtype), *density.data)
        except Exception:  # the model's own code may raise anything where it cannot be batched
            found = torch.stack([density.log_likelihood(each, *density.data) for each in theta.to(density.dtype)])
    return found.double().cpu().nan_to_num(-math.inf)
