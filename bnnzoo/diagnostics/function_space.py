"""Convergence in function space: of predictions, not of weights."""

import xarray as xr

from bnnzoo.diagnostics.convergence import convergence
from bnnzoo.trees import Labelled, first_moment, moment

__all__ = ["function_space", "function_values"]

INDEPENDENT = ("iid", "ensemble")  # values of the attribute sampling


def function_space(tree: Labelled) -> xr.Dataset:
    r"""Diagnose the draws of each prediction: R-hat, effective sample sizes and Monte Carlo standard errors.

    Permuting the hidden units of a network, or flipping their signs, does not change its function. Chains that agree
    on the function may disagree on every weight, so R-hat of weights is meaningless. This function diagnoses
    :math:`E[y_i \mid x_i, \theta]`, or the class probabilities :math:`p(y_i \mid x_i, \theta)`, for each observation i.

    Parameters
    ----------
    tree : DataTree, Dataset or DataArray
        A tree with a group ``conditional`` (or that group) that has ``mean`` or ``probs``, or an array of any quantity. Each
        entry takes some milliseconds: for thousands of observations use a subset, ``tree.isel(obs_id=slice(200))``.

    Returns
    -------
    Dataset
        ``rhat``, ``ess_bulk``, ``ess_tail``, ``mcse_mean``, ``mcse_sd`` ``[obs_id, ...]`` as in
        :func:`~bnnzoo.diagnostics.convergence`. Monte Carlo standard errors are in units of the prediction. For two
        classes only the probability of the second is diagnosed. For the independent draws of an approximation, the
        results describe Monte Carlo error, not the quality of the approximation. R-hat does not apply to independent
        draws or to members of an ensemble, and is left out where the tree's attribute ``sampling`` says so.

    Raises
    ------
    ValueError
        If a group, variable or dim is missing, or there are fewer than four draws per chain.

    References
    ----------
    P. Izmailov et al., What are Bayesian neural network posteriors really like?, ICML 2021.

    Examples
    --------
    >>> import numpy as np
    >>> draws = np.random.default_rng(0).normal(size=(4, 100, 3))
    >>> conditional = xr.Dataset({"mean": (("chain", "draw", "obs_id"), draws)})
    >>> list(function_space(xr.DataTree.from_dict({"conditional": conditional})))
    ['rhat', 'ess_bulk', 'ess_tail', 'mcse_mean', 'mcse_sd']
    """
    result = convergence(function_values(tree))
    if isinstance(tree, xr.DataTree) and tree.root.attrs.get("sampling") in INDEPENDENT:
        return result.drop_vars("rhat").assign_attrs(rhat="does not apply to independent draws")
    return result


def function_values(tree: Labelled) -> xr.DataArray:
    """Return the values of the function in a tree: conditional means, or class probabilities without redundancy.

    Parameters
    ----------
    tree : DataTree, Dataset or DataArray
        As for :func:`function_space`.
    """
    if isinstance(tree, xr.DataArray):
        return tree
    name = first_moment(tree, "mean", "probs")
    values = moment(tree, name)
    return values.isel(class_id=[1]) if name == "probs" and values.sizes["class_id"] == 2 else values
