"""Common networks, built from torch's layers; none of them couples observations."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

from torch import nn

__all__ = ["Activation", "convnet", "mlp"]

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
    _refuse_no_sequence("mlp", "hidden", hidden, "the units of each layer")
    widths = (in_features, *hidden, out_features)
    if not _are_counts(widths):
        raise ValueError(f"mlp: widths must be positive integers, but in, hidden and out are {widths}.")
    make = _maker("mlp", activation)
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), make()]
    return nn.Sequential(*layers[:-1])


def convnet(
    shape: tuple[int, int, int],
    out_features: int,
    channels: Sequence[int] = (8, 16),
    hidden: Sequence[int] = (32,),
    activation: Activation = "relu",
) -> nn.Sequential:
    """Convolutional network from images [..., channels, height, width] to [..., out_features].

    Each block is a convolution with a 3 x 3 kernel that keeps height and width, an activation, and a 2 x 2 average that halves
    them, rounded down. A multilayer perceptron follows on the flattened image. There is no BatchNorm: it would make the
    likelihood of an image depend on the others in its batch.

    Parameters
    ----------
    shape : tuple of int
        Channels, height and width of an image.
    out_features : int
        Number of outputs, such as K logits for K classes.
    channels : Sequence[int]
        Channels of each block.
    hidden : Sequence[int]
        Units of each hidden layer behind the blocks.
    activation : str or callable
        As in :func:`mlp`.

    Returns
    -------
    torch.nn.Sequential

    Raises
    ------
    TypeError
        If ``shape``, ``channels`` or ``hidden`` is a number.
    ValueError
        If a size is not a positive integer, the image is too small for the number of blocks, or the activation is unknown.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> import torch
    >>> bz.models.convnet((1, 28, 28), 10)(torch.zeros(5, 1, 28, 28)).shape
    torch.Size([5, 10])
    """
    _refuse_no_sequence("convnet", "shape", shape, "channels, height and width")
    _refuse_no_sequence("convnet", "channels", channels, "the channels of each block")
    _refuse_no_sequence("convnet", "hidden", hidden, "the units of each layer")
    sizes = (*shape, *channels, *hidden, out_features)
    if len(shape) != 3 or not _are_counts(sizes):
        raise ValueError(
            f"convnet: shape must be (channels, height, width), and every size a positive integer, but shape is {shape}, "
            f"channels are {tuple(channels)}, hidden {tuple(hidden)} and out_features {out_features}."
        )
    height, width = (size >> len(channels) for size in shape[1:])
    if min(height, width) < 1:
        raise ValueError(
            f"convnet: {len(channels)} blocks halve {shape[1]} x {shape[2]} pixels to nothing. Write fewer channels."
        )
    make = _maker("convnet", activation)
    blocks: list[nn.Module] = []
    for inputs, outputs in pairwise((shape[0], *channels)):
        blocks += [nn.Conv2d(inputs, outputs, 3, padding=1), make(), nn.AvgPool2d(2)]
    features = (channels[-1] if channels else shape[0]) * height * width
    return nn.Sequential(*blocks, nn.Flatten(-3), *mlp(features, hidden, out_features, activation))


def _refuse_no_sequence(network: str, name: str, value: object, content: str) -> None:
    if not isinstance(value, Sequence):
        raise TypeError(f"{network}({name}={value!r}): write a sequence with {content}, such as {name}=({value},).")


def _are_counts(sizes: Sequence[object]) -> bool:
    return all(isinstance(size, int) and size > 0 for size in sizes)


def _maker(name: str, activation: Activation) -> Callable[[], nn.Module]:
    """Return what makes the activation, or refuse it in the name of the network."""
    make = _ACTIVATIONS.get(activation) if isinstance(activation, str) else activation
    if make is None:
        known = ", ".join(map(repr, _ACTIVATIONS))
        raise ValueError(f"{name}: activation must be one of {known} or a callable, but is {activation!r}.")
    return make
