"""Scores of the expected logits, and of how far draws disagree on the largest."""

from functools import partial

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import SMALLEST_PROB, Labelled, draw_means, moment, refuse_single_draw, sum_draws

__all__ = ["logit_disagreement", "max_expected_logit"]

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
    found = draw_means(moment(data, "probs"), {"logit": lambda probs: sum_draws(_logits(probs))}, probs=True)["logit"]
    return found.max("class_id").rename("max_expected_logit").assign_attrs(units="nats")


def logit_disagreement(data: Labelled) -> xr.DataArray:
    r"""Squared coefficient of variation over draws of the largest logit, :math:`\mathrm{var}_s(m_s) / \bar m^2`.

    A measure of epistemic uncertainty. With the centred logits of :func:`max_expected_logit`, :math:`m_s = \max_k z_{sk}`, it is
    :math:`S / D - 1`, where D is the effective number of draws that are weighted by their largest logit.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    DataArray [obs_id]
        0 (all draws are equally certain) or more. Also 0 where all draws call all classes equally likely.

    References
    ----------
    K. Raina, Logit disagreement: OoD detection with Bayesian neural networks, arXiv:2502.15648, 2025, which ranks by D.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.8, 0.2]], [[0.6, 0.4]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> logit_disagreement(probs).round(3).values
    array([0.3])
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "logit_disagreement")
    sums = {name: partial(_sum_largest, power=power) for name, power in (("largest", 1), ("squared", 2))}
    means = draw_means(probs, sums, probs=True).isel(class_id=0, drop=True)
    found = (means["squared"] / means["largest"] ** 2 - 1).where(means["largest"] != 0, 0.0).clip(min=0)
    return found.rename("logit_disagreement").assign_attrs(units="1")


def _logits(probs: Array) -> Array:
    """Return the centred logits of probabilities ``[draws, rows, classes]``."""
    logs = np.log(np.maximum(probs, SMALLEST_PROB, dtype=float))
    centred: Array = logs - logs.mean(-1, keepdims=True)
    return centred


def _sum_largest(probs: Array, power: int) -> Array:
    """Return the sum over draws of a power of the largest logit ``[rows, 1]``, which all classes share."""
    return sum_draws(_logits(probs).max(-1, keepdims=True) ** power)
