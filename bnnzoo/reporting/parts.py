"""Aleatoric and epistemic uncertainty of each observation."""

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.uncertainty import decompose

__all__ = ["Parts", "split"]


@dataclass(frozen=True)
class Parts:
    """Aleatoric and epistemic uncertainty [N]: variances for regression, entropies in nats for classification."""

    aleatoric: NDArray[np.floating]
    epistemic: NDArray[np.floating]


def split(tree: xr.DataTree) -> Parts:
    """Return the split of a tree of predictions."""
    given = tree["conditional"].to_dataset()
    if given.sizes["chain"] * given.sizes["draw"] == 1:  # a point estimate has no epistemic uncertainty
        noise = given["entropy"] if "probs" in given else given["variance"]
        values = noise.isel(chain=0, draw=0).to_numpy()
        return Parts(values, np.zeros_like(values))
    parts = decompose(tree)
    return Parts(parts["aleatoric"].to_numpy(), parts["epistemic"].to_numpy())
