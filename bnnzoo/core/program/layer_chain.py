"""The order of a network's layers, which its symmetries follow from: which weights feed which units."""

from collections.abc import Iterator, Mapping

from torch import nn

from bnnzoo.core.program.network import Network

__all__ = ["layer_chain"]

NAMES: Mapping[type[nn.Module], str] = {
    nn.Tanh: "tanh",
    nn.ReLU: "relu",
    nn.GELU: "gelu",
    nn.SiLU: "silu",
    nn.Softplus: "softplus",
    nn.Sigmoid: "sigmoid",
    nn.LeakyReLU: "leaky_relu",
    nn.Hardtanh: "hardtanh",
    nn.Softsign: "softsign",
    nn.Tanhshrink: "tanhshrink",
}
TRANSPARENT = (nn.Identity, nn.Dropout)


def layer_chain(network: Network) -> list[dict[str, str]]:
    """Return the linear layers of a network in order, each with the sites of its parameters and its activation.

    Parameters
    ----------
    network : Network

    Returns
    -------
    list of dict
        ``weight``, ``bias`` (unless the layer has none) and ``activation`` (unless nothing follows). Empty unless the network is
        an ``nn.Sequential`` of ``nn.Linear`` layers and elementwise activations, whose order is the order of computation.

    Examples
    --------
    >>> net = nn.Sequential(nn.Linear(2, 3), nn.Tanh(), nn.Linear(3, 1, bias=False))
    >>> sites = {name: f"net.{name}" for name, _ in net.named_parameters()}
    >>> layer_chain(Network("net", net, sites))
    [{'weight': 'net.0.weight', 'bias': 'net.0.bias', 'activation': 'tanh'}, {'weight': 'net.2.weight'}]
    """
    chain: list[dict[str, str]] = []
    for path, layer in _in_order(network.layers):
        if isinstance(layer, nn.Linear):
            if chain and "activation" not in chain[-1]:
                chain[-1]["activation"] = "identity"
            sites = {name: network.sites.get(f"{path}{name}") for name in ("weight", "bias")}
            chain.append({name: site for name, site in sites.items() if site is not None})
            if "weight" not in chain[-1] or ("bias" not in chain[-1] and layer.bias is not None):
                return []  # frozen parameters are not permuted
        elif type(layer) in NAMES and chain and "activation" not in chain[-1]:
            chain[-1]["activation"] = NAMES[type(layer)]
        elif not isinstance(layer, TRANSPARENT):
            return []
    weights = [layer["weight"] for layer in chain]
    return chain if len(weights) == len({*weights}) else []


def _in_order(network: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield all modules but nested ``nn.Sequential``, with the beginnings of their parameters' names."""
    for name, module in network.named_modules(remove_duplicate=False):
        if type(module) is not nn.Sequential:
            yield f"{name}." if name else "", module
