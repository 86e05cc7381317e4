"""Split-conformal intervals of real predictions, with finite-sample coverage."""

from dataclasses import dataclass
from typing import Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.calibration.draws import predictive_draws, quantiles
from bnnzoo.trees import SAMPLE_DIMS, Labelled, observations

__all__ = ["AbsoluteResidual", "ConformalizedQuantiles", "NormalizedResidual", "conformal_quantile"]

type Array = NDArray[np.floating]


def conformal_quantile(scores: Array, level: float) -> float:
    r"""The :math:`\lceil (n + 1) level \rceil`-th smallest of n scores, infinite if there are too few.

    If a new score is exchangeable with these, it does not exceed this number with probability at least ``level``, and at
    most ``level + 1 / (n + 1)`` if there are no ties.

    Parameters
    ----------
    scores : ndarray [n]
        Scores of observations that were not used in any fit.
    level : float
        Between 0 and 1.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If the level is not between 0 and 1, there are no scores, or one is NaN.

    References
    ----------
    V. Vovk, A. Gammerman, G. Shafer, Algorithmic Learning in a Random World, 2005.

    Examples
    --------
    >>> conformal_quantile(np.arange(1.0, 10.0), 0.8)  # the 8th of 9
    8.0
    """
    if not 0 < level < 1:
        raise ValueError(f"level={level}; write a probability between 0 and 1, such as 0.9.")
    if scores.size == 0 or np.isnan(scores).any():
        raise ValueError(
            f"Conformal prediction needs held-out scores without NaN, but there are {scores.size} scores, "
            f"{int(np.isnan(scores).sum())} of them NaN."
        )
    rank = int(np.ceil(np.round((scores.size + 1) * level, 9)))  # rounding, so that 10 x 0.9 does not become 10
    return float(np.sort(scores, axis=None)[rank - 1]) if rank <= scores.size else float("inf")


@dataclass(frozen=True)
class AbsoluteResidual:
    r"""Intervals :math:`\hat y_i \pm q` around the predictive mean, of constant width.

    Coverage is marginal, and holds if held-out and new observations are exchangeable; it is lost under covariate shift.

    Parameters
    ----------
    quantile : float
        q, in units of y.

    References
    ----------
    J. Lei et al., Distribution-free predictive inference for regression, JASA, 2018.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("regression", num_rows=40)
    >>> list(AbsoluteResidual.fit(held_out, level=0.8).intervals(held_out))
    ['low', 'high']
    """

    quantile: float

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None, *, level: float) -> Self:
        """Compute the quantile of the residuals of held-out observations.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With draws of y ``[chain, draw, obs_id, ...]`` of observations that the posterior was not fitted to.
        y : DataArray [obs_id, ...], optional
            Observations (default: those of the tree).
        level : float
            Probability that an interval contains a new observation.
        """
        draws = predictive_draws(data, "AbsoluteResidual")
        return cls(_fitted(abs(observations(data, y, draws) - draws.mean(SAMPLE_DIMS)), level))

    def intervals(self, data: Labelled) -> xr.Dataset:
        """Return ``low`` and ``high`` ``[obs_id, ...]`` for new observations, in units of y.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With draws of y ``[chain, draw, obs_id, ...]``.
        """
        centre = predictive_draws(data, "AbsoluteResidual").mean(SAMPLE_DIMS)
        return _interval(centre - self.quantile, centre + self.quantile)


@dataclass(frozen=True)
class NormalizedResidual:
    r"""Intervals :math:`\hat y_i \pm q\, sd_i`, with width proportional to the predictive standard deviation.

    Parameters
    ----------
    quantile : float
        q, in standard deviations.

    References
    ----------
    J. Lei et al., Distribution-free predictive inference for regression, JASA, 2018.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("regression", num_rows=40)
    >>> list(NormalizedResidual.fit(held_out, level=0.8).intervals(held_out))
    ['low', 'high']
    """

    quantile: float

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None, *, level: float) -> Self:
        """Compute the quantile of the normalised residuals of held-out observations.

        Parameters
        ----------
        data, y, level
            As for :meth:`AbsoluteResidual.fit`; at least two draws.
        """
        centre, scale = _centre_and_scale(data)
        return cls(_fitted(abs(observations(data, y, centre) - centre) / scale, level))

    def intervals(self, data: Labelled) -> xr.Dataset:
        """Return ``low`` and ``high`` ``[obs_id, ...]`` for new observations, in units of y.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With draws of y ``[chain, draw, obs_id, ...]``.
        """
        centre, scale = _centre_and_scale(data)
        return _interval(centre - self.quantile * scale, centre + self.quantile * scale)


@dataclass(frozen=True)
class ConformalizedQuantiles:
    r"""Conformalised quantile regression: predictive quantiles, shifted outwards (or inwards) by q.

    Parameters
    ----------
    quantile : float
        q, in units of y; negative if the predictive intervals are too wide.
    level : float
        Level of the predictive interval.

    References
    ----------
    Y. Romano, E. Patterson, E. Candès, Conformalized quantile regression, NeurIPS 2019.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> held_out = example_tree("regression", num_rows=40)
    >>> list(ConformalizedQuantiles.fit(held_out, level=0.8).intervals(held_out))
    ['low', 'high']
    """

    quantile: float
    level: float

    @classmethod
    def fit(cls, data: Labelled, y: xr.DataArray | None = None, *, level: float) -> Self:
        """Compute the quantile of the distances by which held-out observations lie outside their predictive intervals.

        Parameters
        ----------
        data, y, level
            As for :meth:`AbsoluteResidual.fit`.
        """
        low, high = _central(data, level)
        y = observations(data, y, low)
        return cls(_fitted(xr.apply_ufunc(np.maximum, low - y, y - high), level), level)

    def intervals(self, data: Labelled) -> xr.Dataset:
        """Return ``low`` and ``high`` ``[obs_id, ...]`` for new observations, in units of y.

        Parameters
        ----------
        data : DataTree, Dataset or DataArray
            With draws of y ``[chain, draw, obs_id, ...]``.
        """
        low, high = _central(data, self.level)
        middle = (low + high) / 2  # an interval cannot shrink by more than half its width
        return _interval((low - self.quantile).clip(max=middle), (high + self.quantile).clip(min=middle))


def _fitted(scores: xr.DataArray, level: float) -> float:
    return conformal_quantile(scores.to_numpy(), level)


def _interval(low: xr.DataArray, high: xr.DataArray) -> xr.Dataset:
    return xr.Dataset({"low": low, "high": high})


def _centre_and_scale(data: Labelled) -> tuple[xr.DataArray, xr.DataArray]:
    draws = predictive_draws(data, "NormalizedResidual", at_least=2)
    scale = draws.std(SAMPLE_DIMS)
    if not bool((scale > 0).all()):
        raise ValueError(
            "NormalizedResidual divides by the standard deviation of the draws of y, but it is 0 for some observation."
        )
    return draws.mean(SAMPLE_DIMS), scale


def _central(data: Labelled, level: float) -> list[xr.DataArray]:
    if not 0 < level < 1:
        raise ValueError(f"level={level}; write a probability between 0 and 1, such as 0.9.")
    return quantiles(predictive_draws(data, "ConformalizedQuantiles"), [(1 - level) / 2, (1 + level) / 2])
