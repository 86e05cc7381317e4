"""Latent sites that set the priors of others, and the density of those others with the former known."""

from collections.abc import Mapping
from typing import Any

import pyro.distributions as dist
import torch
from pyro.poutine.messenger import Messenger
from torch import Tensor
from torch.func import grad

from bnnzoo.core.likelihood.unchecked import switch_validation_off
from bnnzoo.core.model.density import LogDensity, build_density
from bnnzoo.core.model.replay import Node, discover, log_prob
from bnnzoo.core.program.numerics import NumericalFailure
from bnnzoo.core.program.sites import Site
from bnnzoo.core.types import Model
from bnnzoo.engine.value_and_grad import value_and_grad_of

__all__ = ["given_sites", "has_weights", "hyperparameter_sites", "is_real", "multiplying_sites", "scaling_sites"]

STEP = 0.5  # in unconstrained space, at which sites are asked what they change


def has_weights(density: LogDensity) -> bool:
    """Tell whether a model holds a network: one of torch or Pyro, or matrices of weights written by hand.

    Such a matrix is a latent site on the real numbers with two axes of its own, which belong to no plate.
    """
    if density.networks or any(site.is_weight for site in density.sites):
        return True
    own = ((site, [plate for plate in site.plates if plate is None]) for site in density.sites)
    return any(is_real(site) and len(axes) > 1 for site, axes in own)


def multiplying_sites(density: LogDensity) -> dict[str, tuple[str, ...]]:
    """Return the latent sites that only matter through others, such as the scale of a non-centred effect, and through which.

    With the effects at zero the likelihood does not depend on them: ``mu + tau * eta`` with ``eta`` zero is ``mu``. The joint
    density of such sites has its mode at a large scale and small effects, far from the posterior's mass.

    Examples
    --------
    >>> import pyro
    >>> def model(y):
    ...     tau, eta = pyro.sample("tau", dist.HalfNormal(1.0)), pyro.sample("eta", dist.Normal(torch.zeros(3), 1.0))
    ...     pyro.sample("y", dist.Normal(tau * eta, 1.0), obs=y)
    >>> multiplying_sites(build_density(model, torch.ones(3)))
    {'tau': ('eta',)}
    """
    return density.shared("multiplying sites", lambda: _multiplying(density))


def _multiplying(density: LogDensity) -> dict[str, tuple[str, ...]]:
    effects = [site for site in density.sites if is_real(site) and site.span.stop - site.span.start > 1]
    others = [site for site in density.sites if site not in effects and not site.is_weight]
    if not effects or not others or has_weights(density) or not (density.observed or density.factors):
        return {}
    generator = torch.Generator().manual_seed(0)
    theta = (STEP * torch.randn(density.num_params, generator=generator, dtype=torch.float64)).to(density.device)
    theta = theta.to(density.dtype)
    without = theta.clone()
    for site in effects:
        without[site.span] = 0.0
    at_zero = _slopes(density, without)
    if at_zero is None:
        return {}
    silent = [site for site in others if not bool(at_zero[site.span].any())]
    found: dict[str, tuple[str, ...]] = {site.name: () for site in silent}
    for effect in effects if silent else ():
        with_one = without.clone()
        with_one[effect.span] = theta[effect.span]
        slopes = _slopes(density, with_one)
        if slopes is not None:
            moved = [site.name for site in silent if bool(slopes[site.span].any())]
            found |= {name: (*found[name], effect.name) for name in moved}
    return {name: names for name, names in found.items() if names}


def scaling_sites(density: LogDensity) -> dict[str, tuple[str, ...]]:
    """Return those of the `multiplying_sites` that scale their effects: twice the scale and half the effects are the same.

    The prior of the effects then draws the joint mode to a large scale. A rate of decay, which also only matters through the
    coefficients before it, does nothing of the kind.
    """
    return density.shared("scaling sites", lambda: _scaling(density))


def _scaling(density: LogDensity) -> dict[str, tuple[str, ...]]:
    found = multiplying_sites(density)
    if not found:
        return {}
    generator = torch.Generator().manual_seed(1)
    theta = (STEP * torch.randn(density.num_params, generator=generator, dtype=torch.float64)).to(density.device)
    theta = theta.to(density.dtype)
    slopes = _slopes(density, theta)
    spans = {site.name: site.span for site in density.sites}
    if slopes is None:
        return {}
    scales = {}
    for site in density.sites:
        if site.name in found and site.shape == site.unconstrained_shape:
            free = theta[site.span].reshape(site.shape)
            value, slope = value_and_grad_of(site.transform, free)
            relative = value / slope  # what the log of the scale moves theta by
            up = (slopes[site.span].reshape(site.shape) * relative).sum()
            down = sum((theta[spans[e]] * slopes[spans[e]]).sum() for e in found[site.name])
            if torch.allclose(up, torch.as_tensor(down), rtol=1e-3):
                scales[site.name] = found[site.name]
    return scales


def is_real(site: Site) -> bool:
    """Tell whether a site has the real numbers as support, so that its values are its unconstrained ones."""
    if site.shape != site.unconstrained_shape or site.support.is_discrete is not False:
        return False
    value = torch.linspace(-1.0, 1.0, max(1, site.unconstrained_shape.numel())).reshape(site.unconstrained_shape)
    return torch.equal(site.transform(value), value)


def _slopes(density: LogDensity, theta: Tensor) -> Tensor | None:
    """Return the gradient ``[P]`` of the log likelihood; None where it is not finite."""
    try:
        found = grad(lambda t: density.log_likelihood(t, *density.data).sum())(theta)
    except NumericalFailure:
        return None
    return found if bool(found.isfinite().all()) else None


def hyperparameter_sites(density: LogDensity) -> tuple[str, ...]:
    """Return the names of the latent sites on which the prior of another one depends, without weights of networks.

    A site that moves the prior of another one and changes nothing else, such as the mean of group effects, is left out: both
    together are as Gaussian as the effects alone.

    Examples
    --------
    >>> import pyro
    >>> def model():
    ...     scale = pyro.sample("scale", dist.HalfNormal(1.0))
    ...     pyro.sample("w", dist.Normal(0.0, scale))
    >>> hyperparameter_sites(build_density(model))
    ('scale',)
    """
    return density.shared("hyperparameters", lambda: _hyperparameters(density))


def _hyperparameters(density: LogDensity) -> tuple[str, ...]:
    nodes = discover(density.model, density.data, density.device, density.dtype)
    latent = [nodes[site.name] for site in density.sites]
    above: set[str] = set()
    for node in latent:
        switch_validation_off(node["fn"])
        with torch.enable_grad():
            at_centre = log_prob({**node, "value": _centre(node)}).sum()
        if at_centre.requires_grad:
            values = [other["value"] for other in latent]
            found = zip(latent, torch.autograd.grad(at_centre, values, allow_unused=True), strict=True)
            above |= {other["name"] for other, slope in found if slope is not None and bool((slope != 0).any())}
    return tuple(site.name for site in density.sites if site.name in above and not site.is_weight)


def _centre(node: Node) -> Tensor:
    """Return the mean of a prior, at which its density does not depend on where it is; else a constant."""
    try:
        mean: Tensor = node["fn"].mean.expand(node["value"].shape)
    except (NotImplementedError, AttributeError):
        return node["value"].detach()
    return mean if bool(mean.isfinite().all()) else node["value"].detach()


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
    model = _ConditionedModel(density.model, values)
    return build_density(model, *density.data, dtype=density.dtype, device=density.device)


class _ConditionedModel:
    """A model some of whose sites have known values."""

    def __init__(self, model: Model, values: Mapping[str, Tensor]) -> None:
        self._model, self._values = model, values

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _MadeDeterministic(self._values):
            return self._model(*args, **kwargs)


class _MadeDeterministic(Messenger):
    """Turn sites into deterministic ones, which count neither as latent nor as observed."""

    def __init__(self, values: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._values = values

    def _pyro_sample(self, msg: Node) -> None:
        if msg["name"] in self._values:
            value = self._values[msg["name"]]
            msg["fn"] = dist.Delta(value, event_dim=msg["fn"].event_dim).mask(False)
            msg["value"], msg["is_observed"] = value, True
