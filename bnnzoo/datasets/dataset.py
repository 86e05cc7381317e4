"""Data sets as named arrays in original units, and their training and test parts."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

__all__ = ["Dataset", "Split"]

Array = NDArray[Any]


@dataclass(frozen=True, eq=False)
class Split:
    """A training and a test part: ``x_train`` [N, D], ``y_train`` [N], ``x_test`` [M, D], ``y_test`` [M].

    Parameters
    ----------
    x_train, y_train, x_test, y_test : ndarray
        Inputs and targets.
    y_loc, y_scale : float
        Mean and standard deviation with which the targets were standardised; 0 and 1 in original units. Subtract
        ``log(y_scale)`` from a log density of standardised targets to obtain that in original units.
    """

    x_train: Array
    y_train: Array
    x_test: Array
    y_test: Array
    y_loc: float = 0.0
    y_scale: float = 1.0

    def standardized(self) -> "Split":
        """Standardise inputs and real targets by the means and standard deviations of the training part.

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
        loc, scale = self._target_units()
        return Split(
            scaler.transform(self.x_train),
            self.y_train if loc is None else (self.y_train - loc) / scale,
            scaler.transform(self.x_test),
            self.y_test if loc is None else (self.y_test - loc) / scale,
            self.y_loc if loc is None else self.y_loc + self.y_scale * loc,
            self.y_scale * scale,
        )

    def _target_units(self) -> tuple[float | None, float]:
        if not np.issubdtype(self.y_train.dtype, np.floating):
            return None, 1.0
        return float(self.y_train.mean()), float(self.y_train.std()) or 1.0


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

    def split(self, test_size: float = 0.2, seed: int = 0) -> Split:
        """Split at random into a training and a test part, stratified by class.

        Parameters
        ----------
        test_size : float
            Fraction of observations in the test part, between 0 and 1.
        seed : int
            Seed of the split.

        Returns
        -------
        Split

        Examples
        --------
        >>> from bnnzoo import datasets
        >>> import numpy as np
        >>> data = datasets.Dataset("ten", np.zeros((10, 2)), np.arange(10.0), ("a", "b"))
        >>> data.split(test_size=0.3).x_test.shape
        (3, 2)
        """
        labels = self.y if self.classes else None
        parts = train_test_split(self.x, self.y, test_size=test_size, random_state=seed, stratify=labels)
        x_train, x_test, y_train, y_test = parts
        return Split(x_train, y_train, x_test, y_test)
