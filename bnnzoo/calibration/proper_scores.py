"""Proper scores of predictions, one per observation; smaller is better."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import (
    Labelled,
    average_probs,
    class_indices,
    log_mean_exp,
    moment,
    observations,
    refuse_no_count,
    refuse_parts_of_trees,
)

__all__ = ["brier", "brier_split", "nll", "nll_of_probs"]

type Array = NDArray[np.floating]


def nll(tree: xr.DataTree) -> xr.DataArray:
    r"""Log score: :math:`-\log \frac1S \sum_s p(y_i \mid x_i, \theta_s)` in nats, of every observation.

    Densities are averaged over draws, not their logarithms, and the draws are not approximated by a Gaussian.

    Parameters
    ----------
    tree : DataTree
        With ``predictions_log_likelihood``, or else ``log_likelihood``, ``[chain, draw, obs_id, ...]`` of one observed
        site. Several entries (outputs) of an observation are scored separately.

    Returns
    -------
    DataArray [obs_id, ...]
        In nats. For real y it depends on the unit of y: it increases by log c if the unit is c times smaller.

    Raises
    ------
    ValueError
        If the group is missing or has several sites.

    References
    ----------
    I. J. Good, Rational decisions, Journal of the Royal Statistical Society B, 1952.

    Examples
    --------
    >>> log_likelihood = np.log([[[0.5], [0.25]]])
    >>> group = xr.Dataset({"y": (("chain", "draw", "obs_id"), log_likelihood)})
    >>> nll(xr.DataTree.from_dict({"predictions_log_likelihood": group})).values.round(6)  # -log 0.375
    array([0.980829])
    """
    return (-log_mean_exp(_log_likelihood(tree))).rename("nll").assign_attrs(units="nats")


def nll_of_probs(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Log score :math:`-\log \bar p_{y_i}` in nats of the class probabilities averaged over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.
    y : DataArray [obs_id], optional
        Observed labels (default: those of the tree).

    Returns
    -------
    DataArray [obs_id]
        In nats; infinite if the observed class has probability zero.

    Raises
    ------
    ValueError
        If data are missing, or a label is not one of the classes.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> nll_of_probs(probs, xr.DataArray([1], dims="obs_id")).values.round(6)
    array([0.287682])
    """
    probs = average_probs(data)
    chosen = probs.isel(class_id=class_indices(observations(data, y), probs).drop_vars("class_id", errors="ignore"))
    with np.errstate(divide="ignore"):
        score = -xr.apply_ufunc(np.log, chosen)
    return score.drop_vars("class_id", errors="ignore").rename("nll").assign_attrs(units="nats")


def brier(data: Labelled, y: xr.DataArray | None = None) -> xr.DataArray:
    r"""Brier score :math:`\sum_k (\bar p_k - 1[y_i = k])^2` of the class probabilities averaged over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.
    y : DataArray [obs_id], optional
        Observed labels (default: those of the tree).

    Returns
    -------
    DataArray [obs_id]
        Between 0 and 2, the sum over all classes. For two classes, some authors report half of this.

    Raises
    ------
    ValueError
        If data are missing, or a label is not one of the classes.

    References
    ----------
    G. W. Brier, Verification of forecasts expressed in terms of probability, Monthly Weather Review, 1950.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.25, 0.75]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> brier(probs, xr.DataArray([1], dims="obs_id")).values
    array([0.125])
    """
    probs = average_probs(data)
    score = ((probs - one_hot(observations(data, y), probs)) ** 2).sum("class_id", skipna=False)
    return score.rename("brier").assign_attrs(units="1")


def brier_split(data: Labelled, y: xr.DataArray | None = None, num_bins: int = 10) -> xr.Dataset:
    r"""Split the mean Brier score into reliability, resolution and uncertainty.

    For each class, probabilities are grouped into bins of equal width. With :math:`n_b` probabilities of mean
    :math:`\bar p_b` and frequency :math:`\bar o_b` of the class in bin b, and overall frequency :math:`\bar o`, the
    reliability is :math:`\frac1N \sum_b n_b (\bar p_b - \bar o_b)^2`, the resolution
    :math:`\frac1N \sum_b n_b (\bar o_b - \bar o)^2`, the uncertainty :math:`\bar o (1 - \bar o)`, all summed over
    classes. ``within`` is the remainder due to different probabilities within a bin, which makes the sum exact.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.
    y : DataArray [obs_id], optional
        Observed labels (default: those of the tree).
    num_bins : int

    Returns
    -------
    Dataset
        ``brier = reliability - resolution + uncertainty + within``. Smaller reliability and larger resolution are better.

    Raises
    ------
    ValueError
        If data are missing, a label is not one of the classes, or ``num_bins`` is not positive.

    References
    ----------
    A. H. Murphy, A new vector partition of the probability score, Journal of Applied Meteorology, 1973;
    D. B. Stephenson et al., Two extra components in the Brier score decomposition, Weather and Forecasting, 2008.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.2, 0.8], [0.2, 0.8]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> brier_split(probs, xr.DataArray([1, 0], dims="obs_id")).round(3).to_array().values
    array([0.68, 0.18, 0.  , 0.5 , 0.  ])
    """
    refuse_no_count("num_bins", num_bins)
    probs = average_probs(data)
    outcomes = one_hot(observations(data, y), probs).transpose(*probs.dims).to_numpy()
    sums = np.sum([_murphy(p, o, num_bins) for p, o in zip(probs.to_numpy().T, outcomes.T, strict=True)], axis=0)
    score = float(((probs.to_numpy() - outcomes) ** 2).sum(-1).mean())
    reliability, resolution, uncertainty = (float(part) for part in sums)
    within = score - (reliability - resolution + uncertainty)
    parts = {"reliability": reliability, "resolution": resolution, "uncertainty": uncertainty, "within": within}
    return xr.Dataset({"brier": score} | parts)


def one_hot(y: xr.DataArray, probs: xr.DataArray) -> xr.DataArray:
    """Return 1 for the observed class and 0 for all others, ``[obs_id, class_id]``.

    Parameters
    ----------
    y : DataArray [obs_id]
    probs : DataArray [..., class_id]
    """
    classes = xr.DataArray(np.arange(probs.sizes["class_id"]), dims="class_id")
    coords = {"class_id": probs["class_id"]} if "class_id" in probs.coords else {}
    return (class_indices(y, probs) == classes).astype(float).assign_coords(coords)


def _murphy(probs: Array, outcomes: Array, num_bins: int) -> Array:
    bins = np.minimum((probs * num_bins).astype(int), num_bins - 1)
    counts = np.bincount(bins, minlength=num_bins)
    filled = counts > 0
    mean_prob, frequency = (np.bincount(bins, v, num_bins)[filled] / counts[filled] for v in (probs, outcomes))
    weights, overall = counts[filled] / len(probs), outcomes.mean()
    reliability = weights @ (mean_prob - frequency) ** 2
    resolution = weights @ (frequency - overall) ** 2
    return np.array([reliability, resolution, overall * (1 - overall)])


def _log_likelihood(tree: xr.DataTree) -> xr.DataArray:
    refuse_parts_of_trees(tree)
    for name in ("predictions_log_likelihood", "log_likelihood"):
        if name in tree.children:
            group = tree[name].to_dataset()
            if len(group.data_vars) != 1:
                raise ValueError(
                    f"Group {name!r} has sites {', '.join(map(str, group.data_vars))} instead of one: keep one of "
                    "them, or their sum, in a separate tree."
                )
            return moment(next(iter(group.data_vars.values())), "log_likelihood")
    raise ValueError(
        f"The tree has neither 'predictions_log_likelihood' nor 'log_likelihood' (groups: "
        f"{', '.join(tree.children) or 'none'}): make it with bnnzoo.predict(posterior, x, y), observations included."
    )
