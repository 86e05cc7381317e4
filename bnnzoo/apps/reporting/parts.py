"""Aleatoric and epistemic uncertainty of each observation."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.apps.reporting.results import Results
from bnnzoo.trees import shannon_entropy
from bnnzoo.uncertainty import decompose

__all__ = ["Parts", "all_parts", "can_be_split", "split"]


@dataclass(frozen=True)
class Parts:
    """Aleatoric and epistemic uncertainty [N]: variances for regression, entropies in nats for classification."""

    aleatoric: NDArray[np.floating]
    epistemic: NDArray[np.floating]


def all_parts(results: Results) -> dict[str, Parts]:
    """Return the split of each method that can be split, by name."""
    return {one.name: split(one.test) for one in results.fitted if can_be_split(one.test)}


def can_be_split(tree: xr.DataTree) -> bool:
    """Tell whether a tree has the moments that a split needs."""
    names = {*tree["conditional"].data_vars} if "conditional" in tree.children else set()
    return "probs" in names or {"mean", "variance"} <= names


def split(tree: xr.DataTree) -> Parts:
    """Return the split of a tree of predictions."""
    given = tree["conditional"].to_dataset()
    if given.sizes["chain"] * given.sizes["draw"] == 1:  # a point estimate has no epistemic uncertainty
        noise = shannon_entropy(given["probs"]) if "probs" in given else given["variance"]
        values = noise.isel(chain=0, draw=0).to_numpy()
        return Parts(values, np.zeros_like(values))
    parts = decompose(tree)
    return Parts(parts["aleatoric"].to_numpy(), parts["epistemic"].to_numpy())
