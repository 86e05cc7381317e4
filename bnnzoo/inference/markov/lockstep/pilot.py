"""Starts and units of chains in lockstep, from Gaussians on the way from the model's own starts to the mode."""

from functools import partial
from typing import NamedTuple, cast

import torch
from torch import Tensor

from bnnzoo.core.method import FitContext, Method, is_method
from bnnzoo.core.model.density import LogDensity
from bnnzoo.inference.markov.chain_settings import ChainSettings
from bnnzoo.inference.markov.first_metric import metric_of_start
from bnnzoo.inference.markov.hamiltonian.kernel import Metric
from bnnzoo.inference.optimise.pathfinder import Frame, frames_near
from bnnzoo.inference.starts import Start, fitted_start, starting_points

__all__ = ["Pilot", "pilot"]

MAX_WAYS = 4
"""Ways to the mode, between whose ends more chains are distributed."""

MAX_HALVINGS, LOST = 8, 10.0
"""A draw that costs more nats than twice its share and this is halved towards the middle of its Gaussian."""


class Pilot(NamedTuple):
    """Where chains start, ``theta[C, P]``, and ``root[P]`` or ``[P, P]``, or a mass matrix; None: the units of the model."""

    theta: Tensor
    root: Tensor | Metric | None


def pilot(settings: ChainSettings, density: LogDensity, context: FitContext) -> Pilot:
    """Return starts that are draws of Gaussians near the posterior, and a root of their covariance.

    It is that of the best one, with the medians of their standard deviations.

    Chains that share a step size all wait for the one that needs the smallest. From the model's own starts, far from data in
    raw units, a microcanonical chain would need steps so small that warm-up ended on its way. Given starts, networks
    and models without curvature keep the starts of ``settings.init`` and the units of the model, or of the Gaussians of
    Pathfinder if these are the starts, and so does a step size that was given in these units.

    Raises
    ------
    ModelError
        If the density is not finite at any start that was tried.
    """
    start: Start = settings.init
    if is_method(start):
        start = fitted_start(cast(Method, start), settings.num_chains, density, context)
    own = starting_points(start, settings.num_chains, density, context, traced=True)
    if settings.step_size is not None or settings.num_warmup == 0:
        return Pilot(own, None)
    if start is not None:
        return Pilot(own, metric_of_start(start, settings.num_chains, shared=True))
    frames = frames_near(density, own[:MAX_WAYS])
    if frames is None:
        return Pilot(own, None)
    widths = frames.root.square().sum(-1).sqrt()
    root = (widths.median(0).values / widths[0])[:, None] * frames.root[0]
    return Pilot(_drawn(density, frames, settings.num_chains, context.seed), root)


def _drawn(density: LogDensity, frames: Frame, num_chains: int, seed: int) -> Tensor:
    """Return a draw for each chain ``[C, P]`` of the Gaussians in turn, nearer to its middle where the density is too low."""
    noise = torch.randn(num_chains, density.num_params, generator=torch.Generator().manual_seed(seed))
    places = torch.arange(num_chains) % len(frames.loc)
    loc, root, noise = frames.loc[places], frames.root[places], noise.to(frames.loc)
    evaluate = partial(_value, density)
    theta, middle = loc.clone(), evaluate(loc)
    waiting = torch.ones(num_chains, dtype=torch.bool, device=loc.device)
    for _ in range(MAX_HALVINGS):
        drawn = loc + (root @ noise[..., None])[..., 0]
        near = waiting & (evaluate(drawn) >= middle - noise.square().sum(1) - LOST)
        theta, waiting = torch.where(near[:, None], drawn, theta), waiting & ~near
        if not bool(waiting.any()):
            break
        noise = noise / 2
    return theta


def _value(density: LogDensity, theta: Tensor) -> Tensor:
    """Return the log density ``[C]``, minus infinity where it or its gradient is not finite."""
    value, gradient = density.value_and_grad(theta, *density.data)
    return torch.where(value.isfinite() & gradient.isfinite().all(1), value, -torch.inf)
