"""Kernels of gpytorch whose hyperparameters are latent sites, on their natural scale, with priors."""

import copy
import importlib.util
import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pyro
import pyro.distributions as dist
import torch
from pyro.distributions.torch_distribution import TorchDistributionMixin
from torch import Tensor, nn
from torch.func import functional_call
from torch.overrides import TorchFunctionMode

from bnnzoo.models.placement import place

__all__ = ["Covariance", "KernelSites", "kernel_sites"]

type Covariance = Callable[..., Tensor]
"""``(a[N, D], b[M, D]) -> [N, M]``, or ``[N]`` with ``diag=True``."""


@dataclass(frozen=True, eq=False)
class Hyperparameter:
    """One parameter of a kernel: its place in the module, its name and shape as a site, how to restore it, its prior."""

    raw: str
    site: str
    shape: tuple[int, ...]
    raw_shape: torch.Size
    constraint: Any
    prior: TorchDistributionMixin | None

    def sample(self, num_inputs: int) -> Tensor:
        """Sample the natural value at its site and return what the module stores instead."""
        prior = _default(self, num_inputs) if self.prior is None else place(self.prior)
        value = pyro.sample(self.site, prior.expand(self.shape).to_event(len(self.shape)))
        value = value.reshape(self.raw_shape)
        found: Tensor = value if self.constraint is None else self.constraint.inverse_transform(value)
        return found


@dataclass(frozen=True, eq=False)
class KernelSites:
    """A kernel and its hyperparameters; made by :func:`kernel_sites`."""

    module: nn.Module
    hyperparameters: tuple[Hyperparameter, ...]

    def sample(self, x: Tensor) -> Covariance:
        """Sample the hyperparameters and return the covariance function that they give, for inputs like ``x[N, D]``."""
        values = {each.raw: each.sample(x.shape[1]) for each in self.hyperparameters}
        fixed = dict(self.module.named_parameters()) | dict(self.module.named_buffers())
        state = {name: v.to(x) if v.is_floating_point() else v for name, v in (fixed | values).items()}

        def covariance(a: Tensor, b: Tensor, diag: bool = False) -> Tensor:
            found: Tensor = functional_call(self.module, state, (a, b, diag))
            return found

        return covariance


class _Dense(nn.Module):
    """Evaluates a kernel to a plain tensor while its parameters are replaced."""

    def __init__(self, kernel: nn.Module) -> None:
        super().__init__()
        self.kernel = kernel

    def forward(self, a: Tensor, b: Tensor, diag: bool) -> Tensor:
        settings = _gpytorch("kernel").settings
        # Without these, gpytorch evaluates later, when the parameters are back, and by functions that vmap does not know.
        with settings.lazily_evaluate_kernels(False), settings.trace_mode(True), _NoComparison():
            found = self.kernel(a, b, diag=diag)
        dense: Tensor = found if isinstance(found, Tensor) else found.to_dense()
        return dense


class _NoComparison(TorchFunctionMode):
    """Let gpytorch take two inputs for different ones, as which it asks by values: vmap has no rule for that."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return False if func is torch.equal else func(*args, **(kwargs or {}))


def kernel_sites(where: str, kernel: Any) -> KernelSites:
    """Return a kernel of gpytorch with one latent site for each of its trainable hyperparameters.

    Parameters
    ----------
    where : str
        Who asks, for error messages.
    kernel : gpytorch.kernels.Kernel
        It is copied. Parameters with ``requires_grad=False`` stay fixed at their values.

    Raises
    ------
    ImportError
        If gpytorch is not installed.
    TypeError
        If `kernel` is not a kernel of gpytorch.
    ValueError
        If the kernel is a batch of several, or a prior is not one of a hyperparameter.
    """
    gpytorch = _gpytorch(where)
    if not isinstance(kernel, gpytorch.kernels.Kernel):
        raise TypeError(
            f"{where}: kernel must be a kernel of gpytorch, such as gpytorch.kernels.ScaleKernel(gpytorch.kernels.RBFKernel()), "
            f"but is {kernel!r}."
        )
    if kernel.batch_shape:
        raise ValueError(
            f"{where}: the kernel is a batch of shape {tuple(kernel.batch_shape)}, one for each of several functions, and the "
            f"model has one function: leave batch_shape= out of the kernel."
        )
    module = _Dense(copy.deepcopy(kernel))
    return KernelSites(module, tuple(_hyperparameters(where, module)))


def _hyperparameters(where: str, module: _Dense) -> Iterator[Hyperparameter]:
    kernel: Any = module.kernel
    priors = dict(_priors(where, kernel))
    for name, parameter, constraint in kernel.named_parameters_and_constraints():
        path, _, last = name.rpartition(".")
        natural = f"{path}.{last.removeprefix('raw_')}".lstrip(".")
        prior = priors.pop(natural, None)
        if parameter.requires_grad:
            shape = tuple(size for size in parameter.shape if size > 1)
            yield Hyperparameter(f"kernel.{name}", f"kernel.{natural}", shape, parameter.shape, constraint, prior)
    if priors:
        raise ValueError(
            f"{where}: the kernel has a prior named {min(priors)!r}, which is not one of its hyperparameters: register it under "
            f"the name of a hyperparameter, as in kernel.register_prior('lengthscale_prior', prior, 'lengthscale')."
        )


def _priors(where: str, kernel: Any) -> Iterator[tuple[str, TorchDistributionMixin]]:
    for name, _, prior, _, _ in kernel.named_priors():
        natural = name.removesuffix("_prior")
        yield natural, _as_pyro(where, natural, prior)


def _as_pyro(where: str, name: str, prior: Any) -> TorchDistributionMixin:
    """Return a prior of gpytorch, a module with buffers, as the Pyro distribution that it inherits from."""
    for cls in type(prior).__mro__:
        ours = getattr(dist, cls.__name__, None)
        if cls.__module__.startswith("torch.distributions") and ours is not None and issubclass(ours, cls):
            values = {each: getattr(prior, each).detach() for each in ours.arg_constraints if hasattr(prior, each)}
            alternatives = {"logits": "probs", "precision_matrix": "covariance_matrix"}
            given = {k: v.squeeze() for k, v in values.items() if alternatives.get(k) not in values}
            found: TorchDistributionMixin = ours(**given, validate_args=False)
            return found
    raise ValueError(
        f"{where}: the prior of {name!r}, {type(prior).__name__}, is of no family that Pyro has. Use GammaPrior, LogNormalPrior, "
        f"NormalPrior, HalfNormalPrior, HalfCauchyPrior or UniformPrior."
    )


def _default(hyperparameter: Hyperparameter, num_inputs: int) -> TorchDistributionMixin:
    r"""Return the prior of a hyperparameter that has none: for standardised inputs and targets.

    A lengthscale has the median :math:`\sqrt{D}` of the distances between D inputs; everything else positive has median 1.
    """
    constraint = hyperparameter.constraint
    if constraint is None:
        return dist.Normal(0.0, 1.0)
    lower, upper = float(constraint.lower_bound), float(constraint.upper_bound)
    if math.isfinite(lower) and math.isfinite(upper):
        return dist.Uniform(lower, upper)
    if not math.isfinite(lower):
        return dist.Normal(0.0, 1.0)
    is_length = hyperparameter.site.endswith("lengthscale")
    positive = dist.LogNormal(0.5 * math.log(num_inputs) if is_length else 0.0, 1.0)
    if lower == 0.0:
        return positive
    return dist.TransformedDistribution(positive, [torch.distributions.AffineTransform(lower, 1.0)])


def _gpytorch(where: str) -> Any:
    if importlib.util.find_spec("gpytorch") is None:
        raise ImportError(f"{where} takes its kernels from gpytorch, which is not installed: pip install 'bnnzoo[gp]'.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # torch warns of what gpytorch compiles while it is imported
        import gpytorch
    return gpytorch
