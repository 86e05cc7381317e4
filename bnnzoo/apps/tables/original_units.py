"""Predictions of a standardised target in original units."""

import numpy as np
import xarray as xr

from bnnzoo.apps.tables.prepared_table import Table

__all__ = ["restore_units"]


def restore_units(tree: xr.DataTree, table: Table) -> xr.DataTree:
    r"""Return a tree with predictions in the units of the target; trees of classification are unchanged.

    For :math:`y = \mu + s z`, with a network fitted to the standardised ``z``, draws and means become
    :math:`\mu + s z`, variances are multiplied by :math:`s^2`, log densities decrease by :math:`\log s`, and entropies
    increase by it. Latent variables (``posterior``, ``weights``) stay on the standardised scale of their priors.

    Parameters
    ----------
    tree : xarray.DataTree
        From :func:`bnnzoo.predict` or :func:`bnnzoo.posterior_predictive`.
    table : Table
        The table to which the model was fitted.

    Returns
    -------
    xarray.DataTree
    """
    if table.task == "classification":
        return tree
    loc, scale, log_scale = table.y_loc, table.y_scale, float(np.log(table.y_scale))
    restored = tree.copy()
    for group in ("posterior_predictive", "predictions", "observed_data", "predictions_observed_data"):
        if group in tree.children:
            restored[group].dataset = _affine(tree[group].to_dataset(), loc, scale)
    for group in ("log_likelihood", "predictions_log_likelihood"):
        if group in tree.children:
            restored[group].dataset = _affine(tree[group].to_dataset(), -log_scale, 1.0)
    if "conditional" in tree.children:
        conditional = tree["conditional"].to_dataset()
        rules = {"mean": (loc, scale), "variance": (0.0, scale**2), "entropy": (log_scale, 1.0)}
        known = {str(name): conditional[name] * b + a for name, (a, b) in rules.items() if name in conditional}
        restored["conditional"].dataset = conditional.assign(known)
    return restored


def _affine(dataset: xr.Dataset, loc: float, scale: float) -> xr.Dataset:
    with xr.set_options(keep_attrs=True):
        return dataset * scale + loc
