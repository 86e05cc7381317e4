"""Entropies of class probabilities in nats."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees.argument_kinds import refuse_other_kind
from bnnzoo.trees.block_means import draw_means, sum_draws
from bnnzoo.trees.lookup import Labelled, companion, moment, refuse_single_draw

__all__ = ["SMALLEST_PROB", "entropies", "plogp", "shannon_entropy", "sum_plogp"]

type Array = NDArray[np.floating]

SMALLEST_PROB = float(np.finfo(np.float32).tiny)  # below it p log p underflows; log is never given a zero


def shannon_entropy(probs: xr.DataArray) -> xr.DataArray:
    r"""Shannon entropy :math:`-\sum_k p_k \log p_k` in nats of class probabilities ``[..., class_id]``.

    Parameters
    ----------
    probs : DataArray [..., class_id]
        Probabilities; a class of probability zero contributes zero.

    Returns
    -------
    DataArray [...]
        Between 0 and log K.

    Examples
    --------
    >>> float(shannon_entropy(xr.DataArray([0.5, 0.5], dims="class_id")).round(6))
    0.693147
    """
    refuse_other_kind(probs, xr.DataArray, "probs", "a DataArray with dim class_id")
    return xr.apply_ufunc(lambda p: -plogp(p).sum(-1), probs, input_core_dims=[["class_id"]])


def entropies(data: Labelled) -> xr.Dataset:
    """Predictive entropy, expected entropy and mutual information ``[obs_id]``, in one pass over the probabilities.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws, and, optionally, ``entropy``.
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "mutual_information")
    stored = companion(data, "probs", "entropy")
    if stored is not None:
        mean = draw_means(probs, {"p": sum_draws}, probs=True)
        expected = draw_means(stored, {"entropy": sum_draws})["entropy"]
    else:
        mean = draw_means(probs, {"p": sum_draws, "plogp": sum_plogp}, probs=True)
        expected = -mean["plogp"].sum("class_id", skipna=False)
    total = shannon_entropy(mean["p"])
    parts = {
        "predictive_entropy": total,
        "expected_entropy": expected,
        # If all draws agree, rounding may make it negative.
        "mutual_information": (total - expected).clip(min=0.0),
    }
    return xr.Dataset({name: part.assign_attrs(units="nats") for name, part in parts.items()})


def plogp(probs: Array) -> Array:
    """Return ``p log p`` of each entry, 0 at 0."""
    logs = np.log(np.maximum(probs, SMALLEST_PROB))
    logs *= probs
    return logs


def sum_plogp(probs: Array) -> Array:
    """Return the sum of ``p log p`` over the first axis."""
    return sum_draws(plogp(probs))
