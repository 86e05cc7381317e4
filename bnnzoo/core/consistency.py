"""Is a Pyro model the function of its latent values that every method takes it for? Asked once, before a fit."""

import warnings
from collections.abc import Mapping

import torch
from torch import Tensor
from torch.distributions import Independent

from bnnzoo.core.density import LogDensity
from bnnzoo.core.replay import Node, isolated, log_prob
from bnnzoo.core.sites import ModelError, is_subsample
from bnnzoo.lowering.lowered import looped_value_and_grad

__all__ = ["ModelWarning", "refuse_inconsistent"]

TWO_SEEDS = (0, 1)
STEP = 1e-3
"""Length of the finite difference's step; a second one of half the length tells how far it can be trusted."""

TRUSTED, FAR = 0.05, 0.5
"""Relative difference between both steps below which they are believed, and from the gradient above which it is wrong."""


class ModelWarning(UserWarning):
    """A model can be fitted, but is probably not what its author meant; the message says what to look at."""


def refuse_inconsistent(density: LogDensity) -> None:
    """Refuse a model that is random beyond its sites, loses gradients, or pairs observations and distributions wrongly.

    The model is run under two states of the global random stream, and its gradient compared with a finite difference in one
    random direction, at a starting point.

    Raises
    ------
    ModelError
        Naming the site, what was found and what to write instead.
    """
    theta = density.init(1, 0)[0].to(dtype=density.dtype, device=density.device)
    nodes = [_nodes(density, theta, seed) for seed in TWO_SEEDS]
    _refuse_shapes({name: nodes[0][name] for name in density.observed})
    _refuse_chance(density, *nodes)
    _refuse_lost_gradient(density, theta)
    _warn_of_single_event({name: nodes[0][name] for name in density.observed})


def _nodes(density: LogDensity, theta: Tensor, seed: int) -> dict[str, Node]:
    with isolated(seed, density.device), torch.no_grad():
        return density.nodes(theta, *density.data)


def _refuse_shapes(observed: Mapping[str, Node]) -> None:
    """Refuse an observed site whose distribution broadcasts its values, as a forgotten squeeze makes it."""
    for name, node in observed.items():
        values = node["value"].shape[: node["value"].ndim - node["fn"].event_dim]
        found = torch.broadcast_shapes(values, node["fn"].batch_shape)
        if found.numel() > values.numel():
            raise ModelError(
                f"Site {name!r} observes {values.numel()} values of shape {list(values)}, but its distribution has shape "
                f"{list(node['fn'].batch_shape)}, so that {found.numel()} terms would be counted. Give both one shape: squeeze a "
                f"network's output with .squeeze(-1), or the observations."
            )


def _refuse_chance(density: LogDensity, first: Mapping[str, Node], second: Mapping[str, Node]) -> None:
    """Refuse a model whose sites or whose density at one point depend on the global random stream."""
    sites = [{name for name, node in nodes.items() if _is_random_variable(node)} for nodes in (first, second)]
    if sites[0] != sites[1]:
        name = min(sites[0] ^ sites[1])
        raise ModelError(
            f"Site {name!r} is sampled in some runs of the model and not in others. Every run of a model must sample the same "
            f"sites: mask a site with poutine.mask, or compute both cases and choose with torch.where."
        )
    for name in sorted(sites[0]):
        one, other = (log_prob(nodes[name]).detach() for nodes in (first, second))
        if not torch.equal(one.nan_to_num(), other.nan_to_num()):
            raise ModelError(
                f"The log probability of site {name!r} at one and the same point is {float(one.sum()):.6g} in one run of the "
                f"model and {float(other.sum()):.6g} in the next: the model draws random numbers outside of pyro.sample, such as "
                f"torch.randn or functional dropout in training mode. Sample them as sites, or switch them off."
            )


def _is_random_variable(node: Node) -> bool:
    return node["type"] == "sample" and not is_subsample(node)


def _refuse_lost_gradient(density: LogDensity, theta: Tensor) -> None:
    """Refuse a model that cuts the graph of some latent value, by ``detach``, ``.item()`` or numpy."""
    direction = torch.randn(theta.shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64).to(theta)
    direction = direction / direction.norm()
    value, gradient = looped_value_and_grad(density.log_joint)(theta[None], *density.data)
    slope = float(gradient[0] @ direction)
    coarse, fine = (_central_difference(density, theta, direction, step) for step in (STEP, STEP / 2))
    rounding = 100 * torch.finfo(theta.dtype).eps * abs(float(value)) / STEP
    if (
        abs(coarse - fine) > TRUSTED * abs(fine) + rounding
        or not torch.isfinite(torch.tensor([coarse, fine, slope])).all()
    ):
        return  # too rough or too steep there to tell
    if abs(fine - slope) > FAR * max(abs(fine), abs(slope)) + rounding:
        raise ModelError(
            f"The gradient of the log density is not its derivative: along a random direction it is {slope:.4g}, a finite "
            f"difference gives {fine:.4g}. Somewhere the model takes a latent value out of torch's graph, with .detach(), "
            f".item() or numpy. Compute it with torch operations."
        )


def _central_difference(density: LogDensity, theta: Tensor, direction: Tensor, step: float) -> float:
    with torch.no_grad():
        up, down = (float(density.log_joint(theta + sign * step * direction, *density.data)) for sign in (1, -1))
    return (up - down) / (2 * step)


def _warn_of_single_event(observed: Mapping[str, Node]) -> None:
    for name, node in observed.items():
        if not node["fn"].batch_shape and isinstance(node["fn"], Independent) and node["value"].ndim:
            warnings.warn(
                f"Site {name!r} is one observation of shape {list(node['value'].shape)}, because .to_event() makes its rows one "
                f"event: leave-one-out and mini-batches need one observation a row. Write pyro.plate('data', len(x)) and leave "
                f".to_event() out where rows are independent.",
                ModelWarning,
                stacklevel=4,
            )
