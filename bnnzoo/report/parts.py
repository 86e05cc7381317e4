"""Predictive uncertainty split in two, row by row."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.uncertainty import decompose

__all__ = ["Parts", "split"]


@dataclass(frozen=True)
class Parts:
    """Aleatoric and epistemic uncertainty [N]: variances for a quantity, entropies in nats for classes."""

    aleatoric: NDArray[np.floating]
    epistemic: NDArray[np.floating]


def split(tree: xr.DataTree) -> Parts:
    """Return the split of a tree of predictions."""
    given = tree["conditional"].to_dataset()
    if given.sizes["chain"] * given.sizes["draw"] == 1:  # a point estimate knows no ignorance
        noise = given["entropy"] if "probs" in given else given["variance"]
        values = noise.isel(chain=0, draw=0).to_numpy()
        return Parts(values, np.zeros_like(values))
    parts = decompose(tree)
    return Parts(parts["aleatoric"].to_numpy(), parts["epistemic"].to_numpy())
