"""From a posterior and data to a DataTree: predictions, their moments, and what ArviZ needs."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import xarray as xr

from bnnzoo.core.data.arguments import positional
from bnnzoo.core.data.row_source import is_out_of_memory
from bnnzoo.core.model.density import LogDensity
from bnnzoo.core.posterior.posterior import Draws, Posterior
from bnnzoo.core.program.layer_chain import layer_chain
from bnnzoo.core.program.turns import one_at_a_time, plain_torch
from bnnzoo.core.reading.changes import warn_of_changed_model
from bnnzoo.core.reading.conditioned import PredictiveDensity
from bnnzoo.core.reading.streamed import StreamedDensity
from bnnzoo.core.types import Data, Whole
from bnnzoo.docstrings import with_shared_entries
from bnnzoo.predictive import datatree
from bnnzoo.predictive.bands import Prediction
from bnnzoo.predictive.kept_groups import LATENT_GROUPS, ROW_GROUPS, KeptGroups, kept_of, refuse_unknown
from bnnzoo.predictive.labels import Coords, Dims, Labels
from bnnzoo.predictive.latent import PosteriorDraws, draw, latent_groups
from bnnzoo.predictive.left_out import completed
from bnnzoo.predictive.linearized import row_densities, rows_density
from bnnzoo.predictive.new_row_groups import groups_at_draws, groups_of_new_rows
from bnnzoo.predictive.new_rows import check_new_rows
from bnnzoo.predictive.prediction_arguments import (
    PREDICTION,
    in_order,
    most_rows,
    plates_of_rows,
    refuse_factors_alone,
    refuse_no_posterior,
    refuse_not_positive,
    refuse_other_data,
    refuse_settings,
    refuse_words,
)
from bnnzoo.predictive.prepared import PreparedDraws, PreparedRows, are_same, forget, kept_common
from bnnzoo.predictive.prior_draws import beside_posterior
from bnnzoo.predictive.row_functions import RowFunctions
from bnnzoo.predictive.rows import Rows, row_groups
from bnnzoo.predictive.store import refuse_store

__all__ = ["posterior_predictive", "predict", "to_datatree"]

MANY_NUMBERS = 2**24
"""Draws x rows from which on the size of a tree is compared with the memory that is free."""


@one_at_a_time
@with_shared_entries(PREDICTION)
def posterior_predictive(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: Whole | None = None,
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
    *data
        The arguments the model was fitted to, observations included: arrays, frames or tensors.
    num_prior_draws : int, optional
        Draws from the prior to put beside those from the posterior, as groups ``prior`` and ``prior_predictive``.
        Default: none.

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
    settings: dict[str, object] = {"num_draws": num_draws, "seed": seed, "weights": weights}
    settings |= {"chunk_size": chunk_size, "dims": dims}
    settings |= {"linearized": linearized, "coords": coords, "num_prior_draws": num_prior_draws}
    refuse_settings(posterior, data, named, "posterior_predictive", **settings)
    raw = in_order(posterior, positional(posterior.density.model, data, named, new=False))
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    densities = row_densities(posterior, linearized, "training")
    rows = Rows.of(rows_density(posterior, densities), draws.flat, raw, chunk_size)
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


@plain_torch()
@with_shared_entries(PREDICTION)
def predict(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: Whole | None = None,
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
    *data
        The arguments of the model for new rows. Leave the observations out: a model without a default for them gets None or, if
        it cannot take None, observations of the fit that it does not observe. So may numbers of rows be left out. With
        observations the tree also has their log density. Memory-mapped and zarr arrays and torch datasets are read some rows at
        a time.
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
        If an argument is out of range, the likelihood is made of ``pyro.factor`` sites alone, the store exists, the tree would
        not fit into the memory that is free, or a model without a default for observations computes with them.

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
    settings: dict[str, object] = {"num_draws": num_draws, "seed": seed, "weights": weights}
    settings |= {"chunk_size": chunk_size, "dims": dims, "linearized": linearized, "coords": coords, "keep": keep}
    settings["store"] = None if store is None else Path(store)
    refuse_settings(posterior, data, named, "predict", **settings)
    posterior, data = completed(posterior, data, named)
    kept, raw = kept_of(keep), in_order(posterior, data)
    options = _Options(num_draws, seed, weights, linearized, chunk_size, kept)
    if store is not None:
        refuse_store(Path(store))
    if store is None and not is_out_of_memory(raw):
        # the model itself runs in turn, graphs kept from calls before beside other threads
        found = _begun(posterior, raw, options, dims, coords)
        if isinstance(found, xr.DataTree):
            return found
        common, rows, prepared = found
        about = groups_at_draws(common, rows, prepared(rows), options.kept)
        latent = {name: group.copy(deep=True) for name, group in prepared.latent.items()}
        return _tree(common.draws, latent | about, common.labels, common.densities)
    return _by_bands(posterior, raw, options, dims, coords, store)


class _Options(NamedTuple):
    """How rows are to be predicted."""

    num_draws: int | None
    seed: Whole | None
    weights: bool | Literal["auto"]
    linearized: bool | Literal["auto"]
    chunk_size: int | None
    kept: KeptGroups

    def common(self, posterior: Posterior, dims: Dims | None, coords: Coords | None) -> PreparedDraws:
        """Draw from a posterior."""
        draws = draw(posterior, self.num_draws, self.seed)
        return PreparedDraws(
            draws, Labels.of(posterior.density, dims, coords), row_densities(posterior, self.linearized)
        )

    def latent(self, common: PreparedDraws) -> dict[str, xr.Dataset]:
        """Return the wanted groups that are not about rows, after refusing names that they do not have."""
        if not self.kept.has_any(*LATENT_GROUPS, "discrete", "discrete_probs"):
            return {}  # the log density of the draws takes longer than a few predictions
        groups = latent_groups(common.draws, self.weights, common.labels)
        for name, group in groups.items():
            refuse_unknown(self.kept, name, [str(each) for each in group.data_vars])
        return {name: self.kept.of(name, group) for name, group in groups.items()}


@one_at_a_time
def _by_bands(
    posterior: Posterior,
    raw: Data,
    options: _Options,
    dims: Dims | None,
    coords: Coords | None,
    store: str | Path | None,
) -> xr.DataTree:
    common = options.common(posterior, dims, coords)
    rows = Prediction(common.draws, raw, common.densities, options.kept, common.labels)
    if store is not None:
        return rows.stored(Path(store), options.latent(common), _attributes(common.draws, common.densities))
    about = rows.in_memory()
    return _tree(common.draws, options.latent(common) | dict(about), common.labels, common.densities)


@one_at_a_time
def _begun(
    posterior: Posterior, raw: Data, options: _Options, dims: Dims | None, coords: Coords | None
) -> xr.DataTree | tuple[PreparedDraws, Rows, PreparedRows]:
    """Return the tree, or what makes it without the model."""
    keeps = dims is None and coords is None and options.chunk_size is None
    key = options if keeps else None
    common = kept_common(posterior, key, lambda: options.common(posterior, dims, coords))
    draws, labels, densities, kept = common.draws, common.labels, common.densities, options.kept
    if len(draws.flat) * most_rows(raw) > MANY_NUMBERS:
        Prediction(draws, raw, densities, kept, labels).refuse_too_large()
    density, theta = rows_density(posterior, densities), draws.flat[0]
    rows = Rows.of(density, draws.flat, raw, options.chunk_size, common.traced)
    prepared = common.rows_for(rows.data)
    if prepared is not None and not prepared.holds(theta, rows):  # the model was changed
        forget(posterior)
        return _begun(posterior, raw, options, dims, coords)
    check_new_rows(posterior.density, rows)
    if prepared is not None:
        return common, rows, prepared
    warn_of_changed_model(posterior.density)  # the draws may be those of an earlier call
    about, latent = groups_of_new_rows(draws, rows, options.chunk_size, labels, densities, kept), options.latent(common)
    if keeps and rows.num_rows and kept.has_any(*ROW_GROUPS):
        functions = RowFunctions.of(densities[0], rows.observed, kept)
        common.learn(functions, rows, latent, lambda found: are_same(groups_at_draws(common, rows, found, kept), about))
        latent = {name: group.copy(deep=True) for name, group in latent.items()}  # what is kept is not the caller's
    return _tree(draws, latent | about, labels, densities)


@one_at_a_time
@with_shared_entries(PREDICTION)
def to_datatree(
    posterior: Posterior,
    *,
    num_draws: int | None = None,
    seed: Whole | None = None,
    weights: bool | Literal["auto"] = "auto",
    dims: Dims | None = None,
    coords: Coords | None = None,
) -> xr.DataTree:
    """Return a posterior without predictions.

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


def _attributes(draws: PosteriorDraws, densities: Sequence[LogDensity]) -> dict[str, str | int | float]:
    posterior = draws.posterior
    attributes = datatree.fit_attributes(posterior.info, draws.seed)
    if chains := [chain for network in posterior.density.networks if (chain := layer_chain(network))]:
        attributes["layers"] = json.dumps(chains)
    superchains = posterior.info.num_superchains(len(posterior.theta)) if isinstance(posterior, Draws) else None
    if superchains is not None:
        attributes["num_superchains"] = superchains
    if densities:
        own = densities == (posterior.density,) or isinstance(densities[0], PredictiveDensity)
        attributes["linearized"] = "no" if own else "yes"
    return attributes


def _tree(
    draws: PosteriorDraws, groups: Mapping[str, xr.Dataset], labels: Labels, densities: Sequence[LogDensity] = ()
) -> xr.DataTree:
    return datatree.from_groups(labels.applied(groups), _attributes(draws, densities))
