"""Which latent sites set the priors of others, and the density of those others with the former known."""

from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor

from bnnzoo.core.density import LogDensity, build_density
from bnnzoo.core.replay import Node, discover, log_prob
from bnnzoo.core.types import Model

__all__ = ["given_sites", "hyperparameter_sites"]


def hyperparameter_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the names of the latent sites on which the prior of another one depends, without weights of networks.

    Examples
    --------
    >>> import pyro
    >>> def model():
    ...     scale = pyro.sample("scale", dist.HalfNormal(1.0))
    ...     pyro.sample("w", dist.Normal(0.0, scale))
    >>> hyperparameter_sites(build_density(model))
    ('scale',)
    """
    nodes = discover(density.model, density.data, density.device, density.dtype)
    latent = [nodes[site.name] for site in density.sites]
    above: set[str] = set()
    for node in latent:
        # A prior's density at a constant still depends on the values that set the prior.
        with torch.enable_grad():
            density_of_constant = log_prob({**node, "value": node["value"].detach()}).sum()
        if density_of_constant.requires_grad:
            values = [other["value"] for other in latent]
            found = torch.autograd.grad(density_of_constant, values, allow_unused=True)
            above |= {other["name"] for other, slope in zip(latent, found, strict=True) if slope is not None}
    return tuple(site.name for site in density.sites if site.name in above and not site.is_weight)


def given_sites(density: LogDensity, values: Mapping[str, Tensor]) -> LogDensity:
    """Return the density of the other latent sites and the data, given constrained values of some sites.

    Examples
    --------
    >>> import pyro
    >>> def model():
    ...     scale = pyro.sample("scale", dist.HalfNormal(1.0))
    ...     pyro.sample("w", dist.Normal(0.0, scale))
    >>> some = given_sites(build_density(model), {"scale": torch.tensor(2.0)})
    >>> [site.name for site in some.sites], round(float(some.log_joint(torch.zeros(1)).exp()), 4)
    (['w'], 0.1995)
    """
    model = _Given(density.model, values)
    return build_density(model, *density.data, dtype=density.dtype, device=density.device)


class _Given:
    """A model some of whose sites have known values."""

    def __init__(self, model: Model, values: Mapping[str, Tensor]) -> None:
        self._model, self._values = model, values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Known(self._values):
            return self._model(*args, **kwargs)


class _Known(Messenger):
    """Turn sites into deterministic ones, which count neither as latent nor as observed."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._values = values

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self._values:
            value = self._values[msg["name"]]
            msg["fn"] = dist.Delta(value, event_dim=msg["fn"].event_dim).mask(False)
            msg["value"], msg["is_observed"] = value, True
