"""Shared parts of recalibration: log probabilities of held-out observations, and trees with new probabilities."""

from collections.abc import Callable

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import Labelled, average_probs, class_indices, moment, observations

__all__ = ["Array", "log_probs_and_labels", "mean_nll", "refuse_other_classes", "safe_log", "with_new_probs"]

type Array = NDArray[np.floating]

SMALLEST = 1e-12  # smaller probabilities are raised to this, so that logits are finite
KEPT_GROUPS = ("observed_data", "constant_data", "predictions_observed_data", "predictions_constant_data")


def refuse_other_classes(name: str, fitted: int, data: Labelled) -> None:
    """Raise if a method was fitted to another number of classes than the tree has."""
    found = moment(data, "probs").sizes["class_id"]
    if found != fitted:
        raise ValueError(f"{name} was fitted to {fitted} classes, but the tree has {found}.")


def safe_log(probs: Array) -> Array:
    """Return finite logarithms."""
    logs: Array = np.log(np.maximum(probs, SMALLEST))
    return logs


def log_probs_and_labels(
    data: Labelled, y: xr.DataArray | None, before_averaging: bool
) -> tuple[Array, NDArray[np.integer]]:
    """Return log probabilities ``[draws or 1, rows, classes]`` and positions of labels."""
    average = average_probs(data)
    labels = class_indices(observations(data, y), average).to_numpy()
    if not before_averaging:
        return safe_log(average.to_numpy())[None], labels
    probs = moment(data, "probs").transpose("chain", "draw", ...).to_numpy()
    return safe_log(probs.reshape(-1, *probs.shape[2:])), labels


def mean_nll(probs: Array, labels: NDArray[np.integer]) -> float:
    """Return the mean negative log likelihood of probabilities ``[rows, classes]``."""
    return -float(safe_log(probs[np.arange(len(labels)), labels]).mean())


def with_new_probs(data: Labelled, function: Callable[[Array], Array], each_draw: bool = False) -> xr.DataTree:
    """Return a tree of the new probabilities; groups computed from the old ones are dropped."""
    probs = moment(data, "probs") if each_draw else average_probs(data).expand_dims(chain=[0], draw=[0])
    new = probs.copy(data=function(probs.to_numpy().astype(float))).rename("probs")
    groups = {"conditional": new.to_dataset()}
    if isinstance(data, xr.DataTree):
        groups |= {name: data[name].to_dataset() for name in KEPT_GROUPS if name in data.children}
    tree = xr.DataTree.from_dict(groups)
    tree.attrs = dict(data.attrs)
    return tree
