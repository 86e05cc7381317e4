"""Cross-validation by refitting, with results that go into ``az.compare``."""

import warnings
from concurrent.futures import Executor
from typing import Any, Literal

import numpy as np
import xarray as xr
from arviz_stats.loo.lfo_cv import lfo_cv
from arviz_stats.loo.loo_kfold import loo_kfold
from arviz_stats.loo.reloo import reloo as arviz_reloo
from arviz_stats.utils import ELPDData
from numpy.typing import ArrayLike
from sklearn.model_selection import GroupKFold, KFold, StratifiedKFold

from bnnzoo.core.method import Method
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.reading.parts import refuse_dependent_parts
from bnnzoo.core.settings import check_argument
from bnnzoo.core.types import Data, Model
from bnnzoo.diagnostics.loo import UnreliableLooWarning, loo
from bnnzoo.inference import fit
from bnnzoo.predictive import posterior_predictive
from bnnzoo.validation.moment_matching import moment_match as matched
from bnnzoo.validation.refits import Refit, Refits, by_row

__all__ = ["kfold", "leave_future_out", "reloo"]


def kfold(
    model: Model,
    method: Method,
    *data: Any,
    num_folds: int = 10,
    folds: ArrayLike | None = None,
    stratify_by: ArrayLike | None = None,
    group_by: ArrayLike | None = None,
    num_draws: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    **options: Any,
) -> ELPDData:
    r"""Return the log predictive density of every observation given those of the other folds.

    .. math:: \mathrm{elpd} = \sum_{k} \sum_{i \in I_k} \log p(y_i \mid y_{-I_k})

    The model is fitted once to all observations and once without each fold. Unlike LOO by importance sampling it holds for
    every method, however far its posterior is from the exact one: what is judged are the predictions it makes. How far that is
    is said of the fit to all observations alone; a refit warns of what its own record tells, such as chains that disagree.

    Parameters
    ----------
    model, method, *data
        As for :func:`bnnzoo.fit`, observations included.
    num_folds : int
        Number of parts into which the rows are divided at random.
    folds : array_like [N], optional
        A number or name of a fold for each row, in place of random ones.
    stratify_by : array_like [N], optional
        Classes whose shares should be alike in all folds.
    group_by : array_like [N], optional
        Groups whose rows stay in one fold, such as the measurements of one person.
    num_draws : int, optional
        Draws a chain with which each fold is predicted; default: as for :func:`bnnzoo.predict`.
    seed : int
        Of the folds and of every fit.
    executor : concurrent.futures.Executor, optional
        Where the refits run; default: one after the other in this process.
    **options
        Of :func:`bnnzoo.fit`, such as ``dtype``, or arguments of the model by name.

    Returns
    -------
    ELPDData
        ArviZ's, with ``elpd``, ``se``, ``p`` and ``elpd_i`` by observation; ``az.compare`` takes it.

    Raises
    ------
    ValueError
        If the folds do not divide the rows into two parts or more, or more than one way of dividing them is given.

    References
    ----------
    Vehtari and Lampinen (2002), Bayesian model assessment and comparison using cross-validation predictive densities,
    Neural Computation 14.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> found = bz.validation.kfold(target.model, bz.MAP(num_steps=50), *target.data, num_folds=2)
    >>> found.kind, int(found.n_data_points)
    ('loo_kfold', 40)
    """
    posterior, refits = _fitted(model, method, data, num_draws, seed, options)
    num_rows = posterior.density.num_data
    given = {"folds": folds, "stratify_by": stratify_by, "group_by": group_by}
    ways = {name: np.asarray(values) for name, values in given.items() if values is not None}
    if len(ways) > 1:
        raise ValueError(f"{' and '.join(ways)} divide the rows in different ways: give one of them.")
    for name, values in ways.items():
        if values.shape != (num_rows,):
            raise ValueError(
                f"{name} has shape {values.shape}; write one entry for each of the {num_rows} observations."
            )
        if len(np.unique(values)) < 2:
            raise ValueError(
                f"{name} has the same entry for every observation: nothing is left to fit when it is left out."
            )
    if "folds" not in ways and not (isinstance(num_folds, int) and 2 <= num_folds <= num_rows):
        raise ValueError(
            f"num_folds={num_folds!r}; write a number between 2 and the number of observations, {num_rows}."
        )
    if "folds" in ways:
        labels = np.unique(ways["folds"], return_inverse=True)[1]
    else:
        way, strata = next(iter(ways.items()), ("", None))
        splitter = {"stratify_by": StratifiedKFold, "group_by": GroupKFold}.get(way, KFold)
        parts = splitter(num_folds, shuffle=True, random_state=seed).split(
            np.zeros(num_rows), **{"groups" if way == "group_by" else "y": strata}
        )
        labels = np.empty(num_rows, dtype=np.intp)
        for number, (_, left_out) in enumerate(parts):
            labels[left_out] = number
    smallest = int(np.unique(labels, return_counts=True)[1].min())
    refuse_dependent_parts(posterior.density, len(labels) - smallest, "kfold", may_scale=False)
    refits.prepare([np.flatnonzero(labels == label) for label in np.unique(labels)], executor)
    return loo_kfold(refits.idata_orig, refits, pointwise=True, folds=labels)


def reloo(
    model: Model,
    method: Method,
    *data: Any,
    k_threshold: float | None = None,
    moment_match: bool = False,
    num_draws: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    **options: Any,
) -> ELPDData:
    """Return LOO with a refit for each observation whose importance weights are unreliable.

    Parameters
    ----------
    model, method, *data
        As for :func:`bnnzoo.fit`, observations included.
    k_threshold : float, optional
        Pareto k above which an observation is refitted; default: ArviZ's ``min(1 - 1 / log10(S), 0.7)`` for S draws.
    moment_match : bool
        Try :func:`bnnzoo.validation.moment_match` first, and refit only where it does not help.
    num_draws, seed, executor, **options
        As for :func:`kfold`.

    Returns
    -------
    ELPDData
        As of :func:`bnnzoo.diagnostics.loo`; the Pareto k of observations that were refitted is 0.

    Raises
    ------
    ValueError
        If the method has no LOO, as an ensemble has none.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> found = bz.validation.reloo(target.model, bz.Laplace(), *target.data, num_draws=200)
    >>> bool((found.pareto_k < 0.7).all())
    True
    """
    check_argument("reloo", "k_threshold", k_threshold, float | None)
    posterior, refits = _fitted(model, method, data, num_draws, seed, options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnreliableLooWarning)  # which the refits answer
        plain = not moment_match
        found = loo(refits.idata_orig) if plain else matched(posterior, k_threshold=k_threshold, num_draws=num_draws)
    threshold = found.good_k if k_threshold is None else k_threshold
    bad = np.flatnonzero(~(found.pareto_k.to_numpy() <= threshold))
    found.pareto_k = found.pareto_k.fillna(np.inf)  # a NaN is no good weight either
    refits.prepare([np.array([row]) for row in bad], executor)
    return arviz_reloo(refits, loo_orig=found, k_threshold=threshold, pointwise=True)


def leave_future_out(
    model: Model,
    method: Method,
    *data: Any,
    min_observations: int,
    forecast_horizon: int = 1,
    estimator: Literal["exact", "approx"] = "exact",
    num_draws: int | None = None,
    seed: int = 0,
    executor: Executor | None = None,
    **options: Any,
) -> ELPDData:
    r"""Return the log predictive density of a series' next observations given those before them.

    .. math:: \mathrm{elpd} = \sum_{t} \log p(y_{t}, \ldots, y_{t + h - 1} \mid y_{1}, \ldots, y_{t - 1})

    Rows are taken as ordered in time, and as independent given the parameters and the inputs: the past enters through inputs,
    such as lagged values. One program fits all pasts of a small model, by a method that learns of the data through the log
    density alone: shorter pasts are padded by rows of weight zero, which changes a fit by rounding only.

    Parameters
    ----------
    model, method, *data
        As for :func:`bnnzoo.fit`, observations included.
    min_observations : int
        Length of the shortest past.
    forecast_horizon : int
        How many observations h each past predicts.
    estimator : str
        "exact" refits at every time; "approx" reweights the last fit's draws while their Pareto k allows, for methods whose
        draws come from the posterior itself.
    num_draws, seed, executor, **options
        As for :func:`kfold`; "approx" does not know its refits ahead and runs in this process.

    Returns
    -------
    ELPDData
        ArviZ's, with ``elpd_i`` by the first row predicted.

    Raises
    ------
    ValueError
        If there are too few rows.

    References
    ----------
    Bürkner, Gabry and Vehtari (2020), Approximate leave-future-out cross-validation for Bayesian time series models,
    Journal of Statistical Computation and Simulation 90.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> found = bz.validation.leave_future_out(target.model, bz.MAP(num_steps=50), *target.data, min_observations=38)
    >>> int(found.n_data_points)
    2
    """
    check_argument("leave_future_out", "estimator", estimator, Literal["exact", "approx"])
    posterior, refits = _fitted(model, method, data, num_draws, seed, options)
    num_rows = posterior.density.num_data
    if estimator == "exact":
        pasts = range(min_observations, num_rows - forecast_horizon + 1)
        refits.prepare([np.arange(past, num_rows) for past in pasts], executor)
    return lfo_cv(
        refits.idata_orig,
        refits,
        min_observations,
        forecast_horizon,
        time_dim="obs_id",
        pointwise=True,
        method=estimator,
    )


def _fitted(
    model: Model, method: Method, data: Data, num_draws: int | None, seed: int, options: dict[str, Any]
) -> tuple[Posterior, Refits]:
    """Fit the model to all data; return the posterior, and what refits it without some rows."""
    posterior = fit(model, method, *data, seed=seed, progress=False, **options)
    density = posterior.density
    tree = posterior_predictive(posterior, *density.data, num_draws=num_draws, weights=False)
    log_likelihood = by_row(tree["log_likelihood"].to_dataset())
    tree = tree.assign({"log_likelihood": xr.DataTree(log_likelihood.to_dataset())})
    return posterior, Refits(tree, density, Refit(method, np.array([], dtype=np.intp), seed, num_draws))
