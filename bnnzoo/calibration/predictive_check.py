"""Posterior predictive checks: functions of the data beside the same functions of replicated data, with p-values."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import xarray as xr
from arviz_stats.sampling_diagnostics import mcse
from numpy.typing import NDArray

from bnnzoo.calibration.draws import predictive_draws
from bnnzoo.trees import SAMPLE_DIMS, Labelled, num_draws, observations

__all__ = ["predictive_check"]

type Statistic = Callable[[NDArray[Any]], float | np.floating]

STATISTICS: Mapping[str, Statistic] = MappingProxyType({"mean": np.mean, "sd": np.std, "min": np.min, "max": np.max})
LEVEL = 0.95
MIN_DRAWS = 4  # per chain, for a Monte Carlo error


def predictive_check(
    data: Labelled, statistics: Mapping[str, Statistic] = STATISTICS, y: xr.DataArray | None = None
) -> xr.Dataset:
    r"""Compare functions :math:`T(y)` of the observations with :math:`T(y^{rep})` of data drawn from the model.

    The posterior predictive p-value is :math:`P(T(y^{rep}) > T(y)) + \frac12 P(T(y^{rep}) = T(y))`. A value near 0 or 1 says
    that the model does not produce data with this feature. Replicates are drawn from the posterior given the same data, so
    p-values concentrate around 0.5 and are not uniform under the true model; choose functions that the model does not fit
    directly, such as extremes, skewness, autocorrelation, or the number of zeros.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``posterior_predictive`` and ``observed_data``, or ``predictions`` and ``predictions_observed_data``, of one
        observed site; or draws ``[chain, draw, obs_id, ...]`` and ``y``. From :func:`bnnzoo.prior_predictive` it is a prior
        predictive check with ``data=tree["prior_predictive"].to_dataset()`` and ``y``.
    statistics : mapping of str to callable
        Functions of one data set ``y[obs_id, ...]``, a numpy array, that return a number. Default: mean, sd, min and max.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).

    Returns
    -------
    Dataset
        ``observed`` (of the data), ``mean``, ``low`` and ``high`` (mean and central 95% interval over replicates), ``p_value``
        and its Monte Carlo standard error ``mcse``, all ``[statistic]``; and ``replicated[chain, draw, statistic]``.

    Raises
    ------
    TypeError
        If the statistics have no names.
    ValueError
        If draws or observations are missing, there are no statistics, or one is not a finite number for the data.

    References
    ----------
    A. Gelman, X.-L. Meng, H. Stern, Posterior predictive assessment of model fitness via realized discrepancies, Statistica
    Sinica, 1996.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> check = predictive_check(example_tree("regression"), {"largest": np.max, "range": np.ptp})
    >>> check["statistic"].values.tolist(), bool((check["p_value"] > 0.01).all())
    (['largest', 'range'], True)
    """
    if not isinstance(statistics, Mapping):
        raise TypeError(f'statistics={statistics!r}: write functions of y by name, such as {{"largest": np.max}}.')
    if not statistics:
        raise ValueError('There are no statistics: write functions of y by name, such as {"largest": np.max}.')
    draws = predictive_draws(data, "predictive_check").transpose(*SAMPLE_DIMS, ...)
    known = observations(data, y, draws).to_numpy()
    observed = xr.DataArray([_number(name, t, known) for name, t in statistics.items()], dims="statistic")
    found = np.array([[[float(t(one)) for t in statistics.values()] for one in chain] for chain in draws.to_numpy()])
    replicated = xr.DataArray(found, dims=(*SAMPLE_DIMS, "statistic"))
    low, high = (replicated.quantile(q, SAMPLE_DIMS).drop_vars("quantile") for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    above = (replicated > observed) + 0.5 * (replicated == observed)
    # of a mean over draws, which may be autocorrelated; 0 if all are the same
    if above.sizes["draw"] < MIN_DRAWS:
        standard_error = above.std(SAMPLE_DIMS) / np.sqrt(num_draws(above))
    else:
        with np.errstate(invalid="ignore"):
            standard_error = xr.where(above.std(SAMPLE_DIMS) > 0, mcse(above, method="mean"), 0.0)
    parts = {
        "observed": observed,
        "mean": replicated.mean(SAMPLE_DIMS),
        "low": low,
        "high": high,
        "p_value": above.mean(SAMPLE_DIMS),
        "mcse": standard_error,
        "replicated": replicated,
    }
    return xr.Dataset(parts, {"statistic": list(statistics)})


def _number(name: str, statistic: Statistic, y: NDArray[Any]) -> float:
    value = np.asarray(statistic(y))
    if value.ndim or not np.isfinite(value):
        raise ValueError(
            f"The statistic {name!r} of the observations is {np.array2string(value, threshold=4)}, but must be one finite "
            "number: write a function of y[obs_id], such as np.max."
        )
    return float(value)
