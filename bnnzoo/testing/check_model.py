"""Conformance of a Pyro model: the density that bnnzoo extracts from it is the one Pyro means."""

from typing import Any

import torch
from pyro import poutine
from torch import Tensor
from torch.func import vmap

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.program.surroundings import isolated, usable_device
from bnnzoo.core.reading.consistency import refuse_inconsistent
from bnnzoo.core.reading.reading import read_model
from bnnzoo.core.types import Model
from bnnzoo.testing.isolation import leaves_no_trace

__all__ = ["check_model"]

STEP = 1e-6  # of the central difference; its own error is about 1e-10 relative in float64


def check_model(
    model: Model, *data: Any, num_points: int = 3, seed: int = 0, device: torch.device | str | None = None
) -> None:
    """Check that a Pyro model can be used with every method of bnnzoo, and that its density is Pyro's.

    Checked at ``num_points`` starting points, in float64: the log density is finite and equals Pyro's plus the
    log-Jacobian; prior and pointwise likelihood add up to it; batched equals looped; the gradient agrees with central
    differences along random directions; the observations can be drawn; no global state is touched.

    Parameters
    ----------
    model : callable
        Any Pyro model.
    *data
        Its arguments, observations included: arrays, frames or tensors.
    num_points : int
    seed : int
    device : torch.device or str, optional
        Where to run the model. Default: torch's default device. A model that makes tensors elsewhere fails with torch's own
        error.

    Raises
    ------
    AssertionError
        Naming the property that fails and the numbers found.
    bnnzoo.core.program.sites.ModelError
        If the model uses something that bnnzoo refuses, such as a discrete latent site.

    Examples
    --------
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> check_model(target.model, *target.data)
    """
    where = usable_device(device)
    with leaves_no_trace("Reading the model"):
        density, first = read_model(model, data, torch.float64, where)
        theta = density.init(num_points, seed)
        found = []
        for stream in (0, 1):
            with isolated(stream, theta.device), torch.no_grad():
                found.append(density.log_joint(theta[0], *density.data))
        if not torch.equal(found[0], found[1]):
            raise AssertionError(
                f"The log density at one point is {found[0].item():.6g} and then {found[1].item():.6g}: the model draws "
                "random numbers outside of pyro.sample."
            )
        values, gradients = density.value_and_grad(theta, *density.data)
    for point, value, gradient in zip(theta, values, gradients, strict=True):
        _check_value(density, point, value)
        generator = torch.Generator().manual_seed(seed)
        direction = torch.randn(point.shape, generator=generator, dtype=point.dtype).to(point.device)
        direction = direction / direction.norm()
        with torch.no_grad():
            ends = [density.log_joint(point + sign * STEP * direction, *density.data) for sign in (1.0, -1.0)]
        difference = (ends[0] - ends[1]) / (2 * STEP)
        _check_close("The gradient along a direction", gradient @ direction, "the central difference", difference, 1e-5)
    with torch.no_grad():
        batched = vmap(density.log_joint, in_dims=(0, *(None for _ in density.data)))(theta, *density.data)
        looped = torch.stack([density.log_joint(point, *density.data) for point in theta])
    _check_close("The batched log density", batched, "the looped one", looped)
    with isolated(0, theta.device), torch.no_grad():
        draws = density.predictive(theta[0], *density.data)
    for name, draw in draws.items():
        if draw.is_floating_point() and not torch.isfinite(draw).all():
            raise AssertionError(f"Site {name!r} has draws that are not finite at a starting point.")
    refuse_inconsistent(density, first)


def _check_value(density: LogDensity, theta: Tensor, value: Tensor) -> None:
    if not torch.isfinite(value):
        raise AssertionError(f"The log density is {value.item()} at a starting point; write priors with wider support.")
    constrained, free = density.constrain(theta), density.unconstrained(theta)
    with isolated(0, theta.device):
        trace = poutine.trace(poutine.condition(density.model, constrained)).get_trace(*density.data)
    jacobian = sum(
        (s.transform.log_abs_det_jacobian(free[s.name], constrained[s.name]).sum() for s in density.sites),
        theta.new_zeros(()),
    )
    _check_close("The log density", value, "Pyro's own", trace.log_prob_sum() + jacobian)
    if density.observed and all(
        bool((torch.as_tensor(trace.nodes[name]["scale"]) == 1.0).all()) for name in density.observed
    ):
        parts = density.log_prior(theta) + density.log_likelihood(theta, *density.data).sum()
        _check_close("The log density", value, "prior plus pointwise likelihood", parts)


def _check_close(what: str, found: Tensor, other: str, expected: Tensor, relative: float = 1e-9) -> None:
    error = (found - expected).abs().max().item()
    if not error <= relative * (1.0 + expected.abs().max().item()):
        raise AssertionError(f"{what} differs from {other} by {error:.3g}.")
