"""Hidden layers of a network in a tree: their incoming and outgoing weights, and what may be done to their units."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees import SAMPLE_DIMS, refuse_other_kind

__all__ = ["Array", "Hidden", "Weights", "flat_weights", "hidden_layers", "labelled_weights"]

type Array = NDArray[np.floating]
type Weights = dict[str, Array]

ODD = ("tanh", "hardtanh", "softsign", "tanhshrink", "identity")  # f(-z) = -f(z)
HOMOGENEOUS = ("relu", "leaky_relu", "identity")  # f(c z) = c f(z) for c > 0


@dataclass(frozen=True)
class Hidden:
    """Sites of a hidden layer: weights ``[units, inputs]``, biases ``[units]``, and the next weights ``[outputs, units]``."""

    weight: str
    bias: str | None
    following: str
    activation: str

    @property
    def flips(self) -> bool:
        """Whether the signs of a unit's incoming and outgoing weights may be flipped together."""
        return self.activation in ODD

    @property
    def scales(self) -> bool:
        """Whether a unit's incoming weights may be multiplied and its outgoing ones divided by a positive number."""
        return self.activation in HOMOGENEOUS

    def incoming(self, weights: Weights) -> Array:
        """Return weights and biases ``[draws, units, inputs (+ 1)]`` of the units."""
        parts = [weights[self.weight], *([weights[self.bias][..., None]] if self.bias else [])]
        return np.concatenate(parts, axis=-1)

    def outgoing(self, weights: Weights) -> Array:
        """Return weights ``[draws, units, outputs]``."""
        return np.swapaxes(weights[self.following], -1, -2)

    def permuted(self, weights: Weights, order: NDArray[np.integer]) -> None:
        """Put units into another order ``[draws, units]``, in place."""
        weights[self.weight] = np.take_along_axis(weights[self.weight], order[..., None], axis=1)
        weights[self.following] = np.take_along_axis(weights[self.following], order[:, None], axis=2)
        if self.bias:
            weights[self.bias] = np.take_along_axis(weights[self.bias], order, axis=1)

    def scaled(self, weights: Weights, factor: Array) -> None:
        """Multiply incoming weights by a factor ``[draws, units]`` and divide outgoing ones by it, in place."""
        weights[self.weight] = weights[self.weight] * factor[..., None]
        weights[self.following] = weights[self.following] / factor[:, None]
        if self.bias:
            weights[self.bias] = weights[self.bias] * factor


def hidden_layers(tree: xr.DataTree) -> list[Hidden]:
    """Return the hidden layers of all networks in a tree.

    Parameters
    ----------
    tree : DataTree
        With the group ``weights`` and the attribute ``layers``.

    Raises
    ------
    ValueError
        If one is missing, or no network is a chain of linear layers with hidden units.
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what bnnzoo.predict returns")
    if "weights" not in tree.children:
        raise ValueError(
            f"Symmetries are those of network weights, but the tree has no group 'weights' (groups: "
            f"{', '.join(tree.children) or 'none'}): make it with bnnzoo.to_datatree(posterior, weights=True)."
        )
    chains = json.loads(str(tree.root.attrs.get("layers", "[]")))
    found = [
        Hidden(layer["weight"], layer.get("bias"), following["weight"], layer["activation"])
        for chain in chains
        for layer, following in pairwise(chain)
    ]
    if not found:
        raise ValueError(
            "The tree's attribute 'layers' names no hidden layer: symmetries are known of networks that are an nn.Sequential of "
            "nn.Linear layers and elementwise activations, such as bnnzoo.models.mlp, with all their weights sampled."
        )
    return found


def flat_weights(tree: xr.DataTree) -> Weights:
    """Return the weights ``[draws, ...]`` of a tree in double precision, chains and draws joined."""
    group = tree["weights"].to_dataset()
    arrays = {str(name): array.transpose(*SAMPLE_DIMS, ...).to_numpy() for name, array in group.data_vars.items()}
    return {name: array.reshape(-1, *array.shape[2:]).astype(float) for name, array in arrays.items()}


def labelled_weights(tree: xr.DataTree, weights: Mapping[str, Array]) -> xr.Dataset:
    """Return weights ``[draws, ...]`` with the dims and coordinates of the tree's group."""
    group = tree["weights"].to_dataset()
    group = group.transpose(*SAMPLE_DIMS, ...)
    return group.assign({name: group[name].copy(data=weights[str(name)].reshape(group[name].shape)) for name in group})
