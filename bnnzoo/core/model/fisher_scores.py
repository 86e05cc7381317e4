"""Log likelihoods whose gradients about theta are roots of a Fisher information: at the observations, or at drawn ones."""

from typing import Any

import torch
from pyro.distributions.util import scale_and_mask
from torch import Tensor

from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.model.replay import Node
from bnnzoo.core.program.surroundings import isolated

__all__ = ["drawn_observations", "log_likelihood_at_draws", "scaled_log_likelihood", "score_root"]


def drawn_observations(density: LogDensity, theta: Tensor, num_draws: int, seed: int) -> tuple[Tensor, ...]:
    """Return for every observed site draws ``[B, M, ...]`` from p(y | x, theta); the global random stream is left alone.

    Parameters
    ----------
    density : LogDensity
    theta : Tensor [P]
    num_draws : int
        M.
    seed : int
    """
    nodes = density.nodes(theta, *density.data)
    with isolated(seed, density.device), torch.no_grad():
        draws = [nodes[name]["fn"].sample((num_draws,)) for name in density.observed]
    return tuple(each.movedim(0, 1) if each.ndim > 1 else each[None] for each in draws)


def log_likelihood_at_draws(density: LogDensity, draws: tuple[Tensor, ...], theta: Tensor, *batch: Any) -> Tensor:
    r"""Return :math:`M^{-1/2} \log p(y_m \mid x, \theta)` ``[B, M]`` for given draws ``[B, M, ...]`` of each observed site.

    Scales and masks of the likelihood are included, the scale as its square root, since gradients will be squared.
    """
    nodes = density.nodes(theta, *batch)
    terms = [score_root(nodes[name], y) for name, y in zip(density.observed, draws, strict=True)]
    return torch.stack(terms).sum(0) if all(t.shape == terms[0].shape for t in terms) else torch.cat(terms)


def scaled_log_likelihood(density: LogDensity, theta: Tensor, *batch: Any) -> Tensor:
    """Return the log likelihood ``[B, 1]`` of each row, sites together, times the square root of its scale."""
    nodes = density.nodes(theta, *batch)
    terms = [score_root(nodes[name]) for name in (*density.observed, *density.factors)]
    return torch.stack(terms).sum(0) if all(t.shape == terms[0].shape for t in terms) else torch.cat(terms)


def score_root(node: Node, draws: Tensor | None = None) -> Tensor:
    """Return log densities ``[B, M]`` of one site at its value (M = 1) or at ``draws[B, M, ...]``, over the root of M."""
    values = node["value"][None] if draws is None else draws.movedim(1, 0)
    log_prob = getattr(node["fn"], "root_log_prob", node["fn"].log_prob)
    found = scale_and_mask(log_prob(values), 1.0, node["mask"])
    root = torch.as_tensor(node["scale"], dtype=found.dtype, device=found.device).sqrt()
    found = (root * found).reshape(len(found), found.shape[1] if found.ndim > 1 else 1, -1).sum(-1)
    return found.mT / len(found) ** 0.5
