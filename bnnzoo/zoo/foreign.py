"""Predictions that another program wrote, as netCDF or CSV."""

import math
from pathlib import Path

import numpy as np
import pandas as pd
import xarray as xr

from bnnzoo.zoo.data import ZooError
from bnnzoo.zoo.reference import reference

__all__ = ["read_predictions"]

COUNTED = ("chain", "draw")


def read_predictions(path: str | Path, name: str) -> xr.DataTree:
    """Read predictions for the test rows of a card.

    Parameters
    ----------
    path : str or Path
        A netCDF tree with ``mean`` or ``probs`` ``[chain, draw, obs_id, ...]`` in the group ``conditional``; or a CSV file, plain
        or packed by gzip, with the columns ``chain`` and ``draw`` and then one for each test row, or for each row and class, or
        row and outcome.
    name : str
        Of a card with a reference posterior.

    Raises
    ------
    ZooError
        If there is no such file, or it does not hold predictions for these rows.
    """
    path, exact = Path(path), reference(name)["conditional"].to_dataset()
    if not path.is_file():
        raise ZooError(f"There is no file {str(path)!r}.")
    quantity = "probs" if "probs" in exact else "mean"
    expected = exact[quantity].isel(chain=0, draw=0).transpose("obs_id", ...)
    tree = _from_file(path, name, expected)
    is_lost = ~np.isfinite(tree["conditional"][quantity].transpose(*COUNTED, *expected.dims).to_numpy())
    if is_lost.any():
        chain, draw, row = (int(each[0]) for each in np.nonzero(is_lost)[:3])
        raise ZooError(
            f"{quantity!r} in {str(path)!r} holds numbers that are not finite ({int(is_lost.sum()):,} of {is_lost.size:,}), "
            f"the first for chain {chain}, draw {draw}, row {row}, counted from 0: leave such draws out, of all rows."
        )
    return tree


def _from_file(path: Path, name: str, expected: xr.DataArray) -> xr.DataTree:
    quantity, shape, dims = str(expected.name), expected.shape, ", ".join((*COUNTED, *map(str, expected.dims)))
    if path.name.endswith((".csv", ".csv.gz")):
        return _from_table(path, name, expected)
    try:
        with xr.open_datatree(path, engine="h5netcdf") as opened:
            tree = opened.load()
    except OSError as error:
        raise ZooError(f"{str(path)!r} is neither netCDF 4 nor CSV (its name would end in .csv or .csv.gz).") from error
    if "conditional" not in tree.children or quantity not in tree["conditional"].data_vars:
        raise ZooError(
            f"{str(path)!r} holds no draws of {quantity!r} in a group 'conditional', which the reference of {name!r} has: write "
            f"{quantity} [{dims}]."
        )
    sizes = {str(dim): size for dim, size in tree["conditional"].to_dataset()[quantity].sizes.items()}
    rows = {dim: size for dim, size in sizes.items() if dim not in COUNTED}
    if rows != {str(dim): size for dim, size in expected.sizes.items()} or not {*COUNTED} <= {*sizes}:
        raise ZooError(
            f"{quantity!r} in {str(path)!r} is [{', '.join(f'{dim}: {size}' for dim, size in sizes.items())}], and card "
            f"{name!r} has {shape[0]} test rows: write [{dims}]."
        )
    return tree


def _from_table(path: Path, name: str, expected: xr.DataArray) -> xr.DataTree:
    quantity, shape = str(expected.name), expected.shape
    try:
        table = pd.read_csv(path)
    except (ValueError, OSError) as error:
        raise ZooError(f"{str(path)!r} is no CSV file ({error}).") from error
    columns = [str(column) for column in table.columns[2:]]
    if tuple(table.columns[:2]) != COUNTED or len(columns) != math.prod(shape):
        raise ZooError(
            f"{str(path)!r} has the columns {', '.join(map(str, table.columns[:3]))}, ... ({len(table.columns)} of them), and "
            f"card {name!r} takes chain, draw and {math.prod(shape)} of {quantity}: {' x '.join(map(str, shape))}, rows first."
        )
    if not all(kind.kind in "iuf" for kind in table.dtypes):
        raise ZooError(f"{str(path)!r} holds text where numbers should be.")
    draws = [each.to_numpy()[:, 2:] for _, each in table.sort_values(["chain", "draw"], kind="stable").groupby("chain")]
    if len({*map(len, draws)}) != 1:
        raise ZooError(
            f"The chains in {str(path)!r} differ in their number of draws ({', '.join(map(str, map(len, draws)))})."
        )
    values = np.stack(draws).astype(float).reshape(len(draws), -1, *shape)
    return xr.DataTree.from_dict({"conditional": xr.Dataset({quantity: ((*COUNTED, *expected.dims), values)})})
