"""From a posterior and data to a DataTree: predictions, their moments, and what ArviZ needs."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import xarray as xr

from bnnzoo.core.conditioned import PredictiveDensity
from bnnzoo.core.density import LogDensity
from bnnzoo.core.layer_chain import layer_chain
from bnnzoo.core.posterior import Posterior
from bnnzoo.core.row_source import is_out_of_memory
from bnnzoo.core.streamed import StreamedDensity
from bnnzoo.core.surroundings import one_at_a_time
from bnnzoo.predictive import datatree
from bnnzoo.predictive.arguments import (
    in_order,
    most_rows,
    plates_of_rows,
    refuse_factors_alone,
    refuse_no_posterior,
    refuse_not_positive,
    refuse_other_data,
    refuse_words,
)
from bnnzoo.predictive.bands import Prediction, renamed
from bnnzoo.predictive.kept import ROW_GROUPS, Kept, kept_of, refuse_unknown
from bnnzoo.predictive.labels import Coords, Dims, Labels
from bnnzoo.predictive.latent import Drawn, deterministics, draw, latent_groups
from bnnzoo.predictive.linearized import row_densities, rows_density
from bnnzoo.predictive.new_rows import check_new_rows
from bnnzoo.predictive.prior import beside_posterior
from bnnzoo.predictive.rows import Rows, row_groups
from bnnzoo.predictive.store import refuse_store

__all__ = ["posterior_predictive", "predict", "to_datatree"]

MANY_NUMBERS = 2**24
"""Draws x rows from which on the size of a tree is compared with the memory that is free."""


@one_at_a_time
def posterior_predictive(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
    chunk_size: int | None = None,
    linearized: bool | Literal["auto"] = "auto",
    dims: Dims | None = None,
    coords: Coords | None = None,
    num_prior_draws: int | None = None,
    **named: Any,
) -> xr.DataTree:
    """Return a posterior with its predictions for the training data, in ArviZ's schema.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`.
    *data
        The arguments the model was fitted to, observations included: arrays, frames or tensors.
    num_draws : int, optional
        Draws a chain: all there are, or 1000 of an approximation that can be drawn from at will.
    seed : int, optional
        Of the draws. Default: that of the fit. The global random stream is neither used nor changed.
    weights : bool or "auto"
        Whether to keep the network weights, as group ``weights``; "auto" keeps up to ten million numbers.
    chunk_size : int, optional
        Draws x rows that are evaluated together. Bounds the memory in use and does not change the draws. Default: chosen
        from the size of the model's tensors.
    linearized : bool or "auto"
        Whether to predict with the model's outputs linearised at the posterior's mean; "auto" does for a Laplace
        approximation with Gauss-Newton curvature, see :func:`bnnzoo.predictive.row_density`.
    dims : mapping of str to list of str, optional
        Names of the dimensions of latent sites, deterministic sites and inputs, without chain and draw. Default: the names
        of their plates, ``obs_id`` for that of the rows, and ``<site>_dim_<i>``.
    coords : mapping of str to array_like, optional
        Labels along dimensions. Default: the index and the column names of data frames, and numbers.
    num_prior_draws : int, optional
        Draws from the prior to put beside those from the posterior, as groups ``prior`` and ``prior_predictive``.
        Default: none.
    **named
        Arguments of the model by name.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` (latent sites that are no weights, deterministic sites), ``weights``, ``log_prior`` (of each
        site), ``sample_stats`` (with ``lp``, and ``log_q`` where the approximation has a density), ``fit_stats``,
        ``posterior_predictive``, ``conditional`` (moments of p(y | x, theta) for each draw), ``log_likelihood``,
        ``observed_data``, ``constant_data``.

    Raises
    ------
    ValueError
        If ``data`` are not those of the fit, ``dims`` or ``coords`` do not fit the tree, or an argument is out of range.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian()
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> train = bz.posterior_predictive(posterior, *target.data, num_draws=50)
    >>> dict(train["log_likelihood"].sizes)
    {'chain': 1, 'draw': 50, 'obs_id': 40}
    """
    refuse_no_posterior("posterior_predictive", posterior)
    refuse_words("posterior_predictive", weights=weights, linearized=linearized)
    refuse_not_positive("num_draws", num_draws)
    refuse_not_positive("chunk_size", chunk_size)
    if isinstance(posterior.density, StreamedDensity):
        raise ValueError(
            "posterior_predictive holds the training data in memory, and this posterior was fitted to data on disk: use "
            "predict(posterior, ...), with the observations where their log density is wanted."
        )
    if not posterior.density.has_data:
        raise ValueError(
            "posterior_predictive is about the training data, and this posterior was loaded without them. Load it with them, "
            "bnnzoo.load(path, model, *data), or use predict(posterior, ...) for new data."
        )
    refuse_not_positive("num_prior_draws", num_prior_draws)
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    densities = row_densities(posterior, linearized, "training")
    raw = in_order(posterior, data, named, new=False)
    rows = Rows.of(rows_density(posterior, densities), draws.flat[0], raw, chunk_size)
    if missing := [name for name in posterior.density.observed if name not in rows.observed]:
        raise ValueError(
            f"posterior_predictive needs the training data with its observations, but site {missing[0]!r} has none: "
            "pass them as the fit got them, or use predict(posterior, ...) for new data."
        )
    refuse_other_data(posterior.density, rows.data)
    about = row_groups(draws, rows, chunk_size, labels, densities)
    latent = {name: rows.labelled(group) for name, group in latent_groups(draws, weights, labels).items()}
    groups = latent | about
    for name, plate in plates_of_rows(posterior.density).items():
        groups["log_likelihood"][name].attrs["plate"] = plate
    if num_prior_draws is not None:
        groups |= beside_posterior(posterior.density, rows, num_prior_draws, draws.seed, labels)
    return _tree(draws, groups, labels, densities)


@one_at_a_time
def predict(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
    chunk_size: int | None = None,
    linearized: bool | Literal["auto"] = "auto",
    dims: Dims | None = None,
    coords: Coords | None = None,
    store: str | Path | None = None,
    keep: Sequence[str] | None = None,
    **named: Any,
) -> xr.DataTree:
    """Return a posterior with its predictions for new data.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`.
    *data
        The arguments of the model for new rows. Leave the observations out, or pass None for them where the model has
        no default; with observations the tree also has their log density. Memory-mapped and zarr arrays and torch datasets
        are read some rows at a time.
    num_draws, seed, weights, chunk_size, linearized, dims, coords
        As for :func:`posterior_predictive`.
    store : str or Path, optional
        Folder, such as ``"run.zarr"``, into which the tree is written some rows at a time. The tree that is returned is opened
        from there without being loaded. The numbers are those without a store; of the deterministic sites, only those with one
        value for each row are written. Needs zarr, and dask for chunks.
    keep : sequence of str, optional
        Groups and variables that are wanted, such as ``("predictions", "conditional/mean")``; others are not computed.
    **named
        Arguments of the model by name, as in ``predict(posterior, x=x)``.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``weights``, ``log_prior``, ``sample_stats``, ``fit_stats``, ``predictions``,
        ``conditional``, ``predictions_constant_data``, ``predictions_deterministic`` (deterministic sites of the model for
        the new rows) and, with observations, ``predictions_log_likelihood`` and ``predictions_observed_data``: named apart
        from the training data, so that nobody runs ``az.loo`` on a test set.

    Raises
    ------
    ValueError
        If an argument is out of range, the likelihood is made of ``pyro.factor`` sites alone, the store exists, or the tree would
        not fit into the memory that is free.

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> test = bz.predict(posterior, torch.zeros(3, 2), num_draws=20)
    >>> dict(test["predictions"].sizes), "predictions_log_likelihood" in test.children
    ({'chain': 1, 'draw': 20, 'obs_id': 3}, False)
    """
    refuse_no_posterior("predict", posterior)
    refuse_words("predict", weights=weights, linearized=linearized)
    refuse_not_positive("num_draws", num_draws)
    refuse_not_positive("chunk_size", chunk_size)
    refuse_factors_alone(posterior.density)
    kept, raw = kept_of(keep), in_order(posterior, data, named)
    if store is not None:
        refuse_store(Path(store))
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    densities = row_densities(posterior, linearized)
    if store is not None:
        latent, attributes = _latent(draws, weights, labels, kept), _attributes(draws, densities)
        return Prediction(draws, raw, densities, kept, labels).stored(Path(store), latent, attributes)
    if is_out_of_memory(raw):
        about = dict(Prediction(draws, raw, densities, kept, labels).in_memory())
    else:
        if len(draws.flat) * most_rows(raw) > MANY_NUMBERS:
            Prediction(draws, raw, densities, kept, labels).refuse_too_large()
        rows = Rows.of(rows_density(posterior, densities), draws.flat[0], raw, chunk_size)
        check_new_rows(posterior.density, rows)
        about = _all_rows(draws, rows, chunk_size, labels, densities, kept)
    return _tree(draws, _latent(draws, weights, labels, kept) | about, labels, densities)


@one_at_a_time
def to_datatree(
    posterior: Posterior,
    *,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
    dims: Dims | None = None,
    coords: Coords | None = None,
) -> xr.DataTree:
    """Return a posterior without predictions.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`.
    num_draws, seed, weights, dims, coords
        As for :func:`posterior_predictive`.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``weights``, ``log_prior``, ``sample_stats``, ``fit_stats``.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> from bnnzoo.testing import linear_gaussian
    >>> target = linear_gaussian(num_inputs=2)
    >>> posterior = bz.fit(target.model, bz.Laplace(), *target.data, progress=False)
    >>> bz.to_datatree(posterior, num_draws=20)["posterior"]["w"].dims
    ('chain', 'draw', 'w_dim_0')
    """
    refuse_no_posterior("to_datatree", posterior)
    refuse_words("to_datatree", weights=weights)
    refuse_not_positive("num_draws", num_draws)
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    return _tree(draws, latent_groups(draws, weights, labels), labels)


def _latent(draws: Drawn, weights: bool | Literal["auto"], labels: Labels, kept: Kept) -> dict[str, xr.Dataset]:
    """Return the wanted groups that are not about rows, after refusing names that they do not have."""
    groups = latent_groups(draws, weights, labels)
    for name, group in groups.items():
        refuse_unknown(kept, name, [str(each) for each in group.data_vars])
    return {name: kept.of(name, group) for name, group in groups.items()}


def _all_rows(
    draws: Drawn,
    rows: Rows,
    chunk_size: int | None,
    labels: Labels,
    densities: Sequence[LogDensity],
    kept: Kept,
) -> dict[str, xr.Dataset]:
    """Return the groups about rows in memory, under their names for new data."""
    if not kept.has_any(*ROW_GROUPS):
        return {}
    for group, variables in rows.variables(draws.posterior.density).items():
        refuse_unknown(kept, group, variables)
    about = row_groups(draws, rows, chunk_size, labels, densities, kept)
    nodes = {name: node for name, node in rows.deterministic.items() if kept.has("deterministic", name)}
    values, plates = deterministics(draws, rows.data, nodes)
    wanted = {name: array for name, array in values.items() if name in nodes}
    about["deterministic"] = rows.labelled(datatree.by_draw(wanted, replace(labels, plates=plates)))
    return renamed(about)


def _attributes(draws: Drawn, densities: Sequence[LogDensity]) -> dict[str, str | int | float]:
    posterior = draws.posterior
    attributes = datatree.fit_attributes(posterior.info, draws.seed)
    if chains := [chain for network in posterior.density.networks if (chain := layer_chain(network))]:
        attributes["layers"] = json.dumps(chains)
    if densities:
        own = densities == (posterior.density,) or isinstance(densities[0], PredictiveDensity)
        attributes["linearized"] = "no" if own else "yes"
    return attributes


def _tree(
    draws: Drawn, groups: Mapping[str, xr.Dataset], labels: Labels, densities: Sequence[LogDensity] = ()
) -> xr.DataTree:
    return datatree.from_groups(labels.applied(groups), _attributes(draws, densities))
