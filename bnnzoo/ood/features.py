"""Fitting and scoring by features that come for every draw, or once."""

from collections.abc import Callable, Iterator

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.labelled import SAMPLE_DIMS

__all__ = ["average_score", "each_draw", "positions"]

type Array = NDArray[np.floating]


def each_draw(features: xr.DataArray, training: int | None = None) -> Iterator[Array]:
    """Yield features ``[rows, features]`` of every draw, or the only ones.

    Parameters
    ----------
    features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
        Features of the network at each draw of its weights, or at one value of them.
    training : int, optional
        Number of draws that were fitted to.

    Raises
    ------
    ValueError
        If a dim is missing, a value is not finite, or there are other draws than in training.
    """
    if missing := [dim for dim in ("obs_id", "feature") if dim not in features.dims]:
        raise ValueError(
            f"Features need the dims obs_id and feature, but have {', '.join(map(str, features.dims))}: rename one to "
            f"{missing[0]!r}, as in features.rename(k={missing[0]!r})."
        )
    draws = [dim for dim in SAMPLE_DIMS if dim in features.dims]
    values = features.transpose(*draws, "obs_id", "feature").to_numpy().astype(float)
    values = values.reshape(-1, *values.shape[-2:])
    if not np.isfinite(values).all():
        raise ValueError("Features must be finite, but some are not.")
    if training is not None and len(values) != training:
        raise ValueError(
            f"There are features of {len(values)} draws, but {training} were fitted to: take the same draws."
        )
    yield from values


def positions(labels: xr.DataArray, rows: int) -> NDArray[np.integer]:
    """Return labels as 0, ..., K - 1, in the order of the classes.

    Parameters
    ----------
    labels : DataArray [obs_id]
    rows : int
        How many there should be.

    Raises
    ------
    ValueError
        If there are not as many labels as rows, or there is a class with a single row.
    """
    if labels.size != rows:
        raise ValueError(f"There are {labels.size} labels, but features of {rows} observations.")
    classes, found, counts = np.unique(labels.to_numpy(), return_inverse=True, return_counts=True)
    if counts.min() < 2:
        raise ValueError(f"Class {classes[counts.argmin()]} has a single observation: a density needs at least two.")
    return found


def average_score[T](features: xr.DataArray, fitted: tuple[T, ...], score: Callable[[T, Array], Array]) -> xr.DataArray:
    """Return scores ``[obs_id]``, averaged over draws.

    Parameters
    ----------
    features : DataArray [obs_id, feature] or [chain, draw, obs_id, feature]
    fitted : tuple
        What was fitted to each draw.
    score : callable
        Score ``[rows]`` of features ``[rows, features]`` by what was fitted.
    """
    each = each_draw(features, len(fitted))
    values = np.mean([score(one, rows) for one, rows in zip(fitted, each, strict=True)], axis=0)
    coords = {"obs_id": features["obs_id"]} if "obs_id" in features.coords else {}
    return xr.DataArray(values, dims="obs_id", coords=coords)
