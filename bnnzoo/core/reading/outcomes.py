"""Arguments of a model that hold the values of its observed sites, and models that observe none."""

from dataclasses import dataclass
from functools import update_wrapper
from typing import Any

import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.filling import FillingModel
from bnnzoo.core.types import Model

__all__ = ["Unobserved", "not_observed", "observed_places"]


class _Uncondition(Messenger):
    def __init__(self, names: tuple[str, ...]) -> None:
        super().__init__()
        self.names = names

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self.names:
            msg["value"], msg["is_observed"] = None, False


@dataclass(eq=False)
class Unobserved:
    """A model whose observed sites are drawn, whatever it is given for them, as under ``pyro.poutine.uncondition``.

    Attributes
    ----------
    model : callable
    observed : tuple of str
        Names of the observed sites.
    outcomes : tuple of str
        Names of the arguments that hold the values of these sites.
    """

    model: Model
    observed: tuple[str, ...]
    outcomes: tuple[str, ...]

    def __post_init__(self) -> None:
        update_wrapper(self, self.model, updated=())  # its name and its arguments

    def __call__(self, *args: Any) -> Any:
        """Run the model."""
        with _Uncondition(self.observed):
            return self.model(*args)


def not_observed(model: Model) -> tuple[str, ...]:
    """Return the arguments that an :class:`Unobserved` model holds only because it cannot run without them."""
    inner = model.model if isinstance(model, FillingModel) else model
    return inner.outcomes if isinstance(inner, Unobserved) else ()


def observed_places(density: LogDensity) -> dict[int, str]:
    """Return which arguments of the model hold the values of observed sites, by their places, and of which.

    Examples
    --------
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> observed_places(build_density(target.model, *target.data))
    {1: 'y'}
    """
    theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
    with torch.no_grad():
        nodes = density.nodes(theta, *density.data)
    values = {name: nodes[name]["value"] for name in density.observed}
    return {
        place: name
        for place, value in enumerate(density.data)
        for name, y in values.items()
        if isinstance(value, Tensor) and value.numel() == y.numel() and bool((value.flatten() == y.flatten()).all())
    }
