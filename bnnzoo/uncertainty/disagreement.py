"""Disagreement between the classes that draws predict."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import SAMPLE_DIMS, Labelled, draw_means, moment, refuse_single_draw

__all__ = ["expected_disagreement", "variation_ratio", "votes"]

type Array = NDArray[np.floating]


def votes(data: Labelled) -> xr.DataArray:
    """Fraction of draws whose most probable class is k, ``[obs_id, class_id]``; ties go to the first class.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.

    Returns
    -------
    DataArray [obs_id, class_id]
        Sums to one over classes.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> votes(probs).values
    array([[0.5, 0.5]])
    """
    return draw_means(moment(data, "probs"), {"votes": _sum_votes}, probs=True)["votes"]


def variation_ratio(data: Labelled) -> xr.DataArray:
    r"""Fraction of draws :math:`1 - \max_k n_k / S` whose most probable class is not that of the majority.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        Between 0 (all vote for the same class) and 1 - 1/K.

    References
    ----------
    L. C. Freeman, Elementary Applied Statistics, 1965.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> variation_ratio(probs).values
    array([0.5])
    """
    refuse_single_draw(moment(data, "probs"), "variation_ratio")
    return (1 - votes(data).max("class_id")).rename("variation_ratio").assign_attrs(units="1")


def expected_disagreement(data: Labelled) -> xr.DataArray:
    r"""Probability :math:`1 - \sum_k \frac{n_k (n_k - 1)}{S (S - 1)}` that two draws predict different classes.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and 1; unbiased for its value with infinitely many draws.

    References
    ----------
    L. Breiman, Random forests, Machine Learning, 2001 (agreement of voters); E. H. Simpson, Measurement of diversity,
    Nature, 1949 (the estimator).

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> expected_disagreement(probs).values
    array([1.])
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "expected_disagreement")
    count = probs.isel(class_id=0, drop=True).count(SAMPLE_DIMS).compute()
    agreement = (votes(probs) * (votes(probs) * count - 1)).sum("class_id", skipna=False) / (count - 1)
    return (1 - agreement).rename("expected_disagreement").assign_attrs(units="1")


def _sum_votes(probs: Array) -> Array:
    winners = probs.argmax(-1)
    is_winner = (winners[..., None] == np.arange(probs.shape[-1])) & ~np.isnan(probs)
    counts: Array = is_winner.sum(0, dtype=float)
    return counts
