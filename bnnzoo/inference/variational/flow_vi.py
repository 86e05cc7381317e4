"""Variational inference with a normalising flow: a Gaussian, bent."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.distributions import Transform, constraints
from torch.func import functional_call, vmap

from bnnzoo.core.covariance import Covariance, Dense, Diagonal
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Method, Need
from bnnzoo.core.posterior import FitInfo, Mixture, guide_of, noise_of_draws
from bnnzoo.core.replay import isolated
from bnnzoo.core.saving import StoredPosterior
from bnnzoo.core.stored import Owner
from bnnzoo.inference.optimise.train import Schedule
from bnnzoo.inference.starts import Start
from bnnzoo.inference.variational.elbo import GaussianFamily, Keep, maximise
from bnnzoo.inference.variational.full_rank_vi import FullRank, FullRankVI
from bnnzoo.inference.variational.mean_field_vi import MeanField, MeanFieldVI

__all__ = ["Flow", "FlowPosterior", "FlowVI", "SinhArcsinh", "coupling_layers"]

MAX_TAIL = math.log(2.0)  # of the log tail weight of one layer
MIN_SLOPE = 0.05  # of the affine part of one layer; the base has the scale
CLIP = 5.0
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

    T is a stack of coupling layers, the identity at the start. In each, half of the entries are transformed by numbers of
    their own, the other half by numbers that a network computes from the first half.

    Attributes
    ----------
    base : GaussianFamily
        Whose covariances are dense or diagonal.
    num_base : int
        Number of its parameters.
    layers : Module
        Holds the shapes of T's weights and their values at the start.
    """

    base: GaussianFamily
    num_base: int
    layers: nn.Module

    def start(self, loc: Tensor, scale: float) -> Tensor:
        """Return parameters ``[Q]`` of the Gaussian with the given means ``[P]`` and independent entries of one sd."""
        return self.start_from(self.base.start(loc, scale))

    def start_from(self, base: Tensor) -> Tensor:
        """Return parameters ``[Q]`` of the Gaussian with parameters ``base``."""
        return torch.cat([base, *(p.detach().flatten().to(base) for p in self.layers.parameters())])

    def noise_size(self, num_params: int) -> int:
        """Return the number of standard normal numbers a draw takes."""
        return num_params

    def draw(self, params: Tensor, noise: Tensor) -> Tensor:
        """Return ``theta[P]`` for ``noise[P]``."""
        bent, _ = functional_call(self.layers, self._weights(params), (noise,))
        return self.base.draw(params[: self.num_base], bent)

    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor:
        """Return the log density ``[]`` of ``theta[P]``."""
        loc, covariance = self.base.gaussian(params[: self.num_base])
        bent = _whitened(covariance, theta - loc)
        noise, logdet = functional_call(self.layers, self._weights(params), (bent,), {"inverse": True})
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

    def draws(self, num_draws: int | None = None, seed: int | None = None) -> Tensor:
        """Return independent draws ``[1, S, P]``; the same for the same seed, which is the fit's by default."""
        seed = self.info.seed if seed is None else seed
        return self._draw(noise_of_draws(self.params, self.density.num_params, num_draws, seed))

    def log_prob(self, theta: Tensor) -> Tensor:
        """Return the log density ``[...]`` of ``theta[..., P]`` under the flow."""
        return self._each(self.flow.log_prob, theta).reshape(theta.shape[:-1])

    def as_guide(self) -> Callable[..., dict[str, Tensor]]:
        """Return the Pyro guide of this flow; see :meth:`bnnzoo.core.posterior.Gaussian.as_guide`."""
        return guide_of(self.density, self.sample, self.log_prob)

    def sample(self, shape: torch.Size) -> Tensor:
        """Return draws ``[*shape, P]``, using torch's global random stream."""
        noise = torch.randn(*shape, self.density.num_params, dtype=self.params.dtype, device=self.params.device)
        return self._draw(noise)

    def state(self) -> dict[str, Any]:
        """Return the parameters, and what the flow's layers are made of."""
        layers = self.flow.layers
        return {
            "params": self.params,
            "base": type(self.flow.base).__name__,
            "num_base": self.flow.num_base,
            "num_layers": len(list(layers.get_submodule("layers").children())),
            "num_hidden": self.info.config["num_hidden"],
            "buffers": dict(layers.named_buffers()),
        }

    @classmethod
    def from_state(cls, state: Mapping[str, Any], owner: Owner) -> "FlowPosterior":
        """Return the posterior of which :meth:`state` was stored."""
        layers = coupling_layers(owner.density, state["num_layers"], state["num_hidden"], owner.info.seed)
        layers.load_state_dict(state["buffers"], strict=False)
        base = MeanField() if state["base"] == "MeanField" else FullRank(owner.density.num_params)
        return cls(owner.density, owner.info, Flow(base, state["num_base"], layers), state["params"])

    def _draw(self, noise: Tensor) -> Tensor:
        return self._each(self.flow.draw, noise).reshape(noise.shape)

    def _each(self, function: Callable[[Tensor, Tensor], Tensor], rows: Tensor) -> Tensor:
        size = max(1, MAX_ELEMENTS // self.density.num_params)
        found: Tensor = vmap(function, in_dims=(None, 0), chunk_size=size)(
            self.params, rows.reshape(-1, rows.shape[-1])
        )
        return found


@dataclass(frozen=True)
class FlowVI:
    r"""Normalising flow over unconstrained space: the best Gaussian first, then bent by coupling layers.

    .. math:: \theta = \mu + L \, T_\phi(\epsilon), \qquad \epsilon \sim N(0, I)

    For posteriors that are skewed or curved, of up to a few hundred parameters. T starts as the identity at the Gaussian
    that ``base`` finds, and mean, covariance and T are then learned together. Each layer of T shifts, scales, skews and
    weighs the tails of the entries. Where the posterior is Gaussian the gradient has no noise there, and T stays the identity.

    Needs zuko: ``pip install bnnzoo[flows]``.

    Parameters
    ----------
    base : FullRankVI or MeanFieldVI
        The Gaussian fitted first, with its own number of steps and learning rate.
    num_layers : int
        Number of coupling layers. In every second one the halves change places.
    num_hidden : int
        Hidden units of the network in each layer.
    num_steps, num_particles, learning_rate, schedule, num_averaged, tolerance
        Of the second fit, as for :class:`bnnzoo.inference.MeanFieldVI`.
    batch_size, num_restarts, kl_annealing, temperature, init, init_scale
        Of both fits, as for :class:`bnnzoo.inference.MeanFieldVI`; the divergence is annealed in the first.
    keep : {"all", "best"}
        Which restarts are returned.

    References
    ----------
    Rezende and Mohamed (2015), Variational inference with normalizing flows, ICML. Dinh, Sohl-Dickstein and Bengio (2017),
    Density estimation using Real NVP, ICLR. Agrawal, Sheldon and Domke (2020), Advances in black-box VI, NeurIPS.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, FlowVI(bz.FullRankVI(num_steps=50), num_steps=50), *target.data)
    >>> posterior.draws(10).shape
    torch.Size([1, 10, 3])
    """

    base: Method = field(default_factory=lambda: FullRankVI(num_steps=1000))
    num_layers: int = 3
    num_hidden: int = 32
    num_steps: int = 2000
    num_particles: int = 16
    learning_rate: float = 0.01
    schedule: Schedule = "cosine"
    batch_size: int | None = None
    num_averaged: int | None = None
    tolerance: float | None = None
    num_restarts: int = 1
    keep: Keep = "all"
    kl_annealing: float = 0.0
    temperature: float = 1.0
    init: Start = None
    init_scale: float = 0.1

    needs: ClassVar[frozenset[Need]] = frozenset()

    def run(self, density: LogDensity, context: FitContext) -> FlowPosterior | Mixture:
        """Fit the Gaussian, then the flow; see :func:`bnnzoo.fit`.

        Raises
        ------
        ValueError
            If a setting is out of range, or ``base`` is no method a flow can start from.
        ImportError
            If zuko is not installed.
        """
        base = self._base()
        family = base.family(density.num_params)
        layers = coupling_layers(density, self.num_layers, self.num_hidden, context.seed)
        params, before = maximise(base, family, density, context)
        flow = Flow(family, params.shape[1], layers)
        start = torch.stack([flow.start_from(row) for row in params])
        params, info = maximise(replace(self, kl_annealing=0.0), flow, density, context, start=start, clip=CLIP)
        info = _joined(before, info)
        components = tuple(FlowPosterior(density, info, flow, row) for row in params)
        return components[0] if len(components) == 1 else Mixture(density, info, components)

    def _base(self) -> FullRankVI | MeanFieldVI:
        for name in ("num_layers", "num_hidden"):
            if getattr(self, name) < 1:
                raise ValueError(f"FlowVI({name}={getattr(self, name)}): write 1 or more.")
        base = self.base
        if not isinstance(base, FullRankVI | MeanFieldVI):
            raise ValueError(f"FlowVI(base={type(base).__name__}()): write FullRankVI() or MeanFieldVI().")
        if base.init is not None:
            raise ValueError(f"FlowVI starts where its own init says: leave init out of {type(base).__name__}.")
        shared = ("batch_size", "num_restarts", "kl_annealing", "temperature", "init", "init_scale")
        return replace(base, keep="all", **{name: getattr(self, name) for name in shared})


def _whitened(covariance: Covariance, x: Tensor) -> Tensor:
    """Return the inverse square root of a covariance times ``x[P]``."""
    if isinstance(covariance, Dense):
        return torch.linalg.solve_triangular(covariance.scale_tril, x[:, None], upper=False)[:, 0]
    assert isinstance(covariance, Diagonal)
    return x / covariance.scale


class _Layers(nn.Module):
    """Coupling layers one after the other, as a function of a vector that returns another and the log determinant."""

    def __init__(self, layers: list[nn.Module], compose: Callable[..., Any]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._compose = compose

    def forward(self, x: Tensor, inverse: bool = False) -> tuple[Tensor, Tensor]:
        # Called within functional_call as a whole, since zuko's transforms look up their weights when they are called.
        transform = self._compose(*(layer() for layer in self.layers))
        found: tuple[Tensor, Tensor] = (transform.inv if inverse else transform).call_and_ladj(x)
        return found


def coupling_layers(density: LogDensity, num_layers: int, num_hidden: int, seed: int) -> nn.Module:
    """Return coupling layers from zuko for ``theta[P]`` that are together the identity."""
    num_params = density.num_params
    try:
        from zuko.flows.autoregressive import MaskedAutoregressiveTransform
        from zuko.transforms import ComposedTransform, MonotonicAffineTransform
    except ImportError as error:
        raise ImportError("FlowVI needs zuko: pip install bnnzoo[flows].") from error

    def univariate(shift: Tensor, scale: Tensor, skew: Tensor, tail: Tensor) -> Transform:
        affine = MonotonicAffineTransform(shift, scale, slope=MIN_SLOPE)
        composed: Transform = ComposedTransform(SinhArcsinh(skew, tail), affine)
        return composed

    forwards = torch.arange(num_params)
    network = {"hidden_features": (num_hidden,), "activation": nn.SiLU} if num_params > 1 else {}
    with isolated(seed, density.device):
        layers = [
            MaskedAutoregressiveTransform(
                num_params,
                passes=2,
                order=forwards if i % 2 == 0 else forwards.flip(0),
                univariate=univariate,
                shapes=((), (), (), ()),
                **network,
            )
            for i in range(num_layers)
        ]
    for layer in layers:
        for last in layer.hyper[-1].parameters() if num_params > 1 else layer.parameters():
            nn.init.zeros_(last)
    return _Layers(layers, ComposedTransform).to(dtype=density.dtype, device=density.device)


def _joined(before: FitInfo, after: FitInfo) -> FitInfo:
    """Return how both fits came about, with the trace of the second."""
    return replace(
        after,
        num_gradients=before.num_gradients + after.num_gradients,
        complete=before.complete and after.complete,
    )
