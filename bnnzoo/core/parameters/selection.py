"""Entries of theta that a method treats as unknown, by the names of sites or by a network's last layer."""

from collections.abc import Sequence

import torch
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.sites import ModelError

__all__ = ["index_of_sites", "last_layer", "last_layer_index", "last_layer_sites"]


def index_of_sites(names: Sequence[str], density: LogDensity, argument: str = "sites") -> Tensor:
    """Return the entries ``[R]`` of theta that hold the named sites, in order; ``argument`` is what names them.

    Raises
    ------
    ModelError
        If a name fits no latent site.
    """
    names = [names] if isinstance(names, str) else names
    for name in names:
        if not any(_fits(site.name, name) for site in density.sites):
            have = ", ".join(site.name for site in density.sites)
            raise ModelError(f"{argument}={name!r} fits no latent site of the model (latent sites: {have}).")
    chosen = [site.span for site in density.sites if any(_fits(site.name, name) for name in names)]
    return torch.cat([torch.arange(span.start, span.stop, device=density.device) for span in chosen])


def last_layer(network: Network) -> str:
    """Return the path of the module that holds the last of a network's parameters."""
    return list(network.sites)[-1].rpartition(".")[0]


def last_layer_sites(network: Network) -> list[str]:
    """Return the sites of the module that holds the last of a network's parameters."""
    last = last_layer(network)
    return [site for parameter, site in network.sites.items() if parameter.rpartition(".")[0] == last]


def last_layer_index(density: LogDensity) -> Tensor:
    """Return the entries ``[R]`` of theta that hold the last layer of every network and whatever is no weight."""
    last = {site for network in density.networks for site in last_layer_sites(network)}
    return index_of_sites([site.name for site in density.sites if not site.is_weight or site.name in last], density)


def _fits(site: str, name: str) -> bool:
    return site.startswith(name[:-1]) if name.endswith("*") else site == name
