"""Confidence in the most probable class."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees.block_means import average_probs
from bnnzoo.trees.lookup import Labelled

__all__ = ["margin", "max_probability"]

type Array = NDArray[np.floating]


def max_probability(data: Labelled) -> xr.DataArray:
    r"""Confidence: largest probability :math:`\max_k \bar p_k` of the average over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.

    Returns
    -------
    DataArray [obs_id]
        Between 1/K and 1; larger is more certain.

    References
    ----------
    D. Hendrycks, K. Gimpel, A baseline for detecting misclassified and out-of-distribution examples, ICLR 2017.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.7, 0.3]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> max_probability(probs).values
    array([0.8])
    """
    return average_probs(data).max("class_id").rename("max_probability").assign_attrs(units="1")


def margin(data: Labelled) -> xr.DataArray:
    r"""Margin: largest minus second largest probability of the average over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and 1; larger is more certain.

    References
    ----------
    T. Scheffer, C. Decomain, S. Wrobel, Active hidden Markov models for information extraction, IDA 2001.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.7, 0.3]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> margin(probs).values.round(6)
    array([0.6])
    """

    def top_two(probs: Array) -> Array:
        ordered = np.partition(probs, -2, axis=-1)
        return ordered[..., -1] - ordered[..., -2]

    difference = xr.apply_ufunc(top_two, average_probs(data), input_core_dims=[["class_id"]])
    return difference.rename("margin").assign_attrs(units="1")
