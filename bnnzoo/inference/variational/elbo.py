"""The evidence lower bound of any reparametrised family over ``theta``, and its maximisation."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from torch import Tensor
from torch.func import grad_and_value, vmap

from bnnzoo.core.covariance import Covariance
from bnnzoo.core.density import LogDensity
from bnnzoo.core.method import FitContext, Method
from bnnzoo.core.posterior import FitInfo, Gaussian, Mixture
from bnnzoo.core.types import Data
from bnnzoo.inference.optimise.train import AdamSettings, Objective, Optimum, ascend
from bnnzoo.inference.starts import Start, starting_points
from bnnzoo.inference.variational.noise import Noise

__all__ = [
    "Bound",
    "Family",
    "GaussianFamily",
    "Keep",
    "VISettings",
    "annealed",
    "elbo",
    "fit_gaussian",
    "maximise",
    "vi_settings",
]

type Keep = Literal["all", "best"]

type Bound = Callable[[Tensor, Tensor, Data, Tensor | None, float], Tensor]
"""``(params[Q], noise[R], batch, weight, temperature) -> []``: one particle's estimate of the bound."""


@runtime_checkable
class Family(Protocol):
    """Distributions over ``theta[P]`` with their parameters in one vector ``params[Q]``.

    A draw is a function of the parameters and of standard normal ``noise[R]``.
    """

    def start(self, loc: Tensor, scale: float) -> Tensor: ...
    def noise_size(self, num_params: int) -> int: ...
    def draw(self, params: Tensor, noise: Tensor) -> Tensor: ...
    def log_prob(self, params: Tensor, theta: Tensor) -> Tensor: ...


@runtime_checkable
class GaussianFamily(Family, Protocol):
    """Gaussians over ``theta[P]``."""

    def gaussian(self, params: Tensor) -> tuple[Tensor, Covariance]: ...


@dataclass(frozen=True)
class VISettings:
    """How the evidence lower bound is maximised; :class:`bnnzoo.inference.MeanFieldVI` explains each."""

    adam: AdamSettings
    num_particles: int
    num_restarts: int
    keep: Keep
    init: Start
    init_scale: float
    temperature: float


def vi_settings(method: Any) -> VISettings:
    """Return the settings that all variational methods have in common, read off their fields.

    Raises
    ------
    ValueError
        If a setting is out of range.
    """
    adam = AdamSettings(
        num_steps=method.num_steps,
        learning_rate=method.learning_rate,
        schedule=method.schedule,
        batch_size=method.batch_size,
        window=_window(method.num_steps, method.num_averaged),
        tolerance=method.tolerance,
        weights=annealed(method.num_steps, method.kl_annealing) if method.kl_annealing else None,
    )
    names = ("num_particles", "num_restarts", "keep", "init", "init_scale", "temperature")
    settings = VISettings(adam, **{name: getattr(method, name) for name in names})
    _refuse_impossible(type(method).__name__, settings)
    return settings


def annealed(num_steps: int, share: float) -> Tensor:
    """Return weights ``[num_steps]`` of the divergence that average to one.

    They rise from 0 over a share of the steps, are somewhat above 1 in the middle to make up for it, and exactly 1
    in the second half, so that what is returned maximises the bound itself.

    Raises
    ------
    ValueError
        If the share is out of range.

    Examples
    --------
    >>> annealed(10, 0.2)
    tensor([0.2500, 0.7500, 1.3333, 1.3333, 1.3333, 1.0000, 1.0000, 1.0000, 1.0000,
            1.0000])
    """
    rising, num_last = round(share * num_steps), num_steps // 2
    middle = num_steps - rising - num_last
    if not 0 < share <= 0.3 or rising < 1:
        raise ValueError(
            f"kl_annealing={share} of num_steps={num_steps}: write a share of the steps up to 0.3, such as 0.2, or 0 for none."
        )
    rise = (torch.arange(rising) + 0.5) / rising
    level = (num_steps - num_last - float(rise.sum())) / middle
    return torch.cat([rise, torch.full((middle,), level), torch.ones(num_last)])


def elbo(
    density: LogDensity, family: Family, params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None = None,
    temperature: float = 1.0, looped: bool = False,
) -> Tensor:  # fmt: skip
    r"""Return the evidence lower bound ``[]`` at ``params[Q]``, estimated with ``noise[K, R]``.

    .. math::
        \frac{1}{K} \sum_k \log p(y \mid \theta_k) + \beta \left( \log p(\theta_k) - T \log q_\phi(\theta_k) \right),
        \qquad \theta_k = \theta(\phi, \epsilon_k)

    The likelihood of a mini-batch of B of the N rows counts N/B times, prior and entropy count once and whole, so
    that the mean over the batches of an epoch is the bound on all data. The gradient leaves out the direct dependence
    of :math:`\log q_\phi` on :math:`\phi`, whose mean is zero: what remains has no noise where q is the posterior.

    Parameters
    ----------
    density : LogDensity
    family : Family
    params : Tensor [Q]
    noise : Tensor [K, R]
    batch : tuple
        Arguments of the model, all rows or some.
    weight : Tensor [], optional
        :math:`\beta`, for annealing; 1 unless given.
    temperature : float
        T. Its target is the density to the power 1/T.
    looped : bool
        Evaluate particles one after another, for models that cannot be batched.

    References
    ----------
    Roeder, Wu and Duvenaud (2017), Sticking the landing, NeurIPS.
    """

    bound = along_the_path(density, family)

    def term(noise: Tensor) -> Tensor:
        return bound(params, noise, batch, weight, temperature)

    return _mean(term, noise, looped)


def along_the_path(density: LogDensity, family: Family) -> Bound:
    """Return the estimate that :func:`elbo` is the mean of."""

    def bound(params: Tensor, noise: Tensor, batch: Data, weight: Tensor | None, temperature: float) -> Tensor:
        theta = family.draw(params, noise)
        log_q = temperature * family.log_prob(params.detach(), theta)
        joint = density.log_joint(theta, *batch)
        return joint - log_q if weight is None else joint + (weight - 1) * density.log_prior(theta) - weight * log_q

    return bound


def _mean(term: Callable[[Tensor], Tensor], noise: Tensor, looped: bool) -> Tensor:
    return (torch.stack([term(row) for row in noise]) if looped else vmap(term)(noise)).mean()


def fit_gaussian(
    method: Method,
    family: GaussianFamily,
    density: LogDensity,
    context: FitContext,
    bound: Bound | None = None,
    num_extra: int = 0,
) -> Gaussian | Mixture:
    """Maximise the evidence lower bound over a family of Gaussians from one or several starts.

    Raises
    ------
    ValueError
        If a setting is out of range.
    """
    params, info = maximise(method, family, density, context, bound, num_extra)
    components = tuple(Gaussian(density, info, *family.gaussian(row)) for row in params)
    return components[0] if len(components) == 1 else Mixture(density, info, components)


def maximise(
    method: Method,
    family: Family,
    density: LogDensity,
    context: FitContext,
    bound: Bound | None = None,
    num_extra: int = 0,
    start: Tensor | None = None,
    clip: float | None = None,
) -> tuple[Tensor, FitInfo]:
    """Return the parameters ``[C, Q]`` of the restarts that are kept, and how they came about.

    Parameters
    ----------
    method, density, context
        As in ``Method.run``.
    family : Family
    bound : Bound, optional
        That of :func:`elbo` unless given.
    num_extra : int
        Number of standard normal numbers that the bound takes beyond those of the family.
    start : Tensor [C, Q], optional
        Parameters to start from; those of the family at the method's starting points unless given.
    clip : float, optional
        See :class:`bnnzoo.inference.optimise.train.AdamSettings`.

    Raises
    ------
    ValueError
        If a setting is out of range.
    """
    settings = vi_settings(method)
    if start is None:
        theta = starting_points(settings.init, settings.num_restarts, density, context)
        start = torch.stack([family.start(loc, settings.init_scale) for loc in theta])
    shape = (settings.num_restarts, settings.num_particles, family.noise_size(density.num_params))
    bound = along_the_path(density, family) if bound is None else bound
    found = ascend(
        _objective(bound, settings),
        start,
        replace(settings.adam, clip=clip),
        density,
        context,
        noise=Noise(shape, start, context.seed, num_extra),
        fallback=_looped_objective(bound, settings),
        name="elbo",
    )
    kept = _kept(found, settings)
    info = FitInfo(
        sampling="iid",
        num_gradients=found.num_steps * settings.num_restarts * settings.num_particles,
        complete=found.complete,
        fit_stats={"elbo": found.trace[kept]},
    )
    return found.params[kept], info


def _objective(bound: Bound, settings: VISettings) -> Objective:
    def estimate(params: Tensor, weight: Tensor, noise: Tensor, batch: Data) -> Tensor:
        used = None if settings.adam.weights is None else weight
        return _mean(lambda row: bound(params, row, batch, used, settings.temperature), noise, looped=False)

    def objective(params: Tensor, weight: Tensor, noise: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        gradient, value = vmap(grad_and_value(estimate), in_dims=(0, None, 0, None))(params, weight, noise, batch)
        return value, gradient

    return objective


def _looped_objective(bound: Bound, settings: VISettings) -> Objective:
    def objective(params: Tensor, weight: Tensor, noise: Tensor, *batch: Any) -> tuple[Tensor, Tensor]:
        pairs = [one(*row, weight, batch) for row in zip(params, noise, strict=True)]
        return torch.stack([value for value, _ in pairs]), torch.stack([gradient for _, gradient in pairs])

    def one(params: Tensor, noise: Tensor, weight: Tensor, batch: Data) -> tuple[Tensor, Tensor]:
        used = None if settings.adam.weights is None else weight
        with torch.enable_grad():
            leaf = params.detach().requires_grad_()
            value = _mean(lambda row: bound(leaf, row, batch, used, settings.temperature), noise, looped=True)
            (gradient,) = torch.autograd.grad(value, leaf)
        return value.detach(), gradient

    return objective


def _kept(found: Optimum, settings: VISettings) -> Tensor:
    """Return the indices of the restarts to keep: all, or the one whose bound was highest over the last window."""
    last = found.trace[:, -settings.adam.window :].mean(1)
    return last.argmax()[None] if settings.keep == "best" else torch.arange(len(last))


def _window(num_steps: int, num_averaged: int | None) -> int:
    """Return how many last iterates are averaged; while the learning rate falls, the last fifth hardly moves."""
    return max(1, num_steps // 5) if num_averaged is None else num_averaged


def _refuse_impossible(name: str, settings: VISettings) -> None:
    for argument in ("num_particles", "num_restarts"):
        if getattr(settings, argument) < 1:
            raise ValueError(f"{name}({argument}={getattr(settings, argument)}): write 1 or more.")
    for argument in ("init_scale", "temperature"):
        if not getattr(settings, argument) > 0:
            raise ValueError(f"{name}({argument}={getattr(settings, argument)}): write a positive number.")
