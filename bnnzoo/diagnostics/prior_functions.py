"""The prior in function space: what functions a network is before it has seen data."""

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, Labelled, first_moment, moment, shannon_entropy

__all__ = ["prior_functions"]

SATURATED = 0.99


def prior_functions(tree: Labelled) -> xr.Dataset:
    r"""Describe the functions that a prior over weights implies, draw by draw.

    Priors of weights are hard to judge, the functions that they imply are not. A prior under which every draw is
    certain of one class for all inputs, or under which the noise is a thousandth of the signal, says something that is rarely
    meant.

    Parameters
    ----------
    tree : DataTree or Dataset
        From :func:`bnnzoo.prior_predictive` (or any tree with a group ``conditional``) at representative inputs, with ``probs``
        or with ``mean`` and ``variance``.

    Returns
    -------
    Dataset
        For real targets ``sd[obs_id]``, the prior standard deviation of :math:`E[y_i \mid x_i, \theta]`; ``spread[chain,
        draw]``, the standard deviation of a drawn function over the inputs; ``noise_sd[chain, draw]``; and the prior
        ``r_squared[chain, draw]``, :math:`spread^2 / (spread^2 + noise^2)`. For classes ``entropy[chain, draw]``, the mean
        over inputs in nats; ``saturated[chain, draw]``, the fraction of inputs whose largest probability exceeds 0.99; and
        ``largest_share[chain, draw]``, the fraction of inputs to which a drawn function gives its most frequent class.

    Raises
    ------
    ValueError
        If a group or a variable is missing.

    References
    ----------
    A. Gelman, B. Goodrich, J. Gabry, A. Vehtari, R-squared for Bayesian regression models, The American Statistician,
    2019; J. Gabry et al., Visualization in Bayesian workflow, JRSS A, 2019 (prior predictive checks).

    Examples
    --------
    >>> import bnnzoo as bz, torch
    >>> net = bz.models.mlp(2, (20,), 3)
    >>> x, y = torch.randn(50, 2), torch.zeros(50, dtype=torch.long)
    >>> model = bz.models.supervised(net, bz.priors.normal(10.0), bz.likelihoods.categorical())
    >>> bool(prior_functions(bz.prior_predictive(model, x, y, num_draws=50))["saturated"].mean() > 0.8)
    True
    """
    if isinstance(tree, xr.DataArray) or first_moment(tree, "probs", "mean") == "probs":
        probs = moment(tree, "probs").compute()
        rows = [dim for dim in probs.dims if dim not in (*SAMPLE_DIMS, "class_id")]
        winners = probs.argmax("class_id")
        classes = xr.DataArray(np.arange(probs.sizes["class_id"]), dims="class_id")
        parts = {
            "entropy": shannon_entropy(probs).mean(rows),
            "saturated": (probs.max("class_id") > SATURATED).mean(rows),
            "largest_share": (winners == classes).mean(rows).max("class_id"),
        }
        units = {"entropy": "nats"}
        return xr.Dataset({name: part.assign_attrs(units=units.get(name, "1")) for name, part in parts.items()})
    mean = moment(tree, "mean").compute()
    variance = moment(tree, "variance").compute()
    rows = [dim for dim in mean.dims if dim not in SAMPLE_DIMS]
    signal, noise = mean.var(rows), variance.mean(rows)
    parts = {
        "sd": mean.std(SAMPLE_DIMS),
        "spread": signal**0.5,
        "noise_sd": noise**0.5,
        "r_squared": signal / (signal + noise),
    }
    units = {"r_squared": "1"}
    return xr.Dataset({name: part.assign_attrs(units=units.get(name, "units of y")) for name, part in parts.items()})
