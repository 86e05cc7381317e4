"""Agreement of priors with the data: priors of latent values, and the prior predictive distribution."""

import warnings
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from arviz_stats.psense import psense
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import norm
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.surroundings import isolated

__all__ = ["SENSITIVE", "Conflict", "PriorPrediction", "Sensitivity", "conflicts", "power_scaling", "prior_predictions"]

type Array = NDArray[np.floating[Any]]

NUM_PRIOR_DRAWS = 20_000
"""Of each site, among which posterior draws are ranked."""

MAX_ENTRIES = 30
"""Numbers of a site that are looked at, evenly spaced."""

LEARNT = 0.1
"""Share of the prior variance that the data must take away for a conflict to be seen."""

SENSITIVE = 0.05
"""Sensitivity to power scaling from which on Kallioinen et al. (2024) call a posterior sensitive."""


@dataclass(frozen=True)
class Conflict:
    """How far the posterior of one number lies from where the prior expects posteriors.

    Attributes
    ----------
    name : str
    z : float
        Posterior mean in normal scores of the prior, over the standard deviation that posterior means have under the prior.
    p_value : float
    """

    name: str
    z: float
    p_value: float


def conflicts(density: LogDensity, theta: Tensor, seed: int) -> Iterator[Conflict]:
    r"""Yield each number of the latent sites whose prior depends on no other site, network weights aside.

    In normal scores of its prior a value has mean 0 and variance 1. Under the prior, posterior means vary by what the data take
    away of that variance, :math:`1 - E[v]`, so that :math:`z = m / \sqrt{1 - v}` is standard normal where posterior and prior are
    normal (Evans and Moshonov 2006 compare a statistic of the data with its prior predictive in the same way).

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [M, P]
        Draws from the posterior.
    seed : int
        Of draws from priors.

    References
    ----------
    Evans and Moshonov (2006), Checking for prior-data conflict, Bayesian Analysis 1.
    """
    with isolated(seed, density.device), torch.no_grad():
        values = density.constrain(theta)
        nodes = [density.nodes(theta[k], *density.data) for k in (0, -1)]
        for site in density.sites:
            if site.is_weight or any(site.name not in each for each in nodes):
                continue
            priors = [_prior_draws(each[site.name]["fn"], site.shape, seed) for each in nodes]
            if priors[0] is None or priors[1] is None or not torch.equal(priors[0], priors[1]):
                continue  # no proper prior, or one that depends on other sites
            prior, posterior = priors[0], values[site.name]
            flat = posterior.reshape(len(posterior), -1)
            count = flat.shape[1]
            for entry in np.unique(np.linspace(0, count - 1, min(count, MAX_ENTRIES)).round().astype(int)).tolist():
                ordered = prior[:, entry].double().sort().values.contiguous()
                if ordered[0] == ordered[-1]:
                    continue
                drawn = flat[:, entry].double().contiguous()
                rank = (torch.searchsorted(ordered, drawn) + torch.searchsorted(ordered, drawn, right=True)) / 2
                scores = ndtri((rank.numpy() + 0.5) / (len(ordered) + 1))
                mean, variance = float(scores.mean()), float(scores.var())
                z = mean / np.sqrt(max(1 - variance, LEARNT))
                place = np.unravel_index(entry, posterior.shape[1:])
                label = site.name if count == 1 else f"{site.name}[{', '.join(map(str, place))}]"
                yield Conflict(label, z, float(2 * norm.sf(abs(z))))


class Sensitivity(NamedTuple):
    """How much a margin of the posterior moves as prior or likelihood is raised to a power near one."""

    prior: float
    likelihood: float

    @property
    def is_conflict(self) -> bool:
        """Whether both are above 0.05, which Kallioinen et al. take for a sign of a conflict."""
        return min(self) >= SENSITIVE


def power_scaling(tree: xr.DataTree, names: Collection[str]) -> dict[str, Sensitivity]:
    """Return the sensitivity of entries of latent sites to power scaling, of those that the tree allows.

    Parameters
    ----------
    tree : DataTree
        From :func:`bnnzoo.posterior_predictive`, with ``log_prior`` and ``log_likelihood``.
    names : collection of str
        Of conflicts, such as ``"mu"`` and ``"b[2]"``.

    References
    ----------
    Kallioinen, Paananen, Bürkner and Vehtari (2024), Detecting and diagnosing prior and likelihood sensitivity with
    power-scaling, Statistics and Computing 34.
    """
    if not {"posterior", "log_prior", "log_likelihood"} <= {*tree.children}:
        return {}
    places = {name: _place(name) for name in names}
    places = {name: place for name, place in places.items() if place[0] in tree["posterior"].data_vars}
    sites = list(dict.fromkeys(site for site, _ in places.values()))
    if not sites:
        return {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of weights of single margins
        try:
            found = [psense(tree, var_names=sites, group=group) for group in ("prior", "likelihood")]
        except ValueError:
            return {}
    return {
        name: Sensitivity(*(float(each[site].to_numpy()[place]) for each in found))
        for name, (site, place) in places.items()
    }


def _place(name: str) -> tuple[str, tuple[int, ...]]:
    """Return the site and the index of an entry, as conflicts are named."""
    site, _, rest = name.partition("[")
    return site, tuple(int(k) for k in rest.rstrip("]").split(", ")) if rest else ()


def _prior_draws(distribution: Any, shape: torch.Size, seed: int) -> Tensor | None:
    size = max(1, shape.numel())
    with isolated(seed, torch.device("cpu")):
        try:
            drawn: Tensor = distribution.sample(torch.Size([min(NUM_PRIOR_DRAWS, 4_000_000 // size)]))
        except NotImplementedError:  # an improper prior
            return None
    return drawn.reshape(len(drawn), -1) if drawn.numel() == len(drawn) * size else None


@dataclass(frozen=True)
class PriorPrediction:
    """A function of the data, and where it lies among those of data sets from the prior.

    Attributes
    ----------
    site, statistic : str
        Observed site; "mean" or "sd".
    observed, low, high : float
        Of the data, and the central 95% under the prior.
    p_value : float
        Probability of data sets that are farther from the prior's median: wide priors, of which data are at the lower end of
        what is possible, are not held against a model.
    times : float
        Median under the prior over the observed value; of standard deviations.
    """

    site: str
    statistic: str
    observed: float
    low: float
    high: float
    p_value: float
    times: float


def prior_predictions(tree: xr.DataTree) -> Iterator[PriorPrediction]:
    """Yield mean and standard deviation of each observed site, from the tree of :func:`bnnzoo.prior_predictive`."""
    if "prior_predictive" not in tree.children:
        return
    drawn, seen = tree["prior_predictive"].to_dataset(), tree["observed_data"].to_dataset()
    for site in map(str, drawn.data_vars):
        if site not in seen or not np.issubdtype(seen[site].dtype, np.number):
            continue
        values = drawn[site].stack(data_set=("chain", "draw")).transpose("data_set", ...).to_numpy().astype(float)
        values, y = values.reshape(len(values), -1), seen[site].to_numpy().astype(float).ravel()
        if y.size < 2 or not np.isfinite(y).all():
            continue
        for statistic in ("mean", "sd"):
            with np.errstate(over="ignore", invalid="ignore"):
                found = values.mean(1) if statistic == "mean" else values.std(1)
            own = float(y.mean() if statistic == "mean" else y.std())
            found = found[np.isfinite(found)]
            if not len(found) or np.ptp(found) == 0:
                continue
            away = np.abs(found - np.median(found))
            p_value = (np.sum(away >= abs(own - np.median(found))) + 0.5) / (len(found) + 1)
            low, high = np.quantile(found, [0.025, 0.975])
            times = float(np.median(found)) / own if statistic == "sd" and own > 0 else 1.0
            yield PriorPrediction(site, statistic, own, float(low), float(high), float(p_value), times)
