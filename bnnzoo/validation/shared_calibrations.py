"""Calibrations whose simulations several tasks share, each with a file, and the tree of their ranks."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr
from torch import Tensor

from bnnzoo.core.posterior.archive import read_archive
from bnnzoo.validation.simulated_data import CalibrationError
from bnnzoo.validation.simulations import KEPT

__all__ = ["refuse_bad_task", "sbc_merged", "tree_of_ranks"]


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
        If files belong to different calibrations, or a task is missing or has not ended; the message names all of these.
    """
    if isinstance(paths, str | Path) or not isinstance(paths, Iterable):
        raise TypeError(
            f"paths is a {type(paths).__name__}; write a list of the files of all tasks, ['task-0.sbc', 'task-1.sbc']."
        )
    paths = list(paths)
    if wrong := [each for each in paths if not isinstance(each, str | Path)]:
        raise TypeError(f"paths holds a {type(wrong[0]).__name__}; write the names of the files of all tasks.")
    parts: dict[int, tuple[Path, dict[str, Tensor], dict[str, Any]]] = {}
    for path in map(Path, paths):
        ranks, header = read_archive(path)
        if "task" not in header:
            raise CalibrationError(f"{path} holds no task of a calibration: it was written by sbc without task=.")
        parts[header["task"][0]] = (path, ranks, header)
    if not parts:
        raise CalibrationError(
            "There is no file of a task. Run sbc(..., task=(0, 10), path='task-0.sbc') and its like first."
        )
    _, examples, first = next(iter(parts.values()))
    num_tasks, total = int(first["task"][1]), int(first["num_simulations"])
    for path, _, header in parts.values():
        different = [name for name, value in first.items() if name != "task" and header.get(name) != value]
        if header["task"][1] != num_tasks:
            different.append("number of tasks")
        if different:
            raise CalibrationError(
                f"{path} belongs to another calibration than the first file: its {different[0]} differs."
            )
    if missing := [str(task) for task in range(num_tasks) if task not in parts]:
        raise CalibrationError(
            f"Of {num_tasks} tasks these are missing: {', '.join(missing)}. Run them, and merge again."
        )
    sizes = {task: len(next(iter(ranks.values()))) for task, (_, ranks, _) in parts.items()}
    if short := [task for task, size in sizes.items() if size < len(range(task, total, num_tasks))]:
        raise CalibrationError(
            f"Tasks that have not ended: {', '.join(map(str, sorted(short)))} of {num_tasks}. Run them again with the same path: "
            f"they go on where they stopped."
        )
    found = {name: example.new_empty(total, *example.shape[1:]) for name, example in examples.items()}
    for task, (_, ranks, _) in parts.items():
        for name, value in ranks.items():
            found[name][task::num_tasks] = value[: len(range(task, total, num_tasks))]
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


def refuse_bad_task(task: tuple[int, int] | None, path: object, adaptive: bool, total: int) -> None:
    """Refuse numbers of a task that cannot share the simulations of a calibration.

    Parameters
    ----------
    task : tuple of int or None
    path : str, Path or None
        Of its file.
    adaptive : bool
        Whether the verdict decides how many simulations there are.
    total : int
        Their number, or the largest one.

    Raises
    ------
    CalibrationError
    """
    if task is None:
        return
    if (
        not isinstance(task, tuple)
        or len(task) != 2
        or any(not isinstance(part, int) for part in task)
        or not 0 <= task[0] < task[1]
    ):
        raise CalibrationError(
            f"task={task!r}; write the number of the task, from 0, and how many there are, such as task=(0, 10)."
        )
    if path is None:
        raise CalibrationError(f"task={task!r} writes its ranks to a file of its own: give path='task-{task[0]}.sbc'.")
    if adaptive:
        raise CalibrationError(
            "Tasks share a number of simulations that is known: write num_simulations=1000 in place of 'auto'."
        )
    if total < task[1]:
        raise CalibrationError(
            f"{total} simulations are fewer than {task[1]} tasks: write num_simulations={task[1]} or more."
        )
