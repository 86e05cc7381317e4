"""A table that is ready for a network, and the error for tables that cannot be used."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["Missing", "Table", "TableError", "Task"]

Task = Literal["regression", "classification"]
Missing = Literal["refuse", "drop", "impute"]


class TableError(ValueError):
    """A table cannot be used.

    Parameters
    ----------
    *problems : str
        One sentence for each problem, which names the column and the row and says what to do. All of them are in the
        message, so that they can be corrected at once.
    """

    @property
    def problems(self) -> tuple[str, ...]:
        """The sentences, one for each problem."""
        return tuple(map(str, self.args))

    def __str__(self) -> str:
        if len(self.problems) == 1:
            return self.problems[0]
        listed = "\n".join(f"  {number}. {problem}" for number, problem in enumerate(self.problems, 1))
        return f"There are {len(self.problems)} problems:\n{listed}"


@dataclass(frozen=True)
class Table:
    """A table ready for a network: ``x`` is [N, D] float64, ``y`` is [N] (float64, or int64 class codes).

    Attributes
    ----------
    task : {"regression", "classification"}
    target : str
        Name of the target column.
    features : tuple of str
        Names of the D inputs; a category ``c`` of column ``k`` is named ``k=c``.
    classes : tuple of str
        Names of the K classes, in the order of the codes; empty for regression.
    x_train, x_test : ndarray
        Inputs, standardised by the training part.
    y_train, y_test : ndarray
        Targets, standardised by the training part (regression), or class codes (classification).
    y_loc, y_scale : float
        Mean and standard deviation of the target over the training part; 0 and 1 for classification.
    test_rows : ndarray
        Numbers of the held-out rows, counted from 1 in the frame as it was given.
    notes : tuple of str
        What was done to the frame besides splitting and standardising, one sentence each.
    beside_train, beside_test : mapping of str to ndarray
        Columns that are no inputs, such as an exposure, as they were.
    x_loc, x_scale : ndarray
        Mean and standard deviation of the numeric columns, which come first, over the training part.
    """

    task: Task
    target: str
    features: tuple[str, ...]
    classes: tuple[str, ...]
    x_train: NDArray[np.float64]
    y_train: NDArray[np.generic]
    x_test: NDArray[np.float64]
    y_test: NDArray[np.generic]
    y_loc: float
    y_scale: float
    test_rows: NDArray[np.int64]
    notes: tuple[str, ...] = ()
    beside_train: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    beside_test: Mapping[str, NDArray[np.generic]] = field(default_factory=dict)
    x_loc: NDArray[np.float64] = field(default_factory=lambda: np.zeros(0))
    x_scale: NDArray[np.float64] = field(default_factory=lambda: np.ones(0))
