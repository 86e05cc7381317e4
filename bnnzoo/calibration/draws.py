"""Posterior predictive draws in a tree, and their quantiles."""

from collections.abc import Sequence

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, Labelled, num_draws, refuse_no_tree

__all__ = ["flat_draws", "predictive_draws", "quantiles"]


def predictive_draws(data: Labelled, measure: str, at_least: int = 1) -> xr.DataArray:
    """Return draws ``[chain, draw, obs_id, ...]`` of y from a tree, a group, or an array.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        A tree with ``predictions`` or ``posterior_predictive`` of one observed site, such a group, or the draws.
    measure : str
        Name of the measure, for error messages.
    at_least : int
        Required number of draws.

    Raises
    ------
    ValueError
        If there are none, too few, or draws of several sites.

    Examples
    --------
    >>> from bnnzoo.testing import example_tree
    >>> predictive_draws(example_tree("regression"), "crps").dims
    ('chain', 'draw', 'obs_id')
    """
    if isinstance(data, xr.DataArray):
        draws = data
    else:
        group = _group(data, measure)
        if len(group.data_vars) != 1:
            raise ValueError(
                f"{measure} needs draws of one site, but there are {', '.join(map(str, group.data_vars)) or 'none'}: pass "
                "one of them, as in tree['predictions']['...'], and y."
            )
        draws = next(iter(group.data_vars.values()))
    if missing := [dim for dim in SAMPLE_DIMS if dim not in draws.dims]:
        raise ValueError(
            f"{measure} needs draws of y along chain and draw, but {missing[0]!r} is missing (dims: "
            f"{', '.join(map(str, draws.dims))}): add it, as in array.expand_dims({missing[0]!r})."
        )
    if num_draws(draws) < at_least:
        raise ValueError(f"{measure} needs at least {at_least} draws of y, but there is only {num_draws(draws)}.")
    return draws.compute()


def flat_draws(draws: xr.DataArray) -> xr.DataArray:
    """Return draws ``[..., flat_draw]`` with chains and draws joined."""
    return draws.stack(flat_draw=SAMPLE_DIMS, create_index=False).drop_vars(SAMPLE_DIMS, errors="ignore")


def quantiles(draws: xr.DataArray, levels: Sequence[float]) -> list[xr.DataArray]:
    """Return quantiles over draws, one array for each level.

    Parameters
    ----------
    draws : DataArray [chain, draw, ...]
    levels : sequence of float
    """
    flat = flat_draws(draws)
    found = np.quantile(flat.to_numpy(), levels, axis=-1)
    return [flat.isel(flat_draw=0).copy(data=values) for values in found]


def _group(data: xr.DataTree | xr.Dataset, measure: str) -> xr.Dataset:
    refuse_no_tree(data)
    if isinstance(data, xr.Dataset):
        return data
    for name in ("predictions", "posterior_predictive"):
        if name in data.children:
            return data[name].to_dataset()
    if data.data_vars:
        return data.to_dataset()
    raise ValueError(
        f"{measure} needs draws of y, but the tree has neither 'predictions' nor 'posterior_predictive' (groups: "
        f"{', '.join(data.children) or 'none'}): make it with bnnzoo.predict(posterior, x, y)."
    )
