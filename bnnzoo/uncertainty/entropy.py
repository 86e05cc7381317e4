"""Uncertainty of class predictions by Shannon entropy, in nats."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import (
    SMALLEST_PROB,
    Labelled,
    average_probs,
    companion,
    draw_means,
    entropies,
    moment,
    num_draws,
    refuse_single_draw,
    shannon_entropy,
    sum_draws,
    sum_plogp,
)

__all__ = ["expected_entropy", "jensen_shannon", "mutual_information", "pairwise_kl", "predictive_entropy"]

type Array = NDArray[np.floating]


def predictive_entropy(data: Labelled) -> xr.DataArray:
    r"""Total uncertainty: entropy :math:`H[\frac1S \sum_s p(y \mid x, \theta_s)]` in nats of the average over draws.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and log K.

    References
    ----------
    S. Depeweg et al., Decomposition of uncertainty in Bayesian deep learning, ICML 2018.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> predictive_entropy(probs).values.round(6)
    array([0.693147])
    """
    return shannon_entropy(average_probs(data)).rename("predictive_entropy").assign_attrs(units="nats")


def expected_entropy(data: Labelled) -> xr.DataArray:
    r"""Aleatoric uncertainty: mean over draws :math:`\frac1S \sum_s H[p(y \mid x, \theta_s)]` of the entropy, in nats.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``entropy`` of each draw, or else ``probs[chain, draw, obs_id, class_id]``.

    Returns
    -------
    DataArray [obs_id]
        At most the predictive entropy.

    References
    ----------
    S. Depeweg et al., Decomposition of uncertainty in Bayesian deep learning, ICML 2018.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> expected_entropy(probs).values.round(6)
    array([0.325083])
    """
    stored = companion(data, "probs", "entropy")
    if stored is not None:
        mean = draw_means(stored, {"entropy": sum_draws})["entropy"]
    else:
        mean = -draw_means(moment(data, "probs"), {"plogp": sum_plogp}, probs=True)["plogp"].sum(
            "class_id", skipna=False
        )
    return mean.rename("expected_entropy").assign_attrs(units="nats")


def mutual_information(data: Labelled) -> xr.DataArray:
    r"""Epistemic uncertainty: mutual information :math:`I[y; \theta \mid x]` in nats between a label and the parameters.

    The predictive entropy minus the expected entropy; the acquisition function of BALD.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws, and, optionally, ``entropy``.

    Returns
    -------
    DataArray [obs_id]
        Between 0 and log min(K, S) for S draws.

    Raises
    ------
    ValueError
        If there is a single draw.

    References
    ----------
    N. Houlsby et al., Bayesian active learning for classification and preference learning, 2011.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> mutual_information(probs).values.round(6)
    array([0.368064])
    """
    return entropies(data)["mutual_information"]


def jensen_shannon(data: Labelled) -> xr.DataArray:
    r"""Jensen-Shannon divergence of the draws' class probabilities relative to its maximum, between 0 and 1.

    The divergence of S equally weighted distributions is the mutual information between label and parameters; dividing it by
    :math:`\log \min(S, K)` makes ensembles of different sizes and different numbers of classes comparable.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        Dimensionless.

    References
    ----------
    J. Lin, Divergence measures based on the Shannon entropy, IEEE Transactions on Information Theory, 1991.

    Examples
    --------
    >>> probs = xr.DataArray([[[[1.0, 0.0]], [[0.0, 1.0]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> jensen_shannon(probs).values
    array([1.])
    """
    probs = moment(data, "probs")
    largest = np.log(min(num_draws(probs), probs.sizes["class_id"]))
    return (mutual_information(data) / largest).rename("jensen_shannon").assign_attrs(units="1")


def pairwise_kl(data: Labelled) -> xr.DataArray:
    r"""Expected Kullback-Leibler divergence :math:`\frac1{S^2} \sum_{s,t} KL[p_s \| p_t]` of pairs of draws, in nats.

    An upper bound of the mutual information. A class to which a draw gives probability zero counts as the smallest
    single-precision number, so that the result is large but finite.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        At least 0.

    References
    ----------
    A. Malinin, L. Prokhorenkova, A. Ustimenko, Uncertainty in gradient boosting via ensembles, ICLR 2021.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.1, 0.9]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> pairwise_kl(probs).values.round(6)  # half of the pairs differ, by 0.8 log 9 each
    array([0.87889])
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "pairwise_kl")
    mean = draw_means(probs, {"p": sum_draws, "log_p": _sum_log, "plogp": sum_plogp}, probs=True)
    divergence = (mean["plogp"] - mean["p"] * mean["log_p"]).sum("class_id", skipna=False).clip(min=0.0)
    return divergence.rename("pairwise_kl").assign_attrs(units="nats")


def _sum_log(probs: Array) -> Array:
    return sum_draws(np.log(np.maximum(probs, SMALLEST_PROB)))
