"""The data of a card: the arguments of its model, for the fit and for predictions."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["CardData", "ZooError", "data_folder", "fingerprint", "line_data", "split_data"]

type Array = NDArray[Any]

VARIABLE = "BNNZOO_DATA"


class ZooError(ValueError):
    """What was asked of the zoo is not there; the message is one sentence."""


@dataclass(frozen=True, eq=False)
class CardData:
    """Training and test data of a card, as arguments of its model by name and in the model's order.

    Parameters
    ----------
    train : mapping of str to ndarray
        All arguments of the model, observations included.
    test : mapping of str to ndarray
        The same arguments for the rows at which the card predicts; observations may be missing.
    recipe : str
        Where the data come from, in one sentence.
    observed : tuple of str
        Which of the arguments are observations.
    y_scale : float
        Standard deviation by which the target was divided: the log density in original units is that of the standardised
        target minus ``log(y_scale)``.
    """

    train: Mapping[str, Array]
    test: Mapping[str, Array]
    recipe: str
    observed: tuple[str, ...] = ("y",)
    y_scale: float = 1.0

    @property
    def test_inputs(self) -> dict[str, Array]:
        """Return the test rows without observations."""
        return {name: values for name, values in self.test.items() if name not in self.observed}


def line_data(x: Array, y: Array, grid: Array, y_grid: Array, recipe: str) -> CardData:
    """Return the data of a model of one input: x [N], y [N] and a grid [M] with new observations [M].

    Examples
    --------
    >>> x = np.linspace(0.0, 1.0, 5)
    >>> line_data(x, x, x, x, "A line.").train["x"].shape
    (5, 1)
    """
    return CardData({"x": x[:, None], "y": y}, {"x": grid[:, None], "y": y_grid}, recipe)


def split_data(x: Array, y: Array, num_train: int, recipe: str, y_scale: float = 1.0) -> CardData:
    """Return data whose first ``num_train`` rows are for training and whose other rows are for predictions.

    Examples
    --------
    >>> split_data(np.zeros((5, 2)), np.zeros(5), 3, "Zeros.").test["x"].shape
    (2, 2)
    """
    train, test = slice(num_train), slice(num_train, None)
    return CardData({"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]}, recipe, y_scale=y_scale)


def data_folder(name: str, needs: str, folder: str | Path | None = None) -> Path:
    """Return the file or folder ``needs`` of the user's data, for the card ``name``.

    Parameters
    ----------
    name : str
        Of the card.
    needs : str
        Path below the folder of data.
    folder : str or Path, optional
        The folder of data. Default: that in the environment variable BNNZOO_DATA.

    Raises
    ------
    ZooError
        If there is no such folder or file.
    """
    root = folder or os.environ.get(VARIABLE)
    if not root:
        raise ZooError(
            f"The data of card {name!r} are not part of bnnzoo: put {needs!r} into a folder and name it, as "
            f"data(folder=...), --data or the environment variable {VARIABLE}."
        )
    path = Path(root) / needs
    if not path.exists():
        raise ZooError(f"Card {name!r} needs {needs!r}, which the folder of data {str(root)!r} does not have.")
    return path


def fingerprint(arrays: Mapping[str, Array]) -> list[float]:
    """Return a few numbers that tell arrays apart: the mean, the size and a weighted sum of each.

    Unlike a hash they do not change if another version of a library rounds differently.

    Examples
    --------
    >>> fingerprint({"x": np.ones((2, 3))})[:2]
    [1.0, 1.0]
    """
    numbers: list[float] = []
    for values in arrays.values():
        flat = np.asarray(values, dtype=float).ravel()
        weights = np.cos(np.arange(flat.size))
        numbers += [float(flat.mean()), float(np.abs(flat).mean()), float(flat @ weights), float(flat.size)]
    return numbers
