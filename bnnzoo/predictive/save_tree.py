"""Trees on disk as netCDF, whole or not at all."""

import io
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import xarray as xr

from bnnzoo.engine.files import whole_file

__all__ = ["save_tree"]

MAX_IN_MEMORY = 2**30
"""Bytes of a tree that is put together in memory first: the library that writes netCDF ends the process on a full disk."""

MARGIN = 1.05
"""What a file takes beyond the numbers of its tree."""


def save_tree(tree: xr.DataTree, path: str | Path, *, encoding: Mapping[str, Mapping[str, Any]] | None = None) -> None:
    """Write a tree to a netCDF file, whole or not at all.

    ``tree.to_netcdf(path)`` leaves half a file behind when it fails, and a full disk can end the process. Here a file of that
    name is replaced once the new one is complete, and a disk without room is an error that names the file. Trees of up to 1 GiB
    need that much memory again while they are written.

    Parameters
    ----------
    tree : xarray.DataTree
        From :func:`bnnzoo.predict` or any other library.
    path : str or Path
        In an existing folder. Read it with :func:`xarray.open_datatree`.
    encoding : mapping, optional
        For each group, such as ``"/posterior"``, how its variables are stored; see :meth:`xarray.DataTree.to_netcdf`.

    Raises
    ------
    TypeError
        If it is no tree.
    OSError
        If the folder does not exist, or the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import xarray as xr
    >>> tree = xr.DataTree.from_dict({"posterior": xr.Dataset({"mu": (("chain", "draw"), [[1.0, 2.0]])})})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_tree(tree, f"{folder}/tree.nc")
    ...     xr.load_datatree(f"{folder}/tree.nc")["posterior"]["mu"].values
    array([[1., 2.]])
    """
    if not isinstance(tree, xr.DataTree):
        raise TypeError(f"save_tree writes an xarray.DataTree, and was given a {type(tree).__name__}.")
    path = Path(path).absolute()
    if not path.parent.is_dir():
        raise FileNotFoundError(f"There is no folder {str(path.parent)!r} for {path.name!r}; create it first.")
    settings: dict[str, Any] = {"engine": "h5netcdf", "encoding": encoding}
    needed, free = round(MARGIN * tree.nbytes), shutil.disk_usage(path.parent).free
    if needed > free and encoding is None:
        raise OSError(
            f"{path} cannot be written: the tree takes {needed / 1e6:,.1f} MB, and {free / 1e6:,.1f} MB are free. Make room, or "
            f"pass an encoding that compresses."
        )
    with whole_file(path) as partial:
        if needed > MAX_IN_MEMORY:
            tree.to_netcdf(partial, **settings)
            return
        image = io.BytesIO()
        tree.to_netcdf(image, **settings)
        with partial.open("wb") as file, image.getbuffer() as view:
            file.write(view)  # a view left in an error's traceback would end the process
