"""From a posterior and data to a DataTree: predictions, their moments, and what ArviZ needs."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from numbers import Integral
from typing import Any, Literal

import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.arguments import argument_names, positional
from bnnzoo.core.density import LogDensity
from bnnzoo.core.labels import in_fitted_order
from bnnzoo.core.posterior import Posterior
from bnnzoo.core.streamed import StreamedDensity
from bnnzoo.core.types import Data
from bnnzoo.predictive import datatree
from bnnzoo.predictive.labels import Coords, Dims, Labels
from bnnzoo.predictive.latent import Drawn, deterministics, draw, latent_groups
from bnnzoo.predictive.linearized import row_densities
from bnnzoo.predictive.prior import beside_posterior
from bnnzoo.predictive.rows import Rows, row_groups

__all__ = ["posterior_predictive", "predict", "to_datatree"]

_NEW_DATA_NAMES = {
    "posterior_predictive": "predictions",
    "log_likelihood": "predictions_log_likelihood",
    "observed_data": "predictions_observed_data",
    "constant_data": "predictions_constant_data",
}


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
    _refuse_no_posterior("posterior_predictive", posterior)
    _check_positive("num_draws", num_draws)
    _check_positive("chunk_size", chunk_size)
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
    _check_positive("num_prior_draws", num_prior_draws)
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    rows = Rows.of(posterior.density, draws.flat[0], _as_fitted(posterior, data, named))
    if missing := [name for name in posterior.density.observed if name not in rows.observed]:
        raise ValueError(
            f"posterior_predictive needs the training data with its observations, but site {missing[0]!r} has none: "
            "pass them as the fit got them, or use predict(posterior, ...) for new data."
        )
    _refuse_other_data(posterior.density, rows.data)
    densities = row_densities(posterior, linearized)
    about = row_groups(draws, rows, chunk_size, labels, densities)
    latent = {name: rows.labelled(group) for name, group in latent_groups(draws, weights, labels).items()}
    groups = latent | about
    if num_prior_draws is not None:
        groups |= beside_posterior(posterior.density, rows, num_prior_draws, draws.seed, labels)
    return _tree(draws, groups, labels, densities)


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
    **named: Any,
) -> xr.DataTree:
    """Return a posterior with its predictions for new data.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`.
    *data
        The arguments of the model for new rows. Leave the observations out, or pass None for them where the model has
        no default; with observations the tree also has their log density.
    num_draws, seed, weights, chunk_size, linearized, dims, coords
        As for :func:`posterior_predictive`.
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
        If an argument is out of range, or the likelihood is made of ``pyro.factor`` sites alone.

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
    _refuse_no_posterior("predict", posterior)
    _check_positive("num_draws", num_draws)
    _check_positive("chunk_size", chunk_size)
    _refuse_factors_alone(posterior.density)
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    rows = Rows.of(posterior.density, draws.flat[0], _as_fitted(posterior, data, named))
    densities = row_densities(posterior, linearized)
    about = row_groups(draws, rows, chunk_size, labels, densities)
    renamed = {_NEW_DATA_NAMES.get(group, group): dataset for group, dataset in about.items()}
    values, plates = deterministics(draws, rows.data, rows.deterministic)
    new = datatree.by_draw(values, replace(labels, plates=plates))
    groups = latent_groups(draws, weights, labels) | renamed | {"predictions_deterministic": rows.labelled(new)}
    return _tree(draws, groups, labels, densities)


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
    _refuse_no_posterior("to_datatree", posterior)
    _check_positive("num_draws", num_draws)
    draws, labels = draw(posterior, num_draws, seed), Labels.of(posterior.density, dims, coords)
    return _tree(draws, latent_groups(draws, weights, labels), labels)


def _tree(
    draws: Drawn, groups: Mapping[str, xr.Dataset], labels: Labels, densities: Sequence[LogDensity] = ()
) -> xr.DataTree:
    posterior = draws.posterior
    attributes = datatree.fit_attributes(posterior.info, draws.seed)
    if densities:
        attributes["linearized"] = "no" if densities == (posterior.density,) else "yes"
    return datatree.from_groups(labels.applied(groups), attributes)


def _refuse_no_posterior(function: str, posterior: object) -> None:
    if not hasattr(posterior, "density") or not hasattr(posterior, "draws"):
        raise TypeError(
            f"{function} takes the posterior that bnnzoo.fit returned, but its first argument is of type "
            f"{type(posterior).__name__}. Write {function}(posterior, x), with posterior = bnnzoo.fit(model, method, x, y)."
        )


def _refuse_factors_alone(density: LogDensity) -> None:
    if density.factors and not density.observed:
        raise ValueError(
            f"predict has no outcome to draw: the likelihood is the pyro.factor site {density.factors[0]!r}, which is a "
            f"number and no distribution. Observe a site, with pyro.poutine.mask(mask=seen) around "
            f"pyro.sample('t', ..., obs=t), and keep the factor for the rows that are not seen, such as censored ones."
        )


def _check_positive(name: str, value: object) -> None:
    if isinstance(value, bool) or not isinstance(value, Integral | None):
        raise TypeError(f"{name}={value!r}: write a whole number.")
    if value is not None and int(value) < 1:
        raise ValueError(f"{name}={value}; write a positive number.")


def _as_fitted(posterior: Posterior, data: Data, named: dict[str, Any]) -> Data:
    """Return arguments in the order of the model's, with the columns of data frames in the order of the fit."""
    model = posterior.density.model
    data = positional(model, data, named)
    return in_fitted_order(data, posterior.info.columns, argument_names(model, len(data)))


def _refuse_other_data(density: LogDensity, data: Data) -> None:
    """Refuse rows that the model was not fitted to: leave-one-out cross-validation of a test set means nothing."""
    names = argument_names(density.model, len(data))
    for name, new, fitted in zip(names, data, density.data, strict=False):
        if not isinstance(new, Tensor) or not isinstance(fitted, Tensor):
            continue
        if new.shape == fitted.shape and torch.equal(new, fitted):
            continue
        raise ValueError(
            f"posterior_predictive is about the data of the fit, but argument {name!r} differs from what the fit got "
            f"({_difference(new, fitted)}). Use predict(posterior, ...) for other rows: leave-one-out cross-validation "
            f"(az.loo) of rows that were not fitted means nothing."
        )


def _difference(new: Tensor, fitted: Tensor) -> str:
    if new.shape != fitted.shape:
        return f"shape {tuple(new.shape)}, and {tuple(fitted.shape)} at the fit"
    rows = (new != fitted).reshape(len(new), -1).any(1) if new.ndim else (new != fitted)[None]
    return f"in {int(rows.sum())} of {len(rows)} rows, first in row {int(rows.int().argmax())}"
