"""Selective prediction: the risk if the most uncertain observations are rejected."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.labelled import aligned

__all__ = ["aurc", "risk_coverage_curve"]

type Array = NDArray[np.floating]


def risk_coverage_curve(uncertainty: xr.DataArray, loss: xr.DataArray) -> xr.Dataset:
    """Mean loss of the most certain observations, against the fraction that is kept.

    Parameters
    ----------
    uncertainty : DataArray [obs_id]
        Observations are rejected in order of this, the most uncertain first.
    loss : DataArray [obs_id]
        Such as ``misclassified(tree)`` or a squared error.

    Returns
    -------
    Dataset
        ``risk[coverage]`` for 1/N, ..., 1, and ``risk_oracle`` for rejection by the loss itself. Equally uncertain
        observations share their mean loss, so their order does not matter.

    Raises
    ------
    ValueError
        If lengths differ, there are no observations, or a value is not finite.

    References
    ----------
    R. El-Yaniv, Y. Wiener, On the foundations of noise-free selective classification, JMLR, 2010.

    Examples
    --------
    >>> uncertainty = xr.DataArray([0.1, 0.9, 0.2, 0.3], dims="obs_id")
    >>> loss = xr.DataArray([0.0, 1.0, 0.0, 1.0], dims="obs_id")
    >>> risk_coverage_curve(uncertainty, loss)["risk"].values.round(4)
    array([0.    , 0.    , 0.3333, 0.5   ])
    """
    scores, losses = _checked(uncertainty, loss)
    coverage = np.arange(1, len(losses) + 1) / len(losses)
    variables = {"risk": _risks(scores, losses), "risk_oracle": _risks(losses, losses)}
    return xr.Dataset({name: ("coverage", values) for name, values in variables.items()}, {"coverage": coverage})


def aurc(
    uncertainty: xr.DataArray, loss: xr.DataArray, *, num_resamples: int = 1000, level: float = 0.95, seed: int = 0
) -> xr.Dataset:
    """Area under the risk-coverage curve: the mean risk over all coverages.

    Parameters
    ----------
    uncertainty, loss : DataArray [obs_id]
        As for :func:`risk_coverage_curve`.
    num_resamples : int
        Number of bootstrap resamples of the observations.
    level : float
        Probability of the interval.
    seed : int

    Returns
    -------
    Dataset
        ``value`` with its percentile interval ``low`` and ``high``, in units of the loss, and ``excess``: the
        value minus that of the oracle, which rejects by the loss itself and is a lower bound.

    Raises
    ------
    ValueError
        If lengths differ, there are no observations, or a value is not finite.

    References
    ----------
    Y. Geifman, G. Uziel, R. El-Yaniv, Bias-reduced uncertainty estimation for deep neural classifiers, ICLR 2019.

    Examples
    --------
    >>> uncertainty = xr.DataArray([0.1, 0.9, 0.2, 0.3], dims="obs_id")
    >>> loss = xr.DataArray([0.0, 1.0, 0.0, 1.0], dims="obs_id")
    >>> float(aurc(uncertainty, loss)["excess"])
    0.0
    """
    scores, losses = _checked(uncertainty, loss)
    if num_resamples < 1 or not 0 < level < 1:
        raise ValueError(f"num_resamples={num_resamples} must be positive, and level={level} between 0 and 1.")
    rng = np.random.default_rng(seed)
    rows = (rng.integers(len(losses), size=len(losses)) for _ in range(num_resamples))
    low, high = np.quantile([_risks(scores[r], losses[r]).mean() for r in rows], [(1 - level) / 2, (1 + level) / 2])
    value = float(_risks(scores, losses).mean())
    excess = value - float(_risks(losses, losses).mean())
    return xr.Dataset({"value": value, "low": float(low), "high": float(high), "excess": excess})


def _checked(uncertainty: xr.DataArray, loss: xr.DataArray) -> tuple[Array, Array]:
    loss = aligned(loss, uncertainty, "loss", "the uncertainties", apart_from=())
    scores, losses = (values.to_numpy().ravel().astype(float) for values in (uncertainty, loss))
    if not len(losses):
        raise ValueError("There are no observations: give one uncertainty and one loss for each.")
    if not (np.isfinite(scores).all() and np.isfinite(losses).all()):
        raise ValueError("Uncertainties and losses must be finite, but some are not.")
    return scores, losses


def _risks(scores: Array, losses: Array) -> Array:
    """Return the mean loss of the n observations with the smallest scores, for n = 1, ..., N."""
    _, group, counts = np.unique(scores, return_inverse=True, return_counts=True)
    mean_of_group = np.bincount(group, losses) / counts
    kept = np.arange(1, len(losses) + 1)
    risks: Array = np.repeat(mean_of_group, counts).cumsum() / kept
    return risks
