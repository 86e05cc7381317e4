"""Calibrations whose simulations several tasks share, each with a file, and the tree of their ranks."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from bnnzoo.core.posterior.archive import read_archive
from bnnzoo.engine.shares import Share, refuse_missing
from bnnzoo.validation.simulated_data import CalibrationError
from bnnzoo.validation.simulations import KEPT

__all__ = ["sbc_merged", "tree_of_ranks"]


def sbc_merged(paths: Iterable[str | Path]) -> xr.DataTree:
    """Return what :func:`sbc` does, from the files of all tasks that shared the simulations.

    Parameters
    ----------
    paths : iterable of str or Path
        One for each task, in any order.

    Returns
    -------
    DataTree

    Raises
    ------
    ValueError
        If files belong to different calibrations, or simulations are missing; the message names these and their tasks.
    """
    if isinstance(paths, str | Path) or not isinstance(paths, Iterable):
        raise TypeError(
            f"paths is a {type(paths).__name__}; write a list of the files of all tasks, ['task-0.sbc', 'task-1.sbc']."
        )
    paths = list(paths)
    if wrong := [each for each in paths if not isinstance(each, str | Path)]:
        raise TypeError(f"paths holds a {type(wrong[0]).__name__}; write the names of the files of all tasks.")
    parts = {path: read_archive(path) for path in map(Path, paths)}
    if alone := [path for path, (_, header) in parts.items() if not isinstance(header.get("task"), Mapping)]:
        raise CalibrationError(
            f"{alone[0]} holds no task of a calibration: it was written by sbc without task=, or by an earlier bnnzoo."
        )
    if not parts:
        raise CalibrationError(
            "There is no file of a task. Run sbc(..., task=(0, 10), path='task-0.sbc') and its like first."
        )
    examples, first = next(iter(parts.values()))
    num_tasks, total = first["task"]["of"], first["num_simulations"]
    for path, (_, header) in parts.items():
        different = [name for name, value in first.items() if name != "task" and header.get(name) != value]
        if header["task"]["of"] != num_tasks:
            different.append("number of tasks")
        if different:
            raise CalibrationError(
                f"{path} belongs to another calibration than the first file: its {different[0]} differs."
            )
    found = {name: example.new_empty(total, *example.shape[1:]) for name, example in examples.items()}
    missing = {number: str(number) for number in range(total)}
    for ranks, header in parts.values():
        numbers = Share(**header["task"]).numbers(total, "simulations")[: len(next(iter(ranks.values())))]
        for name, value in ranks.items():
            found[name][numbers] = value[: len(numbers)]
        for number in numbers:
            missing.pop(number, None)
    refuse_missing(missing, total, num_tasks, "simulations")
    return tree_of_ranks(found, first)


def tree_of_ranks(found: Mapping[str, Tensor], header: Mapping[str, Any]) -> xr.DataTree:
    """Return the tree of ranks, and of what was kept beside them, from the tensors and the header of a file.

    Parameters
    ----------
    found : mapping of str to Tensor
        Ranks ``[simulation, ...]`` by test quantity, and what was kept by group and name.
    header : mapping
    """
    groups: dict[str, dict[str, xr.DataArray]] = {}
    for key, value in found.items():
        kept, _, name = key.rpartition(KEPT)
        lead = ("chain", "draw", "sbc_draw") if kept == "draws" else ("chain", "draw")
        dims = (*lead, *(f"{name}_dim_{i}" for i in range(value.ndim + 1 - len(lead))))
        group = groups.setdefault(f"sbc_{kept}" if kept else f"{header['around']}_sbc", {})
        group[name] = xr.DataArray(value.cpu().numpy()[None], dims=dims)
    datasets = {}
    for group_name, arrays in sorted(groups.items()):  # as files have them in any order
        sizes = {dim: size for array in arrays.values() for dim, size in zip(array.dims, array.shape, strict=True)}
        datasets[group_name] = xr.Dataset(arrays).assign_coords({dim: np.arange(size) for dim, size in sizes.items()})
    tree = xr.DataTree.from_dict(datasets)
    tree.attrs = {"inference_method": header["method"], "num_draws": header["num_draws"], "seed": header["seed"]}
    return tree
