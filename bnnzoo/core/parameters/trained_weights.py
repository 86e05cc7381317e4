"""Weights of a network that was trained elsewhere, as a point of a model's parameter space."""

from collections.abc import Iterable, Mapping

from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.sites import ModelError

__all__ = ["with_weights"]


def with_weights(density: LogDensity, theta: Tensor, weights: Mapping[str, Tensor]) -> Tensor:
    """Return points ``theta[C, P]`` with the weights of a network in place of those that they have.

    Parameters
    ----------
    density : LogDensity
        Of a model with one network.
    theta : Tensor [C, P]
        Where other sites, such as a noise scale, keep their values.
    weights : mapping of str to Tensor
        By the names of the parameters in the network, as ``net.state_dict()`` has them. Buffers and frozen parameters, which are
        not sampled, are left out.

    Raises
    ------
    ModelError
        If the model has no network, or several.
    ValueError
        If a parameter is missing, unknown or of another shape.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> from bnnzoo.core.model.density import build_density
    >>> net = torch.nn.Linear(2, 1)
    >>> model = bz.models.supervised(net, bz.priors.normal(), bz.likelihoods.gaussian())
    >>> density = build_density(model, torch.randn(5, 2), torch.randn(5))
    >>> theta = with_weights(density, density.init(1, seed=0), net.state_dict())
    >>> bool((density.constrain(theta[0])["net.weight"] == net.weight).all())
    True
    """
    if len(density.networks) != 1:
        raise ModelError(
            f"init has the weights of a network, but this model has {len(density.networks) or 'no'} networks: build a starting "
            f"point with density.unconstrain({{site: value}}), and pass it as init=theta."
        )
    network = density.networks[0]
    known = {*network.sites, *network.layers.state_dict()}
    if missing := [name for name in network.sites if name not in weights]:
        raise ValueError(f"init has no {missing[0]!r}, but has {_listed(weights)}: pass net.state_dict().")
    if unknown := [name for name in weights if name not in known]:
        raise ValueError(f"init has {unknown[0]!r}, but the network of the model has {_listed(network.sites)}.")
    places = {site.name: site for site in density.sites}
    found = theta.clone()
    for name, site_name in network.sites.items():
        site, value = places[site_name], weights[name].detach()
        if value.shape != site.shape:
            raise ValueError(
                f"init has {name!r} of shape {tuple(value.shape)}, but the network of the model has {tuple(site.shape)}: pass "
                f"the weights of a network of the same structure."
            )
        found[:, site.span] = site.transform.inv(value.to(theta)).flatten()
    return found


def _listed(names: Iterable[str]) -> str:
    every = list(names)
    return ", ".join(map(repr, every[:5])) + (f" and {len(every) - 5} more" if len(every) > 5 else "")
