"""The mass matrices with which chains begin: those of the Gaussians of Pathfinder at whose draws they start."""

import math
from typing import cast

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import pad

from bnnzoo.core.posterior.covariance import LowRankPrecision
from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import LowRankMatrix, Metric, applied
from bnnzoo.inference.markov.metrics import inverse_mass_of, metric_of, own_variances
from bnnzoo.inference.starts import Start, places_of_starts

__all__ = ["in_form_of", "metric_of_start", "rows_of"]

LEAST_EIGENVALUE = 1e3
"""Of dense mass matrices, in units of their diagonal part, relative to the largest one and in rounding errors."""


def metric_of_start(start: Start, num_chains: int, *, shared: bool = False) -> Metric | None:
    """Return the mass matrices ``[C, ...]``, of low rank, that Pathfinder found where its draws start chains; None without any.

    Each chain has that of its own path if draws come in paths. Otherwise, and if chains share one, ``[1, ...]``, it has the
    correlations of the path with the highest bound, and medians over paths of the variances.

    Parameters
    ----------
    start : Tensor, Posterior, Method, torch.nn.Module, mapping of str to Tensor, or None
        See :func:`bnnzoo.inference.starts.starting_points`; a method is to be fitted first.
    num_chains : int
    shared : bool
    """
    info = getattr(start, "info", None)
    if info is None or info.sampling != "iid" or "inverse_mass" not in info.tuning:
        return None
    mixture = getattr(start, "proposal", start)  # of weighted draws
    paths = [each.covariance for each in getattr(mixture, "components", [mixture])]
    found, draws = _metric_of(paths), cast(Posterior, start).draws()
    if len(draws) == len(paths) and not shared:
        return rows_of(found, places_of_starts(draws, num_chains)[0])
    bounds = torch.tensor([bound for bound in info.config["elbo"] if math.isfinite(bound)])
    best = rows_of(found, bounds.argmax().expand(1 if shared else num_chains))
    wider = _variances(found).median(0).values / _variances(best)
    parts = inverse_mass_of(best)
    return metric_of(parts | {"inverse_mass": parts["inverse_mass"] * wider})


def rows_of(metric: Metric, rows: Tensor | slice) -> Metric:
    """Return the mass matrices of some chains."""
    found: Metric = pytree.tree_map(lambda value: value[rows], metric)
    return found


def in_form_of(like: Metric, found: Metric) -> Metric:
    """Return mass matrices of low rank as others can hold them: as variances, as dense ones, or with fewer directions."""
    wanted, parts = inverse_mass_of(like), inverse_mass_of(found)
    eigenvalues = parts["eigenvalues"]
    if "directions" in wanted:
        rank = wanted["eigenvalues"].shape[1]
        kept = eigenvalues.log().abs().argsort(1, descending=True)[:, :rank]
        missing = (0, rank - kept.shape[1])
        directions = pad(parts["directions"].take_along_dim(kept[:, None], 2), missing)
        return metric_of(
            {
                "inverse_mass": parts["inverse_mass"],
                "directions": directions,
                "eigenvalues": pad(eigenvalues.take_along_dim(kept, 1), missing, value=1.0),
            }
        )
    if wanted["inverse_mass"].ndim == 2:
        return metric_of({"inverse_mass": _variances(found)})
    least = LEAST_EIGENVALUE * torch.finfo(eigenvalues.dtype).eps * eigenvalues.amax(1, keepdim=True).clamp(min=1.0)
    inverse = cast(LowRankMatrix, found.inverse_mass)._replace(eigenvalues=eigenvalues.maximum(least))
    eye = torch.eye(parts["inverse_mass"].shape[1]).to(eigenvalues)
    return metric_of({"inverse_mass": vmap(applied, (0, None))(inverse, eye)})


def _metric_of(paths: list[LowRankPrecision]) -> Metric:
    scale, vectors, values = (
        torch.stack([getattr(each, name) for each in paths]) for name in ("scale", "vectors", "values")
    )
    eigenvalues = (1 + values).clamp(min=torch.finfo(values.dtype).eps).reciprocal()
    return metric_of({"inverse_mass": scale.square(), "directions": vectors, "eigenvalues": eigenvalues})


def _variances(metric: Metric) -> Tensor:
    return torch.from_numpy(own_variances(metric)).to(pytree.tree_leaves(metric)[0])
