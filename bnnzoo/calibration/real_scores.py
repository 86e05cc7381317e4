"""Proper scores of real predictions, from draws of y; smaller is better."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.calibration.draws import flat_draws, predictive_draws, quantiles
from bnnzoo.trees import Labelled, observations

__all__ = ["crps", "energy_score", "interval_score"]

type Array = NDArray[np.floating]


def crps(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Continuous ranked probability score :math:`E|Y - y_i| - \frac12 E|Y - Y'|` of every observation.

    The expectations are over draws from the predictive distribution. Only pairs of different draws are used, so the score
    is unbiased for its value with infinitely many draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y, ``predictions`` or ``posterior_predictive`` ``[chain, draw, obs_id, ...]``, at least two.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).

    Returns
    -------
    DataArray [obs_id, ...]
        In units of y. For a point prediction it is the absolute error.

    Raises
    ------
    ValueError
        If data are missing or there is a single draw.

    References
    ----------
    T. Gneiting, A. E. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA, 2007;
    M. Zamo, P. Naveau, Estimation of the CRPS with limited information, Mathematical Geosciences, 2018.

    Examples
    --------
    >>> draws = xr.DataArray([[[0.0], [1.0]]], dims=("chain", "draw", "obs_id"))
    >>> crps(draws, xr.DataArray([0.0], dims="obs_id")).values
    array([0.])
    """
    draws = predictive_draws(data, "crps", at_least=2)
    return (
        xr.apply_ufunc(_crps, flat_draws(draws), observations(data, y, draws), input_core_dims=[["flat_draw"], []])
        .rename("crps")
        .assign_attrs(units="units of y")
    )


def interval_score(data: Labelled, level: float = 0.9, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Interval score of the central interval: its width, plus :math:`\frac2\alpha` times the distance of y from it.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y ``[chain, draw, obs_id, ...]``.
    level : float
        Nominal coverage :math:`1 - \alpha` of the interval, between 0 and 1.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).

    Returns
    -------
    DataArray [obs_id, ...]
        In units of y.

    Raises
    ------
    ValueError
        If data are missing, or the level is not between 0 and 1.

    References
    ----------
    T. Gneiting, A. E. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA, 2007.

    Examples
    --------
    >>> draws = xr.DataArray(np.linspace(0, 1, 101)[None, :, None], dims=("chain", "draw", "obs_id"))
    >>> interval_score(draws, 0.8, xr.DataArray([0.5], dims="obs_id")).values.round(6)
    array([0.8])
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}; write a probability between 0 and 1, such as 0.9.")
    alpha = 1 - level
    low, high = quantiles(predictive_draws(data, "interval_score"), [alpha / 2, 1 - alpha / 2])
    y = observations(data, y, low)
    outside = (low - y).clip(min=0.0) + (y - high).clip(min=0.0)
    return (high - low + 2 / alpha * outside).rename("interval_score").assign_attrs(units="units of y")


def energy_score(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Energy score :math:`E\|Y - y_i\| - \frac12 E\|Y - Y'\|` of every observation with several outputs.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y ``[chain, draw, obs_id, output_id]``, at least two. The score uses all pairs of draws.
    y : DataArray [obs_id, output_id], optional
        Observations (default: those of the tree).

    Returns
    -------
    DataArray [obs_id]
        In units of y; for one output the CRPS.

    Raises
    ------
    ValueError
        If data are missing or there is a single draw.

    References
    ----------
    T. Gneiting, A. E. Raftery, Strictly proper scoring rules, prediction, and estimation, JASA, 2007.

    Examples
    --------
    >>> draws = xr.DataArray([[[[0.0, 0.0]], [[3.0, 4.0]]]], dims=("chain", "draw", "obs_id", "output_id"))
    >>> energy_score(draws, xr.DataArray([[0.0, 0.0]], dims=("obs_id", "output_id"))).values
    array([0.])
    """
    draws = predictive_draws(data, "energy_score", at_least=2)
    if "output_id" not in draws.dims:
        raise ValueError(
            f"energy_score needs draws with several outputs along 'output_id', but the dims are "
            f"{', '.join(map(str, draws.dims))}: for one output use crps."
        )
    score = xr.apply_ufunc(
        _energy, flat_draws(draws), observations(data, y, draws), vectorize=True,
        input_core_dims=[["flat_draw", "output_id"], ["output_id"]],
    )  # fmt: skip
    return score.rename("energy_score").assign_attrs(units="units of y")


def _crps(draws: Array, y: Array) -> Array:
    """Return the score ``[...]`` of draws ``[..., S]``; a sorted draw of rank r, counted from 0, exceeds r others."""
    count = draws.shape[-1]
    weights = (2 * np.arange(count) - count + 1) / (count * (count - 1))
    return np.abs(draws - y[..., None]).mean(-1) - np.sort(draws, axis=-1) @ weights


def _energy(draws: Array, y: Array) -> float:
    """Return the score of draws ``[S, D]`` for one observation."""
    count = len(draws)
    between = sum(float(np.linalg.norm(draws - draw, axis=-1).sum()) for draw in draws)
    return float(np.linalg.norm(draws - y, axis=-1).mean()) - between / (2 * count * (count - 1))
