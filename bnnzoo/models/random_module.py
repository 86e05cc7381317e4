"""A neural network with random parameters inside an ordinary Pyro model."""

import math
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary

import pyro
import torch
from torch import Tensor, nn
from torch.func import functional_call

from bnnzoo.core.program.network import NETWORK_KEY, Network, evaluating, refuse_coupled_rows
from bnnzoo.core.program.surroundings import plates_around
from bnnzoo.models.argument_checks import refuse_uncalled
from bnnzoo.models.priors import ByParameter, Prior

__all__ = ["random_module"]


_RECORDS: WeakValueDictionary[tuple[int, str, tuple[str, ...]], Network] = WeakValueDictionary()
"""A model is called many times and leaves the same record each time, as long as anyone holds it."""


def random_module(name: str, net: nn.Module, prior: Prior) -> Callable[..., Any]:
    """Sample every parameter of a network under a prior and return the network as a callable.

    Use it inside any Pyro model, outside plates. Parameter ``"0.weight"`` of `net` becomes the latent site
    ``f"{name}.0.weight"`` with the parameter's shape. Parameters with ``requires_grad=False`` stay fixed at their
    values; a parameter shared by several layers is one site. The network itself is called, in eval mode and with the sampled
    values in place of its parameters, whose own values are neither used nor changed: whatever else it is made of, functions,
    settings, hooks, counts as it is when the model runs. Its dropout layers are inactive there;
    :class:`bnnzoo.MCDropout` reads its rates from them. It computes in the dtype and on the device of its first floating-point
    input.

    Parameters
    ----------
    name : str
        Prefix of the site names, unique in the model, without ``"."`` and ``"/"``.
    net : torch.nn.Module
        A network whose output for one observation does not depend on the others.
    prior : Prior
        One of `bnnzoo.priors`, or any callable ``prior(site_name, parameter, fan_in) -> Distribution``.

    Returns
    -------
    Callable
        ``forward(*args, **kwargs)`` of the network with the sampled parameters.

    Raises
    ------
    ValueError
        If a layer is BatchNorm or a recurrent or attention layer with dropout in training mode, changes its own weights, or is
        compiled by ``torch.jit``; if the call is inside a plate, no parameter is trainable, or the prior's distribution does not
        have the parameter's shape.

    Examples
    --------
    >>> import pyro
    >>> import torch
    >>> import pyro.distributions as dist
    >>> import bnnzoo as bz
    >>> net = torch.nn.Linear(3, 1)
    >>> def model(x, y=None):
    ...     f = bz.random_module("net", net, bz.priors.normal(1.0))(x).squeeze(-1)
    ...     with pyro.plate("data", len(x)):
    ...         pyro.sample("y", dist.Normal(f, 0.1), obs=y)
    >>> trace = pyro.poutine.trace(model).get_trace(torch.zeros(5, 3))
    >>> trace.nodes["net.weight"]["value"].shape
    torch.Size([1, 3])
    """
    if not isinstance(name, str) or not name or "." in name or "/" in name:
        raise ValueError(
            f"random_module got the name {name!r}; it must be a non-empty string without '.' and '/', such as 'net'."
        )
    if not isinstance(net, nn.Module):
        raise TypeError(f"random_module('{name}') needs a torch.nn.Module, but got {type(net).__name__}.")
    for plate in plates_around():
        raise ValueError(
            f"random_module('{name}') is called inside plate '{plate}', so every row of the plate would "
            "get its own network: call it before entering the plate."
        )
    for path, layer in net.named_modules():
        place = f"layer '{path}'" if path else "the network"
        _refuse_layer(f"random_module('{name}'): {place}", layer)
    refuse_uncalled(f"random_module('{name}'): prior", prior, "bnnzoo.priors.normal(1.0)")
    parameters = {param: nn.Parameter(p.detach(), False) for param, p in net.named_parameters() if p.requires_grad}
    if not parameters:
        raise ValueError(
            f"random_module('{name}') has nothing to sample: the network has no parameters with requires_grad=True. "
            "Call net.requires_grad_(True), or call the network itself in the model."
        )
    if isinstance(prior, ByParameter):
        prior.refuse_unmatched_patterns(parameters)
    key = id(net), name, tuple(parameters)
    network = _RECORDS.get(key)
    if network is None:
        network = _RECORDS[key] = Network(name, net, {param: f"{name}.{param}" for param in parameters})
    values = {
        param: _sample(
            network, param, parameter, prior, _fan_in(net.get_submodule(param.rpartition(".")[0]), parameter)
        )
        for param, parameter in parameters.items()
    }
    return _callable(net, values)


def _sample(network: Network, param: str, parameter: nn.Parameter, prior: Prior, fan_in: int) -> Tensor:
    site = network.sites[param]
    distribution = prior(site, parameter, fan_in)
    found = tuple(getattr(distribution, "batch_shape", ())), tuple(getattr(distribution, "event_shape", ()))
    if found != ((), tuple(parameter.shape)):
        raise ValueError(
            f"The prior of site '{site}' must be a distribution with batch shape () and event shape "
            f"{tuple(parameter.shape)}, the parameter's shape, but it has batch shape {found[0]} and event shape "
            f"{found[1]}: write distribution.expand(parameter.shape).to_event(parameter.ndim)."
        )
    infer: Any = {NETWORK_KEY: network}  # Pyro passes this dictionary on unchanged
    value: Tensor = pyro.sample(site, distribution, infer=infer)
    return value


def _callable(module: nn.Module, values: dict[str, Tensor]) -> Callable[..., Any]:
    state = dict(module.named_parameters()) | dict(module.named_buffers()) | values
    like_weights = next(iter(values.values()))

    def forward(*args: Any, **kwargs: Any) -> Any:
        inputs = (a for a in (*args, *kwargs.values()) if isinstance(a, Tensor) and a.is_floating_point())
        like = next(inputs, like_weights)
        moved = {key: _move(value, like) for key, value in state.items()}
        with evaluating(module):
            return functional_call(module, moved, args, kwargs)

    return forward


def _move(value: Tensor, like: Tensor) -> Tensor:
    return value.to(like.device, like.dtype if value.is_floating_point() else value.dtype)


def _fan_in(layer: nn.Module, parameter: nn.Parameter) -> int:
    """Return the number of inputs summed into one output unit of the layer; for a bias, that of its layer's weight."""
    if isinstance(layer, nn.Embedding):
        return 1
    if parameter.ndim < 2:
        weights = [p for p in layer.parameters(recurse=False) if p.ndim >= 2]
        return _fan_in(layer, weights[0]) if weights else 1
    if isinstance(layer, (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d)):
        return layer.in_channels // layer.groups * math.prod(parameter.shape[2:])
    return math.prod(parameter.shape[1:])


def _refuse_layer(where: str, layer: nn.Module) -> None:
    if isinstance(layer, torch.jit.ScriptModule):
        raise ValueError(
            f"{where} was compiled by torch.jit, so that its weights cannot be replaced by sampled ones. Pass the network as it "
            "was before torch.jit.script or torch.jit.trace."
        )
    if isinstance(layer, nn.DataParallel | nn.parallel.DistributedDataParallel):
        raise ValueError(
            f"{where} is {type(layer).__name__}, which calls copies of the network that hold other weights than the sampled "
            "ones. Pass net.module."
        )
    if isinstance(layer, nn.Embedding | nn.EmbeddingBag) and layer.max_norm is not None:
        raise ValueError(
            f"{where} is {type(layer).__name__} with max_norm={layer.max_norm:g}, which shortens its weights in place when it is "
            "called, so that the density would be that of others than were sampled. Leave max_norm out: the prior bounds them."
        )
    refuse_coupled_rows(where, layer, layer.training)
    rate = 0.0
    if isinstance(layer, (nn.AlphaDropout, nn.FeatureAlphaDropout)):
        rate = layer.p
    elif isinstance(layer, (nn.RNNBase, nn.MultiheadAttention)):
        rate = float(layer.dropout)
    if layer.training and rate > 0:
        raise ValueError(
            f"{where} is {layer} in training mode: its dropout is noise that is not a site of the model. "
            "Call net.eval(), or remove it."
        )
    if isinstance(layer, nn.modules.lazy.LazyModuleMixin) and layer.has_uninitialized_params():
        raise ValueError(f"{where} is lazy and has no shape yet: call the network on data once before.")
