"""The record of a neural network inside a model, by which methods that need layers find them."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import nn

__all__ = ["NETWORK_KEY", "Network", "evaluating", "refuse_coupled_rows"]

NETWORK_KEY = "bnnzoo_network"


@dataclass(frozen=True, eq=False)
class Network:
    """A neural network whose parameters are latent sites of a model.

    `bnnzoo.random_module` puts this record in ``infer[NETWORK_KEY]`` of every weight site, so that the structure is
    found in a model's trace and not demanded from the user. For Pyro's own modules with ``PyroSample`` weights,
    :mod:`bnnzoo.core.program.pyro_networks` does. Two records are equal only if they are the same object.

    Parameters
    ----------
    name : str
        As given to `random_module`, or Pyro's name of the module.
    module : torch.nn.Module
        What the model calls: the user's own network, within :func:`evaluating` and with the values of the sites in place of
        its parameters, or the user's own ``PyroModule``.
    sites : Mapping[str, str]
        Parameter name in `module` (``"0.weight"``) to the name of its latent site (``"net.0.weight"``), in the order
        of ``module.named_parameters()``, or of sampling for a ``PyroModule``. A parameter that several layers share
        appears once, under its first name.
    layers : torch.nn.Module, optional
        Layers of torch with the settings of `module` and its parameters, under the same names; it need not be callable
        as a whole. Default: `module`.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Sequential(torch.nn.Linear(2, 1))
    >>> network = Network("net", module, {"0.weight": "net.0.weight", "0.bias": "net.0.bias"})
    >>> network.sites["0.bias"]
    'net.0.bias'
    """

    name: str
    module: torch.nn.Module
    sites: Mapping[str, str]
    layers: torch.nn.Module = None  # type: ignore[assignment]  # set below

    def __post_init__(self) -> None:
        if self.layers is None:
            object.__setattr__(self, "layers", self.module)

    @property
    def samples_itself(self) -> bool:
        """Whether calling `module` samples the weights, as Pyro's own modules do."""
        return self.layers is not self.module


@contextmanager
def evaluating(module: torch.nn.Module) -> Iterator[None]:
    """Within this context a network is in eval mode; afterwards it is in the mode, and has the tensors, that it had before.

    Layers such as those of ``torch.nn.utils.weight_norm`` keep what they compute from their parameters as plain attributes,
    which would otherwise belong to one run of a model.

    Examples
    --------
    >>> import torch
    >>> module = torch.nn.Dropout()
    >>> with evaluating(module):
    ...     module.training
    False
    >>> module.training
    True
    """
    before = [(layer, layer.training, dict(vars(layer))) for layer in module.modules()]
    for layer, _, _ in before:
        layer.training = False
    try:
        yield
    finally:
        for layer, training, attributes in before:
            layer.training, now = training, vars(layer)
            for name in [name for name, value in now.items() if isinstance(value, torch.Tensor)]:
                if name not in attributes:
                    del now[name]
                elif now[name] is not attributes[name]:
                    now[name] = attributes[name]


def refuse_coupled_rows(where: str, layer: nn.Module, is_training: bool) -> None:
    """Refuse BatchNorm that normalises by the rows of a batch, with which the likelihood has no term for each row.

    Parameters
    ----------
    where : str
        The layer's place, with which the sentence begins.
    layer : torch.nn.Module
    is_training : bool
        Whether it is in training mode where it is called.

    Raises
    ------
    ValueError
        With what to write instead.
    """
    if not isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return
    kind = type(layer).__name__.removeprefix("Pyro")
    if not layer.track_running_stats:
        raise ValueError(
            f"{where} is {kind} without running statistics: its output for one row depends on the other rows of "
            "the batch, so the likelihood is not pointwise. Replace it with LayerNorm or GroupNorm."
        )
    if is_training:
        raise ValueError(
            f"{where} is {kind} in training mode: its output for one row depends on the other rows of the batch, "
            "so the likelihood is not pointwise. Call net.eval() to use its running statistics, or replace it with "
            "LayerNorm or GroupNorm."
        )
