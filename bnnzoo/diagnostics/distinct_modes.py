"""Distinct modes among chains or members, told apart by their functions and not by their weights."""

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.sparse.csgraph import connected_components

from bnnzoo.diagnostics.function_space import function_values
from bnnzoo.trees import SAMPLE_DIMS, Labelled

__all__ = ["function_modes"]

type Array = NDArray[np.floating]


def function_modes(tree: Labelled, *, threshold: float | None = None) -> xr.Dataset:
    r"""Group chains, or the members of an ensemble, into modes by the functions that they predict.

    Two modes of the weights that differ by a symmetry are one function, and count once. The separation of two chains is the
    root mean square over rows of :math:`|m_i - m_j| / \sqrt{(v_i + v_j) / 2}`, with mean and variance of the function over the
    draws of each. Members have no variance of their own; theirs is the root mean square of :math:`|f_i - f_j|`, over the
    standard deviation of the mean prediction over rows. Chains that are closer than the threshold belong to one mode, as do
    those linked by others.

    Parameters
    ----------
    tree : DataTree, Dataset or DataArray
        With ``mean`` or ``probs`` for the same rows, as for :func:`~bnnzoo.diagnostics.function_space`. A tree whose attribute
        ``sampling`` is ``"ensemble"`` has one member for each draw, any other one group of draws for each chain.
    threshold : float, optional
        Default: 1, one posterior standard deviation, for chains, and 0.1 for members.

    Returns
    -------
    Dataset
        ``mode[member]``, numbered from 0 by the number of members, ``separation[member, other]``, and ``num_modes``.

    Raises
    ------
    ValueError
        If moments are missing, the threshold is not positive, or chains have a single draw.

    Examples
    --------
    >>> draws = np.random.default_rng(0).normal(size=(3, 50, 4)) + np.array([0, 0, 9])[:, None, None]
    >>> found = function_modes(xr.DataArray(draws, dims=("chain", "draw", "obs_id")))
    >>> found["mode"].values, int(found["num_modes"])
    (array([0, 0, 1]), 2)
    """
    values = function_values(tree).compute().transpose(*SAMPLE_DIMS, ...)
    is_ensemble = isinstance(tree, xr.DataTree) and tree.root.attrs.get("sampling") == "ensemble"
    threshold = (0.1 if is_ensemble else 1.0) if threshold is None else threshold
    if threshold <= 0:
        raise ValueError(f"threshold={threshold} must be positive.")
    array = values.to_numpy().astype(float).reshape(*values.shape[:2], -1)
    if is_ensemble:
        members = array.reshape(-1, array.shape[-1])
        gaps, scale = np.stack([np.sqrt(((members - one) ** 2).mean(-1)) for one in members]), members.mean(0).std()
        distances = np.divide(gaps, scale, out=np.where(gaps > 0, np.inf, 0.0), where=scale > 0)
    else:
        distances = _of_chains(array)
    count, labels = connected_components(distances <= threshold, directed=False)
    sizes = np.bincount(labels, minlength=count)
    rank = np.argsort(np.argsort(-sizes, kind="stable"))
    parts = {"mode": ("member", rank[labels]), "separation": (("member", "other"), distances), "num_modes": int(count)}
    return xr.Dataset(parts, attrs={"threshold": threshold})


def _of_chains(values: Array) -> Array:
    """Return separations of chains ``[chain, draw, entry]``."""
    if values.shape[1] < 2:
        raise ValueError(
            "Chains are told apart by the spread of their draws, but each has a single one: pass a tree whose attribute "
            "'sampling' is 'ensemble' if they are members of an ensemble."
        )
    mean, variance = values.mean(1), values.var(1, ddof=1)
    gaps = (mean[:, None] - mean) ** 2
    spread = (variance[:, None] + variance) / 2
    ratio = np.divide(gaps, spread, out=np.where(gaps > 0, np.inf, 0.0), where=spread > 0)
    return np.sqrt(ratio.mean(-1))
