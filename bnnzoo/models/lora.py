r"""Low-rank adapters (LoRA) of a trained network, whose own weights stay fixed: the adapters alone are random.

.. math:: W x + b \;\to\; W x + b + \frac{\alpha}{r} B A x, \quad A \in R^{r \times d}, \; B \in R^{k \times r}
"""

import copy
from collections.abc import Sequence
from fnmatch import fnmatchcase

from torch import Tensor, nn
from torch.nn.utils import parametrize

__all__ = ["adapter_state", "lora"]


class AdaptedLayer(nn.Module):
    """A fixed layer beside two small ones, `down` to the rank and `up` from it, whose output is added."""

    def __init__(self, base: nn.Module, down: nn.Module, up: nn.Module, scale: float) -> None:
        super().__init__()
        self.base, self.down, self.up, self.scale = base, down, up, scale

    def forward(self, x: Tensor) -> Tensor:
        """Return the layer's output with that of the adapter."""
        found: Tensor = self.base(x) + self.scale * self.up(self.down(x))
        return found


class AdaptedWeight(nn.Module):
    """A fixed weight with a product of rank r added, for layers that read their weight and are not called."""

    def __init__(self, weight: Tensor, rank: int, scale: float) -> None:
        super().__init__()
        self.down = nn.Parameter(weight.new_empty(rank, weight.shape[1]))
        self.up = nn.Parameter(weight.new_zeros(weight.shape[0], rank))
        self.scale = scale
        nn.init.kaiming_uniform_(self.down, a=5**0.5)

    def forward(self, weight: Tensor) -> Tensor:
        """Return the weight with the adapter's."""
        return weight + self.scale * self.up @ self.down


def lora(net: nn.Module, rank: int = 8, layers: Sequence[str] = ("*",), alpha: float | None = None) -> nn.Module:
    r"""Return a copy of a trained network with low-rank adapters, the only parameters that can still be learned.

    The copy goes wherever a network does: :func:`bnnzoo.models.supervised` and :func:`bnnzoo.random_module` sample adapters, and
    leave all else as it was trained, so that every method infers adapters and posteriors are saved without the network.
    Adapters begin at zero: the copy computes what `net` does. A fit starts there with ``MAP(init=adapted.state_dict())``.

    Linear and two-dimensional convolutional layers get two small layers of their kind, ``"<layer>.down.weight"`` and
    ``"<layer>.up.weight"``. Of `torch.nn.MultiheadAttention` the joint input projection and the output projection are adapted,
    each by one product.

    Parameters
    ----------
    net : torch.nn.Module
        It is left unchanged.
    rank : int
        r, from 1 to the smaller dimension of every layer that is adapted.
    layers : sequence of str
        Names of layers in ``net.named_modules()``, or patterns such as ``"*.attention.*"``. Default: all that can be adapted.
    alpha : float, optional
        :math:`\alpha`, positive. Default: the rank, which leaves the product as it is.

    Returns
    -------
    torch.nn.Module

    Raises
    ------
    ValueError
        If a pattern matches no layer that can be adapted, the rank is out of range, a convolution has groups, or an attention
        layer has several input weights.

    References
    ----------
    Hu et al. (2022), LoRA: low-rank adaptation of large language models, ICLR. Yang et al. (2024), Bayesian low-rank adaptation
    for large language models, ICLR. Onal et al. (2024), Gaussian stochastic weight averaging for Bayesian low-rank adaptation
    of large language models.

    Examples
    --------
    >>> import torch
    >>> import bnnzoo as bz
    >>> net = bz.models.mlp(10, (50, 50))
    >>> adapted = bz.models.lora(net, rank=2, layers=["2"])
    >>> [name for name, value in adapted.named_parameters() if value.requires_grad]
    ['2.down.weight', '2.up.weight']
    >>> x = torch.randn(5, 10)
    >>> torch.equal(net(x), adapted(x))
    True
    """
    if not isinstance(net, nn.Module):
        raise TypeError(f"lora: net must be a torch.nn.Module, but is {type(net).__name__}.")
    if isinstance(rank, bool) or not isinstance(rank, int) or rank < 1:
        raise ValueError(f"lora: rank must be a whole number, one or more, but is {rank!r}.")
    if alpha is not None and not 0 < alpha < float("inf"):
        raise ValueError(f"lora: alpha must be a positive number, but is {alpha!r}.")
    # an attention layer's own layers belong to it
    found = {n: m for n, m in net.named_modules() if isinstance(m, nn.Linear | nn.Conv2d | nn.MultiheadAttention)}
    attention = tuple(f"{n}." for n, m in found.items() if isinstance(m, nn.MultiheadAttention))
    known = [name for name in found if not (attention and name.startswith(attention))]
    wanted = [layers] if isinstance(layers, str) else list(layers)
    for pattern in wanted or [""]:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise ValueError(
                f"lora: layers has {pattern!r}, which matches no Linear, Conv2d or MultiheadAttention layer of the network. It "
                f"has {', '.join(map(repr, known)) or 'none'}."
            )
    names = [name for name in known if any(fnmatchcase(name, pattern) for pattern in wanted)]
    adapted = copy.deepcopy(net).requires_grad_(False)
    for name in names:
        parent, _, last = name.rpartition(".")
        layer = adapted.get_submodule(name)
        if isinstance(layer, nn.Conv2d):
            size = layer.kernel_size
            most = min(layer.out_channels, layer.in_channels * size[0] * size[1])
        elif isinstance(layer, nn.Linear):
            most = min(layer.in_features, layer.out_features)
        else:
            most = int(getattr(layer, "embed_dim"))  # noqa: B009 (a module's attributes are tensors to its types)
        if rank > most:
            raise ValueError(
                f"lora: rank={rank} is above what layer {name!r} can have, {most}: choose a smaller rank, or leave the layer "
                f"out of layers=."
            )
        replaced = _adapted(name, layer, rank, (alpha or rank) / rank)
        if not name:
            return replaced
        setattr(adapted.get_submodule(parent), last, replaced)
    return adapted


def adapter_state(net: nn.Module) -> dict[str, Tensor]:
    """Return the adapters of a network that :func:`lora` made, for ``safetensors.torch.save_file``.

    They go back with ``lora(net, ...).load_state_dict(state, strict=False)``.

    Parameters
    ----------
    net : torch.nn.Module

    Raises
    ------
    ValueError
        If the network has no adapters.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> sorted(bz.models.adapter_state(bz.models.lora(bz.models.mlp(3, (8,)), rank=1, layers=["0"])))
    ['0.down.weight', '0.up.weight']
    """
    paths = [name for name, module in net.named_modules() if isinstance(module, AdaptedLayer | AdaptedWeight)]
    if not paths:
        raise ValueError("adapter_state: the network has no adapters. Make some with bnnzoo.models.lora(net, rank=8).")
    ends = tuple(f"{path}.{each}".lstrip(".") for path in paths for each in ("down", "up"))
    return {name: v.detach().clone() for name, v in net.state_dict().items() if name.startswith(ends)}


def _adapted(name: str, layer: nn.Module, rank: int, scale: float) -> nn.Module:
    if isinstance(layer, nn.MultiheadAttention):
        if layer.in_proj_weight is None:
            raise ValueError(
                f"lora: attention layer {name!r} has separate weights for keys and values of other widths: leave it out of "
                "layers=."
            )
        # Attention reads these weights and calls no layer, so the weights themselves must change.
        parametrize.register_parametrization(layer, "in_proj_weight", AdaptedWeight(layer.in_proj_weight, rank, scale))
        weight = layer.out_proj.weight
        parametrize.register_parametrization(layer.out_proj, "weight", AdaptedWeight(weight, rank, scale))
        return layer
    like = next(layer.parameters())
    down: nn.Module
    up: nn.Module
    if isinstance(layer, nn.Conv2d):
        if layer.groups != 1:
            raise ValueError(
                f"lora: layer {name!r} is a convolution of {layer.groups} groups: leave it out of layers=."
            )
        settings = {
            key: getattr(layer, key) for key in ("kernel_size", "stride", "padding", "dilation", "padding_mode")
        }
        down = nn.Conv2d(layer.in_channels, rank, bias=False, **settings)
        up = nn.Conv2d(rank, layer.out_channels, 1, bias=False)
    else:
        assert isinstance(layer, nn.Linear)
        down, up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
    nn.init.zeros_(up.weight)
    return AdaptedLayer(layer, down.to(like), up.to(like), scale)
