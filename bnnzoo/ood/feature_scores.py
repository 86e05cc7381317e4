"""Fitting and scoring features of every draw, or of a single one."""

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import SAMPLE_DIMS, aligned

__all__ = ["average_score", "each_draw", "positions"]

type Array = NDArray[np.floating]


def each_draw(features: xr.DataArray, training: int | None = None) -> Iterator[Array]:
    """Yield features ``[rows, features]`` of every draw.

    Parameters
    ----------
    features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
        Features of the network at each draw of its weights, or at one value of them.
    training : int, optional
        Number of draws in training.

    Raises
    ------
    ValueError
        If a dim is missing, a value is not finite, or the number of draws differs from training.
    """
    _refuse_other_dims(features)
    draws = [dim for dim in SAMPLE_DIMS if dim in features.dims]
    values = features.transpose(*draws, "obs_id", "feature").to_numpy().astype(float)
    values = values.reshape(-1, *values.shape[-2:])
    if not np.isfinite(values).all():
        raise ValueError("Features must be finite, but some are not.")
    if training is not None and len(values) != training:
        raise ValueError(f"There are features of {len(values)} draws, but training had {training}: use the same draws.")
    yield from values


def positions(labels: xr.DataArray, features: xr.DataArray) -> NDArray[np.integer]:
    """Return labels as 0, ..., K - 1, in the order of the classes, for the rows of features.

    Parameters
    ----------
    labels : DataArray [obs_id]
    features : DataArray [..., obs_id, feature]

    Raises
    ------
    ValueError
        If a dim of the features is missing, the labels do not match the rows, or a class has a single observation.
    """
    _refuse_other_dims(features)
    known = aligned(labels, features, "labels", "the features", apart_from=(*SAMPLE_DIMS, "feature"))
    classes, found, counts = np.unique(known.to_numpy(), return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise ValueError(f"Class {classes[counts.argmin()]} has a single observation: a density needs at least two.")
    return found


def average_score[T](features: xr.DataArray, fitted: tuple[T, ...], score: Callable[[T, Array], Array]) -> xr.DataArray:
    """Return scores ``[obs_id]``, averaged over draws.

    Parameters
    ----------
    features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
    fitted : tuple
        One fit per draw.
    score : callable
        Maps a fit and features ``[rows, features]`` to scores ``[rows]``.
    """
    each = each_draw(features, len(fitted))
    values = np.mean([score(one, rows) for one, rows in zip(fitted, each, strict=True)], axis=0)
    coords = {"obs_id": features["obs_id"]} if "obs_id" in features.coords else {}
    return xr.DataArray(values, dims="obs_id", coords=coords)


def _refuse_other_dims(features: xr.DataArray) -> None:
    if missing := [dim for dim in ("obs_id", "feature") if dim not in features.dims]:
        raise ValueError(
            f"Features need the dims obs_id and feature, but have {', '.join(map(str, features.dims))}: rename one to "
            f"{missing[0]!r}, as in features.rename(k={missing[0]!r})."
        )
