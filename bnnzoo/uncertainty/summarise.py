"""Predictions as a data frame: one row for each row of the data."""

from typing import Any, Literal
from warnings import catch_warnings

import numpy as np
import pandas as pd
import xarray as xr
from arviz_stats.visualization import hdi

from bnnzoo.trees import refuse_no_probability, refuse_other_kind

__all__ = ["summarise"]

GROUPS = ("predictions", "posterior_predictive", "prior_predictive")


def summarise(
    tree: xr.DataTree, prob: float = 0.95, kind: Literal["eti", "hdi"] = "eti", *, group: str | None = None
) -> pd.DataFrame:
    """Return the predictions of a tree as a data frame.

    Draws that are lost (NaN) are left out; a row that has lost all of them is missing (NaN).

    Parameters
    ----------
    tree : DataTree
        Of `bnnzoo.predict` or `bnnzoo.posterior_predictive`, or of another library, with draws of outcomes.
    prob : float
        Of the interval.
    kind : {"eti", "hdi"}
        Equal-tailed, or of highest density.
    group : str, optional
        Of the outcomes. Default: ``predictions``, else ``posterior_predictive``, else ``prior_predictive``.

    Returns
    -------
    DataFrame
        Indexed by the labels of rows (for several outcomes or outputs, by these, too), with columns ``mean``, ``sd``,
        ``lower`` and
        ``upper``, credible intervals of outcomes; for classes the most probable one, ``class``, and ``p(<class>)`` of each.

    Raises
    ------
    ValueError
        If the tree has no predictions, or an argument is out of range.

    Examples
    --------
    >>> import numpy as np
    >>> import xarray as xr
    >>> draws = xr.Dataset({"y": (("chain", "draw", "obs_id"), np.arange(202.0).reshape(1, 101, 2))})
    >>> summarise(xr.DataTree.from_dict({"predictions": draws}), prob=0.9).round(2).to_dict("list")
    {'mean': [100.0, 101.0], 'sd': [58.6, 58.6], 'lower': [10.0, 11.0], 'upper': [190.0, 191.0]}
    """
    refuse_other_kind(tree, xr.DataTree, "tree", "what bnnzoo.predict or bnnzoo.posterior_predictive returns")
    refuse_no_probability(prob)
    if kind not in ("eti", "hdi"):
        raise ValueError(f"kind={kind!r}: write 'eti' or 'hdi'.")
    found = [name for name in ([group] if group else GROUPS) if name in tree.children]
    if not found:
        raise ValueError(
            f"The tree has no group {group or ' or '.join(GROUPS)}; it has {', '.join(tree.children) or 'none'}."
        )
    outcomes = tree[found[0]].to_dataset()
    conditional = tree["conditional"].to_dataset() if "conditional" in tree.children else xr.Dataset()
    frames = {}
    for name, draws in outcomes.data_vars.items():
        probs = conditional.get("probs" if len(outcomes.data_vars) == 1 else f"{name}.probs")
        frames[str(name)] = _of_classes(probs) if probs is not None else _of_numbers(draws, prob, kind)
    if len(frames) == 1:
        return next(iter(frames.values()))
    return pd.concat(frames, names=["outcome"])


def _of_numbers(draws: xr.DataArray, prob: float, kind: str) -> pd.DataFrame:
    dims = ("chain", "draw")
    with catch_warnings(action="ignore", category=RuntimeWarning):  # of rows that have lost all draws
        if kind == "hdi":
            ends = hdi(draws, prob=prob, dim=list(dims), skipna=True)
            low, high = ends.isel(ci_bound=0, drop=True), ends.isel(ci_bound=1, drop=True)
        else:
            levels = ((1 - prob) / 2, (1 + prob) / 2)
            low, high = (draws.quantile(q, dims, keep_attrs=False).drop_vars("quantile") for q in levels)
        parts = {"mean": draws.mean(dims), "sd": draws.std(dims, ddof=1), "lower": low, "upper": high}
    table: pd.DataFrame = xr.Dataset(parts).to_dataframe()
    return table[list(parts)]


def _of_classes(probs: xr.DataArray) -> pd.DataFrame:
    mean = probs.mean(("chain", "draw"))
    dim = next(str(each) for each in reversed(mean.dims) if each in ("class_id", mean.dims[-1]))
    named = list(probs.attrs.get("class_names", ()))  # of a formula, whose outcomes are numbers of classes
    labels: list[Any] = named or (mean[dim].to_numpy().tolist() if dim in mean.coords else list(range(mean.sizes[dim])))
    others = [each for each in mean.dims if each != dim]
    first = mean.transpose(*others, dim)
    table = first.isel({dim: 0}, drop=True).to_dataframe(name="class")[[]]
    values = first.to_numpy().reshape(-1, len(labels))
    lost = np.isnan(values).all(1)
    table["class"] = [None if none else labels[place] for place, none in zip(values.argmax(1), lost, strict=True)]
    for place, label in enumerate(labels):
        table[f"p({label})"] = values[:, place]
    return table
