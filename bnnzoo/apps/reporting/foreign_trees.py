"""Trees of any library, with the names and dimensions of groups that a report reads."""

from collections.abc import Hashable

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS

__all__ = [
    "NEW",
    "TRAINING",
    "held_out_of",
    "is_of_new_rows",
    "normalised",
    "site_of",
    "title_of",
    "training_of",
]

MAX_DRAWS = 2000  # over all chains; more would not change scores or figures
NEW = ("predictions", "predictions_log_likelihood", "predictions_observed_data", "predictions_constant_data")
TRAINING = ("posterior_predictive", "log_likelihood", "observed_data", "constant_data")
MOMENTS = ("mean", "variance", "entropy", "probs")
ABOUT_CHAINS = ("diverging", "tree_depth", "tree_size", "energy", "acceptance_rate", "n_steps", "num_steps")


def held_out_of(tree: xr.DataTree) -> xr.DataTree:
    """Return the predictions for new rows that ``bnnzoo compare`` saves beside those of the training data, or the tree."""
    if "held_out" not in tree.children:
        return tree
    groups = {str(name): group.to_dataset() for name, group in tree["held_out"].children.items()}
    return _with_attributes(groups, tree)


def is_of_new_rows(tree: xr.DataTree) -> bool | None:
    """Tell whether a tree predicts new rows (else those of the training data); None if it has neither."""
    if {*NEW[:3]} & {*tree.children}:
        return True
    return False if {*TRAINING[:3]} & {*tree.children} else None


def site_of(name: str, tree: xr.DataTree, site: str | None) -> str | None:
    """Return the observed site that a tree is about, None if it names none.

    Raises
    ------
    ValueError
        If there are several and none was chosen, or the chosen one is not there.
    """
    is_new = is_of_new_rows(tree)
    groups = [tree[g] for g in (NEW if is_new else TRAINING)[:3] if g in tree.children]
    named = [{str(v) for v in group.data_vars} for group in groups]
    shared = sorted(set.intersection(*named)) if named else []
    found = shared or sorted(set().union(*named))
    if site is not None:
        if found and site not in found:
            raise ValueError(f"{name!r} has no observed site {site!r}: write site= one of {', '.join(found)}.")
        return site
    if len(found) > 1:
        raise ValueError(f"{name!r} predicts several sites ({', '.join(found)}): choose one, as in site={found[0]!r}.")
    return found[0] if found else None


def title_of(tree: xr.DataTree, site: str) -> str:
    """Return the name of an observed site in the user's words, as ``long_name`` has it: the column of a formula's outcome."""
    groups = [tree[group] for group in (*NEW, *TRAINING) if group in tree.children]
    titles = [group[site].attrs["long_name"] for group in groups if site in group and "long_name" in group[site].attrs]
    return str(titles[0]) if titles else site


def normalised(name: str, tree: xr.DataTree, site: str | None, *, training: bool) -> xr.DataTree:
    """Return the predictions of a tree for one observed site, with draws thinned and one entry for each observation.

    Parameters
    ----------
    name : str
        Of the tree, for messages.
    tree : DataTree
    site : str, optional
    training : bool
        Whether the rows are those of the training data.

    Returns
    -------
    DataTree
        The groups of a tree of :func:`bnnzoo.predict` that there are, ``[chain, draw, obs_id]``; several outputs of a row are
        as many observations.

    Raises
    ------
    ValueError
        If the groups are about different numbers of rows.
    """
    found: dict[str, xr.Dataset] = {}
    for group, source in zip(NEW, TRAINING if training else NEW, strict=True):
        if source not in tree.children:
            continue
        data = tree[source].to_dataset()
        if group == "predictions_constant_data":
            found[group] = data
        elif (array := _chosen(data, site)) is not None:
            found[group] = _by_row(array).to_dataset(name=site or "y")
    if "conditional" in tree.children and (moments := _moments(tree["conditional"].to_dataset(), site)):
        found["conditional"] = xr.Dataset({key: _by_row(array, key == "probs") for key, array in moments.items()})
    sizes = {group: data.sizes["obs_id"] for group, data in found.items() if group != "predictions_constant_data"}
    first = next(iter(sizes), "")
    for group, size in sizes.items():
        if size != sizes[first]:
            raise ValueError(
                f"The groups {first!r} and {group!r} of {name!r} are about {sizes[first]} and {size} observations: leave out "
                "the one that is about other rows."
            )
    found |= {g: _inputs(found[g], found) for g in ("predictions_constant_data",) if g in found}
    return _with_attributes(found, tree)


def training_of(tree: xr.DataTree, site: str | None) -> xr.DataTree:
    """Return a tree with the draws and observations of one site as :func:`normalised` leaves them, and all else as it was."""
    groups = {str(name): group.to_dataset() for name, group in tree.children.items() if name != "held_out"}
    for group in ("posterior_predictive", "observed_data"):
        if group in groups:
            array = _chosen(groups.pop(group), site)
            groups |= {} if array is None else {group: _by_row(array).to_dataset(name=site or "y")}
    return _with_attributes(groups, tree)


def _chosen(data: xr.Dataset, site: str | None) -> xr.DataArray | None:
    if site in data.data_vars:
        return data[site]
    return next(iter(data.data_vars.values())) if len(data.data_vars) == 1 else None


def _moments(data: xr.Dataset, site: str | None) -> dict[str, xr.DataArray]:
    named = {str(key).removeprefix(f"{site}."): values for key, values in data.data_vars.items()}
    return {name: named[name] for name in MOMENTS if name in named}


def _by_row(array: xr.DataArray, has_classes: bool = False) -> xr.DataArray:
    """Return ``[chain, draw, obs_id]``, with ``class_id`` last, of few enough draws."""
    drawn = [dim for dim in SAMPLE_DIMS if dim in array.dims]
    rows = [dim for dim in array.dims if dim not in drawn]
    last: list[Hashable] = []
    if has_classes:
        last = ["class_id" if "class_id" in rows else rows[-1]]
        rows.remove(last[0])
    if "obs_id" in rows:
        rows = ["obs_id", *(dim for dim in rows if dim != "obs_id")]
    found = _thinned(array.transpose(*drawn, *rows, *last)).compute()
    if not rows:
        found = found.expand_dims("obs_id", axis=len(drawn))
    elif len(rows) > 1:
        inside = found.drop_vars([name for name, c in found.coords.items() if {*c.dims} & {*rows}])
        found = inside.rename({rows[0]: "row"}).stack(obs_id=("row", *rows[1:]), create_index=False)
        found = found.transpose(*drawn, "obs_id", *last)
    elif rows[0] != "obs_id":
        found = found.rename({rows[0]: "obs_id"})
    return found.rename({last[0]: "class_id"}) if last and last[0] != "class_id" else found


def _thinned(array: xr.DataArray) -> xr.DataArray:
    if not {*SAMPLE_DIMS} <= {*array.dims}:
        return array
    chains, draws = (array.sizes[dim] for dim in SAMPLE_DIMS)
    wanted = max(1, MAX_DRAWS // chains)
    return array if draws <= wanted else array.isel(draw=np.linspace(0, draws - 1, wanted).round().astype(int))


def _inputs(data: xr.Dataset, found: dict[str, xr.Dataset]) -> xr.Dataset:
    """Return inputs with ``obs_id`` for their rows, if several outputs do not count as observations."""
    sizes = [group.sizes["obs_id"] for group in found.values() if "obs_id" in group.dims]
    for name, array in data.data_vars.items():
        if sizes and array.ndim and array.shape[0] == sizes[0] and array.dims[0] != "obs_id":
            data = data.assign({name: array.rename({array.dims[0]: "obs_id"}).drop_vars("obs_id", errors="ignore")})
    return data


def _with_attributes(groups: dict[str, xr.Dataset], tree: xr.DataTree) -> xr.DataTree:
    root = xr.DataTree.from_dict(groups)
    # attributes that other libraries write to the group posterior
    attributes = tree["posterior"].attrs if "posterior" in tree.children else {}
    names = {"inference_library": "library", "inference_library_version": "library_version", "sampling_time": "seconds"}
    root.attrs = (
        {"sampling": _sampling(tree), "complete": "yes", "config": "{}"}
        | {ours: attributes[theirs] for theirs, ours in names.items() if theirs in attributes}
        | tree.attrs
    )
    return root


def _sampling(tree: xr.DataTree) -> str:
    """Return what the draws of a tree without the attribute are, as far as its statistics tell."""
    stats = {str(name) for name in tree["sample_stats"].data_vars} if "sample_stats" in tree.children else set()
    if stats & {*ABOUT_CHAINS}:
        return "mcmc"
    return "iid" if "log_q" in stats else "unknown"
