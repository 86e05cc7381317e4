"""Convergence of any labelled quantity: R-hat, effective sample sizes and Monte Carlo standard errors."""

import warnings

import xarray as xr
from arviz_stats.sampling_diagnostics import ess, mcse, rhat, rhat_nested

from bnnzoo.trees import SAMPLE_DIMS, num_draws, refuse_other_kind

__all__ = ["MIN_DRAWS", "convergence"]

SUPERCHAIN = "superchain"
MIN_DRAWS = 4  # per chain, since chains are split into halves of at least two


def convergence(quantity: xr.DataArray) -> xr.Dataset:
    """Diagnose the convergence of draws ``[chain, draw, ...]`` of a quantity, entry by entry.

    Parameters
    ----------
    quantity : DataArray [chain, draw, ...]
        Such as a prediction for each observation. Each entry takes some milliseconds.

    Returns
    -------
    Dataset
        ``rhat`` (rank-normalised, split; near 1 if chains agree, NaN for a single chain; the nested one where chains have a
        coordinate ``superchain``), ``ess_bulk`` and ``ess_tail``
        (effective sample sizes), ``mcse_mean`` and ``mcse_sd`` (Monte Carlo standard errors of the mean and the standard
        deviation, in units of the quantity). All are NaN if the draws are constant.

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
    refuse_other_kind(
        quantity,
        xr.DataArray,
        "The quantity",
        "a DataArray with dims chain and draw, such as tree['posterior']['sigma']",
    )
    for dim in SAMPLE_DIMS:
        if dim not in quantity.dims:
            raise ValueError(
                f"Convergence diagnostics need draws, but the quantity has no dim {dim!r} (dims: "
                f"{', '.join(map(str, quantity.dims)) or 'none'}): add it, as in array.expand_dims({dim!r})."
            )
    if quantity.sizes["draw"] < MIN_DRAWS:
        raise ValueError(
            f"Convergence diagnostics need at least {MIN_DRAWS} draws per chain, but there are {quantity.sizes['draw']}."
        )
    loaded = quantity.compute().transpose(*SAMPLE_DIMS, ...)  # ArviZ refuses chunked arrays
    varies = loaded.std(SAMPLE_DIMS) > 0
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "invalid value encountered", RuntimeWarning)  # for constant draws
        statistics = {
            "rhat": rhat_nested(loaded, superchain_ids=loaded[SUPERCHAIN].values)
            if SUPERCHAIN in loaded.coords
            else rhat(loaded),
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
