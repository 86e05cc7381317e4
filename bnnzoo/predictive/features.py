"""Activations of a network's layers, for every draw of its weights or at their mean."""

from typing import Any

import torch
import xarray as xr
from torch import Tensor, nn
from torch.func import vmap

from bnnzoo.core.data.minibatch import as_tensors
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import call_network
from bnnzoo.core.parameters.selection import last_layer
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.types import Whole

__all__ = ["features"]


@one_at_a_time
def features(
    posterior: Posterior,
    x: Any,
    *,
    layer: str | None = None,
    network: str | None = None,
    num_draws: int | None = None,
    at_mean: bool = False,
    seed: Whole | None = None,
    chunk_size: int = 1024,
) -> xr.DataArray:
    """Return the features that a network of a model computes from its inputs.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`, of a model with a network sampled by ``random_module``.
    x : array_like [obs_id, ...]
        Inputs of the network.
    layer : str, optional
        Name of the submodule whose output is taken, as in ``net.named_modules()``. Default: the
        input of the last layer that has parameters.
    network : str, optional
        Name given to ``random_module``, where a model has several.
    num_draws : int, optional
        Draws a chain.
    at_mean : bool
        Take one network, whose weights are the mean over draws, instead of one for each draw. It makes sense for a
        posterior with one mode, and not for an ensemble.
    seed : int, optional
        Of the draws. Default: that of the fit.
    chunk_size : int
        Rows that are evaluated together.

    Returns
    -------
    DataArray
        ``[chain, draw, obs_id, feature]``, or ``[obs_id, feature]`` at the mean. The dims of a layer's output beyond the
        first are joined.

    Raises
    ------
    ValueError
        If the model has no network, or several, or there is no such layer.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> model = bz.models.supervised(bz.models.mlp(2, hidden=(5,)), bz.priors.normal(1.0), bz.likelihoods.gaussian(0.1))
    >>> x = torch.randn(20, 2)
    >>> posterior = bz.fit(model, bz.MAP(num_steps=5, polish_steps=0), x, x[:, 0], progress=False)
    >>> dict(features(posterior, x).sizes)
    {'chain': 1, 'draw': 1, 'obs_id': 20, 'feature': 5}
    """
    found = _network(posterior, network)
    # the submodule to listen to, and whether to its input rather than its output
    modules, before = dict(found.module.named_modules()), layer is None
    if layer is None:
        with_parameters = [path for path, each in found.layers.named_modules() if [*each.parameters(recurse=False)]]
        module = modules[last_layer(found) if found.samples_itself else with_parameters[-1]]
    elif layer not in modules or not layer:
        raise ValueError(f"The network has no layer {layer!r}; it has {', '.join(filter(None, modules)) or 'none'}.")
    else:
        module = modules[layer]
    density = posterior.density
    theta = posterior.draws(num_draws, posterior.info.seed if seed is None else seed).detach()
    theta = theta.mean((0, 1), keepdim=True) if at_mean else theta
    (inputs,) = as_tensors((x,), density.dtype, density.device)

    def evaluate(theta: Tensor, rows: Tensor) -> Tensor:
        return _captured(found, module, before, density, theta, rows).flatten(1)

    blocks = inputs.split(max(1, chunk_size))
    with torch.no_grad():
        values = torch.cat([vmap(evaluate, in_dims=(0, None))(theta.flatten(0, 1), rows) for rows in blocks], dim=1)
    shaped = values.reshape(*theta.shape[:2], *values.shape[1:]).cpu().numpy()
    array = xr.DataArray(shaped, dims=("chain", "draw", "obs_id", "feature"), name="features")
    return array.isel(chain=0, draw=0) if at_mean else array


def _network(posterior: Posterior, name: str | None) -> Network:
    known = {network.name: network for network in posterior.density.networks}
    if not known:
        sites = ", ".join(site.name for site in posterior.density.sites)
        raise ValueError(
            f"features needs a network, but the model has none (latent sites: {sites}). Sample the weights with "
            "bnnzoo.random_module(...)."
        )
    if name is None and len(known) > 1:
        raise ValueError(f"The model has several networks ({', '.join(known)}): say which, as network={min(known)!r}.")
    if name is not None and name not in known:
        raise ValueError(f"The model has no network {name!r}; it has {', '.join(known)}.")
    return known[name] if name is not None else next(iter(known.values()))


def _captured(
    network: Network, layer: nn.Module, before: bool, density: LogDensity, theta: Tensor, x: Tensor
) -> Tensor:
    """Call the network and return what went into, or came out of, one of its layers."""
    seen: list[Tensor] = []
    if before:
        handle = layer.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0]))
    else:
        handle = layer.register_forward_hook(lambda _, inputs, output: seen.append(output))
    try:
        call_network(network, density.constrain(theta), x, density.observed)
    finally:
        handle.remove()
    return seen[-1]
