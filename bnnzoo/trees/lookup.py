"""Moments and observations of a tree, and clear errors if they are missing."""

from collections.abc import Iterable, Sequence

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.trees.alignment import Observed, aligned, as_array
from bnnzoo.trees.argument_kinds import refuse_no_tree

__all__ = [
    "LABELLED_PROBS",
    "SAMPLE_DIMS",
    "Labelled",
    "class_indices",
    "companion",
    "first_moment",
    "moment",
    "num_draws",
    "observations",
    "refuse_bad_probs",
    "refuse_single_draw",
]

LABELLED_PROBS = """What measures of class probabilities and labels take and refuse.

Parameters
----------
data : DataTree, Dataset or DataArray
    With ``probs[chain, draw, obs_id, class_id]``.
y : DataArray [obs_id], optional
    Observed labels (default: those of the tree).

Raises
------
ValueError
    If data are missing, or a label is not one of the classes.
"""

type Labelled = xr.DataTree | xr.Dataset | xr.DataArray
type Array = NDArray[np.floating]

SAMPLE_DIMS = ("chain", "draw")
SUM_TOLERANCE = 1e-4  # probabilities may have been computed in single precision

ROW_DIMS = (*SAMPLE_DIMS, "obs_id")
DIMS = {"probs": (*ROW_DIMS, "class_id")}
MEANING = {
    "probs": "class probabilities p(y | x, theta) of each draw",
    "mean": "mean of p(y | x, theta) of each draw",
    "variance": "variance of p(y | x, theta) of each draw, the noise variance",
    "entropy": "entropy of p(y | x, theta) of each draw",
}


def moment(data: Labelled, name: str) -> xr.DataArray:
    """Return a moment ``[chain, draw, obs_id, ...]`` of p(y | x, theta) from a tree, a group or itself.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        A tree with a group ``conditional``, that group, or the moment itself.
    name : {"probs", "mean", "variance", "entropy"}

    Returns
    -------
    DataArray
        With dims ``chain`` and ``draw``, and ``class_id`` last for ``probs``. Not loaded if it was lazy.

    Raises
    ------
    ValueError
        If the group, the variable or a dim is missing. The message says what was found and how to add it.

    Examples
    --------
    >>> probs = xr.DataArray(np.full((1, 5, 3, 2), 0.5), dims=("chain", "draw", "obs_id", "class_id"))
    >>> moment(xr.Dataset({"probs": probs}), "probs").identical(probs.rename("probs"))
    True
    """
    if isinstance(data, xr.DataArray):
        array = data
    else:
        group = _group(data, (name,))
        array = group[_find(group, (name,))]
    needed = (*SAMPLE_DIMS, *(("class_id",) if name == "probs" else ()))
    if missing := [dim for dim in needed if dim not in array.dims]:
        advice = f"add it, as in array.expand_dims({missing[0]!r}), or rename the dim of draws, as in array.rename(sample='draw')"
        if missing[0] == "class_id":
            advice = "rename the dim of classes, as in probs.rename(k='class_id')"
        raise ValueError(
            f"{name!r} has dims {_listed(array.dims)}, but no {missing[0]!r}, which the {MEANING[name]} must have: {advice}."
        )
    if len(array.dims) == 2:
        raise ValueError(f"{name!r} has dims {_listed(array.dims)}, but no dim of observations, such as 'obs_id'.")
    return array.transpose(..., "class_id") if name == "probs" and array.dims[-1] != "class_id" else array


def first_moment(data: xr.DataTree | xr.Dataset, *names: str) -> str:
    """Return which of several moments a tree or group has.

    Parameters
    ----------
    data : DataTree or Dataset
    *names : str
        Such as ``"probs", "mean"``; one of them is needed.

    Raises
    ------
    ValueError
        If none is there, or there are several observed sites.
    """
    return _find(_group(data, names), names).rpartition(".")[2]


def companion(data: Labelled, name: str, other: str) -> xr.DataArray | None:
    """Return another moment of the same observed site, such as ``entropy`` with ``probs``; None if it is missing."""
    if isinstance(data, xr.DataArray):
        return None
    group = _group(data, (name,))
    wanted = _find(group, (name,)).removesuffix(name) + other
    return group.get(wanted)


def observations(data: Labelled, y: Observed | None = None, rows: xr.DataArray | None = None) -> xr.DataArray:
    """Return the observations ``y[obs_id, ...]``: as given, or from the tree.

    Parameters
    ----------
    data : DataTree, Dataset or DataArray
        In a tree, ``predictions_observed_data`` is used, or else ``observed_data`` if it has no ``predictions``.
    y : DataArray, ndarray, Series or sequence, optional
        Used instead of those in the tree.
    rows : DataArray [..., obs_id, ...], optional
        The predictions that the observations are compared with, to which they are aligned by
        :func:`~bnnzoo.trees.aligned`; default: the observations as they are.

    Raises
    ------
    ValueError
        If there are none, the tree has several observed variables, or the observations do not match the rows.
    """
    found = _observed(data) if y is None else as_array(y)
    return found if rows is None else aligned(found, rows)


def _observed(data: Labelled) -> xr.DataArray:
    """Return what a tree says was observed, at new rows if it has predictions for such."""
    if not isinstance(data, xr.DataTree):
        raise ValueError(
            "There are no observations: pass them as y=DataArray(values, dims='obs_id'), or pass a tree that has "
            "'predictions_observed_data' or 'observed_data' instead of a single group or array."
        )
    is_new = {"predictions", "observed_data"} <= {*data.children}  # what was observed in training is of other rows
    for group in ("predictions_observed_data", *(() if is_new else ("observed_data",))):
        if group in data.children:
            found = data[group].to_dataset()
            if len(found.data_vars) != 1:
                raise ValueError(
                    f"Group {group!r} has variables {_listed(found.data_vars)} instead of one: choose one of them, as in "
                    f"y=tree[{group!r}]['...']."
                )
            return next(iter(found.data_vars.values()))
    raise ValueError(
        f"The tree has no observations{' of the rows it predicts' if is_new else ''} (groups: "
        f"{_listed(data.children)}): make it with bnnzoo.predict(posterior, x, y), observations included, or pass "
        "y=DataArray(values, dims='obs_id')."
    )


def refuse_single_draw(array: xr.DataArray, measure: str) -> None:
    """Refuse a single draw, which has no spread."""
    if num_draws(array) < 2:
        raise ValueError(
            f"{measure} compares draws of the posterior, but there is only one: use more draws, or, for a point "
            "estimate such as MAP, predictive_entropy or the variance of p(y | x, theta), which need only one."
        )


def num_draws(array: xr.DataArray) -> int:
    """Return the number of chains times that of draws."""
    return array.sizes["chain"] * array.sizes["draw"]


def refuse_bad_probs(probs: Array, rows_dim: str = "obs_id", first_row: int = 0) -> None:
    """Refuse values ``[draws, rows, ..., K]`` that are neither probabilities nor NaN, naming the first such row.

    Parameters
    ----------
    probs : ndarray
        Classes are the last axis.
    rows_dim : str
    first_row : int
        Position of the first row of ``probs``.

    Raises
    ------
    ValueError
        If they do not sum to one, are negative, or are not finite, unless those of all classes are NaN: a draw is lost.
    """
    sums = probs @ np.ones(probs.shape[-1], probs.dtype)
    wrong = ~(np.abs(sums - 1) <= SUM_TOLERANCE)
    if wrong.any():
        wrong &= ~np.isnan(probs).all(-1)
    if wrong.any() or np.fmin.reduce(probs, None, initial=0.0) < 0:
        wrong = wrong if wrong.any() else (probs < 0).any(-1)
        where = np.unravel_index(int(np.argmax(wrong)), wrong.shape)
        raise ValueError(
            f"Class probabilities must not be negative and must sum to one, but at {rows_dim}={first_row + where[1]} "
            f"they are {np.array2string(probs[where], precision=4, threshold=6)}, with sum {sums[where]:.4g}: pass "
            "probabilities (after softmax), with classes along 'class_id'."
        )


def class_indices(y: Observed, probs: xr.DataArray) -> xr.DataArray:
    """Return the position along ``class_id`` of each observed label, in the order of the rows of ``probs``.

    Parameters
    ----------
    y : DataArray [obs_id]
        Labels: values of the coordinate ``class_id`` of ``probs``; if it has none, positions 0, ..., K - 1.
    probs : DataArray [..., class_id]

    Raises
    ------
    ValueError
        If a label is not one of the classes, or the labels do not match the rows.

    Examples
    --------
    >>> probs = xr.DataArray([[0.2, 0.8]], dims=("obs_id", "class_id"), coords={"class_id": ["cat", "dog"]})
    >>> class_indices(xr.DataArray(["dog"], dims="obs_id"), probs).values
    array([1])
    """
    classes = probs["class_id"].to_numpy()
    y = aligned(y, probs)
    labels = y.to_numpy()
    if labels.dtype == bool and len(classes) > 2:
        raise ValueError(
            f"Observations are True or False, but there are {len(classes)} classes ({_listed(classes[:20])}): use the labels of "
            f"the coordinate 'class_id'."
        )
    matches = labels[..., None] == classes
    unknown = ~matches.any(-1)
    if unknown.any():
        first = int(np.argmax(unknown.ravel()))
        raise ValueError(
            f"Observation {first} has label {labels.ravel()[first]}, which is not one of the classes "
            f"{_listed(classes[:20])}: use the labels of the coordinate 'class_id'."
        )
    return y.copy(data=matches.argmax(-1))


def _group(data: xr.DataTree | xr.Dataset, names: Sequence[str]) -> xr.Dataset:
    refuse_no_tree(data)
    if isinstance(data, xr.Dataset):
        return data
    if "conditional" in data.children:
        return data["conditional"].to_dataset()
    if data.data_vars:
        return data.to_dataset()
    raise ValueError(
        f"The tree has no group 'conditional' (groups: {_listed(data.children)}), which must have {_wanted(names)}. "
        f"bnnzoo.predict and bnnzoo.posterior_predictive make it; {_how_to_make(names[0])}."
    )


def _find(group: xr.Dataset, names: Sequence[str]) -> str:
    variables = [str(variable) for variable in group.data_vars]
    found = [v for v in variables if v.rpartition(".")[2] in names]
    if len(found) > 1:
        raise ValueError(
            f"There are several observed sites ({_listed(found)}): pass the moments of one "
            f"site, as in tree['conditional'].to_dataset()[[{found[0]!r}, ...]]."
        )
    if not found:
        raise ValueError(
            f"The group 'conditional' has variables {_listed(variables)}, but not {_wanted(names)}. bnnzoo.predict "
            f"stores it if the likelihood has it; {_how_to_make(names[0])}."
        )
    return found[0]


def _wanted(names: Sequence[str]) -> str:
    return " or ".join(f"{name!r}, the {MEANING[name]}" for name in names)


def _how_to_make(name: str) -> str:
    dims = DIMS.get(name, ROW_DIMS)
    return f"for a tree made by other means, write tree['conditional'] = xr.DataTree(xr.Dataset({{{name!r}: ({dims}, {name})}}))"


def _listed(names: Iterable[object]) -> str:
    return ", ".join(map(str, names)) or "none"
