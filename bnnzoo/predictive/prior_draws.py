"""Draws from the prior of a model and what they predict, alone or beside those of a posterior."""

from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.data.arguments import changed_settings, positional, refuse_names_of_settings
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.core.posterior.posterior import Draws
from bnnzoo.core.program.turns import one_at_a_time
from bnnzoo.core.reading.conditioned import predictive_density
from bnnzoo.core.reading.reading import read_model
from bnnzoo.core.settings import Count, Seed, check_argument
from bnnzoo.core.types import Model, Whole
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.predictive import datatree
from bnnzoo.predictive.blocks import draw_blocks
from bnnzoo.predictive.labels import Coords, Dims, Labels
from bnnzoo.predictive.latent import PosteriorDraws, latent_groups
from bnnzoo.predictive.prediction_arguments import PREDICTION
from bnnzoo.predictive.rows import Rows, row_groups
from bnnzoo.predictive.sweep import evaluate

__all__ = ["beside_posterior", "prior_predictive"]

_PRIOR_NAMES = {
    "posterior": "prior",
    "weights": "weights",
    "posterior_predictive": "prior_predictive",
    "conditional": "conditional",
    "observed_data": "observed_data",
    "constant_data": "constant_data",
}


@one_at_a_time
@with_shared_entries(PREDICTION)
def prior_predictive(
    model: Model,
    *data: Any,
    num_draws: int = 500,
    seed: Whole = 0,
    weights: bool | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
    dims: Dims | None = None,
    coords: Coords | None = None,
    **named: Any,
) -> xr.DataTree:
    """Return draws from the prior of a model and their predictions.

    Parameters
    ----------
    model : callable
        Any Pyro model that :func:`bnnzoo.fit` takes.
    *data
        Its arguments with the observations, which tell which sites are observed and are not used otherwise.
    num_draws : int
    seed : int
        The global random stream is neither used nor changed.
    dtype : torch.dtype, optional
        Of floating-point data. Default: torch's default dtype.

    Returns
    -------
    xarray.DataTree
        Groups ``prior``, ``weights``, ``prior_predictive``, ``conditional``, ``observed_data``, ``constant_data``.

    Raises
    ------
    ValueError
        If nothing is observed.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> tree = bz.prior_predictive(target.model, *target.data, num_draws=100)
    >>> dict(tree["prior_predictive"].sizes)
    {'chain': 1, 'draw': 100, 'obs_id': 40}
    """
    given = {**locals()}
    check_argument("prior_predictive", "num_draws", num_draws, Count)
    check_argument("prior_predictive", "seed", seed, Seed)
    refuse_names_of_settings("prior_predictive", model, data, named, changed_settings(prior_predictive, given))
    data = positional(model, data, named)
    density, _ = read_model(model, data, dtype or torch.get_default_dtype(), torch.device("cpu"))
    if not density.observed:
        raise ValueError(
            "prior_predictive cannot tell the observation from the latent sites "
            f"{', '.join(site.name for site in density.sites)}, because none is observed: pass the observed values "
            "too, prior_predictive(model, x, y)."
        )
    labels = Labels.of(density, dims, coords)
    draws = _drawn(density, num_draws, int(seed))  # numpy's integers, too
    rows = Rows.of(predictive_density(density, "prior"), draws.flat, data)
    found = _groups(draws, rows, weights, labels)
    wanted = {name: found[old] for old, name in _PRIOR_NAMES.items() if old in found}
    return datatree.from_groups(labels.applied(wanted), datatree.fit_attributes(draws.posterior.info, draws.seed))


def beside_posterior(
    density: LogDensity, rows: Rows, num_draws: int, seed: int, labels: Labels
) -> dict[str, xr.Dataset]:
    """Return the groups ``prior`` and ``prior_predictive`` for the tree of a posterior and the same rows."""
    found = _groups(_drawn(density, num_draws, seed), rows, False, labels)
    return {"prior": found["posterior"], "prior_predictive": found.get("posterior_predictive", xr.Dataset())}


def _drawn(density: LogDensity, num_draws: int, seed: int) -> PosteriorDraws:
    # exact draws theta[S, P] from the prior
    def draw(_: Tensor, *data: Any) -> dict[str, Tensor]:
        return {"theta": density.prior_draw({}, *data)}

    places = torch.empty(num_draws, 0, dtype=density.dtype, device=density.device)
    blocks = draw_blocks(draw, places[0], density.data, 0, splits=False)
    arrays = evaluate(draw, places, density.data, 0, blocks, seed)
    theta = torch.from_numpy(np.ascontiguousarray(arrays["theta"])).to(density.device)[None]
    return PosteriorDraws(Draws(density, FitInfo("iid", method="prior", seed=seed), theta), theta, seed)


def _groups(
    draws: PosteriorDraws, rows: Rows, weights: bool | Literal["auto"], labels: Labels
) -> dict[str, xr.Dataset]:
    latent = {name: rows.labelled(group) for name, group in latent_groups(draws, weights, labels).items()}
    density = predictive_density(draws.posterior.density, "prior")
    return latent | row_groups(draws, rows, None, labels, (density,))
