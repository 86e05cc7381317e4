"""Prior predictive scale of a card."""

import numpy as np
import xarray as xr

__all__ = ["prior_spread"]


def prior_spread(tree: xr.DataTree) -> float:
    """Return one number on the scale of the prior's functions, from a tree of :func:`bnnzoo.prior_predictive`.

    Parameters
    ----------
    tree : DataTree
        With ``mean`` or ``probs`` in ``conditional``.

    Returns
    -------
    float
        Half the width of the central 68% of the draws of E[y | x, theta], a standard deviation that exists for heavy tails,
        too, as the median over rows; for classes, the mean of the largest class probability.

    Examples
    --------
    >>> mean = (("chain", "draw", "obs_id"), np.linspace(-1.0, 1.0, 101)[None, :, None])
    >>> round(prior_spread(xr.DataTree.from_dict({"conditional": xr.Dataset({"mean": mean})})), 2)
    0.68
    """
    group = tree["conditional"].to_dataset()
    probs = [values for name, values in group.items() if str(name).rpartition(".")[2] == "probs"]
    if probs:
        return float(probs[0].max("class_id").mean())
    means = [values for name, values in group.items() if str(name).rpartition(".")[2] == "mean"]
    low, high = means[0].quantile(0.16, ("chain", "draw")), means[0].quantile(0.84, ("chain", "draw"))
    return float(np.median((high - low) / 2))
