"""Common networks, built from torch's layers; none of them couples observations."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

__all__ = ["Activation", "mlp"]

Activation = Literal["tanh", "relu", "gelu", "silu", "softplus", "sigmoid"] | Callable[[], nn.Module]

_ACTIVATIONS: dict[str, Callable[[], nn.Module]] = {
    "tanh": nn.Tanh,
    "relu": nn.ReLU,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
}


def mlp(
    in_features: int,
    hidden: Sequence[int] = (50,),
    out_features: int = 1,
    activation: Activation = "tanh",
) -> nn.Sequential:
    """Multilayer perceptron from [..., in_features] to [..., out_features].

    Its parameters are named ``"0.weight"``, ``"0.bias"``, ``"2.weight"``, ...; odd numbers are activations.

    Parameters
    ----------
    in_features : int
        Number of inputs.
    hidden : Sequence[int]
        Units of each hidden layer; ``()`` gives a linear model.
    out_features : int
        Number of outputs: 1 for one real target, K logits for K classes, 2 for mean and scale of one target.
    activation : str or callable
        One of ``"tanh"``, ``"relu"``, ``"gelu"``, ``"silu"``, ``"softplus"``, ``"sigmoid"``, or a callable that
        returns a module, such as ``torch.nn.Mish``.

    Returns
    -------
    torch.nn.Sequential

    Raises
    ------
    TypeError
        If ``hidden`` is a number.
    ValueError
        If a width is not a positive integer or the activation is unknown.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> [name for name, _ in bz.models.mlp(3, hidden=(50,)).named_parameters()]
    ['0.weight', '0.bias', '2.weight', '2.bias']
    """
    if not isinstance(hidden, Sequence):
        raise TypeError(
            f"mlp(hidden={hidden!r}): write a sequence with the units of each layer, such as hidden=({hidden},)."
        )
    widths = (in_features, *hidden, out_features)
    if not all(isinstance(width, int) and width > 0 for width in widths):
        raise ValueError(f"mlp: widths must be positive integers, but in, hidden and out are {widths}.")
    make = _ACTIVATIONS.get(activation) if isinstance(activation, str) else activation
    if make is None:
        known = ", ".join(map(repr, _ACTIVATIONS))
        raise ValueError(f"mlp: activation must be one of {known} or a callable, but is {activation!r}.")
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), make()]
    return nn.Sequential(*layers[:-1])
