"""Normalising flows over ``theta``: a Gaussian transformed by coupling layers, as a family and as a posterior."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributions import Transform, constraints
from torch.func import functional_call, vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.guides import guide_of
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import noise_of_draws
from bnnzoo.core.posterior.saving import StoredPosterior
from bnnzoo.core.posterior.stored import Owner
from bnnzoo.core.program.surroundings import isolated
from bnnzoo.core.types import Whole
from bnnzoo.inference.optimise.pathfinder import Frame
from bnnzoo.inference.variational.elbo import InvertibleFamily

__all__ = ["Flow", "FlowPosterior", "SinhArcsinh", "flow_over"]

MAX_TAIL = math.log(2.0)  # of the log tail weight of one layer
MIN_SLOPE = 0.05  # of the affine part of one layer; the base has the scale
MAX_ELEMENTS = 2**22  # of the draws that are evaluated together


class SinhArcsinh(Transform):
    r"""Elementwise transform of a normal number into a skewed one with other tails; the identity at zero.

    .. math:: y = \sinh\left( e^\tau (\sinh^{-1} x + \epsilon) \right)

    Parameters
    ----------
    skew : Tensor
        :math:`\epsilon`, positive for a longer right tail.
    tail : Tensor
        :math:`\tau` before it is softly limited to (-log 2, log 2); positive for heavier tails.

    References
    ----------
    Jones and Pewsey (2009), Sinh-arcsinh distributions, Biometrika 96.

    Examples
    --------
    >>> transform = SinhArcsinh(torch.tensor(0.5), torch.tensor(0.2))
    >>> x = torch.tensor([-2.0, 0.0, 2.0])
    >>> bool(torch.allclose(transform.inv(transform(x)), x, atol=1e-5))
    True
    """

    domain = codomain = constraints.real
    bijective = True
    sign = 1

    def __init__(self, skew: Tensor, tail: Tensor) -> None:
        super().__init__()
        self._skew = skew
        self._log_tail = tail / (1 + tail.abs() / MAX_TAIL)

    def _call(self, x: Tensor) -> Tensor:
        return torch.sinh(self._log_tail.exp() * (torch.asinh(x) + self._skew))

    def _inverse(self, y: Tensor) -> Tensor:
        return torch.sinh((-self._log_tail).exp() * torch.asinh(y) - self._skew)

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the log derivative ``[...]``."""
        return self._log_tail + 0.5 * (torch.log1p(y**2) - torch.log1p(x**2))


@dataclass(frozen=True)
class Flow:
    """Distributions ``theta = loc + root T(noise)``: ``params`` has those of the Gaussian, then the weights of T.

    T is a stack of coupling layers, the identity at the start. In each, half of the entries are transformed with parameters
    of their own, the other half with parameters that a network computes from the first half.

    Attributes
    ----------
    base : InvertibleFamily
        The Gaussians that are transformed.
    num_base : int
        Number of its parameters.
    num_layers, num_hidden : int
        Coupling layers, and hidden units of the network in each.
    layers : Module
        Holds the shapes of T's weights and their values at the start, by which flows do not differ: a graph takes them as
        arguments.
    """

    base: InvertibleFamily
    num_base: int
    num_layers: int
    num_hidden: int
    layers: nn.Module = field(compare=False)

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters ``[Q]`` of the Gaussian with the given means ``[P]`` and independent entries of one sd."""
        return self.start_from(self.base.start(loc, scale))

    def start_from(self, base: Tensor) -> Tensor:
        """Return parameters ``[Q]`` of the Gaussian with parameters ``base``."""
        return torch.cat([base, *(p.detach().flatten().to(base) for p in self.layers.parameters())])

    def noise_size(self, num_params: int) -> int:
        """Return how many standard normal numbers a draw uses."""
        return num_params

    def at(self, params: Tensor, frame: Frame) -> Tensor:
        """Return the parameters ``[Q]`` of what ``params[Q]`` are in a frame of the Gaussian."""
        base, weights = params.split([self.num_base, len(params) - self.num_base])
        return torch.cat([self.base.at(base, frame), weights])

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for ``noise[P]``."""
        white, _ = functional_call(self.layers, self._weights(params), (noise,))
        return self.base.draw(params[: self.num_base], white)

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of ``theta[P]``."""
        base = params[: self.num_base]
        _, covariance = self.base.gaussian(base)
        white = self.base.whiten(base, theta)
        noise, logdet = functional_call(self.layers, self._weights(params), (white,), {"inverse": True})
        normal = -0.5 * (noise**2).sum() - 0.5 * noise.numel() * math.log(2 * math.pi)
        return normal + logdet - 0.5 * covariance.logdet()

    def _weights(self, params: Tensor) -> dict[str, Tensor]:
        shapes = {name: p.shape for name, p in self.layers.named_parameters()}
        parts = params[self.num_base :].split([shape.numel() for shape in shapes.values()])
        return {name: part.reshape(shapes[name]) for name, part in zip(shapes, parts, strict=True)}


@dataclass(frozen=True, repr=False)
class FlowPosterior(StoredPosterior):
    """A fitted flow as a posterior over ``theta[P]``.

    Attributes
    ----------
    density : LogDensity
    info : FitInfo
    flow : Flow
    params : Tensor [Q]
    """

    density: LogDensity
    info: FitInfo
    flow: Flow
    params: Tensor

    def draws(self, num_draws: int | None = None, seed: Whole | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        seed = self.info.seed if seed is None else seed
        return self._draw(noise_of_draws(self.params, self.density.num_params, num_draws, seed))

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the flow."""
        return self._each(self.flow.log_prob, theta).reshape(theta.shape[:-1])

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return the Pyro guide of this flow; see :meth:`bnnzoo.core.posterior.posterior.Gaussian.as_guide`."""
        return guide_of(self.density, self.sample, self.log_prob)

    def sample(self, shape: torch.Size) -> Tensor:
        """Return draws ``[*shape, P]``, using torch's global random stream."""
        noise = torch.randn(*shape, self.density.num_params, dtype=self.params.dtype, device=self.params.device)
        return self._draw(noise)

    def state(self) -> dict[str, Any]:
        """Return the parameters, the family that is transformed, and what the layers are made of."""
        return {
            "params": self.params,
            "base": self.flow.base,
            "num_layers": self.flow.num_layers,
            "num_hidden": self.flow.num_hidden,
            "buffers": dict(self.flow.layers.named_buffers()),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], owner: Owner) -> "FlowPosterior":
        """Return the posterior of which :meth:`state` was stored."""
        flow = flow_over(owner.density, state["base"], state["num_layers"], state["num_hidden"], owner.info.seed)
        flow.layers.load_state_dict(state["buffers"], strict=False)
        return cls(owner.density, owner.info, flow, state["params"])

    def _draw(self, noise: Tensor) -> Tensor:
        return self._each(self.flow.draw, noise).reshape(noise.shape)

    def _each(self, function: Callable[[Tensor, Tensor], Tensor], rows: Tensor) -> Tensor:
        size = max(1, MAX_ELEMENTS // self.density.num_params)
        found: Tensor = vmap(function, in_dims=(None, 0), chunk_size=size)(
            self.params, rows.reshape(-1, rows.shape[-1])
        )
        return found


class _Layers(nn.Module):
    """Coupling layers in sequence, as a function that returns the transformed vector and the log determinant."""

    def __init__(self, layers: list[nn.Module], compose: Callable[..., Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._compose = compose

    def forward(self, x: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
        # functional_call covers the whole of it, since zuko's transforms look up their weights when they are called.
        transform = self._compose(*(layer() for layer in self.layers))
        found: tuple[Tensor, Tensor] = (transform.inv if inverse else transform).call_and_ladj(x)
        return found


@dataclass(frozen=True)
class _Univariate:
    """The transform of one entry; a class, and no function inside another, so that a flow can be sent to a worker."""

    compose: Callable[..., Any]
    affine: Callable[..., Any]

    def __call__(self, shift: Tensor, scale: Tensor, skew: Tensor, tail: Tensor) -> Transform:
        affine = self.affine(shift, scale, slope=MIN_SLOPE)
        composed: Transform = self.compose(SinhArcsinh(skew, tail), affine)
        return composed


def flow_over(density: LogDensity, base: InvertibleFamily, num_layers: int, num_hidden: int, seed: int) -> Flow:
    """Return a flow for ``theta[P]``, a Gaussian transformed by coupling layers from zuko whose composition is the identity."""
    num_params = density.num_params
    try:
        from zuko.flows.autoregressive import MaskedAutoregressiveTransform
        from zuko.transforms import ComposedTransform, MonotonicAffineTransform
    except ImportError as error:
        raise ImportError("FlowVI needs zuko: pip install bnnzoo[flows].") from error

    forwards = torch.arange(num_params)
    network = {"hidden_features": (num_hidden,), "activation": nn.SiLU} if num_params > 1 else {}
    with isolated(seed, density.device):
        layers = [
            MaskedAutoregressiveTransform(
                num_params,
                passes=2,
                order=forwards if i % 2 == 0 else forwards.flip(0),
                univariate=_Univariate(ComposedTransform, MonotonicAffineTransform),
                shapes=((), (), (), ()),
                **network,
            )
            for i in range(num_layers)
        ]
    for layer in layers:
        for last in layer.hyper[-1].parameters() if num_params > 1 else layer.parameters():
            nn.init.zeros_(last)
    composed = _Layers(layers, ComposedTransform).to(dtype=density.dtype, device=density.device)
    num_base = len(base.start(torch.zeros(num_params), 1.0))
    return Flow(base, num_base, num_layers, num_hidden, composed)
