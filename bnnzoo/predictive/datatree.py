"""From named numpy arrays to xarray DataTrees: the only module in bnnzoo that builds one."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from bnnzoo.core.posterior.archive import installed_version
from bnnzoo.core.posterior.info import FitInfo
from bnnzoo.engine.reports import EngineReport
from bnnzoo.predictive.labels import Labels

__all__ = [
    "by_draw",
    "by_row",
    "conditional",
    "constant",
    "fit_attributes",
    "fit_stats",
    "from_groups",
    "versions",
    "with_superchains",
]

type Arrays = Mapping[str, NDArray[Any]]

SAMPLE_DIMS = ("chain", "draw")
UNNAMED = Labels()
PACKAGES = ("bnnzoo", "torch", "pyro-ppl", "xarray")


def from_groups(groups: Mapping[str, xr.Dataset], attributes: Mapping[str, str | int | float]) -> xr.DataTree:
    """Return a DataTree of the groups that have variables.

    Parameters
    ----------
    groups : mapping of str to Dataset
        Groups without variables are left out.
    attributes : mapping
        Of the root; strings and numbers, as netCDF requires. Of ``num_superchains`` chains get the coordinate ``superchain``.

    Returns
    -------
    DataTree
    """
    filled = {name: dataset for name, dataset in groups.items() if dataset.data_vars}
    root = xr.DataTree.from_dict(with_superchains(filled, attributes))
    root.attrs = dict(attributes)
    return root


def with_superchains(
    groups: Mapping[str, xr.Dataset], attributes: Mapping[str, str | int | float]
) -> dict[str, xr.Dataset]:
    """Return groups whose chains have the coordinate ``superchain``, if ``num_superchains`` is among the attributes."""
    number = attributes.get("num_superchains")
    found = dict(groups)
    for name, dataset in groups.items():
        size = dataset.sizes.get("chain", 0)
        if isinstance(number, int) and size and size % number == 0:
            found[name] = dataset.assign_coords(superchain=("chain", np.arange(size) * number // size))
    return found


def by_draw(arrays: Arrays, labels: Labels = UNNAMED) -> xr.Dataset:
    """Return variables ``[C, S, ...]`` with dims chain, draw and those of the labels, by default ``v_dim_0``, ``v_dim_1``, ...

    Parameters
    ----------
    arrays : mapping of str to ndarray [C, S, ...]
    labels : Labels
    """
    dims = labels.of_sites(arrays)
    return _dataset({name: (*SAMPLE_DIMS, *dims[name]) for name in arrays}, arrays)


def by_row(arrays: Arrays, *, draws: bool = True) -> xr.Dataset:
    """Return variables ``[C, S, B, ...]`` with dims chain, draw, obs_id and then output_id.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    draws : bool
        False for variables ``[B, ...]`` without chain and draw, such as observed data.

    Raises
    ------
    ValueError
        If sites have different numbers of observations.
    """
    lead = SAMPLE_DIMS if draws else ()
    num_rows = {name: values.shape[len(lead)] for name, values in arrays.items() if values.ndim > len(lead)}
    if len({*num_rows.values()}) > 1:
        found = ", ".join(f"{name!r} {rows}" for name, rows in num_rows.items())
        raise ValueError(
            f"The observed sites have different numbers of observations ({found}), and a tree has one row for each observation "
            f"of all sites. Observe them at one site, such as pyro.sample('y', ..., obs=torch.cat([y, z])) in one plate."
        )
    dims = {name: (*lead, *_row_dims(values.ndim - len(lead))) for name, values in arrays.items()}
    return _dataset(_told_apart(dims, arrays), arrays)


def conditional(arrays: Arrays) -> xr.Dataset:
    """Return moments ``[C, S, B, ...]`` of p(y | x, theta); the last dim of ``probs`` is class_id.

    Sites of different numbers of classes share it: those that a site does not have are impossible.

    Parameters
    ----------
    arrays : mapping of str to ndarray [C, S, B, ...]
        Named ``mean``, ``probs``, ... or ``<site>.mean``, ``<site>.probs``, ...
    """
    dims = {}
    for name, values in arrays.items():
        has_classes = name.rpartition(".")[2] == "probs"
        rows = _row_dims(values.ndim - 2 - has_classes)
        dims[name] = (*SAMPLE_DIMS, *rows, *(("class_id",) if has_classes else ()))
    classes = {name for name in arrays if dims[name][-1] == "class_id"}
    most = max((arrays[name].shape[-1] for name in classes), default=0)
    found = {name: _padded(values, most) if name in classes else values for name, values in arrays.items()}
    return _dataset(_told_apart(dims, found), found)


def _padded(probs: NDArray[Any], num_classes: int) -> NDArray[Any]:
    """Add classes of probability zero, NaN where a draw is lost; probabilities of as many classes are not copied."""
    if probs.shape[-1] == num_classes:
        return probs
    return np.concatenate([probs, np.repeat(0 * probs[..., :1], num_classes - probs.shape[-1], -1)], -1)


def _told_apart(dims: Mapping[str, tuple[str, ...]], arrays: Arrays) -> dict[str, tuple[str, ...]]:
    """Return the dims with the name of the site added where another site has another length there."""
    lengths: dict[str, int] = {}
    found = {}
    for name, values in arrays.items():
        site = name.rpartition(".")[0] or name
        pairs = zip(dims[name], values.shape, strict=True)
        found[name] = tuple(dim if lengths.setdefault(dim, size) == size else f"{dim}_{site}" for dim, size in pairs)
    return found


def constant(
    arrays: Arrays, num_rows: int, columns: Mapping[str, Sequence[str]], labels: Labels = UNNAMED
) -> xr.Dataset:
    """Return the inputs of a model, with obs_id for their rows and ``x_dim_0``, ... for the rest.

    An input of a single column is ``[obs_id]``, as ArviZ's regression plots expect; the name of the column stays as a scalar
    coordinate.

    Parameters
    ----------
    arrays : mapping of str to ndarray
    num_rows : int
        Number of observations; an array of another length has no obs_id.
    columns : mapping of str to sequence of str
        Column names of inputs that came as data frames.
    labels : Labels
    """
    dims = {
        name: labels.of_input(name, values.shape, values.ndim > 0 and len(values) == num_rows)
        for name, values in arrays.items()
    }
    dataset = _dataset(dims, arrays).assign_coords({dims[name][1]: list(names) for name, names in columns.items()})
    alone = {n for n, v in arrays.items() if v.ndim == 2 and v.shape == (num_rows, 1) and n not in labels.dims}
    single = {dims[name][1]: 0 for name in alone}
    return dataset.isel(single).drop_vars([dim for name in alone - {*columns} for dim in dims[name][1:]])


def fit_stats(arrays: Arrays, num_chains: int) -> xr.Dataset:
    """Return traces ``[C, num_steps]`` of an optimisation, with dims chain (or member, for an ensemble) and step.

    Parameters
    ----------
    arrays : mapping of str to ndarray [C, num_steps]
    num_chains : int
    """
    return _dataset({k: ("chain" if len(v) == num_chains else "member", "step") for k, v in arrays.items()}, arrays)


def fit_attributes(info: FitInfo, seed: int) -> dict[str, str | int | float]:
    """Return the record of a fit as strings and numbers.

    Parameters
    ----------
    info : FitInfo
    seed : int
        Of the draws in the tree.
    """
    return {
        "inference_method": info.method,
        "sampling": info.sampling,
        "seed": info.seed,
        "draw_seed": seed,
        "num_gradients": info.num_gradients,
        **({} if (of_draws := info.num_gradients_of_draws) is None else {"num_gradients_of_draws": of_draws}),
        "num_rejected": info.num_rejected,
        "seconds": info.seconds,
        "seconds_compiling": info.compiling,
        **_engine(info.engine),
        "complete": "yes" if info.complete else "no",
        "config": json.dumps(dict(info.config), default=str, sort_keys=True),
        **({"has_atoms": "yes"} if info.has_atoms else {}),
        **{name: info.config[name] for name in ("psis_pareto_k", "psis_ess") if name in info.config},
        **versions(),
    }


def _engine(report: EngineReport | None) -> dict[str, str]:
    """Return how a fit ran and, if it had to fall back, why."""
    if report is None:
        return {}
    return {"engine": report.engine, **({"engine_reasons": "; ".join(report.reasons)} if report.fell_back else {})}


def versions() -> dict[str, str]:
    """Return the versions of bnnzoo and the packages it computes with, as ``<package>_version``."""
    return {f"{name.replace('-', '_')}_version": installed_version(name) for name in PACKAGES}


def _dataset(dims: Mapping[str, tuple[str, ...]], arrays: Arrays) -> xr.Dataset:
    sizes = {dim: size for name, value in arrays.items() for dim, size in zip(dims[name], value.shape, strict=True)}
    indices = {dim: np.arange(size) for dim, size in sizes.items()}
    return xr.Dataset({name: (dims[name], values) for name, values in arrays.items()}, indices)


def _row_dims(ndim: int) -> tuple[str, ...]:
    names = ("obs_id", "output_id", *(f"output_id_{i}" for i in range(1, ndim)))
    return names[:ndim]
