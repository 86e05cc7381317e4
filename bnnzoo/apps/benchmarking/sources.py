"""Sources of the benchmark's splits: a folder in the standard layout, or OpenML."""

from pathlib import Path

import numpy as np
from sklearn.datasets import fetch_openml
from sklearn.model_selection import ShuffleSplit

from bnnzoo.datasets import Split, uci_split

__all__ = ["BenchmarkError", "local_split", "openml_split", "parse_splits"]

OPENML = {"concrete": (44959, (1030, 8)), "energy": (44960, (768, 8)), "yacht": (42370, (308, 6))}
"""Number of each set at OpenML, and its size."""


class BenchmarkError(ValueError):
    """The benchmark cannot run as asked; the message is one sentence."""


def parse_splits(text: str) -> tuple[int, ...]:
    """Return the numbers of splits that a text such as ``"0-9"`` or ``"0,3,5-7"`` names.

    Raises
    ------
    BenchmarkError
        If it names none, or is not of this form.

    Examples
    --------
    >>> parse_splits("0,3,5-7")
    (0, 3, 5, 6, 7)
    """
    found: list[int] = []
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        if not (first.isdecimal() and (last.isdecimal() or not dash)) or int(last or first) < int(first):
            raise BenchmarkError(f"--splits has {part.strip()!r}: write numbers and ranges, such as 0-9 or 0,3,5-7.")
        found += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(found))


def local_split(folder: Path, name: str, split: int, gap: bool = False) -> Split:
    """Read a split of a set from a folder in the benchmark's layout.

    Parameters
    ----------
    folder : Path
        Holds a folder for each set, as for :func:`bnnzoo.datasets.uci_split`, or ``uci`` and ``uci_gap`` that do.
    name : str
        Of the set, any that the folder has.
    split : int
    gap : bool
        Take the gap splits, whose rows are in ``<folder>/uci_gap/<name>`` or beside a folder ``uci`` in ``uci_gap``.

    Raises
    ------
    BenchmarkError
        If the folder or the set is not there, or a file is missing or damaged.

    References
    ----------
    Foong, Li, Hernandez-Lobato, Turner (2019), 'In-between' uncertainty in Bayesian neural networks.
    """
    tables = folder / "uci" if (folder / "uci").is_dir() else folder
    if not (tables / name).is_dir():
        known = sorted(each.name for each in tables.glob("*") if (each / "data.txt").is_file())
        raise BenchmarkError(f"{str(tables)!r} has no set {name!r}; its sets are {', '.join(known) or 'none'}.")
    if gap:
        inside = folder / "uci_gap"
        rows = (inside if inside.is_dir() else folder.parent / "uci_gap") / name
    else:
        rows = None
    if rows is not None and not rows.is_dir():
        raise BenchmarkError(f"There are no gap splits of {name!r}: their rows would be in {str(rows)!r}.")
    try:
        return uci_split(tables / name, split, rows)
    except (OSError, ValueError) as error:
        raise BenchmarkError(str(error)) from error


def openml_split(name: str, split: int) -> Split:
    """Download a set from OpenML and hold out a random tenth, the same each time: not the benchmark's fixed splits.

    Parameters
    ----------
    name : str
        One of concrete, energy and yacht.
    split : int
        Seed of the split.

    Raises
    ------
    BenchmarkError
        If the set is unknown, cannot be downloaded, or is not of the size it should have.
    """
    if name not in OPENML:
        raise BenchmarkError(f"There is no set {name!r} to download; those at OpenML are {', '.join(OPENML)}.")
    number, size = OPENML[name]
    try:
        x, y = fetch_openml(data_id=number, return_X_y=True, as_frame=False, parser="liac-arff")
    except (OSError, ValueError) as error:
        raise BenchmarkError(
            f"{name!r} could not be downloaded from OpenML ({error}): without a network, name a folder that has the "
            f"set, as in --data DIR."
        ) from error
    if x.shape != size:
        raise BenchmarkError(f"{name!r} at OpenML (number {number}) is {x.shape}, and the benchmark's set is {size}.")
    x, y = np.asarray(x, float), np.asarray(y, float)
    train, test = next(ShuffleSplit(1, test_size=0.1, random_state=split).split(x))
    return Split(x[train], y[train], x[test], y[test])
