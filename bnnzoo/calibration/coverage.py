"""Calibration of real predictions: probability integral transform, coverage of intervals, and sharpness."""

from collections.abc import Sequence

import numpy as np
import xarray as xr
from scipy.stats import binom

from bnnzoo.calibration.draws import predictive_draws
from bnnzoo.trees import SAMPLE_DIMS, Labelled, observations

__all__ = ["coverage_curve", "miscalibration_area", "pit", "sharpness"]


def pit(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Probability integral transform :math:`P(Y < y_i) + \frac12 P(Y = y_i)` of every observation.

    Uniform on (0, 1) if predictions are calibrated; concentrated at both ends if they are too narrow, and in the
    middle if they are too wide.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y, ``predictions`` or ``posterior_predictive`` ``[chain, draw, obs_id, ...]``.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).

    Returns
    -------
    DataArray [obs_id, ...]
        Between 0 and 1.

    Raises
    ------
    ValueError
        If data are missing, or draws or observations are NaN, which lie on neither side of anything.

    References
    ----------
    A. P. Dawid, Statistical theory: the prequential approach, Journal of the Royal Statistical Society A, 1984.

    Examples
    --------
    >>> draws = xr.DataArray([[[0.0], [1.0], [2.0], [3.0]]], dims=("chain", "draw", "obs_id"))
    >>> pit(draws, xr.DataArray([2.5], dims="obs_id")).values
    array([0.75])
    """
    draws = predictive_draws(data, "pit")
    y = observations(data, y, draws)
    failed = draws.isnull().any([dim for dim in draws.dims if dim not in SAMPLE_DIMS])
    if failed.any():
        raise ValueError(
            f"{int(failed.sum())} of {failed.size} draws of y hold NaN, and a draw that is no number lies neither above an "
            f"observation nor below: leave those draws out, or find where the model fails."
        )
    missing = y.isnull().to_numpy().ravel()
    if missing.any():
        raise ValueError(
            f"{int(missing.sum())} of {missing.size} observations are NaN, the first in row {int(missing.argmax())} of them: "
            f"leave these rows out, as in tree.isel(obs_id=seen)."
        )
    return (0.5 * (draws < y) + 0.5 * (draws <= y)).mean(SAMPLE_DIMS).rename("pit").assign_attrs(units="1")


def coverage_curve(
    data: Labelled, y: xr.DataArray | None = None, *, levels: Sequence[float] | None = None, band: float = 0.95
) -> xr.Dataset:
    """Coverage of central predictive intervals: the fraction of observations inside, for each nominal level.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y ``[chain, draw, obs_id, ...]``.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).
    levels : sequence of float, optional
        Nominal levels (default: 0, 0.01, ..., 1).
    band : float
        Probability of the band.

    Returns
    -------
    Dataset
        ``coverage[level]``, and ``low`` and ``high``: at each level, the coverage of calibrated predictions lies between
        them with probability ``band``, by the binomial distribution for independent observations.

    Raises
    ------
    ValueError
        If data are missing or NaN, or a level is not between 0 and 1.

    References
    ----------
    T. Gneiting, F. Balabdaoui, A. E. Raftery, Probabilistic forecasts, calibration and sharpness, JRSS B, 2007.

    Examples
    --------
    >>> draws = xr.DataArray(np.linspace(0, 1, 99)[None, :, None] * [1, 1], dims=("chain", "draw", "obs_id"))
    >>> coverage_curve(draws, xr.DataArray([0.5, 0.95], dims="obs_id"), levels=[0.5, 1.0])["coverage"].values
    array([0.5, 1. ])
    """
    nominal = np.linspace(0, 1, 101) if levels is None else np.asarray(levels, float)
    for name, values in (("levels", nominal), ("band", np.array([band]))):
        if not ((values >= 0) & (values <= 1)).all():
            raise ValueError(f"{name} must be between 0 and 1, but one is {values[(values < 0) | (values > 1)][0]:g}.")
    distance = np.abs(2 * pit(data, y).to_numpy().ravel() - 1)
    count = distance.size
    # A distance computed from ranks may differ from an equal level by rounding.
    coverage = (distance[:, None] <= nominal + 1e-12).mean(0)
    edges = [binom.ppf(p, count, nominal) / count for p in ((1 - band) / 2, (1 + band) / 2)]
    variables = {"coverage": coverage, "low": edges[0], "high": edges[1]}
    return xr.Dataset({name: ("level", v) for name, v in variables.items()}, coords={"level": nominal})


def miscalibration_area(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Area :math:`\int_0^1 |coverage(p) - p| dp` between the coverage curve and the diagonal.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y ``[chain, draw, obs_id, ...]``.
    y : DataArray [obs_id, ...], optional
        Observations (default: those of the tree).

    Returns
    -------
    DataArray
        Scalar, between 0 and 0.5.

    Raises
    ------
    ValueError
        If data are missing or NaN.

    References
    ----------
    K. Tran et al., Methods for comparing uncertainty quantifications for material property predictions, 2020.

    Examples
    --------
    >>> draws = xr.DataArray(np.zeros((1, 10, 4)), dims=("chain", "draw", "obs_id"))
    >>> float(miscalibration_area(draws, xr.DataArray(np.ones(4), dims="obs_id")).round(2))  # no interval holds any
    0.5
    """
    curve = coverage_curve(data, y)
    gap = (curve["coverage"] - curve["level"]).to_numpy()
    # the area between a piecewise linear curve and zero, exact also where a piece crosses zero
    left, right = np.abs(gap[:-1]), np.abs(gap[1:])
    both = np.where(left + right > 0, left + right, 1.0)
    heights = np.where(gap[:-1] * gap[1:] < 0, (left**2 + right**2) / both, left + right)
    area = float((heights * np.diff(curve["level"].to_numpy())).sum() / 2)
    return xr.DataArray(area, name="miscalibration_area", attrs={"units": "1"})


def sharpness(data: Labelled) -> xr.DataArray:
    r"""Sharpness :math:`\sqrt{\frac1N \sum_i Var[y_i]}`: the root mean predictive variance.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With draws of y ``[chain, draw, obs_id, ...]``, at least two.

    Returns
    -------
    DataArray
        Scalar, in units of y. Smaller is sharper, which is better only among calibrated predictions.

    Raises
    ------
    ValueError
        If data are missing or there is a single draw.

    References
    ----------
    T. Gneiting, F. Balabdaoui, A. E. Raftery, Probabilistic forecasts, calibration and sharpness, JRSS B, 2007.

    Examples
    --------
    >>> draws = xr.DataArray([[[-3.0], [3.0]]], dims=("chain", "draw", "obs_id"))
    >>> float(sharpness(draws))
    3.0
    """
    variance = predictive_draws(data, "sharpness", at_least=2).var(SAMPLE_DIMS).mean()
    return (variance**0.5).rename("sharpness").assign_attrs(units="units of y")
