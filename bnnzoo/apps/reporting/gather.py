"""From trees by name to results of the same rows."""

from collections.abc import Mapping

import numpy as np
import pandas as pd
import xarray as xr

from bnnzoo.apps.reporting.foreign_trees import held_out_of, is_of_new_rows, normalised, site_of, title_of, training_of
from bnnzoo.apps.reporting.report_verdicts import against_reference
from bnnzoo.apps.reporting.results import Fitted, TreeResults
from bnnzoo.apps.reporting.scores import CLASSIFICATION, REGRESSION, ScoreColumn, can_be_drawn
from bnnzoo.diagnostics import convergence, function_values
from bnnzoo.diagnostics.same_rows import refuse_other_rows
from bnnzoo.trees import SAMPLE_DIMS, class_indices

__all__ = ["MAX_DIAGNOSED", "diagnostics", "gather", "some_rows"]

MAX_DIAGNOSED = 200  # rows, evenly spaced, whose convergence and distances are computed: each takes milliseconds
MIN_DRAWS = 4  # per chain, for diagnostics
OBSERVED = "predictions_observed_data"
type Trees = dict[str, xr.DataTree]


def gather(
    trees: Mapping[str, xr.DataTree],
    train: Mapping[str, xr.DataTree],
    site: str | None,
    calibration: Mapping[str, xr.DataTree | pd.DataFrame] | None = None,
) -> TreeResults:
    """Return the results of trees that predict the same rows.

    Parameters
    ----------
    trees : mapping of str to DataTree
        The first is the reference.
    train : mapping of str to DataTree
        Trees of the training data by the same names, where they are not the same trees.
    site : str, optional
        Observed site, where there are several.
    calibration : mapping of str to DataTree or DataFrame, optional
        Simulation-based calibration of some of the methods.

    Raises
    ------
    ValueError
        If the trees are about different rows, sites or classes, hold draws without predictions, or calibration is of none.
    """
    tests = {name: held_out_of(tree) for name, tree in trees.items()}
    is_training = _kind(tests)
    sites = {name: site_of(name, tree, site) for name, tree in tests.items()}
    found = {name: normalised(name, tree, sites[name], training=is_training) for name, tree in tests.items()}
    values = {name: _values(tree) for name, tree in found.items()}
    for name, array in values.items():
        if array.dtype.kind != "f" or not set(SAMPLE_DIMS) <= set(array.dims):
            continue
        lost = array.isnull().all([dim for dim in array.dims if dim not in SAMPLE_DIMS])
        if lost.any():
            raise ValueError(
                f"{int(lost.sum())} of {lost.size} draws of {name!r} hold NaN in {array.name!r}, since the "
                f"model cannot be evaluated there: fit with dtype=torch.float64, or leave these draws out."
            )
    first = next(iter(found))
    for name in found:
        refuse_other_rows(name, found[name], values[name], first, found[first], values[first])
    classes = _classes(found)
    found, notes = _observed_alike(found, classes)
    scores = CLASSIFICATION if classes else REGRESSION
    trained = {name: training_of(train.get(name, trees[name]), sites[name]) for name in found}
    if classes:
        for name, tree in trained.items():  # whose labels become positions of classes
            groups = {str(group): each.to_dataset() for group, each in tree.children.items()}
            for group in {"observed_data", "posterior_predictive"} & {*groups}:
                class_id = found[name]["conditional"].to_dataset()["class_id"]
                groups[group] = groups[group].map(lambda y, class_id=class_id: y.copy(data=_positions(y, class_id)))
            trained[name] = _like(tree, groups)
    fitted = [
        Fitted(name, trained[name], tree, _scores(scores, tree), *diagnostics(tree, trees[name]))
        for name, tree in found.items()
    ]
    rows = "training" if is_training else "new"
    target = next((title_of(tests[name], each) for name, each in sites.items() if each), "y")
    return TreeResults(
        tuple(fitted),
        scores,
        target,
        classes,
        rows,
        notes=tuple(notes),
        verdicts=against_reference(fitted, calibration),
    )


def some_rows(tree: xr.DataTree) -> xr.DataTree:
    """Return the predictions of at most two hundred rows, evenly spaced."""
    size = tree["conditional"].sizes["obs_id"]
    places = np.linspace(0, size - 1, min(size, MAX_DIAGNOSED)).round().astype(int)
    groups = {
        str(name): group.to_dataset().isel(obs_id=places) if "obs_id" in group.dims else group.to_dataset()
        for name, group in tree.children.items()
    }
    return _like(tree, groups)


def diagnostics(tree: xr.DataTree, whole: xr.DataTree) -> tuple[float, float]:
    """Return the largest R-hat and the smallest effective sample size: of predictions, or else of parameters.

    Parameters
    ----------
    tree : DataTree
        Predictions.
    whole : DataTree
        Where the parameters are.
    """
    if "conditional" in tree.children:
        values = [function_values(some_rows(tree))]
    elif "posterior" in whole.children:
        values = [v.compute() for v in whole["posterior"].data_vars.values() if {"chain", "draw"} <= {*v.dims}]
    else:
        values = []
    values = [array for array in values if array.sizes["draw"] >= MIN_DRAWS]
    if not values:
        return float("nan"), float("nan")
    found = [convergence(array) for array in values]
    rhat = max((float(each["rhat"].max()) for each in found), default=float("nan"))
    ess = min(min(float(each["ess_bulk"].min()), float(each["ess_tail"].min())) for each in found)
    return (rhat if tree.attrs["sampling"] == "mcmc" else float("nan")), ess


def _kind(tests: Trees) -> bool:
    """Return whether the trees are about training data."""
    kinds = {name: is_of_new_rows(tree) for name, tree in tests.items()}
    known = {name: kind for name, kind in kinds.items() if kind is not None}
    if len({*known.values()}) > 1:
        new, old = (next(name for name, kind in known.items() if kind is wanted) for wanted in (True, False))
        raise ValueError(
            f"{new!r} predicts new rows and {old!r} the training data: pass predictions of the same rows with each, and the "
            "trees of the training data as train=."
        )
    if empty := [n for n, kind in kinds.items() if kind is None and "conditional" not in tests[n].children]:
        raise ValueError(
            f"{empty[0]!r} predicts nothing (groups: {', '.join(tests[empty[0]].children) or 'none'}): pass a tree of "
            "bnnzoo.predict or bnnzoo.posterior_predictive, or add one of the groups predictions and conditional."
        )
    return False in known.values()


def _values(tree: xr.DataTree) -> xr.DataArray:
    """Return something with a value for each row."""
    groups = ("conditional", "predictions", "predictions_log_likelihood", OBSERVED)
    array = next(iter(tree[next(group for group in groups if group in tree.children)].data_vars.values()))
    return array.isel(class_id=0, drop=True) if "class_id" in array.dims else array


def _classes(found: Trees) -> tuple[str, ...]:
    """Return the labels of the classes, none for regression."""
    labels: dict[str, tuple[str, ...]] = {}
    for name, tree in found.items():
        if "conditional" in tree.children and "probs" in tree["conditional"].data_vars:
            probs = tree["conditional"].to_dataset()["probs"]  # whose classes have the names of a formula, or labels
            labels[name] = tuple(map(str, probs.attrs.get("class_names", probs["class_id"].to_numpy())))
    if not labels:
        return ()
    if without := [name for name in found if name not in labels]:
        raise ValueError(
            f"{next(iter(labels))!r} has class probabilities and {without[0]!r} has none: add conditional/probs to it, or leave "
            "it out."
        )
    first = next(iter(labels))
    for name, own in labels.items():
        if own != labels[first]:
            raise ValueError(
                f"{name!r} and {first!r} have different classes ({', '.join(own)} and {', '.join(labels[first])}): label "
                "class_id alike."
            )
    return labels[first]


def _observed_alike(found: Trees, classes: tuple[str, ...]) -> tuple[Trees, list[str]]:
    """Return trees that all have the same observations, without missing ones, and what was done in words."""
    known: dict[str, np.ndarray] = {}  # as numbers: of classes, their positions
    for name, tree in found.items():
        if OBSERVED not in tree.children:
            continue
        seen_in = next(iter(tree[OBSERVED].data_vars.values()))
        if classes:
            known[name] = _positions(seen_in, tree["conditional"].to_dataset()["class_id"]).astype(float)
        elif np.issubdtype(seen_in.dtype, np.number) or seen_in.dtype == bool:
            known[name] = seen_in.to_numpy().astype(float)
        else:
            raise ValueError(
                f"The observations of {name!r} are not numbers but {seen_in.dtype}: add class probabilities, "
                "conditional/probs."
            )
    if not known:
        return found, []
    first, y = next(iter(known.items()))
    for name, values in known.items():
        if not np.allclose(values, y, rtol=1e-5, atol=1e-8, equal_nan=True):
            place = int(np.argmax(~np.isclose(values, y, rtol=1e-5, equal_nan=True)))
            raise ValueError(
                f"{name!r} and {first!r} have different observations of the same rows (at position {place} {values[place]:g} "
                f"and {y[place]:g}): pass predictions of the same data with each, in the same units."
            )
    seen = np.isfinite(y)
    notes = [f"{(~seen).sum()} of {len(y)} observations are missing (NaN) and left out."] if not seen.all() else []
    if borrowed := [name for name in found if name not in known]:
        notes.append(f"{', '.join(borrowed)}: observations are those of {first}.")
    alike = {}
    for name, tree in found.items():
        groups = {str(group): each.to_dataset() for group, each in tree.children.items()}
        groups[OBSERVED] = xr.Dataset({"y": ("obs_id", y)})
        if not seen.all():
            groups = {group: g.isel(obs_id=seen) if "obs_id" in g.dims else g for group, g in groups.items()}
        alike[name] = _like(tree, groups)
    return alike, notes


def _positions(y: xr.DataArray, class_id: xr.DataArray) -> np.ndarray:
    """Return labels as positions of classes, which numbers are already if the labels of classes are text."""
    if np.issubdtype(y.dtype, np.number) and not np.issubdtype(class_id.dtype, np.number):
        return y.to_numpy().astype(int)
    flat = xr.DataArray(y.to_numpy().ravel(), dims="obs_id")
    columns = xr.DataArray(
        np.empty((flat.size, class_id.size)), dims=("obs_id", "class_id"), coords={"class_id": class_id}
    )
    return class_indices(flat, columns).to_numpy().reshape(y.shape)


def _like(tree: xr.DataTree, groups: dict[str, xr.Dataset]) -> xr.DataTree:
    found = xr.DataTree.from_dict(groups)
    found.attrs = tree.attrs
    return found


def _scores(scores: tuple[ScoreColumn, ...], tree: xr.DataTree) -> dict[str, float]:
    """Return scores by label, NaN where a group that they need is missing."""
    has_densities = "predictions_log_likelihood" in tree.children
    moments = {*tree["conditional"].data_vars} if "conditional" in tree.children else set()
    has_mean = can_be_drawn(tree) or "mean" in moments
    needs = {"log density": has_densities or "probs" in moments, "RMSE": has_mean, "R²": has_mean}
    usable = {score.label: needs.get(score.label, "probs" in moments or can_be_drawn(tree)) for score in scores}
    seen = OBSERVED in tree.children
    return {score.label: score.function(tree) if seen and usable[score.label] else float("nan") for score in scores}
