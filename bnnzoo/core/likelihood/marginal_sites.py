"""Distributions of sites that depend on discrete variables which are summed out."""

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from pyro.distributions import TorchDistribution
from torch import Tensor
from torch.distributions import constraints

__all__ = ["Marginal", "mixture_moments"]


class Marginal(TorchDistribution):
    """The distribution of a site, averaged over the values of discrete variables.

    Parameters
    ----------
    component : Distribution
        The distribution of the site given those values, which lie along further dimensions on the left.
    terms : callable
        Returns its log density at the value of the site, and at that of other sites which depend on the same variables.
    batch_shape : torch.Size
        Of the site.
    moments : callable
        Returns the moments of the site given the continuous variables alone.
    """

    arg_constraints: ClassVar[dict[str, constraints.Constraint]] = {}
    has_rsample = False

    def __init__(
        self,
        component: Any,
        terms: Callable[[], Tensor],
        batch_shape: torch.Size,
        moments: Callable[[], dict[str, Tensor]],
    ) -> None:
        self.component, self.terms, self.moments = component, terms, moments
        super().__init__(batch_shape, component.event_shape, validate_args=False)

    @property
    def support(self) -> Any:
        """The support of the site."""
        return self.component.support

    def log_prob(self, value: Tensor) -> Tensor:
        """Return the terms, whose values are those that the run of the model saw."""
        return self.terms()

    def expand(self, batch_shape: Any, _instance: Any = None) -> "Marginal":
        """Return the same distribution: its shape is that of the values."""
        return self


def mixture_moments(found: dict[str, Tensor], weight: Callable[[Tensor], Tensor], num_dims: int) -> dict[str, Tensor]:
    """Return the moments of a mixture, whose components lie along the first dimensions of those ``found``.

    Parameters
    ----------
    found : dict of str to Tensor
        Moments of the components.
    weight : callable
        Weights of the components, in the shape of an array of moments.
    num_dims : int
        Dimensions of the components.
    """
    dims = tuple(range(num_dims))

    def mean(values: Tensor) -> Tensor:
        return (weight(values) * values).sum(dims)

    if "probs" in found:
        probs = mean(found["probs"])
        return {"probs": probs, "entropy": -torch.special.xlogy(probs, probs).sum(-1)}
    if not {"mean", "variance"} <= found.keys():
        return {}
    centre = mean(found["mean"])
    return {"mean": centre, "variance": mean(found["variance"]) + mean((found["mean"] - centre).square())}
