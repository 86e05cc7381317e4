"""Lower and upper probabilities: bounds of the credal set that the draws of a posterior span."""

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, Labelled, moment, refuse_bad_probs, refuse_single_draw, tiles

__all__ = ["probability_bounds"]


def probability_bounds(data: Labelled) -> xr.Dataset:
    r"""Lower and upper probability of each class: its bounds over the convex hull of the draws, ``[obs_id, class_id]``.

    The draws' class probabilities span a credal set, their convex hull. A linear function such as :math:`p_k` has its
    bounds over the hull at its corners, so these are :math:`\min_s p_{sk}` and :math:`\max_s p_{sk}`. They widen with the
    number of draws: compare methods with equal numbers of draws, or members of ensembles.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        With ``probs[chain, draw, obs_id, class_id]`` of at least two draws.

    Returns
    -------
    Dataset
        ``lower`` and ``upper`` ``[obs_id, class_id]``, and ``imprecision`` ``[obs_id]``, the largest difference of the two
        over classes. All members of the hull agree on the most probable class where its :func:`votes` are 1.

    Raises
    ------
    ValueError
        If there is a single draw, or probabilities do not sum to one.

    References
    ----------
    P. Walley, Statistical Reasoning with Imprecise Probabilities, 1991.

    Examples
    --------
    >>> probs = xr.DataArray([[[[0.9, 0.1]], [[0.6, 0.4]]]], dims=("chain", "draw", "obs_id", "class_id"))
    >>> bounds = probability_bounds(probs)
    >>> bounds["lower"].values, bounds["upper"].values
    (array([[0.6, 0.1]]), array([[0.9, 0.4]]))
    """
    probs = moment(data, "probs")
    refuse_single_draw(probs, "probability_bounds")
    like = probs.isel(dict.fromkeys(SAMPLE_DIMS, 0), drop=True).compute()
    lower, upper = np.full(like.shape, np.nan), np.full(like.shape, np.nan)
    for values, rows in tiles(probs):
        refuse_bad_probs(values, str(like.dims[0]), rows.start)
        lower[rows] = np.fmin(lower[rows], np.fmin.reduce(values, 0))
        upper[rows] = np.fmax(upper[rows], np.fmax.reduce(values, 0))
    bounds = {"lower": like.copy(data=lower), "upper": like.copy(data=upper)}
    parts = bounds | {"imprecision": (bounds["upper"] - bounds["lower"]).max("class_id")}
    return xr.Dataset({name: part.assign_attrs(units="1") for name, part in parts.items()})
