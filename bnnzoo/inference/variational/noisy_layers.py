"""Separate noise for every observation in a network's layers, instead of one draw of the weights for all of them."""

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributions.transforms import ComposeTransform, IndependentTransform
from torch.nn import functional

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.network import Network
from bnnzoo.core.program.sites import ModelError, Site
from bnnzoo.core.types import Data

__all__ = ["Estimator", "NoisyLayer", "is_unconstrained", "noisy", "noisy_layers"]

type Estimator = Literal["shared", "local", "flipout"]


@dataclass(frozen=True)
class NoisyLayer:
    r"""A linear or convolutional layer whose weights have independent Gaussian entries.

    With the mean M, the standard deviations S and one draw W of the weights, its output for the observation n is

    .. math:: x_n M + \sqrt{x_n^2 S^2} \odot \epsilon_n \quad \text{(local reparametrisation)}, \qquad
        x_n M + ((x_n \odot s_n) (W - M)) \odot r_n \quad \text{(flipout)}

    with standard normal noise and random signs r and s: for each observation as if the weights were drawn anew.
    """

    network: Network
    path: str
    weight: Site
    bias: Site | None
    is_local: bool
    num_rows: int
    sizes: tuple[int, int]

    @property
    def noise_size(self) -> int:
        """How many standard normal numbers a call uses."""
        return self.num_rows * (self.sizes[1] if self.is_local else sum(self.sizes))

    def output(self, layer: nn.Module, x: Tensor, theta: Tensor, loc: Tensor, scale: Tensor, noise: Tensor) -> Tensor:
        """Return the output for ``x[B, ...]`` with means ``loc[P]``, ``scale[P]``, a draw ``theta[P]`` and noise."""
        fixed_bias = layer.bias if isinstance(layer.bias, Tensor) else None
        mean = _forward(layer, x, *self._parameters(loc, x, fixed_bias))
        if self.is_local:
            variance = _forward(layer, x**2, *self._parameters(scale**2, x, None))
            smallest = torch.finfo(x.dtype).tiny  # the square root has no gradient at zero, where all inputs are zero
            return mean + (variance + smallest).sqrt() * noise.reshape(mean.shape).to(x)
        inputs, outputs = noise.sign().to(x).split([self.num_rows * size for size in self.sizes])
        deviation = _forward(layer, x * self._along(inputs, x), *self._parameters(theta - loc, x, None))
        return mean + deviation * self._along(outputs, mean)

    def _parameters(self, values: Tensor, x: Tensor, fixed_bias: Tensor | None) -> tuple[Tensor, Tensor | None]:
        weight = values[self.weight.span].reshape(self.weight.shape).to(x)
        bias = fixed_bias if self.bias is None else values[self.bias.span].reshape(self.bias.shape).to(x)
        return weight, bias

    def _along(self, signs: Tensor, values: Tensor) -> Tensor:
        """Reshape signs to one for each row and channel of ``values[B, ...]``."""
        shape = [self.num_rows, *(1 for _ in values.shape[1:])]
        shape[-1 if len(self.weight.shape) == 2 else 1] = -1
        return signs.reshape(shape)


def noisy_layers(density: LogDensity, estimator: Estimator, batch: Data) -> tuple[NoisyLayer, ...]:
    """Find the layers that can have separate noise for every row of a batch.

    Local reparametrisation is exact where each row uses a weight once. Where it does so more often, as in convolutions, the
    outputs of a row are dependent, and those layers use flipout instead. The remaining weights keep one draw for all rows:
    those that several layers share, those of layers that are called several times or not with one row for each observation,
    and those that are constrained.

    Raises
    ------
    ModelError
        If there is no such layer.
    """
    sites = {site.name: site for site in density.sites if is_unconstrained(site)}
    num_rows = next((len(value) for value in batch if isinstance(value, Tensor) and value.ndim), 0)
    found = []
    for network, path, x, output in _calls(density, batch):
        names = {kind: network.sites.get(f"{path}.{kind}" if path else kind, "") for kind in ("weight", "bias")}
        if names["weight"] not in sites or (names["bias"] and names["bias"] not in sites):
            continue
        is_linear = isinstance(network.layers.get_submodule(path), nn.Linear)
        channels = -1 if is_linear else 1
        weight = sites[names["weight"]]
        if len(x) == num_rows and x.ndim >= 2 and (is_linear or x.ndim == len(weight.shape)):
            is_local = estimator == "local" and is_linear and x.ndim == 2
            sizes = x.shape[channels], output.shape[channels]
            found.append(NoisyLayer(network, path, weight, sites.get(names["bias"]), is_local, num_rows, sizes))
    if not found:
        raise ModelError(
            f"estimator={estimator!r} needs linear or convolutional layers of a network that are called once, with one "
            f"row for each observation, and this model has none (latent sites: "
            f"{', '.join(site.name for site in density.sites)}). Sample the weights with bnnzoo.random_module(...), or "
            f"leave estimator out."
        )
    return tuple(found)


def is_unconstrained(site: Site) -> bool:
    """Whether a site's entries of theta are its values."""
    transform: Any = site.transform
    while isinstance(transform, IndependentTransform):
        transform = transform.base_transform
    return isinstance(transform, ComposeTransform) and not transform.parts


@contextmanager
def noisy(layers: Sequence[NoisyLayer], theta: Tensor, loc: Tensor, scale: Tensor, noise: Tensor) -> Iterator[None]:
    """Within this context the model's networks compute with separate noise for every row."""
    parts = noise.split([layer.noise_size for layer in layers]) if layers else ()
    with ExitStack() as stack:
        for layer, part in zip(layers, parts, strict=True):

            def hook(
                _: nn.Module, args: tuple[Any, ...], __: Tensor, layer: NoisyLayer = layer, part: Tensor = part
            ) -> Tensor:
                return layer.output(layer.network.layers.get_submodule(layer.path), args[0], theta, loc, scale, part)

            handle = layer.network.module.get_submodule(layer.path).register_forward_hook(hook)
            stack.callback(handle.remove)
        yield


def _calls(density: LogDensity, batch: Data) -> list[tuple[Network, str, Tensor, Tensor]]:
    """Run the model once and return, for each layer called exactly once with weights of its own, input and output."""
    calls: list[tuple[Network, str, Tensor, Tensor]] = []
    with ExitStack() as stack, torch.no_grad():
        for network in density.networks:
            uses = Counter(id(each) for _, each in network.layers.named_parameters(remove_duplicate=False))
            for path, own in network.layers.named_modules():
                if not isinstance(own, nn.Linear | nn.Conv1d | nn.Conv2d | nn.Conv3d):
                    continue
                if any(uses[id(each)] > 1 for each in own.parameters(recurse=False)):
                    continue
                layer = network.module.get_submodule(path)

                def hook(
                    _: nn.Module, args: tuple[Any, ...], output: Tensor, network: Network = network, path: str = path
                ) -> None:
                    calls.append((network, path, args[0], output))

                stack.callback(layer.register_forward_hook(hook).remove)
        theta = torch.zeros(density.num_params, dtype=density.dtype, device=density.device)
        density.nodes(theta, *batch)
    counts = Counter((id(network), path) for network, path, *_ in calls)
    return [call for call in calls if counts[id(call[0]), call[1]] == 1]


def _forward(layer: nn.Module, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Apply a layer with the given parameters in place of its own."""
    if isinstance(layer, nn.Conv1d | nn.Conv2d | nn.Conv3d):
        result: Tensor = layer._conv_forward(x, weight, bias)
        return result
    return functional.linear(x, weight, bias)
