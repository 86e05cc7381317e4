"""Models of data with gaps: missing outcomes behind a mask, and Pyro's ``obs_mask``."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.types import Data, Model
from bnnzoo.engine import pytree

__all__ = ["SEEN", "WithGaps", "has_gaps", "with_gaps"]

type Node = dict[str, Any]

SEEN = "bnnzoo_seen"
"""Marks an observed site with its values before their gaps were filled."""

LATENT, OBSERVED = "_unobserved", "_observed"
"""What Pyro adds to the name of a site with ``obs_mask=``."""


@dataclass(eq=False)
class WithGaps:
    """A model whose masked outcomes may be NaN, and whose ``obs_mask`` makes proper latent sites.

    What is masked has no density, whatever it is, but its derivative would be NaN: another outcome of the site stands for it.
    Pyro's ``obs_mask`` makes a latent value also where the outcome was seen, and masks its density there: it keeps the density
    here, which changes nothing, since the value is not used, and makes the posterior proper.
    """

    model: Model

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model."""
        return _Filled()(self.model)(*args, **kwargs)


class _Filled(Messenger):
    def _pyro_sample(self, msg: Node) -> None:
        value, mask = msg["value"], msg["mask"]
        if not msg["is_observed"] and msg["name"].endswith(LATENT):
            msg["mask"] = None
        if msg["is_observed"] and isinstance(mask, Tensor) and isinstance(value, Tensor) and value.is_floating_point():
            unseen = ~mask.reshape(mask.shape + (1,) * msg["fn"].event_dim) & value.isnan()
            other = torch.where(value.isnan(), -torch.inf, value).amax()  # which is in the support
            msg[SEEN], msg["value"] = value, torch.where(unseen, other, value)


def has_gaps(data: Data) -> bool:
    """Tell whether a tensor among the arguments of a model, or within them, holds NaN."""
    leaves = (leaf for leaf in pytree.tree_leaves(data) if isinstance(leaf, Tensor) and leaf.is_floating_point())
    return any(bool(leaf.isnan().any()) for leaf in leaves)


def with_gaps(model: Model, data: Data, nodes: Mapping[str, Node]) -> Model:
    """Return a model as :class:`WithGaps` where its data or its sites, in the trace of a run, need it."""
    if isinstance(model, WithGaps):
        return model
    names = {name.removesuffix(LATENT) for name in nodes if name.endswith(LATENT)}
    is_partly_seen = any(f"{name}{OBSERVED}" in nodes for name in names)
    return WithGaps(model) if is_partly_seen or has_gaps(data) else model
