"""Tests of whether aleatoric and epistemic uncertainty are disentangled."""

import numpy as np
import xarray as xr
from scipy.stats import rankdata

from bnnzoo.trees import refuse_other_kind

__all__ = ["rank_correlation"]


def rank_correlation(split: xr.Dataset, dim: str = "obs_id") -> xr.DataArray:
    r"""Spearman's rank correlation of aleatoric and epistemic uncertainty over observations.

    If both rank the observations in the same order (a correlation near 1), the split does not disentangle two sources of
    uncertainty. On benchmarks this is so for most methods.

    Parameters
    ----------
    split : Dataset
        With ``aleatoric`` and ``epistemic`` ``[obs_id, ...]``, as :func:`~bnnzoo.uncertainty.decompose` returns it.
    dim : str
        The dim of observations.

    Returns
    -------
    DataArray [...]
        Between -1 and 1; NaN if either is constant.

    Raises
    ------
    ValueError
        If there are fewer than three observations, or a variable is missing.

    References
    ----------
    B. Mucsányi, M. Kirchhof, S. J. Oh, Benchmarking uncertainty disentanglement, NeurIPS 2024.

    Examples
    --------
    >>> split = xr.Dataset({"aleatoric": ("obs_id", [0.1, 0.2, 0.3]), "epistemic": ("obs_id", [1.0, 4.0, 9.0])})
    >>> float(rank_correlation(split))
    1.0
    """
    refuse_other_kind(split, xr.Dataset, "split", "what bnnzoo.uncertainty.decompose returns")
    if missing := {"aleatoric", "epistemic"} - set(split.data_vars):
        found = ", ".join(map(str, split.data_vars)) or "none"
        raise ValueError(
            f"The split has no {min(missing)!r} (variables: {found}): pass what bnnzoo.uncertainty.decompose returns."
        )
    if split.sizes.get(dim, 0) < 3:
        raise ValueError(f"A rank correlation needs three observations, but {dim!r} has {split.sizes.get(dim, 0)}.")
    ranks = [xr.apply_ufunc(rankdata, split[name], input_core_dims=[[dim]], output_core_dims=[[dim]],
                            kwargs={"axis": -1}) for name in ("aleatoric", "epistemic")]  # fmt: skip
    varies = (ranks[0].std(dim) > 0) & (ranks[1].std(dim) > 0)
    centred = [rank - rank.mean(dim) for rank in ranks]
    product = (centred[0] * centred[1]).sum(dim)
    norm = np.sqrt((centred[0] ** 2).sum(dim) * (centred[1] ** 2).sum(dim))
    return (product / norm.where(varies)).clip(-1.0, 1.0).rename("rank_correlation").assign_attrs(units="1")
