"""Networks written with Pyro's own modules, ``PyroModule[nn.Linear]`` with ``PyroSample`` weights, found while the model runs."""

import threading
import warnings
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from pyro.nn import PyroModule
from torch import nn
from torch.nn.modules.module import register_module_forward_pre_hook

from bnnzoo.core.program.network import NETWORK_KEY, Network, refuse_coupled_rows
from bnnzoo.core.program.sites import ModelError, ModelWarning, plates_of, row_plates

__all__ = ["called_modules", "mark_weights", "refuse_layers_in_training", "warn_of_attributes_of_rows"]

type Node = dict[str, Any]


@contextmanager
def called_modules() -> Iterator[dict[nn.Module, bool]]:
    """Yield the modules that this thread calls within the context, in order, with whether they were in training mode."""
    called: dict[nn.Module, bool] = {}
    thread = threading.get_ident()

    def note(module: nn.Module, _: Any) -> None:
        if threading.get_ident() == thread:
            called.setdefault(module, module.training)

    handle = register_module_forward_pre_hook(note)
    try:
        yield called
    finally:
        handle.remove()


def mark_weights(nodes: Mapping[str, Node], modules: Collection[nn.Module]) -> None:
    """Put a :class:`Network` into the trace nodes of the weights of every outermost module, as `random_module` does.

    Weights are the ``PyroSample`` attributes of a module of torch or of one converted by ``PyroModule[...]``, such as
    ``PyroModule[nn.Linear]``. Those of a class that inherits from ``PyroModule``, such as a noise scale of the model, are not.
    """
    # the modules that contain a PyroModule and are not part of another one
    inner = {id(part) for module in modules for part in list(module.modules())[1:]}
    for root in [
        module
        for module in modules
        if id(module) not in inner and any(isinstance(part, PyroModule) for part in module.modules())
    ]:
        # the path of each weight in the root and its latent site, in the order of sampling
        paths: dict[str, str] = {}
        for path, layer in root.named_modules():
            if isinstance(layer, PyroModule) and _plain_class(layer) is not nn.Module and layer._pyro_context.used:
                for name in layer._pyro_samples:
                    paths[layer._pyro_get_fullname(name)] = f"{path}.{name}" if path else name
        found = {}
        for site, node in nodes.items():
            # a scalar is no parameter of any layer of torch, but a hyperparameter kept in its layer
            if site in paths and node["type"] == "sample" and not node["is_observed"] and node["value"].ndim > 0:
                found[paths[site]] = site
        if not found:
            continue
        name = getattr(root, "_pyro_name", "") or "net"
        shapes = {parameter: nodes[site]["value"].shape for parameter, site in found.items()}
        network = Network(name, root, found, _plain(root, shapes))
        for site in found.values():
            nodes[site]["infer"] = {**(nodes[site]["infer"] or {}), NETWORK_KEY: network}


def refuse_layers_in_training(nodes: Mapping[str, Node], called: dict[nn.Module, bool]) -> None:
    """Refuse layers that couple rows or add noise, but in networks that are trained, which have a ``pyro.param``.

    Raises
    ------
    ModelError
        Naming the layer and its network.
    """
    if any(node["type"] == "param" for node in nodes.values()):
        return
    paths = {part: (path, root) for root in reversed(called) for path, part in root.named_modules()}
    for layer, is_training in called.items():
        path, root = paths[layer]
        where = f"Layer {path!r} of {type(root).__name__}" if path else "A layer of the model"
        try:
            refuse_coupled_rows(where, layer, is_training)
        except ValueError as error:
            raise ModelError(str(error)) from None
        if is_training and isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
            kind = type(layer).__name__.removeprefix("Pyro")
            raise ModelError(
                f"{where} is {kind}(p={layer.p}) in training mode: its dropout is noise that is not a site of the model. "
                f"Call net.eval(), or remove it."
            )


def warn_of_attributes_of_rows(nodes: Mapping[str, Node], modules: Collection[nn.Module]) -> None:
    """Warn of a ``PyroSample`` attribute that is first read inside the plate of the rows, which gives each row its own.

    Warns
    -----
    ModelWarning
        Naming the attribute and the plate.
    """
    parts = {id(part): part for module in modules for part in module.modules() if isinstance(part, PyroModule)}
    owners = ((part, name) for part in parts.values() if part._pyro_context.used for name in part._pyro_samples)
    sites = {part._pyro_get_fullname(name): name for part, name in owners}
    rows = row_plates([node for node in nodes.values() if node["type"] == "sample"])
    for site, name in sites.items():
        for plate in plates_of(nodes[site]) if site in nodes else ():
            if plate in rows:
                warnings.warn(
                    f"Site {site!r} is a PyroSample that is first read inside plate {plate!r}, so that each of its "
                    f"{nodes[site]['value'].shape[0]} rows has a value of its own. Read it before the plate, {name} = "
                    f"self.{name}.",
                    ModelWarning,
                    stacklevel=2,
                )


def _plain_class(module: nn.Module) -> type[nn.Module]:
    """Return the class that ``PyroModule[...]`` converted; ``nn.Module`` for a class that inherits from ``PyroModule``."""
    return next(
        kind for kind in type(module).__mro__ if issubclass(kind, nn.Module) and not issubclass(kind, PyroModule)
    )


def _plain(module: nn.Module, shapes: Mapping[str, torch.Size], path: str = "") -> nn.Module:
    """Return a module of torch with the same layers and settings, whose weights are zeros ``shapes[path]``."""
    kind = _plain_class(module)
    plain = kind.__new__(kind)
    nn.Module.__init__(plain)
    for key, value in vars(module).items():
        if not key.startswith("_pyro_") and not (key.startswith("_") and key in vars(plain)):
            vars(plain)[key] = value
    vars(plain)["training"] = False
    vars(plain)["_buffers"] = dict(module._buffers)
    vars(plain)["_parameters"] = dict(module._parameters)
    for name, child in module._modules.items():
        if child is not None:
            nn.Module.add_module(plain, name, _plain(child, shapes, f"{path}{name}."))
    for parameter, shape in shapes.items():
        owner, _, name = parameter.rpartition(".")
        if f"{owner}." == path or not (owner or path):
            vars(plain)["_parameters"][name] = nn.Parameter(torch.zeros(shape), requires_grad=False)
    return plain
