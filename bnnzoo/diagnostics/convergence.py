"""Convergence of any labelled quantity: R-hat, effective sample sizes and Monte Carlo standard errors."""

import warnings

import xarray as xr
from arviz_stats.sampling_diagnostics import ess, mcse, rhat

from bnnzoo.labelled import SAMPLE_DIMS, num_draws

__all__ = ["MIN_DRAWS", "convergence"]

MIN_DRAWS = 4  # of a chain, which is split in halves of at least two


def convergence(quantity: xr.DataArray) -> xr.Dataset:
    """Diagnose how well draws ``[chain, draw, ...]`` of a quantity represent its distribution, entry by entry.

    Parameters
    ----------
    quantity : DataArray [chain, draw, ...]
        Such as a prediction for each observation. Each entry takes ArviZ some milliseconds.

    Returns
    -------
    Dataset
        ``rhat`` (rank-normalised, split; about 1 where chains agree, and NaN for a single chain, which has nothing to
        agree with), ``ess_bulk`` and ``ess_tail`` (numbers of independent draws worth the same), ``mcse_mean`` and
        ``mcse_sd`` (Monte Carlo standard errors of mean and standard deviation over draws, in units of the quantity).
        NaN as well where all draws are equal.

    Raises
    ------
    ValueError
        If a dim is missing or a chain has fewer than four draws.

    References
    ----------
    A. Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat, Bayesian Analysis, 2021.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 200, 3))
    >>> result = convergence(xr.DataArray(draws, dims=("chain", "draw", "obs_id")))
    >>> dict(result.sizes), bool((result["rhat"] < 1.01).all())
    ({'obs_id': 3}, True)
    """
    _check(quantity)
    loaded = quantity.compute().transpose(*SAMPLE_DIMS, ...)  # ArviZ refuses chunked arrays
    varies = loaded.std(SAMPLE_DIMS) > 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)  # where all draws are equal
        statistics = {
            "rhat": rhat(loaded),
            "ess_bulk": ess(loaded, method="bulk"),
            "ess_tail": ess(loaded, method="tail"),
            "mcse_mean": mcse(loaded, method="mean"),
            "mcse_sd": mcse(loaded, method="sd"),
        }
    units = {"rhat": "1", "ess_bulk": "draws", "ess_tail": "draws"}
    return xr.Dataset(
        {
            name: value.where(varies).assign_attrs(units=units.get(name, "units of the quantity"))
            for name, value in statistics.items()
        },
        attrs={"num_draws": num_draws(loaded)},
    )


def _check(quantity: xr.DataArray) -> None:
    for dim in SAMPLE_DIMS:
        if dim not in quantity.dims:
            raise ValueError(
                f"Convergence is judged from draws, but the quantity has no dim {dim!r} (dims: "
                f"{', '.join(map(str, quantity.dims)) or 'none'}): add it, as in array.expand_dims({dim!r})."
            )
    if quantity.sizes["draw"] < MIN_DRAWS:
        raise ValueError(
            f"Convergence is judged from at least {MIN_DRAWS} draws a chain, but there are {quantity.sizes['draw']}."
        )
