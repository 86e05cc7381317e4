"""The log prior density of each latent site by itself, as the sensitivity analysis of a prior needs it."""

from typing import Any

import torch
from pyro.distributions import ImproperUniform
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import scaled_sum
from bnnzoo.core.model.terms import prior_factors, scaled_likelihood_of
from bnnzoo.core.program.sites import innermost

__all__ = ["log_jacobian", "not_drawn_from_prior", "prior_and_rest", "prior_terms"]


def prior_terms(density: LogDensity, theta: Tensor) -> dict[str, Tensor]:
    """Return the log prior density ``[]`` of each latent site at ``theta[P]``, and of each factor that is no likelihood.

    Densities are those of the constrained values, without the Jacobian of the transforms: raised to a power, they are the
    prior that the user wrote, raised to that power. With :func:`log_jacobian` they add up to ``density.log_prior(theta)``.

    Examples
    --------
    >>> import torch
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> density = build_density(target.model, *target.data)
    >>> {name: round(float(value), 4) for name, value in prior_terms(density, torch.zeros(2)).items()}
    {'w': -1.8379}
    """
    values = density.constrain(theta)
    if density.priors is not None:
        return {name: scaled_sum({**node, "value": values[name]}) for name, node in density.priors.items()}
    nodes = density.nodes(theta, *density.data)
    others = prior_factors(nodes, density.likelihood)
    return {name: scaled_sum(nodes[name]) for name in (*(site.name for site in density.sites), *others)}


def log_jacobian(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the log-Jacobian ``[]`` of the transforms from ``theta[P]`` to the constrained values."""
    free, values = density.unconstrained(theta), density.constrain(theta)
    terms = (s.transform.log_abs_det_jacobian(free[s.name], values[s.name]).sum() for s in density.sites)
    return sum(terms, theta.new_zeros(()))


def prior_and_rest(density: LogDensity, theta: Tensor, *data: Any) -> tuple[Tensor, Tensor]:
    """Return the log prior density ``[]`` of the latent sites, log-Jacobian included, and the rest ``[]`` of the log joint.

    The rest is the log likelihood and all factors: what ``density.prior_draw`` knows nothing of.

    Examples
    --------
    >>> import torch
    >>> from bnnzoo.core.model.density import build_density
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> density = build_density(target.model, *target.data)
    >>> prior, rest = prior_and_rest(density, torch.zeros(2), *density.data)
    >>> bool(torch.isclose(prior + rest, density.log_joint(torch.zeros(2), *density.data)))
    True
    """
    nodes = density.nodes(theta, *data)
    own = (scaled_sum(nodes[site.name]) for site in density.sites)
    rest = scaled_likelihood_of(nodes, density.likelihood, density.num_data, theta)
    others = (scaled_sum(nodes[name]) for name in prior_factors(nodes, density.likelihood))
    return sum(own, log_jacobian(density, theta)).to(theta.dtype), sum(others, rest).to(theta.dtype)


def not_drawn_from_prior(density: LogDensity) -> dict[str, str]:
    """Return the latent sites that are not drawn from their prior density, and why: it is improper, masked or scaled.

    Examples
    --------
    >>> import pyro
    >>> import pyro.distributions as dist
    >>> from bnnzoo.core.model.density import build_density
    >>> def model():
    ...     pyro.sample("a", dist.Normal(0.0, 1.0))
    ...     pyro.sample("b", dist.Normal(0.0, 1.0).mask(False))
    >>> not_drawn_from_prior(build_density(model))
    {'b': 'masked or scaled'}
    """
    nodes = density.priors
    if nodes is None:
        theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
        nodes = density.nodes(theta, *density.data)
    found = {}
    for site in density.sites:
        node = nodes[site.name]
        if isinstance(innermost(node["fn"]), ImproperUniform):
            found[site.name] = "improper"
            continue
        distribution, masks = node["fn"], [node["mask"]]
        while hasattr(distribution, "base_dist"):
            masks.append(getattr(distribution, "_mask", None))
            distribution = distribution.base_dist
        is_masked = any(mask is not None and mask is not True for mask in masks)
        is_scaled = bool((torch.as_tensor(node["scale"]) != 1.0).any())
        if is_masked or is_scaled:
            found[site.name] = "masked or scaled"
    return found
