"""Trees of predictions on disk, written some rows at a time."""

import functools
from collections.abc import Hashable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from bnnzoo.engine.files import whole_folder
from bnnzoo.predictive import datatree
from bnnzoo.predictive.labels import ROWS
from bnnzoo.predictive.many_rows import Band

__all__ = ["open_store", "refuse_store", "write_store"]

CHUNK_BYTES = 2**22
"""Of a file of a store; zarr copies those that it writes in part, as the last band may need."""


def refuse_store(path: Path) -> None:
    """Refuse a folder that exists, whoever wrote it, and a machine without zarr.

    Raises
    ------
    ValueError
        If the folder exists, or the folder that is to hold it does not.
    ImportError
        If zarr is not installed.
    """
    if path.exists():
        what = "a zarr store" if (path / "zarr.json").exists() or (path / ".zgroup").exists() else "no zarr store"
        raise ValueError(f"store={str(path)!r} exists already and is {what}: delete it, or choose another name.")
    if not path.absolute().parent.is_dir():
        raise ValueError(f"store={str(path)!r}: there is no folder {str(path.absolute().parent)!r}. Create it first.")
    if find_spec("zarr") is None:
        raise ImportError("predict(store=...) needs zarr: pip install bnnzoo[zarr].")


def write_store(
    path: Path,
    bands: Iterator[Band],
    num_rows: int,
    latent: Mapping[str, xr.Dataset],
    attributes: Mapping[str, str | int | float],
) -> None:
    """Write a tree to a zarr group, which appears under its name when it is complete.

    Parameters
    ----------
    path : Path
        Folder that does not exist yet.
    bands : iterator of Band
        Rows and their groups, in order.
    num_rows : int
    latent : mapping of str to Dataset
        The other groups.
    attributes : mapping
        Of the root.
    """
    with whole_folder(path) as partial:
        datatree.from_groups(latent, attributes).to_zarr(partial, mode="w", consolidated=False)
        import zarr

        root = zarr.open_group(store=str(partial), mode="r+")
        names: list[Any] = []
        groups: set[str] = set()
        write = functools.partial(_write_band, partial, root, num_rows)
        with zarr.config.set({"async.concurrency": 1}):  # else copies of as many chunks are held
            labelled = (Band(each.rows, datatree.with_superchains(each.groups, attributes)) for each in bands)
            for own, labels in map(write, labelled):  # no band outlives its writing
                groups |= own
                names += labels
        for name in sorted(groups):
            labels_of_rows = xr.Dataset(coords={ROWS: np.concatenate(names)})
            labels_of_rows.to_zarr(partial, group=name, mode="a", consolidated=False)


def open_store(path: Path) -> xr.DataTree:
    """Open a tree without loading it: in chunks if dask is installed, else array by array when its values are asked for."""
    chunks: Any = {} if find_spec("dask") else None
    tree: xr.DataTree = xr.open_datatree(path, engine="zarr", chunks=chunks, consolidated=False)
    return tree


def _write_band(folder: Path, root: Any, num_rows: int, band: Band) -> tuple[set[str], list[Any]]:
    """Write the groups of a band; return which of them name their rows, and these names."""
    filled = {name: group for name, group in band.groups.items() if group.data_vars}
    for name, group in filled.items():
        _write(root.require_group(name), group, band.rows, num_rows)
        if band.rows.start == 0 and (labels := _labels(group)):
            group.coords.to_dataset()[labels].to_zarr(folder, group=name, mode="a", consolidated=False)
    by_row = {name: group for name, group in filled.items() if _names_rows(group)}
    return {*by_row}, [group[ROWS].to_numpy() for group in list(by_row.values())[:1]]


def _write(zarr_group: Any, group: xr.Dataset, rows: slice, num_rows: int) -> None:
    """Write the numbers of a group in their place; arrays are created by the first band."""
    labels = _labels(group)
    for name, array in group.variables.items():
        if name in labels or (name == ROWS and _names_rows(group)):
            continue
        if name not in zarr_group:
            shape = tuple(num_rows if dim == ROWS else size for dim, size in array.sizes.items())
            # the shape of a chunk: the rows of a band at as many draws as CHUNK_BYTES hold
            sizes = {str(dim): max(1, size) for dim, size in array.sizes.items()}
            if "draw" in sizes:
                num_chunks = -(-array.nbytes // CHUNK_BYTES)
                sizes["draw"] = -(-sizes["draw"] // max(1, num_chunks))
            zarr_group.create_array(
                name,
                shape=shape,
                chunks=tuple(sizes.values()),
                dtype=array.dtype,
                dimension_names=array.dims,
                compressors=None,
                config={"write_empty_chunks": True},  # looking for them makes further arrays of each chunk's size
            )
        elif zarr_group[name].dtype.kind in "iu" and array.dtype.kind == "f":
            raise ValueError(
                f"store= holds whole numbers for {str(name)!r} up to row {rows.start}, but of the next rows some draws are lost: "
                f"leave store= out, or look for what is wrong with rows {rows.start} to {rows.stop - 1}."
            )
        place = tuple(rows if dim == ROWS else slice(None) for dim in array.dims)
        if ROWS in array.dims or rows.start == 0:
            zarr_group[name][place if place else ...] = array.to_numpy()


def _labels(group: xr.Dataset) -> list[Hashable]:
    """Return the names of coordinates that are no numbers, which xarray knows how to store; labels of rows come last."""
    return [name for name, array in group.coords.items() if array.dtype.kind not in "biuf" and name != ROWS]


def _names_rows(group: xr.Dataset) -> bool:
    return ROWS in group.coords and group[ROWS].dtype.kind not in "biuf"
