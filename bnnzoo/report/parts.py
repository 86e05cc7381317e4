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
    parts = decompose(tree)
    return Parts(parts["aleatoric"].to_numpy(), parts["epistemic"].to_numpy())
