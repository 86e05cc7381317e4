"""Scores of the expected logits, and how far the logits of draws are apart."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import Labelled, draw_means, moment, refuse_single_draw

__all__ = ["logit_disagreement", "max_expected_logit"]

LEAST = float(np.finfo(np.float32).tiny)
"""Smaller probabilities count as this one, whether they underflowed in single or in double precision."""

type Array = NDArray[np.floating]


def max_expected_logit(data: Labelled) -> xr.DataArray:
    r"""Largest expected logit :math:`\max_k \frac1S \sum_s z_{sk}`, a measure of confidence that does not saturate at one.

    Logits are centred, :math:`z_{sk} = \log p_{sk} - \frac1K \sum_j \log p_{sj}`: probabilities know those of a network up to
    what is added to all classes.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]``. Probabilities below 1.2e-38 count as that.

    Returns
    -------
    DataArray [obs_id]
        In nats, 0 (all classes are equally likely) or more. Larger is more certain.

    References
    ----------
    K. Raina, T. Schmah, Out-of-distribution detection from small training sets using Bayesian neural network classifiers,
    arXiv:2510.06025, 2025, where logits are not centred.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.8, 0.2]], [[0.8, 0.2]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> max_expected_logit(probs).round(3).values
    array([0.693])
    """
    found = draw_means(moment(data, "probs"), {"logit": lambda probs: _logits(probs).sum(0)}, probs=True)["logit"]
    return found.max("class_id").rename("max_expected_logit").assign_attrs(units="nats")


def logit_disagreement(data: Labelled) -> xr.DataArray:
    r"""Variance of the logits over draws, :math:`\frac1S \sum_{s,k} (z_{sk} - \bar z_k)^2`, a measure of epistemic uncertainty.

    Unlike the mutual information it tells apart draws that all are nearly certain, of one class, to different degrees. With
    the centred logits of :func:`max_expected_logit` it is the total variance of compositions.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        In squared nats, 0 or more.

    References
    ----------
    J. Aitchison, The Statistical Analysis of Compositional Data, 1986. K. Raina, Logit disagreement: OoD detection with
    Bayesian neural networks, arXiv:2502.15648, 2025, with other summaries of the same spread.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.8, 0.2]], [[0.2, 0.8]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> logit_disagreement(probs).round(3).values
    array([0.961])
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "logit_disagreement")
    sums = {"first": lambda probs: _logits(probs).sum(0), "second": lambda probs: (_logits(probs) ** 2).sum(0)}
    means = draw_means(probs, sums, probs=True)
    found = (means["second"] - means["first"] ** 2).sum("class_id", skipna=False).clip(min=0)
    return found.rename("logit_disagreement").assign_attrs(units="squared nats")


def _logits(probs: Array) -> Array:
    """Return centred logits of probabilities ``[draws, rows, classes]``, zero where a draw is lost."""
    logs = np.log(np.maximum(probs, LEAST, dtype=float))
    return np.nan_to_num(logs - logs.mean(-1, keepdims=True), copy=False)
