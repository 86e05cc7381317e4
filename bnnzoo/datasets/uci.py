"""UCI regression tables with standard train and test rows, read from a local folder."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bnnzoo.datasets.dataset import Dataset, Split

__all__ = ["uci", "uci_split"]


def uci(folder: str | Path) -> Dataset:
    """Read a regression table from a folder in the layout of the UCI benchmark: x [N, D], y [N] real.

    Parameters
    ----------
    folder : str or Path
        Holds ``data.txt`` (one row per observation, separated by blanks), ``index_features.txt`` and
        ``index_target.txt`` (numbers of the columns, from 0). The folder's name becomes that of the data set.

    Returns
    -------
    Dataset

    Raises
    ------
    FileNotFoundError
        If the folder or one of the files does not exist.
    ValueError
        If a file is not numeric, a column number is out of range, or a value is not finite.

    References
    ----------
    Hernandez-Lobato, Adams (2015), Probabilistic backpropagation for scalable learning of Bayesian neural networks.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.uci("data/uci/yacht").x.shape  # doctest: +SKIP
    (308, 6)
    """
    folder = Path(folder)
    table = np.atleast_2d(_read(folder / "data.txt"))
    features, target = (_indices(folder / f"index_{name}.txt", table.shape[1]) for name in ("features", "target"))
    if len(target) != 1:
        raise ValueError(f"{folder / 'index_target.txt'} must hold one column number, but holds {len(target)}.")
    return Dataset(folder.name, table[:, features], table[:, target[0]], tuple(f"x{column}" for column in features))


def uci_split(folder: str | Path, split: int = 0, rows: str | Path | None = None) -> Split:
    """Read one of the benchmark's fixed training and test splits of a table, in original units.

    The benchmark standardises by the training part, ``uci_split(...).standardized()``, and reports in original units.

    Parameters
    ----------
    folder : str or Path
        Folder of the table, as for `uci`.
    split : int
        Number of the split: rows are read from ``index_train_<split>.txt`` and ``index_test_<split>.txt``.
    rows : str or Path, optional
        Folder of these two files (default: `folder`), such as that of the gap splits.

    Returns
    -------
    Split

    Raises
    ------
    FileNotFoundError
        If a file does not exist; for a split, the message lists those that do.
    ValueError
        As for `uci`, or if a row is in both parts.

    References
    ----------
    Hernandez-Lobato, Adams (2015), Probabilistic backpropagation for scalable learning of Bayesian neural networks.
    Foong, Li, Hernandez-Lobato, Turner (2019), 'In-between' uncertainty in Bayesian neural networks.

    Examples
    --------
    >>> from bnnzoo import datasets
    >>> datasets.uci_split("data/uci/concrete", 0, rows="data/uci_gap/concrete")  # doctest: +SKIP
    """
    data, rows = uci(folder), Path(folder if rows is None else rows)
    parts = []
    for part in ("train", "test"):
        path = rows / f"index_{part}_{split}.txt"
        if rows.is_dir() and not path.is_file():
            numbers = sorted(int(p.stem.rpartition("_")[2]) for p in rows.glob(f"index_{part}_*.txt"))
            known = ", ".join(map(str, numbers)) or "none"
            raise FileNotFoundError(f"{rows} has no split {split}: its splits are {known}.")
        parts.append(_indices(path, len(data.y)))
    train, test = parts
    common = np.intersect1d(train, test)
    if common.size:
        raise ValueError(f"Split {split} in {rows} has row {common[0]} in both its training and its test part.")
    return Split(data.x[train], data.y[train], data.x[test], data.y[test])


def _indices(path: Path, stop: int) -> NDArray[np.int64]:
    found = np.atleast_1d(_read(path))
    wrong = found[(found < 0) | (found >= stop) | (found != np.floor(found))]
    if wrong.size:
        raise ValueError(f"{path} must hold integers from 0 to {stop - 1}, but holds {wrong[0]:g}.")
    return found.astype(np.int64)


def _read(path: Path) -> NDArray[np.float64]:
    if not path.is_file():
        raise FileNotFoundError(f"There is no file {path}: give the folder of a UCI table (data.txt, index_*.txt).")
    try:
        table = np.loadtxt(path, dtype=np.float64)
    except ValueError as error:
        raise ValueError(f"{path} must hold numbers separated by blanks: {error}") from error
    if not np.isfinite(table).all():
        row = int(np.argwhere(~np.isfinite(table))[0][0])
        raise ValueError(f"{path} has a value that is not finite in row {row} (from 0).")
    return table
