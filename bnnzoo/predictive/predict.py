"""From a posterior and data to a DataTree: predictions, their moments, and what ArviZ needs."""

from numbers import Integral
from typing import Any, Literal

import numpy as np
import torch
import xarray as xr
from torch import Tensor

from bnnzoo.core.arguments import argument_names, positional
from bnnzoo.core.density import LogDensity
from bnnzoo.core.labels import in_fitted_order
from bnnzoo.core.posterior import Draws, FitInfo, Posterior
from bnnzoo.core.reading import read_model
from bnnzoo.core.settings import Seed, check_argument
from bnnzoo.core.types import Data, Model
from bnnzoo.predictive import datatree
from bnnzoo.predictive.latent import Drawn, draw, latent_groups
from bnnzoo.predictive.linearized import row_densities
from bnnzoo.predictive.random_blocks import draw_blocks, evaluate_random
from bnnzoo.predictive.rows import Rows, row_groups

__all__ = ["posterior_predictive", "predict", "prior_predictive", "to_datatree"]

_NEW_DATA_NAMES = {
    "posterior_predictive": "predictions",
    "log_likelihood": "predictions_log_likelihood",
    "observed_data": "predictions_observed_data",
    "constant_data": "predictions_constant_data",
}
_PRIOR_NAMES = {
    "posterior": "prior",
    "weights": "weights",
    "posterior_predictive": "prior_predictive",
    "conditional": "conditional",
    "observed_data": "observed_data",
    "constant_data": "constant_data",
}


def posterior_predictive(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
    chunk_size: int | None = None,
    linearized: bool | Literal["auto"] = "auto",
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
    **named
        Arguments of the model by name.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior`` (latent sites that are no weights, deterministic sites), ``weights``, ``sample_stats``
        (with ``lp``, and ``log_q`` where the approximation has a density), ``fit_stats``, ``posterior_predictive``,
        ``conditional`` (moments of p(y | x, theta) for each draw), ``log_likelihood``, ``observed_data``,
        ``constant_data``.

    Raises
    ------
    ValueError
        If the observations are not among ``data``, or an argument is out of range.

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
    if not posterior.density.has_data:
        raise ValueError(
            "posterior_predictive is about the training data, and this posterior was loaded without them. Load it with them, "
            "bnnzoo.load(path, model, *data), or use predict(posterior, ...) for new data."
        )
    draws = draw(posterior, num_draws, seed)
    rows = Rows.of(posterior.density, draws.flat[0], _as_fitted(posterior, data, named))
    if missing := [name for name in posterior.density.observed if name not in rows.observed]:
        raise ValueError(
            f"posterior_predictive needs the training data with its observations, but site {missing[0]!r} has none: "
            "pass them as the fit got them, or use predict(posterior, ...) for new data."
        )
    about = row_groups(draws, rows, chunk_size, row_densities(posterior, linearized))
    return datatree.from_groups(
        latent_groups(draws, weights) | about, datatree.fit_attributes(posterior.info, draws.seed)
    )


def predict(
    posterior: Posterior,
    *data: Any,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
    chunk_size: int | None = None,
    linearized: bool | Literal["auto"] = "auto",
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
    num_draws, seed, weights, chunk_size, linearized
        As for :func:`posterior_predictive`.
    **named
        Arguments of the model by name, as in ``predict(posterior, x=x)``.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``weights``, ``sample_stats``, ``fit_stats``, ``predictions``, ``conditional``,
        ``predictions_constant_data`` and, with observations, ``predictions_log_likelihood`` and
        ``predictions_observed_data``: named apart from the training data, so that nobody runs ``az.loo`` on a test set.

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
    draws = draw(posterior, num_draws, seed)
    rows = Rows.of(posterior.density, draws.flat[0], _as_fitted(posterior, data, named))
    about = row_groups(draws, rows, chunk_size, row_densities(posterior, linearized))
    renamed = {_NEW_DATA_NAMES.get(group, group): dataset for group, dataset in about.items()}
    return datatree.from_groups(
        latent_groups(draws, weights) | renamed, datatree.fit_attributes(posterior.info, draws.seed)
    )


def to_datatree(
    posterior: Posterior,
    *,
    num_draws: int | None = None,
    seed: int | None = None,
    weights: bool | Literal["auto"] = "auto",
) -> xr.DataTree:
    """Return a posterior without predictions.

    Parameters
    ----------
    posterior : Posterior
        From :func:`bnnzoo.fit`.
    num_draws, seed, weights
        As for :func:`posterior_predictive`.

    Returns
    -------
    xarray.DataTree
        Groups ``posterior``, ``weights``, ``sample_stats``, ``fit_stats``.

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
    draws = draw(posterior, num_draws, seed)
    return datatree.from_groups(latent_groups(draws, weights), datatree.fit_attributes(posterior.info, draws.seed))


def prior_predictive(
    model: Model,
    *data: Any,
    num_draws: int = 500,
    seed: int = 0,
    weights: bool | Literal["auto"] = "auto",
    dtype: torch.dtype | None = None,
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
    weights : bool or "auto"
        As for :func:`posterior_predictive`.
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
    _check_positive("num_draws", num_draws)
    check_argument("prior_predictive", "seed", seed, Seed)
    density, _ = read_model(model, data, dtype or torch.get_default_dtype(), torch.device("cpu"))
    if not density.observed:
        raise ValueError(
            "prior_predictive cannot tell the observation from the latent sites "
            f"{', '.join(site.name for site in density.sites)}, because none is observed: pass the observed values "
            "too, prior_predictive(model, x, y)."
        )
    info = FitInfo("iid", method="prior", seed=seed)
    theta = _prior_draws(density, num_draws, seed)
    draws = Drawn(Draws(density, info, theta[None]), theta[None], seed)
    groups = latent_groups(draws, weights) | row_groups(draws, Rows.of(density, theta[0], data), None)
    wanted = {name: groups[old] for old, name in _PRIOR_NAMES.items() if old in groups}
    return datatree.from_groups(wanted, datatree.fit_attributes(info, seed))


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


def _prior_draws(density: LogDensity, num_draws: int, seed: int) -> Tensor:
    """Return exact draws ``theta[S, P]`` from the prior."""

    def draw(_: Tensor, *data: Any) -> dict[str, Tensor]:
        return {"theta": density.prior_draw({}, *data)}

    places = torch.empty(num_draws, 0, dtype=density.dtype, device=density.device)
    blocks = draw_blocks(draw, places[0], density.data, 0, splits=False)
    arrays = evaluate_random(draw, places, density.data, 0, blocks, seed)
    return torch.from_numpy(np.ascontiguousarray(arrays["theta"])).to(density.device)
