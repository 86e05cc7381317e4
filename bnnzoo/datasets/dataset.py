"""Data sets as named arrays in original units, and their training and test parts."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

__all__ = ["Dataset", "Split"]

Array = NDArray[Any]
MAX_NAMES = 4
MAX_COLUMNS = 20
"""Inputs whose range the HTML form shows."""


@dataclass(frozen=True, eq=False)
class Split:
    """A training and a test part: ``x_train`` [N, D], ``y_train`` [N], ``x_test`` [M, D], ``y_test`` [M].

    If asked for, it also has a calibration part, ``x_calibration`` [K, D] and ``y_calibration`` [K]: for temperatures, the
    weights of a stack and conformal sets, which must see neither of the other two.

    Parameters
    ----------
    x_train, y_train, x_test, y_test : ndarray
        Inputs and targets.
    y_loc, y_scale : float
        Mean and standard deviation with which the targets were standardised; 0 and 1 in original units. Subtract
        ``log(y_scale)`` from a log density of standardised targets to obtain that in original units.
    x_calibration, y_calibration : ndarray, optional
        The calibration part; default: empty.
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    y_loc: float = 0.0
    y_scale: float = 1.0
    x_calibration: Array = field(default_factory=lambda: np.empty((0, 0)))
    y_calibration: Array = field(default_factory=lambda: np.empty(0))

    def __repr__(self) -> str:
        """Count rows and inputs, and say what the targets are; no numbers are printed."""
        parts = [f"{len(self.x_train)} + {len(self.x_test)} rows"]
        parts += [f"{len(self.x_calibration)} for calibration"] if len(self.x_calibration) else []
        inputs = " x ".join(str(size) for size in self.x_train.shape[1:]) or "1"
        is_standardised = (self.y_loc, self.y_scale) != (0.0, 1.0)
        kind = (
            "integers"
            if self.y_train.dtype.kind in "iub"
            else "standardised"
            if is_standardised
            else "in original units"
        )
        return f"{type(self).__name__}({', '.join(parts)}, {inputs} inputs, targets {kind})"

    def _repr_html_(self) -> str:
        """Return the same line, which unfolds to the ranges of the training part."""
        flat = self.x_train.reshape(len(self.x_train), -1)[:, :MAX_COLUMNS]
        columns = {f"input {k}": flat[:, k] for k in range(flat.shape[1])} | {
            "target": self.y_train.reshape(len(flat), -1)[:, 0]
        }
        ranges = pd.DataFrame(columns).agg(["mean", "std", "min", "max"]).T.to_html(float_format="{:.4g}".format)
        return f"<details><summary><code>{self!r}</code></summary>{ranges}</details>"

    def standardized(self) -> "Split":
        """Standardise inputs and real targets of all parts by the means and standard deviations of the training part.

        Constant inputs become 0. Integer targets, which are labels or counts, are unchanged.

        Returns
        -------
        Split

        Examples
        --------
        >>> from bnnzoo import datasets
        >>> import numpy as np
        >>> x_train, y_train = np.array([[1.0], [3.0]]), np.array([10.0, 30.0])
        >>> split = datasets.Split(x_train, y_train, np.array([[5.0]]), np.array([20.0]))
        >>> split.standardized().x_test, split.standardized().y_test
        (array([[3.]]), array([0.]))
        """
        scaler = StandardScaler().fit(self.x_train)
        loc, scale = None, 1.0
        if np.issubdtype(self.y_train.dtype, np.floating):
            loc, scale = float(self.y_train.mean()), float(self.y_train.std()) or 1.0
        return Split(
            scaler.transform(self.x_train),
            self.y_train if loc is None else (self.y_train - loc) / scale,
            scaler.transform(self.x_test),
            self.y_test if loc is None else (self.y_test - loc) / scale,
            self.y_loc if loc is None else self.y_loc + self.y_scale * loc,
            self.y_scale * scale,
            scaler.transform(self.x_calibration) if len(self.x_calibration) else self.x_calibration,
            self.y_calibration if loc is None else (self.y_calibration - loc) / scale,
        )


@dataclass(frozen=True, eq=False)
class Dataset:
    """Observations in original units: ``x`` [N, D] float, ``y`` [N] float for regression, int for classification.

    Parameters
    ----------
    name : str
        Name of the data set.
    x, y : ndarray
        Inputs and target.
    features : tuple of str
        Names of the D inputs.
    classes : tuple of str
        Names of the K classes in the order of the labels 0 to K - 1; empty for regression.
    """

    name: str
    x: Array
    y: Array
    features: tuple[str, ...]
    classes: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """Count rows and inputs, and name a few of these and of the classes; no numbers are printed."""
        inputs = " x ".join(str(size) for size in self.x.shape[1:]) or "1"
        parts = [f"{len(self.x)} rows", f"{inputs} inputs{_listed(self.features)}"]
        parts += [f"{len(self.classes)} classes{_listed(self.classes)}"] if self.classes else []
        return f"{type(self).__name__}({self.name}: {', '.join(parts)})"

    def split(self, test_size: float = 0.2, seed: int = 0, calibration_size: float = 0.0) -> Split:
        """Split at random into a training and a test part, and a calibration part if asked for, stratified by class.

        Parameters
        ----------
        test_size : float
            Fraction of observations in the test part, between 0 and 1.
        seed : int
            Seed of the split.
        calibration_size : float
            Fraction of observations in the calibration part, between 0 (none) and ``1 - test_size``. The test part is the
            same whatever it is: calibration observations are taken from the training part.

        Returns
        -------
        Split

        Raises
        ------
        ValueError
            If no observations are left for training.

        Examples
        --------
        >>> from bnnzoo import datasets
        >>> import numpy as np
        >>> data = datasets.Dataset("ten", np.zeros((10, 2)), np.arange(10.0), ("a", "b"))
        >>> data.split(test_size=0.3).x_test.shape
        (3, 2)
        >>> three = data.split(test_size=0.3, calibration_size=0.2)
        >>> len(three.x_train), len(three.x_calibration), len(three.x_test)
        (5, 2, 3)
        """
        if not 0 <= calibration_size < 1 - test_size:
            raise ValueError(
                f"split(test_size={test_size}, calibration_size={calibration_size}) leaves no observations for training: write a "
                f"calibration_size from 0 up to, but not including, {1 - test_size:g}."
            )
        labels = self.y if self.classes else None
        parts = train_test_split(self.x, self.y, test_size=test_size, random_state=seed, stratify=labels)
        x_train, x_test, y_train, y_test = parts
        if not calibration_size:
            return Split(x_train, y_train, x_test, y_test)
        rows = max(1, round(calibration_size * len(self.x)))
        labels = y_train if self.classes else None
        parts = train_test_split(x_train, y_train, test_size=rows, random_state=seed, stratify=labels)
        x_train, x_calibration, y_train, y_calibration = parts
        return Split(x_train, y_train, x_test, y_test, x_calibration=x_calibration, y_calibration=y_calibration)


def _listed(names: Sequence[str]) -> str:
    more = ", ..." if len(names) > MAX_NAMES else ""
    return f" ({', '.join(names[:MAX_NAMES])}{more})" if names else ""
