"""Reference posteriors: the predictions of long converged runs, which come with the package."""

import hashlib
import json
from functools import cache
from pathlib import Path

import numpy as np
import xarray as xr

from bnnzoo.trees import SAMPLE_DIMS, first_moment, moment
from bnnzoo.zoo.catalogue import load
from bnnzoo.zoo.data import ZooError

__all__ = ["FOLDER", "as_stored", "checksum", "predicted", "read", "reference", "referenced", "with_all_classes"]

FOLDER = Path(__file__).parent / "references"
STORED = ("conditional", "posterior", "summary")
"""Groups that the checksum covers."""


def reference(name: str, folder: str | Path | None = None) -> xr.DataTree:
    """Return the reference posterior of a card.

    Parameters
    ----------
    name : str
        Of the card.
    folder : str or Path, optional
        Of files with all draws, which ``python -m bnnzoo.zoo.make_reference NAME --all-draws FOLDER`` writes. Default: the
        files that come with the package.

    Returns
    -------
    DataTree
        ``conditional``: draws ``[chain, draw, obs_id]`` of E[y | x, theta], or of the class probabilities, for the card's test
        rows, thinned and in single precision; ``posterior``: those of scalar sites; ``summary``: means, standard
        deviations, R-hat, effective sample sizes and Monte Carlo standard errors of the whole run. The attributes say how it
        was made.

    Raises
    ------
    ZooError
        If there is no such card, it has no reference, or the file is damaged or of another version of the card.

    Examples
    --------
    >>> import bnnzoo as bz
    >>> tree = bz.zoo.reference("linear-regression")
    >>> tree["conditional"].sizes["chain"], bool(tree.attrs["max_rhat"] < 1.01)
    (8, True)
    """
    card, path = load(name), Path(folder or FOLDER) / f"{name}.nc"
    if not path.is_file() and folder is not None:
        raise ZooError(
            f"There is no file {str(path)!r}: write python -m bnnzoo.zoo.make_reference {name} --all-draws {folder}."
        )
    if not path.is_file():
        raise ZooError(f"Card {name!r} has no reference posterior; those with one are {', '.join(referenced())}.")
    tree = read(path) if folder is None else with_all_classes(as_stored(path))
    if tree.attrs["card_version"] != card.version:
        raise ZooError(
            f"The reference posterior of {name!r} is of version {tree.attrs['card_version']} of the card, which is at version "
            f"{card.version}: write python -m bnnzoo.zoo.make_reference {name}."
        )
    return tree.copy()


def referenced(folder: str | Path | None = None) -> list[str]:
    """Return the names of the cards that have a reference posterior.

    Parameters
    ----------
    folder : str or Path, optional
        As for :func:`reference`.

    Examples
    --------
    >>> "linear-regression" in referenced()
    True
    """
    return sorted(path.stem for path in Path(folder or FOLDER).glob("*.nc"))


@cache
def read(path: Path) -> xr.DataTree:
    """Read a file that `make_reference` wrote, with all classes, see :func:`as_stored`."""
    return with_all_classes(as_stored(path))


def as_stored(path: Path) -> xr.DataTree:
    """Read a file that `make_reference` wrote as it is, and refuse one whose checksum is not that of its content.

    Raises
    ------
    ZooError
        If the file is damaged.
    """
    with xr.open_datatree(path, engine="h5netcdf") as opened:
        tree = opened.load()
    if checksum(tree) != tree.attrs["sha256"]:
        raise ZooError(
            f"The file {path} is damaged: its checksum is not that of its content. Install bnnzoo, or make the file, again."
        )
    return tree


def with_all_classes(tree: xr.DataTree) -> xr.DataTree:
    """Return a stored reference with the class that is not stored: probabilities sum to one."""
    group, result = tree["conditional"].to_dataset(), tree.copy()
    if "probs" in group:
        probs = group["probs"]
        last = (1 - probs.sum("class_id")).clip(min=0.0)  # the others are rounded
        last = last.expand_dims(class_id=[probs.sizes["class_id"]], axis=-1)
        result["conditional"] = xr.DataTree(
            group.drop_dims("class_id").assign(probs=xr.concat([probs, last], "class_id").transpose(*probs.dims))
        )
    return result


def predicted(tree: xr.DataTree) -> xr.DataArray:
    """Return the draws of predictions ``[chain, draw, obs_id, ...]`` in a tree: ``probs`` or ``mean``."""
    return moment(tree, first_moment(tree, "probs", "mean")).transpose(*SAMPLE_DIMS, "obs_id", ...)


def checksum(tree: xr.DataTree) -> str:
    """Return the SHA-256 of the numbers in a reference and of the data it was made from."""
    digest = hashlib.sha256(json.dumps(tree.attrs["fingerprint"]).encode())
    for group in STORED:
        if group in tree.children:
            for name, values in sorted(tree[group].to_dataset().data_vars.items()):
                digest.update(str(name).encode())
                digest.update(np.ascontiguousarray(values.to_numpy()).tobytes())
    return digest.hexdigest()
