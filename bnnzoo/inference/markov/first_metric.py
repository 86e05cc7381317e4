"""The mass matrices with which chains begin: those of an approximation at whose draws they start."""

import math
from typing import cast

import torch
from torch import Tensor
from torch.func import vmap
from torch.nn.functional import pad

from bnnzoo.core.posterior.posterior import Posterior
from bnnzoo.engine import pytree
from bnnzoo.inference.markov.hamiltonian.kernel import LowRankMatrix, Metric, applied
from bnnzoo.inference.markov.metrics import inverse_mass_of, metric_of, own_variances
from bnnzoo.inference.starts import Start, places_of_starts

__all__ = ["in_form_of", "metric_of_start", "rows_of"]

LEAST_EIGENVALUE = 1e3
"""Of dense mass matrices, in units of their diagonal part, relative to the largest one and in rounding errors."""


def metric_of_start(start: Start, num_chains: int, *, shared: bool = False) -> Metric | None:
    """Return the mass matrices ``[C, ...]`` that an approximation found where its draws start chains; None without any.

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
    found, draws = metric_of(info.tuning), cast(Posterior, start).draws()
    variances = _variances(found)
    if len(draws) == len(variances) and not shared:
        return rows_of(found, places_of_starts(draws, num_chains)[0])
    bounds = torch.tensor([bound for bound in info.config["elbo"] if math.isfinite(bound)])
    best = rows_of(found, bounds.argmax().expand(1 if shared else num_chains))
    parts = inverse_mass_of(best)
    wider = variances.median(0).values / _variances(best)
    return metric_of(parts | {"inverse_mass": parts["inverse_mass"] * wider})


def rows_of(metric: Metric, rows: Tensor | slice) -> Metric:
    """Return the mass matrices of some chains."""
    found: Metric = pytree.tree_map(lambda value: value[rows], metric)
    return found


def in_form_of(like: Metric, found: Metric) -> Metric:
    """Return diagonal mass matrices, or those of low rank, as others can hold them: by variances alone, or directions, too."""
    wanted, parts = inverse_mass_of(like), inverse_mass_of(found)
    if "directions" in wanted and "directions" in parts:
        rank = wanted["eigenvalues"].shape[1]
        kept = parts["eigenvalues"].log().abs().argsort(1, descending=True)[:, :rank]
        directions = parts["directions"].take_along_dim(kept[:, None], 2)
        eigenvalues, missing = parts["eigenvalues"].take_along_dim(kept, 1), (0, rank - kept.shape[1])
        return metric_of(
            parts | {"directions": pad(directions, missing), "eigenvalues": pad(eigenvalues, missing, value=1.0)}
        )
    variances = _variances(found)
    if wanted["inverse_mass"].ndim == 2:
        return metric_of(wanted | {"inverse_mass": variances})
    if "directions" not in parts:
        return metric_of({"inverse_mass": torch.diag_embed(variances)})
    eigenvalues = parts["eigenvalues"]
    least = LEAST_EIGENVALUE * torch.finfo(eigenvalues.dtype).eps * eigenvalues.amax(1, keepdim=True).clamp(min=1.0)
    inverse = cast(LowRankMatrix, found.inverse_mass)._replace(eigenvalues=eigenvalues.maximum(least))
    eye = torch.eye(variances.shape[1]).to(variances)
    return metric_of({"inverse_mass": vmap(applied, (0, None))(inverse, eye)})


def _variances(metric: Metric) -> Tensor:
    return torch.from_numpy(own_variances(metric)).to(pytree.tree_leaves(metric)[0])
